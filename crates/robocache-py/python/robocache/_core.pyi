from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeVar, overload

__all__ = ["__version__", "command_line", "resample", "synchronize", "warmup"]

__version__: str

class _HasDLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

_Values = TypeVar("_Values", bound=_HasDLPack)
_Numbers = Sequence[Any] | int | float
_Method = Literal["linear", "nearest", "previous", "next"]
_Extrapolate = Literal["clamp", "linear", "nan", "error"]

@overload
def resample(
    values: _Values,
    times: _HasDLPack | _Numbers,
    targets: _HasDLPack | _Numbers,
    *,
    method: _Method = "linear",
    extrapolate: _Extrapolate = "clamp",
    lengths: _HasDLPack | _Numbers | None = None,
    target_lengths: _HasDLPack | _Numbers | None = None,
    max_gap: float | None = None,
    return_valid: Literal[False] = False,
    out: _Values | None = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    check: bool = True,
) -> _Values: ...
@overload
def resample(
    values: _Values,
    times: _HasDLPack | _Numbers,
    targets: _HasDLPack | _Numbers,
    *,
    method: _Method = "linear",
    extrapolate: _Extrapolate = "clamp",
    lengths: _HasDLPack | _Numbers | None = None,
    target_lengths: _HasDLPack | _Numbers | None = None,
    max_gap: float | None = None,
    return_valid: Literal[True],
    out: _Values | tuple[_Values, _Values] | None = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    check: bool = True,
) -> tuple[_Values, _Values]: ...
@overload
def resample(
    values: _Numbers,
    times: _HasDLPack | _Numbers,
    targets: _HasDLPack | _Numbers,
    *,
    method: _Method = "linear",
    extrapolate: _Extrapolate = "clamp",
    lengths: _HasDLPack | _Numbers | None = None,
    target_lengths: _HasDLPack | _Numbers | None = None,
    max_gap: float | None = None,
    return_valid: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    check: bool = True,
) -> Any: ...
def synchronize(timeout: float | None = None) -> None: ...
def warmup(op: Literal["resample"], *arguments: Any, **options: Any) -> None: ...
def command_line(arguments: list[str]) -> int: ...
