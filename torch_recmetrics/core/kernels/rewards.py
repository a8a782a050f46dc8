"""Sums of five columns over logged rows, and how these vary together; state/reward_sums.py says what they are for.

Every loop gets the rows as one tuple, `rows`: (reward, logged, policy, weights, expected, expected_policy, has_weights,
has_expected, has_expected_policy, max_weight, switch). The first six are (M,) float64, or (0,) where they are missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_recmetrics.core.kernels.runtime import compiled, compiled_sums

Array = Any  # one of NumPy's
# Others import these numbers; a loop imports none, as it is compiled again only where its own file changes.
COLUMNS = 5
PART = 1 << 17  # rows that one thread adds up
BLOCK = 1 << 10  # of them are read twice, the second time from the cache: for the means, and for what is around these
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100  # products and sums of such weights neither overflow nor lose digits
SMALLEST_LOGGED = 1e-70  # the error has the fourth power of 1 over it; what has so small a chance is never shown
LARGEST_TERM = 1e140  # of the columns of a row: their squares, and the sums of these, are no infinities
INF = np.inf
SMALLEST = np.finfo(np.float64).tiny  # a sum of 0 is no divisor


@compiled_sums
def terms_of(rows: tuple[Any, ...], i: int) -> Any:
    """The five columns of a row: v, v times the expected reward of the new policy, v w times the reward, v w, (v w)^2.

    w is policy / logged; where it exceeds `switch` the reward counts nothing.
    """
    reward, logged, policy, weights, expected, new, has_weights, has_expected, has_new, max_weight, switch = rows
    own = weights[i] if has_weights else 1.0
    model = new[i] if has_new else 0.0
    weight = policy[i] / logged[i]
    gain = reward[i] - (expected[i] if has_expected else 0.0) if weight <= switch else 0.0
    shown = own * min(weight, max_weight)
    return own, own * model, shown * gain, shown, shown * shown


@compiled_sums
def is_broken(rows: tuple[Any, ...], i: int) -> Any:
    """1 where a number of a row breaks a rule of core/layouts/logged_rows.py."""
    reward, logged, policy, weights, expected, new, has_weights, has_expected, has_new, _, _ = rows
    # First what is read whatever is given: behind a condition it would keep the loop from being vectorised.
    gain, shown, new_shown = reward[i], logged[i], policy[i]
    own = weights[i] if has_weights else 1.0
    model = expected[i] if has_expected else 0.0
    of_new = new[i] if has_new else 0.0
    holds = (shown >= SMALLEST_LOGGED) & (shown <= 1) & (new_shown >= 0) & (new_shown <= 1)
    holds = holds & (abs(gain) < INF) & (abs(model) < INF) & (abs(of_new) < INF)
    return 0.0 if holds & ((own == 0) | ((own >= SMALLEST_WEIGHT) & (own <= LARGEST_WEIGHT))) else 1.0


@compiled_sums
def sums_of(rows: tuple[Any, ...], first: int, last: int, largest: float) -> Any:
    """How many rules rows break, how many rows exceed the `largest` v w, and how many count; and the sums of their
    columns, and the means.

    A running maximum would keep the loop from being vectorised, so those above it are counted.
    """
    broken = above = n = s0 = s1 = s2 = s3 = s4 = 0.0
    for i in range(np.uint64(first), np.uint64(last)):
        x0, x1, x2, x3, x4 = terms_of(rows, i)
        broken += is_broken(rows, i)
        # Counted one by one: in one condition they would keep the loop from being vectorised too.
        broken += 1.0 if abs(x1) > LARGEST_TERM else 0.0
        broken += 1.0 if abs(x2) > LARGEST_TERM else 0.0
        broken += 1.0 if x4 > LARGEST_TERM else 0.0
        above += 1.0 if x3 > largest else 0.0
        n += 1.0 if x0 > 0 else 0.0
        s0, s1, s2, s3, s4 = s0 + x0, s1 + x1, s2 + x2, s3 + x3, s4 + x4
    m = max(n, 1.0)
    return broken, above, n, (s0, s1, s2, s3, s4), (s0 / m, s1 / m, s2 / m, s3 / m, s4 / m)


@compiled_sums
def products_of(
    rows: tuple[Any, ...], first: int, last: int, means: tuple[float, ...], expected: float, reward: float
) -> Any:
    """The sums of the products of what two columns are off their means, over the rows that count.

    The second and the third column are rests beside the ratios `expected` and `reward`, see core/tensors/scatter.py.
    """
    m0, m1, m2, m3, m4 = means
    p00 = p01 = p02 = p03 = p04 = p11 = p12 = p13 = p14 = p22 = p23 = p24 = p33 = p34 = p44 = 0.0
    for i in range(np.uint64(first), np.uint64(last)):
        x0, x1, x2, x3, x4 = terms_of(rows, i)
        n = 1.0 if x0 > 0 else 0.0
        x0, x1, x2, x3, x4 = x0 - n * m0, x1 - n * m1, x2 - n * m2, x3 - n * m3, x4 - n * m4
        x1, x2 = x1 - expected * x0, x2 - reward * x3
        p00, p01, p02, p03, p04 = p00 + x0 * x0, p01 + x0 * x1, p02 + x0 * x2, p03 + x0 * x3, p04 + x0 * x4
        p11, p12, p13, p14 = p11 + x1 * x1, p12 + x1 * x2, p13 + x1 * x3, p14 + x1 * x4
        p22, p23, p24 = p22 + x2 * x2, p23 + x2 * x3, p24 + x2 * x4
        p33, p34, p44 = p33 + x3 * x3, p34 + x3 * x4, p44 + x4 * x4
    rows_of_products = (p00, p01, p02, p03, p04), (p01, p11, p12, p13, p14), (p02, p12, p22, p23, p24)
    return *rows_of_products, (p03, p13, p23, p33, p34), (p04, p14, p24, p34, p44)


@compiled_sums
def ratios_with(scatter: Array, totals: Any) -> Any:
    """`ratios_of` of core/tensors/scatter.py, of the second and the third column, with the totals of a block."""
    own, expected, reward, weight, _ = totals
    to_own, to_weight = max(scatter[1] + own, SMALLEST), max(scatter[4] + weight, SMALLEST)
    return (scatter[2] + expected) / to_own, (scatter[3] + reward) / to_weight


@compiled_sums
def add_block(scatter: Array, n: float, totals: Any, means: Any, ratios: Any, around: Any) -> None:
    """Add a block to (1 + 5 + 25 + 5,), as core/tensors/scatter.py joins two parts; `ratios` are those of both."""
    before = scatter[0]
    between = before * n / max(before + n, 1.0)
    apart = scatter[1 : 1 + COLUMNS] / max(before, 1.0)
    for a in range(COLUMNS):
        apart[a] -= means[a]
        scatter[1 + a] += totals[a]
    scatter[0] += n
    products = scatter[1 + COLUMNS : -COLUMNS].reshape(COLUMNS, COLUMNS)
    for of, per, ratio in ((1, 0, ratios[0]), (2, 3, ratios[1])):
        shift = ratio - scatter[of - COLUMNS]
        apart[of] -= ratio * apart[per]
        products[:, of] -= shift * products[:, per]
        products[of] -= shift * products[per]
        scatter[of - COLUMNS] = ratio
    for a in range(COLUMNS):
        for b in range(COLUMNS):
            products[a, b] += around[a][b] + apart[a] * apart[b] * between


@compiled_sums
def add_rewards(first: int, last: int, rows: tuple[Any, ...], sums: Array, largest: Array, broken: Array) -> None:
    """Add parts of the rows to what is there.

    Args:
        sums: (parts, 1 + 5 + 25 + 5), as in core/tensors/scatter.py.
        largest: (parts,) the largest v w.
        broken: (parts,) how many rules they break.
    """
    for part in range(first, last):
        stop = min((part + 1) * PART, rows[0].shape[0])
        for begin in range(part * PART, stop, BLOCK):
            end = min(begin + BLOCK, stop)
            n_broken, n_above, n, totals, means = sums_of(rows, begin, end, largest[part])
            broken[part] += n_broken
            if n_above > 0:
                for i in range(begin, end):
                    largest[part] = max(largest[part], terms_of(rows, i)[3])
            ratios = ratios_with(sums[part], totals)
            add_block(sums[part], n, totals, means, ratios, products_of(rows, begin, end, means, *ratios))


@compiled
def group_scatter(rows: Array, groups: Array, terms: Array, scatter: Array) -> Any:
    """Add entries, a row and a group that it is in, to (G, 1 + 5 + 25 + 5) `scatter`, which is 0.

    Args:
        rows, groups: (E,) int64.
        terms: (M, 5) the columns of the rows; one whose first is 0 does not count, and holds zeros.

    Returns:
        Whether there are all these rows and groups; else the scatter means nothing.
    """
    rest = np.empty(COLUMNS)
    for entry in range(rows.shape[0]):
        if not (0 <= rows[entry] < terms.shape[0] and 0 <= groups[entry] < scatter.shape[0]):
            return False
        columns, of_group = terms[rows[entry]], scatter[groups[entry]]
        of_group[0] += columns[0] > 0
        for a in range(COLUMNS):
            of_group[1 + a] += columns[a]
    for group in range(scatter.shape[0]):
        own, expected, reward, weight = scatter[group, 1:COLUMNS]
        scatter[group, 1 - COLUMNS] = expected / max(own, SMALLEST)
        scatter[group, 2 - COLUMNS] = reward / max(weight, SMALLEST)
    for entry in range(rows.shape[0]):
        columns, of_group = terms[rows[entry]], scatter[groups[entry]]
        if columns[0] > 0:
            for a in range(COLUMNS):
                rest[a] = columns[a] - of_group[1 + a] / of_group[0]
            rest[1] -= of_group[1 - COLUMNS] * rest[0]
            rest[2] -= of_group[2 - COLUMNS] * rest[3]
            for a in range(COLUMNS):
                for b in range(COLUMNS):
                    of_group[1 + COLUMNS * (1 + a) + b] += rest[a] * rest[b]
    return True
