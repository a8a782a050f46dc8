"""Loops over the scores of each user: ranks of given items, with a cutoff and without one, and the K best.

The last two loops, `best_pairs` and `count_pairs`, read a catalogue: its scores are coarse, and the pairs that they
leave open are scored exactly.

Letters: B users, N items, T items asked about, K cutoff. Every loop gets the scores as one tuple, `rows`: (values,
bits, kind, stride, mask, mask_stride, seen_ids, n_items). Where `kind` is 0, the scores are `values`; where it is
BFLOAT16 or FLOAT16, each of `bits` holds the 16 bits of a score, and `values` is empty. A row begins every `stride`
numbers, a row of the mask every `mask_stride`. An empty mask hides nothing. An item that is hidden reads as -inf.

Two habits keep these loops fast, and quick to compile. Places that begin a loop over scores are unsigned: Numba lets
negative ones count from the end, and then vectorises nothing. Counts begin as np.int64(0): a function that is called
with a plain 0 would be compiled once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_recmetrics.core.kernels.runtime import compiled

Array = Any  # one of NumPy's
BFLOAT16, FLOAT16 = 1, 2
NARROW, WIDE = 64, 512  # columns of a block
LANES = 32  # numbers that a vectorised loop works on at once; what is left over is done one by one
FEW = 4  # items; where there are more, most are ruled out by maxima, which are fewer than scores
FIRST = 4096  # scores of which maxima are taken, those of the first items: they stay in the cache of a core
ITEMS = 4  # of a catalogue that are looked at together
USERS = 64  # of a thread: with fewer it reads parts of lines of the cache
PAIRS = 256  # that are scored together: a call for each would take longer than its score
HAS_NAN, HAS_TIES = 1, 2  # bits of the flags of a row
FAR = 1 << 30  # how many items stand above one that is not in the list
INF = np.float32(np.inf)


# -- one row ----------------------------------------------------------------------------------------------------------


@compiled
def load(rows: tuple[Any, ...], row: int, row_bits: Array, buffer: Array) -> None:
    """Write the scores of a row into a buffer, whose bits are `row_bits`."""
    values, bits, kind, stride, mask, mask_stride, seen_ids, n_items = rows
    begin, n = np.uint64(row * stride), np.uint64(n_items)
    if kind == 0:
        for i in range(n):
            buffer[i] = values[begin + i]
    elif kind == BFLOAT16:
        for i in range(n):
            row_bits[i] = np.int32(bits[begin + i]) << 16
    else:
        for i in range(n):
            size = np.int32(bits[begin + i] & 0x7FFF)
            exponents = 0x70000000 if size >= 0x7C00 else 0x38000000  # from those of float16; inf and NaN stay so
            row_bits[i] = ((np.int32(bits[begin + i]) & 0x8000) << 16) | ((size << 13) + exponents)
        for i in range(n):  # a subnormal got the 1 that other numbers have before their digits
            one = np.float32(2.0**-15) if buffer[i] > 0 else np.float32(-(2.0**-15))
            buffer[i] = (buffer[i] - one) * 2 if abs(buffer[i]) < np.float32(2.0**-14) else buffer[i]
    if mask.shape[0]:
        begin = np.uint64(row * mask_stride)
        for i in range(n):
            buffer[i] = buffer[i] if mask[begin + i] else -INF
    for place in range(seen_ids.shape[1]):
        if seen_ids[row, place] >= 0:
            buffer[seen_ids[row, place]] = -INF


@compiled
def source_of(rows: tuple[Any, ...], most_seen: int) -> Any:
    """Room for the bits of a row, what its scores are read from, and how far apart rows begin there.

    Scores are read in place, and the room is empty, where nothing is hidden but `most_seen` seen items or fewer.
    """
    values, _bits, kind, stride, mask, _mask_stride, seen_ids, n_items = rows
    in_place = kind == 0 and mask.shape[0] == 0 and seen_ids.shape[1] <= most_seen
    row_bits = np.empty(0 if in_place else n_items * values.itemsize // 4, np.int32)
    if in_place:
        return row_bits, values, stride
    return row_bits, np.frombuffer(row_bits, values.dtype), np.int64(0)  # a view would take longer to compile


@compiled
def count_nan(scores: Array, begin: int, end: int) -> Any:
    """How many scores are NaN."""
    count = np.int32(0)
    for i in range(np.uint64(begin), np.uint64(end)):
        count = np.int32(count + (scores[i] != scores[i]))
    return count


@compiled
def count_not_below(scores: Array, begin: int, end: int, least: float) -> Any:
    """How many scores are not below a number; NaN is one of them."""
    count = np.int32(0)
    for i in range(np.uint64(begin), np.uint64(end)):
        count = np.int32(count + (not scores[i] < least))
    return count


@compiled
def count_few(scores: Array, n_scores: int, levels: Array, n: int, above: Array, equal: Array) -> None:
    """Add how many of few scores are above each of n levels, and how many are equal to it; four scores at a time.

    Behind the scores there is room for three. Whatever stands behind the levels is counted too, up to a multiple of
    LANES.
    """
    one, padded = np.uint64(1), np.uint64((n + LANES - 1) // LANES * LANES)
    for i in range(n_scores, n_scores + 3):
        scores[i] = -INF
    for i in range(np.uint64(0), np.uint64(n_scores), np.uint64(4)):
        a, b, c, d = scores[i], scores[i + one], scores[i + one + one], scores[i + one + one + one]
        for place in range(padded):
            level = levels[place]
            higher = np.int32(np.int32(a > level) + np.int32(b > level))
            above[place] += np.int32(higher + np.int32(np.int32(c > level) + np.int32(d > level)))
            same = np.int32(np.int32(a == level) + np.int32(b == level))
            equal[place] += np.int32(same + np.int32(np.int32(c == level) + np.int32(d == level)))


@compiled
def count_levels(
    scores: Array, begin: int, end: int, lows: Array, highs: Array, n: int, above: Array, equal: Array
) -> None:
    """Add how many scores are above each of n ranges, and how many are in it; a level is one with equal ends."""
    for level in range(n):
        least, most = lows[level], highs[level]
        higher, not_lower = np.int32(0), np.int32(0)
        for i in range(np.uint64(begin), np.uint64(end)):
            higher = np.int32(higher + (scores[i] > most))
            not_lower = np.int32(not_lower + (scores[i] >= least))
        above[level] += higher
        equal[level] += not_lower - higher


@compiled
def find_maxima(scores: Array, begin: int, n: int, maxima: Array, nan_matters: bool) -> Any:
    """Write the maximum of each of G groups of n scores; how many scores are NaN, 0 where that does not matter.

    Scores of one group stand G apart. A maximum is one of the scores, or -inf; beside NaN it need not be the highest.
    """
    groups, n_nan = np.uint64(maxima.shape[0]), np.int32(0)
    maxima[:] = -INF
    step = 4 * maxima.shape[0]
    for first in range(begin, begin + n // step * step, step):
        of_a, of_b = np.uint64(first), np.uint64(first) + groups
        of_c, of_d = of_b + groups, of_b + groups + groups
        for i in range(groups):
            a, b, c, d = scores[of_a + i], scores[of_b + i], scores[of_c + i], scores[of_d + i]
            if nan_matters:
                n_nan = np.int32(n_nan + np.int32(np.int32(a != a) + np.int32(b != b)))
                n_nan = np.int32(n_nan + np.int32(np.int32(c != c) + np.int32(d != d)))
            a, c = a if a > b else b, c if c > d else d
            a = a if a > c else c
            maxima[i] = a if a > maxima[i] else maxima[i]
    for first in range(begin + n // step * step, begin + n, maxima.shape[0]):
        of_a = np.uint64(first)
        for i in range(np.uint64(min(maxima.shape[0], begin + n - first))):
            score = scores[of_a + i]
            if nan_matters:
                n_nan = np.int32(n_nan + (score != score))
            maxima[i] = score if score > maxima[i] else maxima[i]
    return n_nan


@compiled
def count_above(scores: Array, levels: Array, n: int, above: Array) -> None:
    """Add how many scores are above each of n levels, eight at a time, of which there are a multiple.

    Whatever stands behind the levels is counted too, up to a multiple of LANES.
    """
    one, padded = np.uint64(1), np.uint64((n + LANES - 1) // LANES * LANES)
    for i in range(np.uint64(0), np.uint64(scores.shape[0]), np.uint64(8)):
        j = i + np.uint64(4)
        a, b, c, d = scores[i], scores[i + one], scores[i + one + one], scores[i + one + one + one]
        e, f, g, h = scores[j], scores[j + one], scores[j + one + one], scores[j + one + one + one]
        for place in range(padded):
            level = levels[place]
            some = np.int32(np.int32(np.int32(a > level) + np.int32(b > level)) + np.int32(c > level))
            others = np.int32(np.int32(np.int32(d > level) + np.int32(e > level)) + np.int32(f > level))
            last = np.int32(np.int32(g > level) + np.int32(h > level))
            above[place] += np.int32(np.int32(some + others) + last)


@compiled
def pick_seen(scores: Array, start: int, seen_ids: Array, row: int, seen: Array, seen_in: Array) -> Any:
    """Write the scores of the seen items of a row, each item once, and row + 1 at their ids; how many there are."""
    n = np.int64(0)
    for place in range(seen.shape[0]):
        item = seen_ids[row, place]
        if item >= 0 and seen_in[item] <= row:
            seen[n], seen_in[item] = scores[start + item], row + 1
            n += 1
    return n


@compiled
def pick(scores: Array, begin: int, end: int, least: float, column: int, picked: Array, columns: Array, n: int) -> Any:
    """Append the scores that are not below a number to the n that were picked, and their columns; how many there are.

    NaN is not picked. Most of few neighbours hold nothing, and are passed over.
    """
    for left in range(begin, end, NARROW):
        right = min(left + NARROW, end)
        if count_not_below(scores, left, right, least):
            for i in range(np.uint64(left), np.uint64(right)):
                picked[n], columns[n] = scores[i], column + np.int64(i) - begin
                n += scores[i] >= least
    return n


@compiled
def count_higher(scores: Array, n: int, above: Array) -> None:
    """How many of n scores are above each of them; the buffer is filled up with -inf to a multiple of LANES.

    For few scores this is faster than a sort, whose branches nobody can foresee.
    """
    padded = (n + LANES - 1) // LANES * LANES
    scores[n:padded] = -INF
    for i in range(n):
        score, higher = scores[i], np.int32(0)
        for j in range(np.uint64(padded)):
            higher = np.int32(higher + (scores[j] > score))
        above[i] = higher


# -- ranks ------------------------------------------------------------------------------------------------------------


@compiled
def pick_shown(
    scores: Array,
    start: int,
    ids: Array,
    row: int,
    seen_in: Array,
    levels: Array,
    columns: Array,
    depth: int,
    above: Array,
) -> Any:
    """Write the scores of those items of a row that are not hidden, and their columns; how many there are.

    Until they are counted, `above` says `depth` of them, which stands for K and more, and FAR of those that are hidden.
    """
    n = np.int64(0)
    for column in range(ids.shape[1]):
        item = ids[row, column]
        if item >= 0 and (seen_in.shape[0] == 0 or seen_in[item] <= row):
            score = scores[start + item]
            levels[n], columns[n] = score, column
            above[row, column] = depth if score > -INF else FAR
            n += score > -INF
    return n


@compiled
def take_off(seen: Array, n_seen: int, levels: Array, n: int, above: Array, equal: Array) -> None:
    """Begin to count for n levels: below 0, by as much as seen items will be counted."""
    for level in range(n):
        above[level], equal[level] = 0, 0
    for i in range(n_seen):
        score = seen[i]
        for level in range(np.uint64(n)):
            above[level] -= score > levels[level]
            equal[level] -= score == levels[level]


@compiled
def keep_near(levels: Array, columns: Array, above: Array, equal: Array, n: int, depth: int) -> Any:
    """Keep those of n levels that have fewer than `depth` scores above; how many they are."""
    kept = np.int64(0)
    for level in range(n):
        near = above[level] < depth
        levels[kept], columns[kept] = levels[level], columns[level]
        above[kept], equal[kept] = above[level], equal[level]
        kept += near
    return kept


@compiled
def lowest(levels: Array, n: int) -> Any:
    """The lowest of n numbers."""
    least = levels.dtype.type(np.inf)
    for level in range(n):
        least = min(least, levels[level])
    return least


@compiled
def ranks_within(
    first_row: int,
    last_row: int,
    rows: tuple[Any, ...],
    ids: Array,
    depth: int,
    nan_matters: bool,
    above: Array,
    equal: Array,
    flags: Array,
) -> None:
    """Where items stand that are among the first K of their row.

    An item is dropped once K scores are known to be above it. Maxima of groups of scores come first: most items are
    dropped by these. Where at most one of 256 items was seen, no row is copied to hide them: they are counted like all
    others, and taken off beforehand.

    Args:
        ids: (B, T) int64, clamped, or -1.
        depth: K.
        nan_matters: whether rows with NaN must be flagged.
        above, equal: (B, T) int32: how many scores are higher (K: K and more, FAR: it is hidden), and how many are
            equal, its own included (1 where it is not among the first).
        flags: (B,) uint8: HAS_NAN and HAS_TIES, the latter where one that is among the first has an equal.
    """
    values, _bits, _kind, _stride, _mask, _mask_stride, seen_ids, n_items = rows
    row_bits, source, stride = source_of(rows, n_items // (4 * NARROW))
    n_seen = 0 if row_bits.shape[0] else seen_ids.shape[1]
    seen, seen_in = np.empty(n_seen, values.dtype), np.zeros(n_items if n_seen else 0, np.int32)  # the last row + 1
    high, high_columns = np.empty(WIDE + 4, values.dtype), np.empty(WIDE + 1, np.int32)
    columns, n_padded = np.empty(ids.shape[1], np.int32), (ids.shape[1] + LANES - 1) // LANES * LANES
    levels, n_above, n_equal = (
        np.empty(n_padded, values.dtype),
        np.empty(n_padded, np.int32),
        np.empty(n_padded, np.int32),
    )
    maxima = np.empty((2 * depth + LANES) // LANES * LANES, values.dtype)
    n_first = min(n_items, max(FIRST, 4 * maxima.shape[0])) if ids.shape[1] > FEW else np.int64(0)
    above[first_row:last_row], equal[first_row:last_row] = FAR, 1
    for row in range(first_row, last_row):
        start = row * stride
        if row_bits.shape[0]:
            load(rows, row, row_bits, source)
        # One pass from the first score to the last: what is read again, here and there, is in the cache then.
        n_nan = find_maxima(source, start, n_first, maxima, nan_matters) if n_first else np.int32(0)
        if nan_matters:
            n_nan += count_nan(source, start + n_first, start + n_items)
        n_hidden = pick_seen(source, start, seen_ids, row, seen, seen_in) if n_seen else np.int64(0)
        flags[row] = HAS_NAN if n_nan and n_nan != count_nan(seen, np.int64(0), n_hidden) else 0
        n = pick_shown(source, start, ids, row, seen_in, levels, columns, depth, above)
        take_off(seen, n_hidden, levels, n, n_above, n_equal)
        if n_first >= maxima.shape[0]:
            count_above(maxima, levels, n, n_above)
            n = keep_near(levels, columns, n_above, n_equal, n, depth)
            take_off(seen, n_hidden, levels, n, n_above, n_equal)
        begin, stop = start, start + n_items
        while begin < stop and n:
            end = min(stop, begin + WIDE)
            least = lowest(levels, n)
            n_high = count_not_below(source, begin, end, least)
            if n_high:
                if 2 * n < 16 + n_high:
                    count_levels(source, begin, end, levels, levels, n, n_above, n_equal)
                else:
                    n_picked = pick(source, begin, end, least, begin, high, high_columns, np.int64(0))
                    count_few(high, n_picked, levels, n, n_above, n_equal)
                n = keep_near(levels, columns, n_above, n_equal, n, depth)
            begin = end
        for i in range(n):
            above[row, columns[i]], equal[row, columns[i]] = n_above[i], n_equal[i]
            flags[row] |= HAS_TIES * (n_equal[i] > 1)


@compiled
def full_ranks(
    first_row: int,
    last_row: int,
    rows: tuple[Any, ...],
    nan_matters: bool,
    wanted: Array,
    above: Array,
    equal: Array,
    lengths: Array,
) -> None:
    """How many scores of its row are higher than each that is wanted, and how many are equal.

    Args:
        nan_matters: whether rows with NaN must be told; else NaN is like -inf.
        wanted: (B, T) nothing is counted for -inf.
        above, equal: (B, T) int64, zeros.
        lengths: (B,) int64: how many scores are above -inf; -1 where the row has a NaN.
    """
    n_items, n_wanted = rows[-1], wanted.shape[1]
    row_bits, source, stride = source_of(rows, np.int64(0))
    levels = np.empty(n_wanted + 1, rows[0].dtype)
    columns = np.empty(n_wanted, np.int32)
    n_above, n_equal = np.empty(n_wanted + 1, np.int32), np.empty(n_wanted + 1, np.int32)
    for row in range(first_row, last_row):
        start = row * stride
        if row_bits.shape[0]:
            load(rows, row, row_bits, source)
        n = np.int64(0)
        for column in range(n_wanted):
            if wanted[row, column] > -INF:
                levels[n], columns[n] = wanted[row, column], column
                n += 1
        levels[n] = -INF  # whatever is neither above it nor equal is NaN
        n_above[: n + 1] = 0
        n_equal[: n + 1] = 0
        for begin in range(start, start + n_items, WIDE):
            end = min(begin + WIDE, start + n_items)
            count_levels(source, begin, end, levels, levels, n + 1, n_above, n_equal)
        for i in range(n):
            above[row, columns[i]], equal[row, columns[i]] = n_above[i], n_equal[i]
        lengths[row] = -1 if nan_matters and n_above[n] + n_equal[n] != n_items else n_above[n]


# -- the best ---------------------------------------------------------------------------------------------------------


@compiled
def kth_largest(scores: Array, n: int, k: int) -> Any:
    """The k-th largest of the first n scores, which are put into another order."""
    left, right = 0, n - 1
    while left < right:
        pivot, i, j = scores[(left + right) // 2], left, right
        while i <= j:
            while scores[i] > pivot:
                i += 1
            while scores[j] < pivot:
                j -= 1
            if i <= j:
                scores[i], scores[j] = scores[j], scores[i]
                i += 1
                j -= 1
        if k - 1 <= j:
            right = j
        elif k - 1 >= i:
            left = i
        else:
            break
    return scores[k - 1]


@compiled
def keep_best(scores: Array, columns: Array, n: int, k: int, work: Array) -> Any:
    """Keep the k best of n scores in their order, of equal ones the first; the least of them."""
    for i in range(np.uint64(n)):  # an assignment of slices would take Numba another half a second
        work[i] = scores[i]
    least = kth_largest(work, n, k)
    n_equal = k
    for i in range(n):
        n_equal -= scores[i] > least
    place = 0
    for i in range(n):
        score = scores[i]
        keep = score > least or (score == least and n_equal > 0)
        n_equal -= score == least
        scores[place], columns[place] = score, columns[i]
        place += keep
    return least


@compiled
def lower_bound(scores: Array, begin: int, n: int, k: int, maxima: Array, above: Array) -> Any:
    """A number that at least k of n scores reach: the k-th largest of the maxima of groups of them."""
    n_groups = maxima.shape[0]
    find_maxima(scores, begin, n, maxima, False)
    if n_groups > 4 * NARROW:
        return kth_largest(maxima, n_groups, k)
    count_higher(maxima, n_groups, above)
    least = maxima.dtype.type(np.inf)
    for i in range(n_groups):
        least = min(least, maxima[i]) if above[i] < k else least
    return least


@compiled
def write_in_order(
    scores: Array,
    columns: Array,
    n: int,
    above: Array,
    n_placed: Array,
    row: int,
    best_scores: Array,
    best_ids: Array,
) -> None:
    """Write the k best of n scores, descending, and their columns to a row; of equal ones the first comes first."""
    k = best_scores.shape[1]
    for place in range(k):
        best_scores[row, place], best_ids[row, place] = -INF, 0
    n_placed[:] = 0
    for i in range(n):
        rank = min(above[i], np.int32(k))
        place = rank + n_placed[rank]
        n_placed[rank] += 1
        if place < k:
            best_scores[row, place], best_ids[row, place] = scores[i], columns[i]


@compiled
def best(
    first_row: int,
    last_row: int,
    rows: tuple[Any, ...],
    k: int,
    nan_matters: bool,
    best_scores: Array,
    best_ids: Array,
    n_kth: Array,
    flags: Array,
) -> None:
    """The k best items of each row, equal scores by rising id.

    Args:
        k: above 0.
        nan_matters: whether rows with NaN must be flagged.
        best_scores: (B, k) -inf where the row has fewer items that are shown.
        best_ids: (B, k) int64, 0 beside -inf.
        n_kth: (B,) int64: how many scores equal the k-th, itself included; 1 where the one before does not.
        flags: (B,) uint8: HAS_NAN.
    """
    values, n_items = rows[0], rows[-1]
    row_bits, source, stride = source_of(rows, np.int64(0))
    most = 2 * k + 2 * NARROW
    scores, work = np.empty(most + WIDE + LANES, values.dtype), np.empty(most + WIDE + LANES, values.dtype)
    maxima = np.empty((2 * k + NARROW) // LANES * LANES, values.dtype)
    columns, above = np.empty(scores.shape[0], np.int32), np.empty(scores.shape[0], np.int32)
    n_placed = np.empty(k + 1, np.int32)
    n_above, n_equal = np.empty(1, np.int32), np.empty(1, np.int32)
    lowest_shown = np.nextafter(values.dtype.type(-np.inf), INF)
    for row in range(first_row, last_row):
        start = row * stride
        if row_bits.shape[0]:
            load(rows, row, row_bits, source)
        n: Any = np.int64(0)
        flag = 0
        least = lowest_shown
        if n_items > 2 * maxima.shape[0]:
            least = max(least, lower_bound(source, start, n_items, k, maxima, above))
        for first in range(0, n_items, WIDE):
            begin, end = start + first, start + min(first + WIDE, n_items)
            n_high = count_not_below(source, begin, end, least)
            if n_high:
                n_before = n
                n = pick(source, begin, end, least, first, scores, columns, n)
                if n - n_before != n_high and nan_matters:
                    flag |= HAS_NAN
                if n >= most:
                    least = np.nextafter(keep_best(scores, columns, n, k, work), INF)
                    n = k
        count_higher(scores, n, above)
        write_in_order(scores, columns, n, above, n_placed, row, best_scores, best_ids)
        n_kth[row], flags[row] = 1, flag
        if n >= k and k > 1 and best_scores[row, k - 1] == best_scores[row, k - 2]:
            n_equal[0] = 0
            kth = best_scores[row, k - 1 : k]
            count_levels(source, start, start + n_items, kth, kth, np.int64(1), n_above, n_equal)
            n_kth[row] = n_equal[0]


# -- a catalogue ------------------------------------------------------------------------------------------------------


@compiled
def order_key(bits: int, most: int) -> Any:
    """An integer in the order of the numbers that have these bits; `most` is the largest of its dtype."""
    return bits if bits >= 0 else bits ^ most


@compiled
def set_least(user: int, kth: float, margin: float, rounding: float, least: tuple[Array, Array, Array]) -> None:
    """Write the key of the least coarse score that an item above the k-th may have; it is above that of -inf."""
    numbers, bits, keys = least
    bound = kth - (margin + rounding * abs(kth)) if kth > -np.inf else kth
    numbers[user] = bound
    if numbers[user] > bound:
        numbers[user] = np.nextafter(numbers[user], numbers.dtype.type(-np.inf))
    numbers[user] = max(numbers[user], np.finfo(numbers.dtype).min)
    # The first bits of a key are the key of a shorter number that is no higher.
    keys[user] = order_key(bits[user], np.iinfo(bits.dtype).max) >> (8 * (bits.itemsize - keys.itemsize))


@compiled
def pick_pairs(
    coarse: Array, first: int, first_row: int, last_row: int, least: Array, users: Array, items: Array
) -> Any:
    """Write pairs of some users whose key is not below that of the user; how many, and the item to go on at.

    Args:
        coarse: (N, B): see :func:`best_pairs`.
        first: the item to begin at.
        least: (B,) keys.
        users: room for PAIRS and ITEMS for each of the users, and for one more, which is written but does not count.
        items: the same.
    """
    flat, stride, of = coarse.reshape(-1), np.uint64(coarse.shape[1]), coarse.dtype.type
    n_users, keys, most = np.uint64(last_row - first_row), least[first_row:last_row], of(np.iinfo(coarse.dtype).max)
    flags, flagged = np.empty(n_users, np.bool_), np.empty(n_users, np.int64)
    n, item = np.int64(0), np.int64(first)
    while item < coarse.shape[0] and n < PAIRS:
        start, any_flag = np.uint64(item) * stride + np.uint64(first_row), of(0)
        second, third, last = start + stride, start + stride + stride, start + stride + stride + stride
        for i in range(n_users):
            a, b = of(order_key(flat[start + i], most)), of(order_key(flat[second + i], most))
            c, d = of(order_key(flat[third + i], most)), of(order_key(flat[last + i], most))
            a, c = a if a > b else b, c if c > d else d
            flag = (a if a > c else c) >= keys[i]
            flags[i], any_flag = flag, of(any_flag | flag)
        if any_flag:
            n_flagged = np.int64(0)
            for i in range(n_users):
                flagged[n_flagged] = i
                n_flagged += flags[i]
            for place in range(n_flagged):
                user = flagged[place]
                for column in range(item, item + ITEMS):
                    users[n], items[n] = first_row + user, column
                    n += of(order_key(coarse[column, first_row + user], most)) >= keys[user]
        item += ITEMS
    return n, item


@compiled
def halved_sum(terms: Array, n: int) -> Any:
    """The sum of the first n terms, which are overwritten: halves are added until one term is left."""
    if n == 0:
        return 0.0
    while n > 1:
        half = (n + 1) // 2
        for i in range(np.uint64(n - half)):
            terms[i] += terms[np.uint64(half) + i]
        n = half
    return terms[0]


@compiled
def score_pairs(
    users: Array,
    items: Array,
    n: int,
    tables: tuple[Array, Array, Array, Array],
    least_length: float,
    scores: Array,
) -> None:
    """Write the exact scores of n pairs of a user and an item: see :func:`best_pairs`."""
    user_rows, item_rows, lengths, bias = tables
    width = np.int64(user_rows.shape[1])
    terms = np.empty(width)
    for place in range(n):
        user, item = users[place], items[place]
        for i in range(np.uint64(width)):
            terms[i] = user_rows[user, i] * item_rows[item, i]
        score = halved_sum(terms, width)
        if lengths.shape[0]:
            for i in range(np.uint64(width)):
                terms[i] = np.float64(item_rows[item, i]) * item_rows[item, i]
            length = np.sqrt(halved_sum(terms, width))
            both = lengths[user] * length if length >= least_length else 0.0
            score = score / both if both > 0 else 0.0
        scores[place] = score + bias[item] if bias.shape[0] else score


@compiled
def best_pairs(
    first_block: int,
    last_block: int,
    coarse: Array,
    margin: Array,
    rounding: float,
    least: tuple[Array, Array, Array],
    first_item: int,
    tables: tuple[Array, Array, Array, Array],
    least_length: float,
    k: int,
    best: tuple[Array, Array, Array, Array],
) -> None:
    """Add the items of a chunk to the best of each user by their exact scores; coarse ones say which to look at.

    Args:
        first_block: of USERS users each.
        last_block: before this one the loop ends.
        coarse: (N, B) the bits of coarse scores; N is a multiple of ITEMS. An exact score is at most ``margin +
            rounding * its size`` from its own; -inf hides an item.
        margin: (B,) float64.
        least: room for (B,) numbers, float64 where the scores are, else float32, for the same memory as integers, and
            for (B,) keys of the dtype of `coarse`.
        first_item: the id of the first item of the chunk; the best so far have lower ones.
        tables: (B, d) users and their (B,) lengths for the cosine, (0,) for the product, float64; (N, d) items of the
            chunk, and their (N,) bias, float64, (0,) for none. In the order users, items, lengths, bias.
        least_length: an item that is shorter has no direction.
        k: above 0.
        best: (B, more than k) scores, float64, and ids, of which the first (B,) `n_best` count, by rising id; and (B,)
            what the score of another one must exceed.
    """
    best_scores, best_ids, n_best, kth = best
    first_row, last_row = first_block * USERS, min(last_block * USERS, coarse.shape[1])
    room = PAIRS + ITEMS * (last_row - first_row) + 1
    users, items, scores = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    work = np.empty(best_scores.shape[1])
    for user in range(first_row, last_row):
        set_least(user, kth[user], margin[user], rounding, least)
    item: Any = np.int64(0)
    while item < coarse.shape[0]:
        n_pairs, item = pick_pairs(coarse, item, first_row, last_row, least[2], users, items)
        score_pairs(users, items, n_pairs, tables, least_length, scores)
        for place in range(n_pairs):
            user = users[place]
            n = n_best[user]
            best_scores[user, n], best_ids[user, n] = scores[place], first_item + items[place]
            n_best[user] += scores[place] > kth[user]
            if n_best[user] == work.shape[0]:
                kth[user], n_best[user] = keep_best(best_scores[user], best_ids[user], n + 1, k, work), k
                set_least(user, kth[user], margin[user], rounding, least)


@compiled
def pick_inside(scores: Array, begin: int, end: int, least: float, most: float, column: int, columns: Array) -> Any:
    """Write the columns of the scores from `least` to `most`; how many there are."""
    n = np.int64(0)
    for left in range(begin, end, NARROW):
        right, count = min(left + NARROW, end), np.int32(0)
        for i in range(np.uint64(left), np.uint64(right)):
            count = np.int32(count + (least <= scores[i] <= most))
        if count:
            for i in range(np.uint64(left), np.uint64(right)):
                columns[n] = column + np.int64(i) - begin
                n += least <= scores[i] <= most
    return n


@compiled
def count_pairs(
    first_row: int,
    last_row: int,
    rows: tuple[Any, ...],
    low: Array,
    high: Array,
    first_item: int,
    tables: tuple[Array, Array, Array, Array],
    least_length: float,
    targets: Array,
    ids: Array,
    counts: Array,
) -> None:
    """Add how many items of a chunk stand above, beside and before some of each user, by their exact scores.

    Args:
        rows: coarse scores.
        low, high: (B, T) the least and the highest coarse score of an item that has the exact one of a target.
        first_item: the id of the first item of the chunk.
        tables: see :func:`best_pairs`.
        least_length: the same.
        targets: (B, T) float64, exact scores.
        ids: (B, T) the ids of the items that have them.
        counts: (3, B, T) int64: the items with a higher score, with an equal one, and of these with a lower id.
    """
    n_items, n_targets = rows[-1], targets.shape[1]
    _row_bits, source, stride = source_of(rows, np.int64(0))
    users, items, exact = np.empty(WIDE, np.int64), np.empty(WIDE + 1, np.int64), np.empty(WIDE)
    above, inside = np.empty(n_targets, np.int32), np.empty(n_targets, np.int32)
    for row in range(first_row, last_row):
        users[:] = row
        for first in range(0, n_items, WIDE):
            above[:] = 0
            inside[:] = 0
            begin, end = row * stride + first, row * stride + min(first + WIDE, n_items)
            count_levels(source, begin, end, low[row], high[row], n_targets, above, inside)
            for place in range(n_targets):
                counts[0, row, place] += above[place]
                if inside[place]:
                    n = pick_inside(source, begin, end, low[row, place], high[row, place], first, items)
                    score_pairs(users, items, n, tables, least_length, exact)
                    for i in range(n):
                        counts[0, row, place] += exact[i] > targets[row, place]
                        if exact[i] == targets[row, place]:
                            counts[1, row, place] += 1
                            counts[2, row, place] += first_item + items[i] < ids[row, place]
