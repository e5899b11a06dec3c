"""RoboCache: a data engine for robot learning.

>>> import numpy as np, robocache as rc
>>> times = np.array([0, 10_000_000, 20_000_000])  # nanoseconds
>>> rc.resample(np.array([[0.0], [1.0], [4.0]]), times, np.array([5_000_000, 15_000_000]))
array([[0.5],
       [2.5]])
"""

from robocache import presets, rotation
from robocache._aliases import (
    fuse_multimodal,
    resample_trajectories,
    resample_trajectories_chunked,
)
from robocache._cache import Cache, open
from robocache._core import (
    Camera,
    Dataset,
    Episode,
    EpisodeInfo,
    Finding,
    StreamInfo,
    __version__,
    synchronize,
    warmup,
)
from robocache._data import Ingested, Recording, dataset, ingest
from robocache._errors import (
    CorruptData,
    DeviceLost,
    FileError,
    InvalidArgument,
    LimitExceeded,
    NoDevice,
    OutOfMemory,
    RoboCacheError,
    Unsupported,
)
from robocache._kinematics import IkResult, Robot
from robocache._loader import Loader
from robocache._observe import (
    MemoryReport,
    MemorySnapshot,
    Metrics,
    Plan,
    memory_profile,
    memory_report,
    metrics,
    plan,
)
from robocache._ops import farthest_points, fuse, resample, transform_points, unproject
from robocache._points import (
    Cropped,
    SparseVoxels,
    crop_box,
    voxelize,
    voxelize_depth,
    voxelize_pointcloud,
)
from robocache._stream import Stream

__all__ = [
    "Cache",
    "Camera",
    "CorruptData",
    "Cropped",
    "Dataset",
    "DeviceLost",
    "Episode",
    "EpisodeInfo",
    "FileError",
    "Finding",
    "IkResult",
    "Ingested",
    "InvalidArgument",
    "LimitExceeded",
    "Loader",
    "MemoryReport",
    "MemorySnapshot",
    "Metrics",
    "NoDevice",
    "OutOfMemory",
    "Plan",
    "Recording",
    "RoboCacheError",
    "Robot",
    "SparseVoxels",
    "Stream",
    "StreamInfo",
    "Unsupported",
    "__version__",
    "crop_box",
    "dataset",
    "farthest_points",
    "fuse",
    "fuse_multimodal",
    "ingest",
    "memory_profile",
    "memory_report",
    "metrics",
    "open",
    "plan",
    "presets",
    "resample",
    "resample_trajectories",
    "resample_trajectories_chunked",
    "rotation",
    "synchronize",
    "transform_points",
    "unproject",
    "voxelize",
    "voxelize_depth",
    "voxelize_pointcloud",
    "warmup",
]
