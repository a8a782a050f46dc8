"""Score matrices, read once: top-k, ties at the cutoff and ranks of the relevant items, exact and without a copy.

Values never depend on the way that was taken; `core/tensors/thresholds.py` picks the fastest.
Letters, the same everywhere: B users of a batch, N items, K cutoff, R relevant items, M flat rows.
"""
