"""Collections: many metrics, one ranking of every update, one exchange between ranks.

An update is all or nothing, members stay complete metrics, and every value is that of the metric alone.
B users of a batch, N items, K cutoff; a member is a metric of the collection.
"""
