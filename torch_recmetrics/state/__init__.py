"""What metrics remember, merge and exchange, in three kinds of tables; options and the registry of all metrics.

`ranked/` has the bases of the metrics of ranked lists.

An update that is refused leaves everything as it was; any split over batches and ranks gives one value.
B users of a batch, N items, K cutoff, R relevant items, M flat rows.
"""
