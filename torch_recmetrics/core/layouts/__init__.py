"""The arguments of `update`, in any layout, made into a `Ranking`.

A layout is decided once, with its shapes and devices; rules about values are raised before anything is counted.
B users of a batch, N items, K cutoff, R relevant items, M flat rows.
"""
