"""What every metric means, in plain Python: what the package is judged by. Nothing here knows a tensor or the package."""
