"""What ranks send each other: sums, rows, and who has reached a collective.

All ranks take the same steps, also one without rows; a rank that waits in vain names the missing ones.
B users of a batch, N items, K cutoff, R relevant items, M flat rows.
"""
