"""`Ranking`, the one thing that every top-k metric reads, and its sums under every tie rule, cut and uncut.

It knows neither where the lists came from nor what is made of the sums.
B users of a batch, N items, K cutoff, R relevant items, M flat rows.
D ranks of a list that were kept, T places for relevant items.
"""
