"""What was measured, as JSON, text and a page with pictures; what each metric is, in words."""
