"""Tensor operations that know nothing of metrics: checks, devices, chunks, groups of rows, keys, ids.

They are exact, out of place unless they say so, and read no value back from a device unless they must.
B users of a batch, N items, K cutoff, R relevant items, M flat rows.
"""
