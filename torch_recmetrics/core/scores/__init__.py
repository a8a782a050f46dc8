"""Score matrices: the ranks of given items, and the best K. Two questions, each with one answer on every device.

A compiled loop gives it where the scores lie on a CPU and Numba is there (core/kernels), else torch.topk and
comparisons. Letters, the same everywhere: B users of a batch, N items, K cutoff, R relevant items, M flat rows.
"""
