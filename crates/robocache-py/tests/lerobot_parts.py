"""Pictures and statistics of the LeRobot datasets that lerobot_files.py writes."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


@dataclass(frozen=True)
class Feature:
    """One entry of `features`; for images and videos the codec is what is really written.

    Depth is noted in the feature's details: how its codes of 12 bits were made from metres.
    """

    dtype: str
    shape: tuple[int, ...] = (1,)
    names: Any = None
    codec: str = ""
    depth: dict[str, Any] | None = None


# -- pictures ---------------------------------------------------------------------------------


def ffmpeg(arguments: Sequence[str], frames: np.ndarray, fps: float = 30) -> bytes:
    """Runs ffmpeg over RGB frames, or 12-bit grey ones, and gives its standard output."""
    height, width = frames.shape[1:3]
    grey = frames.dtype == np.uint16
    rate = Fraction(fps).limit_denominator(1001)
    import imageio_ffmpeg  # only pictures need it

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-nostdin", "-threads", "1"]
    command += [
        "-f",
        "rawvideo",
        "-pix_fmt",
        "gray12le" if grey else "rgb24",
        "-s",
        f"{width}x{height}",
        "-r",
        str(rate),
    ]
    command += ["-i", "-", "-map_metadata", "-1", "-fflags", "+bitexact", "-flags:v", "+bitexact"]
    command += [*arguments]
    raw = np.ascontiguousarray(frames, "<u2" if grey else np.uint8).tobytes()
    return subprocess.run(command, input=raw, stdout=subprocess.PIPE, check=True).stdout


ENCODERS = {
    # LeRobot's own settings: a key frame at every second picture.
    "av1": ["-c:v", "libaom-av1", "-cpu-used", "8", "-crf", "40", "-g", "2"],
    "h264": ["-c:v", "libx264", "-crf", "28", "-g", "250"],
    "h264_g2": ["-c:v", "libx264", "-crf", "30", "-g", "2", "-bf", "0"],
    "mpeg4": ["-c:v", "mpeg4", "-q:v", "5"],
    "hevc_depth": [
        "-c:v",
        "libx265",
        "-x265-params",
        "lossless=1:log-level=none",
        "-tag:v",
        "hvc1",
    ],
    "hevc": ["-c:v", "libx265", "-x265-params", "log-level=none", "-tag:v", "hvc1"],
}


def write_video(path: Path, frames: np.ndarray, fps: float, codec: str, *more: str) -> None:
    """An mp4 of all frames; `more` are options of ffmpeg, for videos that are odd on purpose."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = "gray12le" if frames.dtype == np.uint16 else "yuv420p"
    options = [*ENCODERS[codec], "-pix_fmt", pixels, *more, "-f", "mp4", "-y", f"file:{path}"]
    ffmpeg(options, frames, fps)


def encode_images(frames: np.ndarray, codec: str) -> list[bytes]:
    """Each frame as the bytes of one PNG or JPEG file."""
    if codec == "png":
        options, end = ["-c:v", "png", "-pred", "mixed", "-pix_fmt", "rgb24"], b"IEND\xaeB`\x82"
    else:
        options, end = ["-c:v", "mjpeg", "-q:v", "2", "-pix_fmt", "yuvj444p"], b"\xff\xd9"
    stream = ffmpeg([*options, "-f", "image2pipe", "-"], frames)
    images = [image + end for image in stream.split(end)[:-1]]
    assert len(images) == len(frames)
    return images


# -- statistics -------------------------------------------------------------------------------


def quantile(ordered: Sequence[float], q: float) -> float:
    """Between the two samples around the rank; LeRobot's own come from histograms."""
    place = (len(ordered) - 1) * q
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def feature_stats(feature: Feature, values: Any) -> dict[str, Any]:
    """What LeRobot keeps of one feature of one episode; None for text."""
    array = np.asarray(values)
    is_picture = feature.dtype in ("image", "video")
    columns = array.reshape(-1, array.shape[-1]) if is_picture else array.reshape(len(array), -1)
    scale = np.iinfo(array.dtype).max if is_picture else 1
    exact = np.issubdtype(array.dtype, np.integer)
    out: dict[str, list] = {name: [] for name in ("min", "max", "mean", "std")}
    out |= {"count": [len(array)]} | {name: [] for name in QUANTILES}
    for column in columns.T:
        ordered = sorted(column.tolist())
        n = len(ordered)
        if exact:  # sums of integers need no rounding
            total, squares = sum(ordered), sum(x * x for x in ordered)
            mean, variance = total / n / scale, (n * squares - total * total) / (n * n * scale**2)
        else:
            mean = math.fsum(ordered) / n
            variance = math.fsum((x - mean) * (x - mean) for x in ordered) / n
        out["min"].append(ordered[0] / scale if is_picture else ordered[0])
        out["max"].append(ordered[-1] / scale if is_picture else ordered[-1])
        out["mean"].append(mean)
        out["std"].append(math.sqrt(variance))
        for name, q in QUANTILES.items():
            out[name].append(quantile(ordered, q) / scale)
    shape = (-1, 1, 1) if is_picture else feature.shape
    return {
        name: got if name == "count" else np.array(got).reshape(shape).tolist()
        for name, got in out.items()
    }


def merged_stats(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Statistics of a whole dataset from those of its episodes, as LeRobot merges them."""
    counts = [part["count"][0] for part in parts]
    total = sum(counts)
    means = [np.array(part["mean"]) for part in parts]
    mean = sum(m * (n / total) for m, n in zip(means, counts, strict=True))
    spread = [
        np.array(part["std"]) ** 2 + (m - mean) ** 2 for part, m in zip(parts, means, strict=True)
    ]
    variance = sum(s * (n / total) for s, n in zip(spread, counts, strict=True))
    out = {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": mean,
        "std": np.sqrt(variance),
    }
    for name in QUANTILES:
        weighted = (
            np.array(part[name]) * (n / total) for part, n in zip(parts, counts, strict=True)
        )
        out[name] = sum(weighted)
    lists = {name: np.asarray(got).tolist() for name, got in out.items()}
    return {**lists, "count": [total]}
