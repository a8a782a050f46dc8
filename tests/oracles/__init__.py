"""What every metric means, in plain Python: the package is judged by it. Nothing here knows a tensor or the package."""
