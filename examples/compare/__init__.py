"""Which of two recommenders is better, and whether that is beyond chance."""
