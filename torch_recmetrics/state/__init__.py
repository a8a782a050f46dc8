"""What metrics remember, merge and exchange; options, evaluation and the registry of all metrics.

An update that is refused leaves everything as it was; any split over batches and ranks gives one value.
B users of a batch, N items, K cutoff, R relevant items, M flat rows.
"""
