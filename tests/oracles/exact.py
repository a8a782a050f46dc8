"""Numbers beyond the floats, as fractions."""

from __future__ import annotations

import functools
from fractions import Fraction

LN_2 = Fraction("0.693147180559945309417232121458176568075500134360255254120680009493393621969694715605863326996418687")


@functools.cache
def power_of_two_less_one(g: Fraction) -> Fraction:
    """2^g - 1, to 30 digits and more: the whole part exactly, the rest by the series of exp."""
    whole = int(g)
    x = (g - whole) * LN_2
    digits = 1 << (1200 if g < 1 else 200)
    x = Fraction(round(x * digits), digits)
    term, rest = x, x
    for n in range(2, 40):
        term = term * x / n
        rest += term
        if abs(term) * 10**40 < abs(rest):
            break
    return (1 << whole) * (1 + rest) - 1 if whole else rest
