"""Functions that are written as source text, as `dataclass` writes its own."""

from __future__ import annotations

import linecache
from typing import Any


def written(name: str, text: str, space: dict[str, Any]) -> Any:
    """The function that a source text defines, in a namespace; tracebacks show its lines."""
    file = f"<robocache {name}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), space)
    return space[name]
