"""The metrics that users name, and nothing else: no file imports another.

A metric is a class with its declared options, its documentation, and a function that gives the value of each user.
B users of a batch, N items, K cutoff, R relevant items, M flat rows.
"""
