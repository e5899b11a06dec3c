from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt

__all__ = [
    "Dataset",
    "Episode",
    "EpisodeInfo",
    "Episodes",
    "Finding",
    "Stream",
    "StreamInfo",
    "__version__",
    "command_line",
    "open_dataset",
    "resample",
    "synchronize",
    "warmup",
]

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

class Dataset:
    @property
    def format(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def fps(self) -> float | None: ...
    @property
    def tasks(self) -> list[str]: ...
    @property
    def streams(self) -> dict[str, StreamInfo]: ...
    @property
    def episodes(self) -> Episodes: ...
    def __len__(self) -> int: ...
    def episode(self, at: int) -> Episode: ...
    def check(self) -> list[Finding]: ...

class Episodes(Sequence[EpisodeInfo]):
    def __len__(self) -> int: ...
    def __getitem__(self, at: int) -> EpisodeInfo: ...  # type: ignore[override]

class EpisodeInfo:
    @property
    def index(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def tasks(self) -> list[str]: ...
    @property
    def duration(self) -> float: ...

class Episode:
    @property
    def index(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def tasks(self) -> list[str]: ...
    @property
    def duration(self) -> float: ...
    @property
    def streams(self) -> dict[str, Stream]: ...
    def __getitem__(self, name: str) -> Stream: ...
    def __len__(self) -> int: ...
    def __contains__(self, name: str) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...

class Stream:
    @property
    def info(self) -> StreamInfo: ...
    @property
    def times(self) -> npt.NDArray[np.int64]: ...
    @property
    def values(self) -> Any: ...
    def frames(self, start: int, stop: int) -> npt.NDArray[np.uint8]: ...
    def __len__(self) -> int: ...

class StreamInfo:
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def names(self) -> list[str] | None: ...
    @property
    def rate(self) -> float | None: ...
    @property
    def method(self) -> str | list[tuple[str, int, int]]: ...

class Finding:
    @property
    def level(self) -> Literal["error", "warning", "note"]: ...
    @property
    def code(self) -> str: ...
    @property
    def where(self) -> str: ...
    @property
    def episode(self) -> int | None: ...
    @property
    def stream(self) -> str | None: ...
    @property
    def message(self) -> str: ...

def open_dataset(path: Any) -> Dataset: ...
