"""What metrics of ranked lists remember: one evaluation of all that read a ranking, their users, and sums of these.

B users of a batch, N items, K cutoff, R relevant items.
"""
