"""The values of the users of one run: in memory, as a file, as a frame. U users.

Metrics make them and comparisons read them, so this room knows neither.
"""
