"""The methods of docs/alignment.md, one number at a time, in decimal with 60 digits.

Written from the contract alone: the engine takes no part. A test holds it to SciPy's
PchipInterpolator and Slerp.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import floor, tau

from common import arctangent, nearest_float, sine

UNIT = {"slerp": 4, "rot6d": 6}  # columns that belong together
# 2π rounded to a type, and from where a number of it holds no angle.
TURN = {
    "float32": (Decimal(nearest_float(Fraction(tau), "float32")), 2**24),
    "float64": (Decimal(tau), 2**53),
}


def norm(v: list) -> Decimal:
    return sum(x * x for x in v).sqrt()


def scaled(v: list, factor: Decimal) -> list:
    return [x * factor for x in v]


def unit(v: list) -> list:
    """NaN where there is no direction."""
    return scaled(v, 1 / norm(v)) if any(v) else [Decimal("NaN")] * len(v)


def dot(a: list, b: list) -> Decimal:
    return sum(x * y for x, y in zip(a, b, strict=True))


def line(a: list, b: list, weight: Decimal) -> list:
    return [x + weight * (y - x) for x, y in zip(a, b, strict=True)]


def slerp(a: list, b: list, weight: Decimal) -> list:
    """Along the shorter arc, with the sign of the earlier quaternion."""
    a, b = unit(a), unit(b)
    if dot(a, b) < 0:
        b = scaled(b, Decimal(-1))
    apart = norm([y - x for x, y in zip(a, b, strict=True)])
    together = norm([x + y for x, y in zip(a, b, strict=True)])
    angle = 2 * arctangent(apart / together)
    if angle < Decimal("1e-50"):
        return a
    parts = [sine((1 - weight) * angle) / sine(angle), sine(weight * angle) / sine(angle)]
    return [parts[0] * x + parts[1] * y for x, y in zip(a, b, strict=True)]


def orthonormal(v: list) -> list:
    """Gram–Schmidt on two columns of a rotation; of parallel ones the second has no direction."""
    first = unit(v[:3])
    along = dot(first, v[3:])
    rest = [y - along * x for x, y in zip(first, v[3:], strict=True)]
    if norm(rest) < Decimal("1e-50"):
        rest = [Decimal(0)] * 3
    return first + unit(rest)


def wrapped(x: Decimal, dtype: str) -> Decimal:
    """In [-π, π); NaN where the number holds no angle any more."""
    turn, most = TURN[dtype]
    if not abs(x) < most:
        return Decimal("NaN")
    return x - turn * floor((x + turn / 2) / turn)


def slope(stamps: list, column: list, i: int) -> Decimal:
    """The slope of a PCHIP curve at sample i, of three or more."""
    last = len(stamps) - 1
    inner = min(max(i, 1), last - 1)
    before, after = stamps[inner] - stamps[inner - 1], stamps[inner + 1] - stamps[inner]
    left = (column[inner] - column[inner - 1]) / before
    right = (column[inner + 1] - column[inner]) / after
    if 0 < i < last:
        if left * right <= 0:
            return left * 0
        first, second = 2 * after + before, after + 2 * before
        return (first + second) / (first / left + second / right)
    if i == last:
        before, after, left, right = after, before, right, left
    end = ((2 * before + after) * left - before * right) / (before + after)
    if end * left <= 0:
        return left * 0
    return 3 * left if left * right <= 0 and abs(end) > 3 * abs(left) else end


def pchip(stamps: list, column: list, i: int, x: Decimal) -> Decimal:
    """Between samples i and i + 1."""
    if len(stamps) == 2:
        return line(column[:1], column[1:], (x - stamps[0]) / (stamps[1] - stamps[0]))[0]
    width = stamps[i + 1] - stamps[i]
    t = (x - stamps[i]) / width
    rise = column[i + 1] - column[i]
    curve = t * t * (3 - 2 * t) * rise
    curve += t * (1 - t) * (1 - t) * width * slope(stamps, column, i)
    return column[i] + curve - t * t * (1 - t) * width * slope(stamps, column, i + 1)


def normal(method: str, v: list, dtype: str) -> list:
    """What a sample is where a target hits it, of the columns of one unit."""
    if method == "slerp":
        return unit(v)
    if method == "rot6d":
        return orthonormal(v)
    return [wrapped(v[0], dtype)] if method == "angle" else v


def between(method: str, stamps: list, columns: list, i: int, x: Decimal, dtype: str) -> list:
    """One unit of columns at x, between samples i and i + 1; `columns[s]` are those of sample s."""
    a, b = columns[i], columns[i + 1]
    weight = (x - stamps[i]) / (stamps[i + 1] - stamps[i])
    if method == "slerp":
        return slerp(a, b, weight)
    if method == "rot6d":
        return orthonormal(line(a, b, weight))
    if method == "angle":
        way = wrapped(b[0] - a[0], dtype)
        return [wrapped(wrapped(a[0], dtype) + weight * way, dtype)]
    if method == "cubic" and 0 <= weight <= 1:
        return [pchip(stamps, [c[0] for c in columns], i, x)]
    return line(a, b, weight)


def of_unit(method, stamps, columns, x, extrapolate, dtype):
    """One unit of columns at one target: its numbers, and what they may be off, relatively (or 0)."""
    last = len(stamps) - 1
    missing = [Decimal("NaN")] * len(columns[0]), 0
    exact = 1 if method in UNIT else 0

    def sample(i):
        v = normal(method, columns[i], dtype)
        return v, exact or int(v != columns[i])

    if x in stamps:
        return sample(stamps.index(x))
    if x < stamps[0] or x > stamps[-1]:
        if extrapolate == "nan":
            return missing
        if extrapolate == "clamp" or last == 0:
            return sample(0 if x < stamps[0] else last)
        assert method in ("linear", "cubic"), "this golden would raise"
        low = 0 if x < stamps[0] else last - 1
        factor = 2 * abs(float((x - stamps[low]) / (stamps[low + 1] - stamps[low])))
        return between("linear", stamps, columns, low, x, dtype), max(1, factor)
    high = next(i for i, stamp in enumerate(stamps) if stamp > x)
    if method in ("previous", "next", "nearest"):
        earlier = x - stamps[high - 1] <= stamps[high] - x
        take_low = method == "previous" or (method == "nearest" and earlier)
        return sample(high - 1 if take_low else high)
    return between(method, stamps, columns, high - 1, x, dtype), 1
