"""Programs that show the metrics at work."""
