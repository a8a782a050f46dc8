"""Real processes: what starts them, and what they are asked to do. That they cannot be started is a failure."""
