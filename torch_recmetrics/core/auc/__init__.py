"""The AUC of rows of a score and a label: exact pairs from one sort, or bins in constant memory with a proven bound.

The same rows give the same value in any order, any batches and on any number of ranks; integer counts are exact.
B users of a batch, N items, K cutoff, R relevant items, M flat rows.
"""
