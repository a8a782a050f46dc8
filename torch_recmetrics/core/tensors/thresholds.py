"""Sizes found by measuring: they change time and memory, never a value.

Read them as attributes of this module, so that a test or an experiment can set another. Each group names the command
that measures it, run before and after a change. All were found on a CPU with 2 cores.
"""

from __future__ import annotations

# --- Chunks of large matrices (core/tensors/chunks.py): `python -m benchmarks ranking` ---

# Elements of one step that needs a buffer: on a CPU the buffer stays in the cache, elsewhere few large steps are best.
STEP_ELEMENTS = 1 << 19
STEP_ELEMENTS_ELSEWHERE = 1 << 26

# --- Scores (core/scores) ---

# Without compiled loops: columns of a block of a long row, whose maximum is looked at first, and blocks for each of the
# K best; with fewer torch.topk alone is faster.
BLOCK, BLOCKS_PER_ITEM = 64, 4
# Wanted scores, or ids, of whole rows; with more a row is sorted: without compiled loops, and with them.
COUNTED_TARGETS, LOOPED_TARGETS = 6, 128
LOOPED_ITEMS = 1 << 10  # best items of a row that a compiled loop looks for; of more torch.topk is as fast

# --- Users that wait to be evaluated (state/ranked/waiting.py): `python -m benchmarks batches` ---

# Evaluate once so many numbers wait: of the lists of users, of what is relevant to them, or of their values. On a CPU
# these are SERIAL_NUMBERS; on other devices few large steps are best.
WAITING_NUMBERS_ELSEWHERE = 1 << 19

# --- Not tuned: torch makes a step of so many numbers without threads (at::internal::GRAIN_SIZE is 32,768) ---

SERIAL_NUMBERS = 32_000  # threads of torch stall where another process holds a core

# --- Catalogue search (core/catalogue): `python -m benchmarks catalogue` ---

# Items of a block whose maximum is looked at first, without compiled loops; divides PIECE. With them chunks hold whole
# blocks too: a multiple of `ITEMS` in core/kernels/score_rows.py, which are read together.
ITEM_BLOCK = 16
PIECE = 512  # items that are counted together: numpy sorts so many in registers, and longer rows up to six times slower
CHUNK_NUMBERS = 1 << 23  # in the scores and vectors of a chunk of items: what is made of them stays in the cache
SEARCHED_USERS = 256  # of one search: with more, a matrix product is hardly faster
