"""Loops over rows, compiled where Numba is there: array calls need many passes for what a loop says in one.

Each loop gets NumPy arrays that were checked and clamped before: nothing here looks at bounds, but sums by group, whose
rows and groups nobody has looked at. It writes into arrays that it is given. Its reference, in plain Python, stands in
its test.
"""
