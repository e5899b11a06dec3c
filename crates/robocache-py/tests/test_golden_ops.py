"""The golden files of fuse, voxelize, the ops on points, rotations, and gradients. testdata/golden/common.py has the format."""

from __future__ import annotations

import json
from operator import attrgetter

import numpy as np
import pytest

import robocache as rc
from gradient_cases import LINEAR, OTHERS
from helpers import bits, on, to_numpy
from test_golden import GOLDEN, decode

ON_HOST = ("low", "high")  # numbers that JSON has no word for: infinite bounds


def cases_of(folder: str) -> list:
    return [
        pytest.param(case, id=f"{path.stem}-{case['name']}")
        for path in sorted((GOLDEN / folder).glob("*.json"))
        for case in json.loads(path.read_text())["cases"]
    ]


FUSE, VOXELIZE, POINTS, GRADIENTS = map(cases_of, ("fuse", "voxelize", "points", "gradients"))
ROTATION = cases_of("rotation")


def is_tensor(value) -> bool:
    return isinstance(value, dict) and "dtype" in value


def decoded(value, place):
    """An argument of a golden as the op takes it."""
    if is_tensor(value):
        return place(decode(value))
    if isinstance(value, list) and value and isinstance(value[0], list):
        return [tuple(inner) for inner in value]  # column ranges
    return value


def arguments_of(case: dict, place) -> dict:
    made = {k: decoded(v, place) for k, v in case["arguments"].items() if k != "streams"}
    for name in ON_HOST:
        if name in made:
            made[name] = decode(case["arguments"][name]).tolist()
    if "streams" in case["arguments"]:
        made["streams"] = [
            rc.Stream(**{k: decoded(v, place) for k, v in stream.items()})
            for stream in case["arguments"]["streams"]
        ]
    return made


def results_of(got, case: dict) -> dict:
    """What an op returned, by the names of the golden: a tuple's in its order, or fields."""
    names = list(case["expect"])
    if isinstance(got, tuple):
        return dict(zip(names, got, strict=True))
    if isinstance(got, (rc.SparseVoxels, rc.Cropped)):
        return {name: getattr(got, name) for name in names}
    (name,) = names
    return {name: got}


def assert_expected(got, want: dict | None, bounds, name: str) -> None:
    if want is None:
        assert got is None, name
        return
    got, want = to_numpy(got), decode(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype), name
    with np.errstate(invalid="ignore"):
        wide = got.astype(np.float64), want.astype(np.float64)
        relative = not isinstance(bounds, list)
        bounds = bounds * np.abs(wide[1]) if relative else np.reshape(bounds, want.shape)
        near = (bounds > 0) & (np.abs(wide[0] - wide[1]) <= bounds)
    wrong = (bits(got) != bits(want)).reshape(want.shape) & ~near
    for where in np.argwhere(wrong)[:1]:
        at = tuple(int(i) for i in where)
        raise AssertionError(
            f"{name}: {int(wrong.sum())} of {want.size} elements are off, first at {at}: "
            f"{got[at]!r}, expected {want[at]!r} within {bounds[at]}"
        )


def assert_golden(got: dict, case: dict) -> None:
    assert set(got) == set(case["expect"])
    for name, want in case["expect"].items():
        assert_expected(got[name], want, case.get("tolerance", {}).get(name, 0), name)


@pytest.mark.parametrize("case", [*FUSE, *VOXELIZE, *POINTS, *ROTATION])
def test_golden(case, device):
    got = attrgetter(case["op"])(rc)(**arguments_of(case, on(device)))
    assert_golden(results_of(got, case), case)


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradient(case, device):
    leaves = {}

    def leaf(name, value):
        leaves[name] = value.requires_grad_()

    arguments = arguments_of(case, on(device))
    for name in case["expect"]:
        if name.startswith("streams."):
            leaf(name, arguments["streams"][int(name.split(".")[1])].values)
        else:
            leaf(name, arguments[name])
    out = getattr(rc, case["op"])(**arguments)
    out = out.features if isinstance(out, rc.SparseVoxels) else out
    out.backward(on(device)(decode(case["grad"])))
    assert_golden({name: value.grad for name, value in leaves.items()}, case)


def test_every_method_and_reduction_is_there():
    streams = [s for case in FUSE for s in case.values[0]["arguments"]["streams"]]
    methods = [s.get("method", "linear") for s in streams]
    named = {
        m
        for method in methods
        for m in ([r[0] for r in method] if isinstance(method, list) else [method])
    }
    assert named == {*LINEAR, *OTHERS}
    reductions = ("occupancy", "count", "sum", "mean", "max", "min")
    assert {case.values[0]["arguments"]["reduce"] for case in VOXELIZE} == {*reductions}
    ops = ("transform_points", "crop_box", "unproject", "farthest_points", "voxelize_depth")
    assert {case.values[0]["op"] for case in POINTS} == {*ops}
    named = [case.values[0]["arguments"] for case in ROTATION]
    for name in ("source", "target"):
        assert {arguments[name] for arguments in named} == set(rc.rotation.REPRESENTATIONS)
    differentiated = [case.values[0]["arguments"].get("method") for case in GRADIENTS]
    assert {m for m in differentiated if isinstance(m, str)} == {*LINEAR, *OTHERS}


def alone(case: dict, method: str) -> bool:
    """A golden of one stream in order, without lengths, whose targets are held to its ends."""
    arguments = case["arguments"]
    (stream, *more) = arguments["streams"]
    if more or stream.get("method") != method or set(arguments) & {"extrapolate", "target_lengths"}:
        return False
    times, values = decode(stream["times"]), decode(stream["values"])
    sound = len(times) > 1 and (np.diff(times) > 0).all() and not np.isnan(values).any()
    return bool((sound and values.any(axis=1).all()) or (method == "cubic" and sound))


@pytest.mark.parametrize("case", [c for c in FUSE if alone(c.values[0], "cubic")])
def test_cubics_are_scipys(case):
    interpolate = pytest.importorskip("scipy.interpolate")
    times, at, values = seconds_of(case)
    want = interpolate.PchipInterpolator(times, values)(at)
    np.testing.assert_allclose(decode(case["expect"]["out"]), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", [c for c in FUSE if alone(c.values[0], "slerp")])
def test_rotations_are_scipys(case):
    transform = pytest.importorskip("scipy.spatial.transform")
    times, at, values = seconds_of(case)
    out = decode(case["expect"]["out"])
    for first in range(0, values.shape[1], 4):
        turns = transform.Rotation.from_quat(values[:, first : first + 4])
        want = transform.Slerp(times, turns)(at).as_quat()
        got = out[:, first : first + 4]
        want *= np.sign((want * got).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


def seconds_of(case: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stamps, targets held to them, and values of the only stream, as SciPy takes them."""
    (stream,) = case["arguments"]["streams"]
    times, targets = decode(stream["times"]), decode(case["arguments"]["targets"])
    unit = 1e-9 if times.dtype.kind == "i" else 1.0
    seconds = [(x - times[0]).astype(np.float64) * unit for x in (times, targets)]
    return seconds[0], np.clip(seconds[1], 0, seconds[0][-1]), decode(stream["values"]).astype("f8")
