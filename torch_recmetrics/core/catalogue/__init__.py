"""The best items of a catalogue, and ranks in it, from embeddings: exact to the bit, in bounded memory.

Results never depend on chunk sizes, kernels, threads, processes or the other users of a call.
Letters, the same everywhere: B users of a batch, N items, K cutoff, R relevant items, M flat rows; here d numbers of an
embedding and P pairs of a user and an item too. `seen_ids` are (B, S) ids below N that are hidden, or -1, anywhere and
any number of times; `chunk_size` is the number of items of one step, None for the fastest.
"""
