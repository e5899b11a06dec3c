"""How far a long call is, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def bar() -> Callable[[int, int], None]:
    """A function of done and total that draws a bar; where nobody watches it draws nothing but the end."""
    began = last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        is_watched = sys.stderr is not None and sys.stderr.isatty()
        if sys.stderr is None or (done < total and (not is_watched or now - last < 0.1)):
            return
        last = now
        full = 30 * done // max(total, 1)
        line = f"robocache [{'#' * full}{'.' * (30 - full)}] {done}/{total} {now - began:.1f} s"
        print(line, end="\n" if done == total else "\r", file=sys.stderr, flush=True)

    return show
