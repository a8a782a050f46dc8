"""Sizes found by measuring: they change time and memory, never a value.

Read them as attributes of this module, so that a test or an experiment can set another. Each group names the command
that measures it, run before and after a change. All were found on a CPU with 2 cores.
"""

from __future__ import annotations

# --- Chunks of large matrices (core/tensors/chunks.py): `python -m benchmarks ranking` ---

# Elements of one step that needs a buffer: on a CPU the buffer stays in the cache, elsewhere few large steps are best.
# A float32 sum of ones is exact up to 2^24 of them. Tiles of a long row have this width, so it is a multiple of every
# width of blocks.
STEP_ELEMENTS = 1 << 19
STEP_ELEMENTS_ELSEWHERE = 1 << 24
COMPARED_ELEMENTS = 1 << 18  # of a tile that is read many times
KEPT_BYTES = 1 << 23  # the largest buffer that a thread keeps: such a copy of scores (core/scores/matrix.py)

# --- Masks that are nearly empty (core/tensors/chunks.py): `python -m benchmarks batches --kinds dense` ---

# Search in words of eight in so many elements and more, unless a larger share of the words holds a True.
SPARSE_ELEMENTS = 1 << 17
SPARSE_SHARE = 1 / 8

# --- Sorts of long columns (core/tensors/column_sort.py): `python -m benchmarks auc`, `python -m benchmarks flat` ---

RACED_KEYS = 1 << 18  # from so many on, numpy or torch sorts, whichever is faster; fewer are left to numpy
SAMPLED_KEYS = 1 << 17  # that both sort to find that out: with fewer the times say too little
SORTED_BYTES = 1 << 22  # of a piece that torch sorts: with more it leaves the cache, with fewer merges take longer

# --- Sorts of rows (core/tensors/row_sort.py): `python -m benchmarks batches`, `python -m benchmarks catalogue` ---

REGISTER_BYTES = 1 << 11  # of a row: numpy sorts so many in registers, and longer rows up to six times slower

# --- Block maxima (core/scores/block_max.py): `python -m benchmarks ranking --only 0 3 4 7` ---

# Maxima over 256 columns are reduced faster than over 64; short rows have too few such blocks (16 ms against 30 in
# workload 0 without the narrow ones, 41 against 36 in workload 3 without the wide ones). Widths that are no multiple of
# 64 are several times slower.
NARROW_BLOCK, WIDE_BLOCK = 64, 256
# Wide blocks from so many per requested item on; below, rescanning candidates costs more than the reduction saves.
WIDE_BLOCKS_PER_ITEM = 16
# Rescan the blocks of seen items where they can be at most this share of a row. Beyond it a copy that hides the
# seen items is cheaper (workload 4: 58 ms with a rescan, 99 with a copy).
RESCANNED_SHARE = 1 / 6
FOLDED_BLOCKS = 128  # maxima of a row, or four per requested item, before a top-k of them

# --- Top-k of scores (core/scores/topk.py): `python -m benchmarks ranking --only 6 7` ---

BLOCKS_PER_ITEM = 4  # whole blocks of a row per requested item; with fewer torch.topk is faster
EXTRA_CANDIDATES = 128  # beyond four per requested item; with more a row holds masses of equal scores: use torch.topk

# --- Short rows (core/scores/column_groups.py): `python -m benchmarks batches` ---

SHORT_ROWS = 32  # with fewer users torch.topk is faster: numpy's steps cost 80 us before the first of them
SHORT_ELEMENTS = 1 << 21  # scores of one piece: with more, what is made of them leaves the cache
# With more columns, and more of them for one requested item, maxima of blocks are faster; later where there are few
# scores in all. `python -m benchmarks growth`
SHORT_COLUMNS, SHORT_PER_ITEM = 1 << 12, 1 << 9
SHORT_FEW, SHORT_PER_ITEM_OF_FEW = 1 << 21, 1 << 11
SORTED_ELEMENTS = 1 << 20  # of one piece of rows that are sorted whole
SORTED_WHOLE = REGISTER_BYTES // 8  # columns, of int64
# With fewer columns per requested item than the first number, take maxima over groups of so many columns.
COLUMN_GROUPS: tuple[tuple[float, int], ...] = ((25, 4), (700, 8), (float("inf"), 16))
MAXIMA_PER_RANK = 4  # fold the maxima while so many per requested item are left
EXTRA_HIGH = 512  # scores at the bound beyond four per requested item; with more a row holds masses of equal scores
READ_SHARE = 1 / 6  # of all scores in groups that hold a high one; with more, all scores are read to find these
READ_OF_MASSES = 1 / 10  # the same where masses of scores are equal
READ_FEW = 1 << 16  # scores that take less time than the steps of another way

# --- Ranks of relevant items in short rows (core/scores/target_ranks.py): `python -m benchmarks batches` ---

# With no more comparisons, each score is compared with each relevant item, and the id of each candidate.
COMPARED_AT_ONCE = 1 << 17
# Of the relevant items of a user that may be among the best: with more than the first number, those above all of them
# are read at once; with more than the second a top-k is faster.
COUNTED_ALONE, COUNTED_PER_USER = 2, 8
COMPARED_IN_ROWS = 1 << 24  # bytes; with more comparisons, for users with very many of them, use a top-k
ROWS_PER_USER = 2  # that are read whole where masses of scores are equal; with more a top-k is faster
CROWDED_USERS = 16  # one of so many with masses of equal scores is sorted apart in a top-k; with more use that of torch

# --- Users that wait to be evaluated (state/waiting.py): `python -m benchmarks batches --epoch 32768` ---

# Evaluate once so many users wait, or so many numbers in their lists, or in what is relevant to them with its padding:
# at most 328 bytes a user with 20 of both, 5 MiB in all. With fewer users the calls of an evaluation cost more than its
# numbers; more numbers leave the cache.
WAITING_USERS, WAITING_NUMBERS = 1 << 14, 1 << 19
HELD_NUMBERS = 1 << 22  # of users with a sample id, that are added up at once: 32 MiB
TIED_SHARE = 1 / 2  # of the users; up to it those with equal scores are evaluated apart, which costs most

# --- Ranks of few relevant items (core/scores/rank_counts.py): `python -m benchmarks ranking --only 0 2 3 5` ---

COLUMNS_PER_RANK = 2 * NARROW_BLOCK  # with fewer the block maxima rule out hardly any relevant item
FEW_TARGETS = 128  # relevant items of a user; with more, nobody has few
BLOCKS_PER_RANK = 2  # blocks to scan per rank of a user; with more use a top-k, which scans each of them once
# Sort the scores once a user has more relevant items; below that, counting the higher scores of each is cheaper.
# Whole lists show it: `python -m timeit -s "import torch, torch_recmetrics as t; m = t.MRR();
# x = torch.rand(256, 20000); i = x.topk(96).indices" "m.update(x, target_ids=i)"`.
COUNTED_TARGETS = 6

# --- Catalogue search (core/catalogue): `python -m benchmarks catalogue` ---

ITEM_BLOCK = 16  # items of a block whose maximum is taken
CHUNK_NUMBERS = 1 << 23  # in the scores and vectors of a chunk of items: what is made of them stays in the cache
PAIR_NUMBERS = 1 << 17  # in the vectors of the pairs of one step: the step stays in the cache
NORM_NUMBERS = 1 << 22  # in the vectors whose lengths are taken in one step
SEARCHED_USERS = 256  # of one search: with more, a matrix product is hardly faster
LIST_NUMBERS = 1 << 20  # in the running top-k: with very long lists one search takes fewer users
WAITING_PAIRS = 1 << 14  # candidates, or k per user if that is more, that wait to be scored exactly
# Bound the k-th best of a chunk by its block maxima once it has so many blocks per requested item. Where scores rise
# with the id, the best items fill whole blocks, and one pair in so many must be scored exactly.
CHUNK_BLOCKS_PER_ITEM = 16
BFLOAT16_CANDIDATES = 1 / 32  # of a chunk; if more must be scored exactly, float32 products replace those of bfloat16
COUNTED_ITEMS = 1 << 11  # of a chunk in which higher scores are counted: its scores of 256 users stay in the cache
SPARE_MARGIN = 1.5  # bounds of coarse scores that are wider by more leave too many pairs open
