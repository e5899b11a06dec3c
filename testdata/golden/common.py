"""What the scripts that make goldens share: bit patterns of numbers, and rounding to them once.

Only the standard library computes here, so that every machine and every version of NumPy makes the
same files. Where roots and sines are needed, `decimal` takes them with 60 digits.

A tensor is written as {"dtype", "shape", "bits"}: bits are the elements in row-major order, each the
hexadecimal digits of its bit pattern as an unsigned integer, most significant digit first ("3f800000"
is 1.0f32, "ffffffffffffffff" is -1i64).

The files of `resample` have lists of them, and a format of their own. In all others bits are one text
with blanks between them, and integers and bools are written as "numbers" instead. These files are
{"cases": [case, ...]}, and a case is

    name            what it shows
    op              the function of robocache
    arguments       what it is called with, by name: a tensor, a list of `streams` with arguments of
                    their own, or the plain value
    expect          the results by name, each a tensor (or null where there is none)
    tolerance       by the name of a result, how far its elements may be from what is expected: a list,
                    an absolute number for each in row-major order, or a number, relative to the
                    element. 0, and a result without an entry: the same bits. A NaN stands for any NaN.
"""

from __future__ import annotations

import decimal
import json
import struct
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

EPOCH = 1_760_000_000_000_000_000
NAN = float("nan")
INF = float("inf")
decimal.setcontext(decimal.Context(prec=60, Emin=-9999, Emax=9999, traps=[]))

# dtype -> (struct codes of the number and of its bits, bytes)
CODES = {
    "float16": ("<e", "<H", 2),
    "float32": ("<f", "<I", 4),
    "float64": ("<d", "<Q", 8),
    "int64": ("<q", "<Q", 8),
    "int32": ("<i", "<I", 4),
    "int8": ("<b", "<B", 1),
    "uint16": ("<H", "<H", 2),
    "uint8": ("<B", "<B", 1),
    "bool": ("<?", "<B", 1),
}
# dtype -> (bits of the significand, smallest exponent of its last bit, largest finite value)
FORMATS = {
    "float16": (11, -24, (2**11 - 1) * 2**5),
    "float32": (24, -149, (2**24 - 1) * 2**104),
    "float64": (53, -1074, (2**53 - 1) * 2**971),
}


def pattern(number, dtype: str) -> str:
    code, unsigned, size = CODES[dtype]
    if dtype in ("float16", "float32") and number == number:
        assert struct.unpack(code, struct.pack(code, number))[0] == number, number
    (word,) = struct.unpack(unsigned, struct.pack(code, number))
    return f"{word:0{2 * size}x}"


def nearest_float(exact: Fraction, dtype: str) -> float:
    """The float of `dtype` nearest to `exact`, ties to even, rounded exactly once."""
    digits, lowest, largest = FORMATS[dtype]
    if exact == 0:
        return 0.0
    exponent = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    step = max(exponent - digits, lowest)
    while step > lowest and abs(exact) < Fraction(2) ** (step + digits - 1):
        step -= 1
    while abs(exact) >= Fraction(2) ** (step + digits):
        step += 1
    rounded = round(exact / Fraction(2) ** step) * Fraction(2) ** step  # round() ties to even
    assert abs(rounded) <= largest, "a golden must not overflow"
    return float(rounded)


def rounded(number, dtype: str):
    """`number` as an element of `dtype`; what is no finite number, and -0, stays as it is."""
    if dtype not in FORMATS:
        assert number == int(number), number
        return int(number)
    if number != number or number in (INF, -INF) or number == 0:
        return float(number)
    return nearest_float(Fraction(number), dtype)


def array(numbers, dtype: str, inner: tuple = ()) -> dict:
    """As `tensor`, but bits as one text, and integers as numbers.

    `inner` are the last axes of a list that is empty.
    """
    made = tensor(numbers, dtype)
    shape = made["shape"] + (list(inner) if 0 in made["shape"] else [])
    if dtype in FORMATS:
        return {"dtype": dtype, "shape": shape, "bits": " ".join(made["bits"])}
    return {"dtype": dtype, "shape": shape, "numbers": [int(x) for x in flat(numbers)]}


def tensor(numbers, dtype: str) -> dict:
    """Nested lists as {"dtype", "shape", "bits"}; a number is a tensor without axes."""
    shape, level = [], numbers
    while isinstance(level, list):
        shape.append(len(level))
        level = level[0] if level else None
    return {"dtype": dtype, "shape": shape, "bits": [pattern(x, dtype) for x in flat(numbers)]}


def flat(numbers) -> list:
    """All numbers of nested lists, in row-major order."""
    if not isinstance(numbers, list):
        return [numbers]
    return [x for inner in numbers for x in flat(inner)]


def nested(numbers, change):
    """Nested lists with `change` made to every number."""
    if isinstance(numbers, list):
        return [nested(inner, change) for inner in numbers]
    return change(numbers)


def short(bound: float) -> float:
    """A bound with one digit, so that it reads well."""
    return float(f"{bound:.0e}") if bound else 0


def write(op: str, files: dict) -> None:
    """Writes {name: function that makes cases} beside the script, or where its caller says."""
    default = Path(__file__).resolve().parent / op
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in files.items():
        lines = ",\n".join(json.dumps(made, allow_nan=False) for made in make())
        (folder / f"{name}.json").write_text('{"cases": [\n' + lines + "\n]}\n")


def sine(x: Decimal) -> Decimal:
    """By its series; for angles up to pi."""
    term, total, n = x, x, 1
    while abs(term) > Decimal("1e-70"):
        n += 2
        term = -term * x * x / (n * (n - 1))
        total += term
    return total


def arctangent(x: Decimal) -> Decimal:
    """By its series, after the angle was halved until that ends soon."""
    halved = 0
    while abs(x) > Decimal("0.01"):
        x = x / (1 + (1 + x * x).sqrt())
        halved += 1
    power, total, n = x, x, 1
    while abs(power) > Decimal("1e-70"):
        n += 2
        power = -power * x * x
        total += power / n
    return total * 2**halved
