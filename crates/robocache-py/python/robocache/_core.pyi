from collections.abc import Callable, ItemsView, Iterator, KeysView, Sequence, ValuesView
from os import PathLike
from typing import Any, Generic, Literal, Protocol, TypeVar, final, overload

import numpy as np
import numpy.typing as npt

from robocache._depth import DepthImage
from robocache._stream import Stream as FusedStream

__all__ = [
    "DTYPES",
    "METHODS",
    "ROTATIONS",
    "Batches",
    "Cache",
    "CacheEpisode",
    "CacheEpisodes",
    "CacheStream",
    "CacheStreamInfo",
    "Camera",
    "Dataset",
    "Episode",
    "EpisodeInfo",
    "Episodes",
    "Finding",
    "MemoryRecorder",
    "Order",
    "Robot",
    "Stream",
    "StreamInfo",
    "Windows",
    "__version__",
    "below_torch",
    "call_counts",
    "command_line",
    "crop_box",
    "device_memory",
    "did_you_mean",
    "farthest_points",
    "fk",
    "fk_backward",
    "fk_jacobian",
    "fuse",
    "gather_voxels",
    "group_points",
    "ik",
    "ingest_dataset",
    "jacobian",
    "joint_velocity",
    "open_cache",
    "open_dataset",
    "plan_call",
    "promoted",
    "resample",
    "resample_backward",
    "robot_joints",
    "rotation_backward",
    "rotation_convert",
    "synchronize",
    "torch_must_see",
    "transform_points",
    "unproject",
    "voxelize",
    "voxelize_backward",
    "warmup",
    "watch_calls",
]

__version__: str
DTYPES: tuple[str, ...]
METHODS: tuple[str, ...]
ROTATIONS: dict[str, tuple[int, ...]]

class _HasDLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

_T = TypeVar("_T")
_D = TypeVar("_D")
_Values = TypeVar("_Values", bound=_HasDLPack)
_Numbers = Sequence[Any] | int | float
_Method = (
    Literal["linear", "nearest", "previous", "next", "cubic", "slerp", "angle", "rot6d"]
    | Sequence[tuple[str, int, int]]
)
_Three = Sequence[Any] | _HasDLPack
_Reduce = Literal["occupancy", "count", "sum", "mean", "max", "min"]
_Op = Literal[
    "crop_box",
    "farthest_points",
    "fk",
    "fuse",
    "ik",
    "jacobian",
    "joint_velocity",
    "resample",
    "rotation.convert",
    "transform_points",
    "unproject",
    "voxelize",
    "voxelize_depth",
]
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
    scale: _HasDLPack | float | None = None,
    out_dtype: Any = None,
    return_valid: Literal[False] = False,
    out: _Values | None = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
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
    scale: _HasDLPack | float | None = None,
    out_dtype: Any = None,
    return_valid: Literal[True],
    out: _Values | tuple[_Values, _Values] | None = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
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
    scale: _HasDLPack | float | None = None,
    out_dtype: Any = None,
    return_valid: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
    check: bool = True,
) -> Any: ...
def resample_backward(
    grad: _Values,
    values: _Values | None,
    times: _HasDLPack | _Numbers,
    targets: _HasDLPack | _Numbers,
    *,
    shape: Sequence[int],
    method: _Method = "linear",
    extrapolate: _Extrapolate = "clamp",
    lengths: _HasDLPack | _Numbers | None = None,
    target_lengths: _HasDLPack | _Numbers | None = None,
    check: bool = True,
) -> _Values: ...
def below_torch(kernel: Callable[..., Any], *arguments: Any) -> Any: ...
def torch_must_see(arguments: tuple[Any, ...]) -> bool: ...
def promoted(names: Sequence[str]) -> str | None: ...
def fuse(
    streams: Sequence[FusedStream],
    targets: _HasDLPack | _Numbers,
    *,
    out_dtype: Any = None,
    extrapolate: _Extrapolate = "clamp",
    target_lengths: _HasDLPack | _Numbers | None = None,
    return_valid: bool = False,
    return_age: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
    check: bool = True,
) -> Any: ...
def voxelize(
    points: _HasDLPack | _Numbers | DepthImage,
    features: _HasDLPack | _Numbers | None = None,
    *,
    origin: _Three,
    voxel_size: _Three | float,
    shape: _Three,
    reduce: _Reduce = "occupancy",
    lengths: _HasDLPack | _Numbers | None = None,
    dtype: Any = None,
    fill: float = 0,
    return_counts: bool = False,
    return_dropped: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
    check: bool = True,
) -> Any: ...
def group_points(
    points: _HasDLPack | _Numbers | DepthImage,
    *,
    origin: _Three,
    voxel_size: _Three | float,
    shape: _Three,
    lengths: _HasDLPack | _Numbers | None = None,
    max_voxels: int | None = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
    check: bool = True,
) -> tuple[Any, Any, Any, Any, Any, Any]: ...
def gather_voxels(
    points: _HasDLPack | _Numbers | DepthImage,
    features: _HasDLPack | _Numbers | None,
    groups: tuple[Any, Any, Any, Any, Any, Any],
    rows: int,
    *,
    origin: _Three,
    voxel_size: _Three | float,
    shape: _Three,
    reduce: _Reduce | None = None,
    dtype: Any = None,
    max_points: int | None = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
) -> tuple[Any, ...]: ...
def voxelize_backward(
    points: Any,
    features: _Values,
    grad: Any,
    groups: tuple[Any, Any, Any, Any, Any, Any],
    *,
    reduce: _Reduce,
    sparse: bool = False,
    stream: Any = None,
) -> _Values: ...
def transform_points(
    points: _Values,
    pose: _Three,
    *,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> _Values: ...
def crop_box(
    points: _HasDLPack | _Numbers,
    low: _Three,
    high: _Three,
    *,
    lengths: _HasDLPack | _Numbers | None = None,
    compact: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
    check: bool = True,
) -> Any: ...
def unproject(
    depth: _HasDLPack | _Numbers,
    intrinsics: _HasDLPack | _Numbers,
    extrinsics: _HasDLPack | _Numbers | None = None,
    depth_scale: float = 0.001,
    *,
    return_valid: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> Any: ...
def farthest_points(
    points: _HasDLPack | _Numbers,
    k: int,
    start: int = 0,
    *,
    lengths: _HasDLPack | _Numbers | None = None,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
    check: bool = True,
) -> Any: ...
def fk(
    q: _Values,
    robot: str,
    places: Sequence[int],
    single: bool,
    *,
    out: _Values | None = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> _Values: ...
def jacobian(
    q: _Values,
    robot: str,
    places: Sequence[int],
    single: bool,
    *,
    out: _Values | None = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> _Values: ...
def fk_jacobian(
    q: _Values,
    robot: str,
    places: Sequence[int],
    single: bool,
    *,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> tuple[_Values, _Values]: ...
def fk_backward(
    q: _Values, pose: Any | None, jacobian: Any | None, robot: str, places: Sequence[int]
) -> _Values: ...
def joint_velocity(
    q: _Values,
    twist: _HasDLPack | _Numbers,
    robot: str,
    places: Sequence[int],
    damping: float,
    *,
    out: _Values | None = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> _Values: ...
def ik(
    pose: _Values,
    q0: _HasDLPack | _Numbers | None,
    robot: str,
    places: Sequence[int],
    position_tol: float,
    rotation_tol: float,
    max_iterations: int,
    seeds: int,
    limits: bool,
    *,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> tuple[Any, Any, Any, Any, Any]: ...
def robot_joints(robot: str) -> int: ...
def rotation_convert(
    x: _Values,
    source: str,
    target: str,
    *,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> _Values: ...
def rotation_backward(x: _Values, grad: _Values, source: str, target: str) -> _Values: ...
def synchronize(timeout: float | None = None) -> None: ...
def warmup(op: _Op, *arguments: Any, **options: Any) -> None: ...
def watch_calls(timing: bool | None = None, nvtx: bool | None = None) -> None: ...
def call_counts(reset: bool = False) -> dict[str, dict[str, Any]]: ...
def device_memory() -> dict[str, dict[str, Any]]: ...
def plan_call(
    op: str,
    sizes: list[tuple[str, str]],
    device: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    resident: bool = False,
) -> tuple[str, list[int], int, int, int | None, float | None, bool, str]: ...
def command_line(arguments: list[str]) -> int: ...
def did_you_mean(given: str, known: list[str]) -> str: ...

@final
class MemoryRecorder:
    def __new__(cls) -> MemoryRecorder: ...
    def records(self) -> list[tuple[str, str, int, int, int, int, int | None, float]]: ...
    def close(self) -> None: ...

@final
class Robot:
    @staticmethod
    def from_urdf(
        urdf: str | PathLike[str], is_text: bool, base: str | None = None, tip: str | None = None
    ) -> Robot: ...
    @staticmethod
    def from_dh(
        rows: Sequence[tuple[Sequence[float], bool, Sequence[float]]], convention: str
    ) -> Robot: ...
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def joint_names(self) -> list[str]: ...
    @property
    def limits(self) -> list[tuple[float, float]]: ...
    @property
    def link_names(self) -> list[str]: ...
    @property
    def tip(self) -> str | None: ...
    @property
    def urdf(self) -> str | None: ...
    def places(self, links: list[str] | None) -> list[int]: ...

@final
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
    def __reduce__(self) -> tuple[Any, tuple[str]]: ...
    def episode(self, at: int) -> Episode: ...
    def check(self) -> list[Finding]: ...

@final
class Episodes(Sequence[EpisodeInfo]):
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, at: int, /) -> EpisodeInfo: ...
    @overload
    def __getitem__(self, at: slice, /) -> list[EpisodeInfo]: ...

@final
class EpisodeInfo:
    @property
    def index(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def tasks(self) -> list[str]: ...
    @property
    def duration(self) -> float: ...

@final
class Camera:
    @property
    def stream(self) -> str: ...
    @property
    def size(self) -> tuple[int, int]: ...
    @property
    def intrinsics(self) -> npt.NDArray[np.float64]: ...
    @property
    def extrinsics(self) -> npt.NDArray[np.float64] | None: ...
    @property
    def distortion_model(self) -> str: ...
    @property
    def distortion(self) -> list[float]: ...
    @property
    def frame(self) -> str: ...
    @property
    def base(self) -> str | None: ...

class _EpisodeOf(Generic[_T]):
    """What episodes of datasets and of caches have in common; a class of these stubs only."""
    def camera(self, name: str) -> Camera: ...
    @property
    def index(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def tasks(self) -> list[str]: ...
    @property
    def duration(self) -> float: ...
    @property
    def streams(self) -> dict[str, _T]: ...
    def keys(self) -> KeysView[str]: ...
    def values(self) -> ValuesView[_T]: ...
    def items(self) -> ItemsView[str, _T]: ...
    @overload
    def get(self, name: str, default: None = None, /) -> _T | None: ...
    @overload
    def get(self, name: str, default: _D, /) -> _T | _D: ...
    def __getitem__(self, name: str, /) -> _T: ...
    def __len__(self) -> int: ...
    def __contains__(self, name: str, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...

@final
class Episode(_EpisodeOf[Stream]): ...

@final
class Stream:
    @property
    def info(self) -> StreamInfo: ...
    @property
    def times(self) -> npt.NDArray[np.int64]: ...
    @property
    def values(self) -> Any: ...
    def frames(self, start: int, stop: int) -> npt.NDArray[np.uint8 | np.uint16]: ...
    def __len__(self) -> int: ...

@final
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

@final
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

def open_dataset(path: Any, recording: dict[str, Any] | None = None) -> Dataset: ...

@final
class Cache:
    @property
    def path(self) -> str: ...
    @property
    def complete(self) -> bool: ...
    @property
    def streams(self) -> dict[str, CacheStreamInfo]: ...
    @property
    def sources(self) -> list[dict[str, Any]]: ...
    @property
    def skipped(self) -> list[tuple[str, int, str]]: ...
    @property
    def episodes(self) -> CacheEpisodes: ...
    def raw_stats(self) -> dict[str, dict[str, list[float]]]: ...
    def __len__(self) -> int: ...
    def episode(self, at: int) -> CacheEpisode: ...

@final
class CacheEpisodes(Sequence[CacheEpisode]):
    def __len__(self) -> int: ...
    def __getitem__(self, at: int, /) -> CacheEpisode: ...  # type: ignore[override]

@final
class CacheEpisode(_EpisodeOf[CacheStream]):
    @property
    def source(self) -> int: ...

@final
class CacheStream:
    @property
    def times(self) -> npt.NDArray[np.int64]: ...
    @property
    def values(self) -> Any: ...

@final
class CacheStreamInfo:
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
    def encoding(self) -> Literal["raw", "jpeg", "text"]: ...
    @property
    def method(self) -> str | list[tuple[str, int, int]]: ...

def open_cache(path: Any) -> Cache: ...
def ingest_dataset(
    source: Any,
    out: Any,
    streams: list[tuple[str, str | None, str | None]] | None,
    methods: list[tuple[str, Any]],
    images: str,
    image_size: tuple[int, int] | None,
    quality: int,
    strict: bool,
    workers: int | None,
    tag: str | None,
    recording: dict[str, Any] | None,
    step: Any,
) -> dict[str, Any]: ...

@final
class Windows:
    def __new__(
        cls,
        cache: Cache,
        delta_timestamps: list[tuple[str, list[float]]],
        streams: list[str] | None,
        anchor: str | None,
        rate: float | None,
        methods: list[tuple[str, Any]],
        tolerance_s: float,
        causal: bool,
        time_offset: list[tuple[str, float]],
        max_gap: list[tuple[str, float]],
        normalize: list[tuple[str, str]],
        image_dtype: str,
        episodes: list[int] | None,
    ) -> Windows: ...
    def __len__(self) -> int: ...
    @property
    def tasks(self) -> list[str]: ...
    def own_stats(self) -> dict[str, dict[str, list[float]]]: ...
    def identity(self) -> dict[str, str]: ...
    def batch(self, numbers: list[int]) -> tuple[dict[str, Any], list[int]]: ...
    def order(self, shuffle: bool, seed: int, weights: list[float] | None) -> Order: ...

@final
class Order:
    def batches(
        self,
        epoch: int,
        start: int,
        size: int,
        rank: int,
        world_size: int,
        drop_last: bool,
        skip: bool,
        threads: int,
        prefetch: int,
    ) -> Batches: ...

@final
class Batches:
    def __iter__(self) -> Batches: ...
    def __next__(self) -> tuple[dict[str, Any], list[int]]: ...
