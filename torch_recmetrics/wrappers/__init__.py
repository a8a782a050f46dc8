"""Metrics around metrics: the same numbers for each of S slices of the users, and for R resamples of them.

One pass: values are computed once, and their sums are scattered. What is remembered adds up, merges and travels between
ranks as the states of every metric do. B users of a batch, S slices, R replicates, C columns of values, E entries
(a row and a slice that it is in).
"""
