"""`voxelize_depth`: the bits of `unproject` followed by `voxelize`, and no cloud in memory.

Inside torch: test_torch_depth.py. Bad inputs are rows of the table, too: cases_points.py.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

import robocache as rc
from agreement import LAYOUTS, moved, scatter
from helpers import assert_same_bits, on, to_torch
from refusal import assert_refused
from torch_clouds import CAMERA, POSE, parts
from torch_clouds import DEPTH_GRID as GRID

DTYPES = ("uint16", "float16", "float32", "float64")
# Of images: one pixel, and 15 to 17, 127 to 129 and 4095 to 4097 of them, in lines of several lengths.
PIXELS = [(1, 1), (3, 5), (15, 1), (4, 4), (1, 17), (127, 1), (2, 64), (8, 16), (3, 43), (1, 129)]
PIXELS += [(65, 63), (64, 64), (16, 256), (17, 241)]
FORMS = [
    {},
    {"reduce": "count", "return_dropped": True},
    {"return_counts": True, "dtype": "float16"},
    {"reduce": "count", "dtype": "int64", "fill": -1},
    {"reduce": "sum", "return_counts": True, "return_dropped": True},
    {"reduce": "mean", "dtype": "float64"},
    {"reduce": "max", "fill": -9},
    {"reduce": "min"},
    {"sparse": True},
    {"sparse": True, "reduce": "mean", "max_points_per_voxel": 3},
    {"sparse": True, "max_points_per_voxel": 2, "max_voxels": 300},
    {"sparse": True, "reduce": "max", "max_voxels": 20},
]
IDS = [" ".join(map(str, form.values())) or "plain" for form in FORMS]


def picture(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Depth in millimetres, some of it none."""
    depth = rng.uniform(300, 4500, shape)
    depth[rng.random(shape) < 0.1] = 0
    if dtype != "uint16":
        for strange in (np.nan, np.inf, -1.0):
            depth[rng.random(shape) < 0.03] = strange
    return depth.astype(dtype)


def camera_of(shape: tuple[int, ...]) -> list[float]:
    size = float(max(shape[-2:]) + 4)
    return [size, 0.9 * size, shape[-1] / 2, shape[-2] / 2 - 0.3]


def assert_same_as_composed(depth, camera, pose, features, context="", **options) -> None:
    """Of all results, with features only where they are of use."""
    reads = options.get("reduce") in ("sum", "mean", "max", "min")
    reads = reads or "max_points_per_voxel" in options
    given = features if reads else None
    got = rc.voxelize_depth(depth, camera, pose, features=given, **GRID, **options)
    points = rc.unproject(depth, camera, pose)
    want = rc.voxelize(points, given, **GRID, **options)
    for mine, theirs in zip(parts(got), parts(want), strict=True):
        assert_same_bits(mine, theirs, context)


@pytest.mark.parametrize("options", FORMS, ids=IDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_of_unproject_and_voxelize(dtype, options, device):
    place = on(device)
    for index, size in enumerate(PIXELS):
        rng = np.random.default_rng(index)
        shape = ((), (2,))[index % 2] + size
        depth = place(picture(rng, shape, dtype))
        features = place(rng.normal(size=(*shape[:-2], size[0] * size[1], 3)).astype("f4"))
        pose = POSE if index % 3 else None
        assert_same_as_composed(depth, camera_of(shape), pose, features, size, **options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_images_at_once(dtype, device):
    """As many as make clusters of a GPU work on them, each with a camera of its own."""
    rng = np.random.default_rng(4)
    depth = to_torch(picture(rng, (80, 12, 20), dtype), device)
    cameras = torch.tensor([[24.0 + i, 22.0, 10.0, 6.0] for i in range(80)], device=device)
    for shape in ((80, 80, 80), (7, 270, 260)):
        grid = GRID | {"shape": shape}
        for pose in (None, POSE):
            got = rc.voxelize_depth(depth, cameras, pose, return_dropped=True, **grid)
            points = rc.unproject(depth, cameras, pose)
            want = rc.voxelize(points.cpu(), return_dropped=True, **grid)
            for mine, theirs in zip(got, want, strict=True):
                assert_same_bits(mine, theirs, shape)


def test_bfloat16_depth(device):
    rng = np.random.default_rng(3)
    depth = to_torch(picture(rng, (2, 20, 30), "float32"), device).bfloat16()
    features = torch.randn(2, 600, 2, device=device)
    for options in FORMS:
        assert_same_as_composed(depth, camera_of((20, 30)), POSE, features, **options)


@pytest.mark.parametrize("options", [FORMS[1], FORMS[4], FORMS[9]], ids=["count", "sum", "hard"])
@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16"])
def test_cameras_and_poses_of_each_image(kind, options, device):
    """In every form, with and without a batch, of the host and of the device."""
    rng = np.random.default_rng(8)
    depth = to_torch(picture(rng, (3, 12, 20), "uint16"), device)
    features = torch.randn(3, 240, 2, device=device)
    tensor = lambda x: torch.tensor(np.array(x), dtype=getattr(torch, kind), device=device)  # noqa: E731
    four = tensor([[24.0 + i, 22.0, 10.0, 6.0] for i in range(3)])
    matrix = torch.zeros(3, 3, 3, dtype=four.dtype, device=device)
    matrix[:, 0, 0], matrix[:, 1, 1], matrix[:, 0, 2], matrix[:, 1, 2] = four.T
    matrix[:, 2, 2] = 1
    seven = tensor(rng.normal(size=(3, 7)))
    square = tensor(
        np.concatenate([rng.normal(size=(3, 3, 4)), np.tile([0, 0, 0, 1.0], (3, 1, 1))], 1)
    )
    for camera in (four, matrix, four[1], matrix[:1], camera_of((12, 20))):
        for pose in (None, seven, square, square[:, :3], square[2], seven[:1], POSE):
            assert_same_as_composed(depth, camera, pose, features, **options)
    # One image of many cameras; features of a batch that shares the image, where grids are dense.
    assert_same_as_composed(depth[0], four, seven, features, **options)
    if "sparse" not in options:
        assert_same_as_composed(depth[:1], four[0], POSE, features, **options)
        assert_same_as_composed(depth[1], four[0], POSE, features, **options)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_views_give_the_bits_of_their_copies(dtype, device):
    rng = np.random.default_rng(5)
    array = picture(rng, (3, 13, 21), dtype)
    depth = to_torch(array)
    features = torch.randn(3, 273, 2)
    for options in FORMS:
        want = parts(rc.voxelize_depth(depth, CAMERA, POSE, features=given(features, options),
                                       **GRID, **options))  # fmt: skip
        for layout in LAYOUTS:
            view = moved(scatter(depth, layout, rng), device)
            there = given(features.to(device), options)
            found = rc.voxelize_depth(view, CAMERA, POSE, features=there, **GRID, **options)
            for mine, theirs in zip(parts(found), want, strict=True):
                assert_same_bits(mine, theirs, (layout, options))
    turned = to_torch(array, device).transpose(1, 2)
    assert_same_as_composed(turned, CAMERA, POSE, None, **FORMS[1])
    shared = to_torch(array[:1], device).expand(4, 13, 21)
    assert_same_as_composed(shared, CAMERA, POSE, None, **FORMS[1])
    if device == "cpu":
        assert_same_as_composed(array[:, ::-1, ::2], CAMERA, POSE, None, **FORMS[1])
        assert_same_as_composed(array[0].astype("f8").tolist(), CAMERA, POSE, None, **FORMS[1])


def given(features, options):
    reduces = options.get("reduce") in ("sum", "mean", "max", "min")
    return features if reduces or "max_points_per_voxel" in options else None


def test_many_pixels(device):
    """So many that points are dealt into slabs, or bits set in shared memory."""
    rng = np.random.default_rng(1)
    depth = on(device)(picture(rng, (1024, 1031), "uint16"))
    features = on(device)(rng.normal(size=(1024 * 1031, 1)).astype("f4"))
    for options in (FORMS[0], FORMS[1], FORMS[4], FORMS[10]):
        assert_same_as_composed(depth, camera_of((1024, 1031)), POSE, features, **options)
    small = {"origin": (-4, -4, 0), "voxel_size": 0.05, "shape": (160, 160, 120)}
    got = rc.voxelize_depth(depth, camera_of((1024, 1031)), reduce="count", **small)
    want = rc.voxelize(rc.unproject(depth, camera_of((1024, 1031))), reduce="count", **small)
    assert_same_bits(got, want)


def test_empty_images(device):
    place = on(device)
    for shape in ((0, 7), (7, 0), (0, 3, 4), (2, 0, 5)):
        depth = place(np.zeros(shape, np.uint16))
        for options in FORMS[:2] + FORMS[8:9] + FORMS[10:11]:
            assert_same_as_composed(depth, CAMERA, POSE, None, **options)


def test_into_given_memory(device):
    rng = np.random.default_rng(2)
    depth = to_torch(picture(rng, (2, 30, 40), "uint16"), device)
    want = rc.voxelize_depth(
        depth, camera_of((30, 40)), reduce="count", return_dropped=True, **GRID
    )
    out = torch.full_like(want[0], 7), torch.full_like(want[1], 7)
    got = rc.voxelize_depth(
        depth, camera_of((30, 40)), reduce="count", return_dropped=True, out=out, **GRID
    )
    assert got[0] is out[0] and got[1] is out[1]
    assert_same_bits(out[0], want[0])
    assert_same_bits(out[1], want[1])


def test_no_cloud_is_in_memory(device):
    """480 x 640 points would take 3.7 MB; the grid takes 5 KB."""
    depth = to_torch(picture(np.random.default_rng(0), (480, 640), "uint16"), device)
    camera = camera_of((480, 640))
    call = lambda **more: rc.voxelize_depth(depth, camera, POSE, **GRID, **more)  # noqa: E731
    call(), call(reduce="count")
    if device == "cuda":
        for options in ({}, {"reduce": "count"}, {"return_counts": True}):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call(**options)
            assert torch.cuda.max_memory_allocated() - before < 200_000, options
        return
    array = depth.numpy()
    tracemalloc.start()
    for options in ({}, {"reduce": "max", "features": np.ones((480 * 640, 1), "f4")}):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        rc.voxelize_depth(array, camera, POSE, **GRID, **options)
        _, peak = tracemalloc.get_traced_memory()
        # Features are sorted: two items of 8 bytes for each pixel, in the place of a cloud of 12.
        most = 480 * 640 * 16 + 300_000 if options else 100_000
        assert peak - before < most, options
    tracemalloc.stop()


BAD = [
    ("depth", {"depth": np.ones((2, 2, 2, 2), "f4")}, r"\[B,H,W\]"),
    ("depth", {"depth": np.ones((4, 5), "i4")}, "uint16 or floats"),
    ("depth_scale", {"depth_scale": 0.0}, "over 0"),
    ("depth_scale", {"depth_scale": float("nan")}, "over 0"),
    ("depth_scale", {"depth_scale": "1"}, "number"),
    ("intrinsics", {"intrinsics": [1.0, 2.0]}, r"\[3,3\] or \[4\]"),
    ("intrinsics", {"intrinsics": np.ones((3, 4), "f4")}, "batch of 3"),
    ("extrinsics", {"extrinsics": np.ones((2, 2), "f4")}, r"\[4,4\]"),
    ("extrinsics", {"extrinsics": np.ones((5, 7), "f4")}, "batch of 5"),
]


@pytest.mark.parametrize(("argument", "changes", "text"), BAD)
def test_images_are_refused_as_unproject_refuses_them(argument, changes, text, device):
    place = on(device)
    call = {"depth": np.ones((2, 4, 5), "f4"), "intrinsics": [5.0, 5.0, 2.0, 2.0], **changes}
    call = {key: place(x) if isinstance(x, np.ndarray) else x for key, x in call.items()}
    one = assert_refused(
        lambda: rc.unproject(**call), "InvalidArgument", argument, text, "unproject"
    )
    for options in ({}, {"sparse": True}):
        two = assert_refused(
            lambda o=options: rc.voxelize_depth(**call, **GRID, **o),
            "InvalidArgument",
            argument,
            text,
            "voxelize_depth",
        )
        assert str(one).split(": ", 1)[1] == str(two).split(": ", 1)[1]


def test_grids_are_refused_as_voxelize_refuses_them(device):
    depth = torch.ones(2, 4, 5, device=device)
    points = rc.unproject(depth, CAMERA)
    for argument, changes in [
        ("voxel_size", {"voxel_size": 0.0}),
        ("origin", {"origin": (0, 0, float("nan"))}),
        ("shape", {"shape": (4, 4, 0)}),
        ("reduce", {"reduce": "median"}),
        ("features", {"reduce": "sum"}),
        ("features", {"reduce": "sum", "features": torch.ones(2, 19, 1, device=device)}),
        ("features", {"features": torch.ones(2, 20, 1, device=device)}),
        ("dtype", {"dtype": "uint8", "reduce": "count"}),
        ("fill", {"fill": 0.5}),
        ("out", {"out": torch.zeros(3, device=device)}),
        ("max_voxels", {"max_voxels": 3}),
        ("max_points_per_voxel", {"sparse": True, "max_points_per_voxel": 0}),
        ("sparse", {"sparse": 1}),
    ]:
        options = {**GRID, **changes}
        features = options.pop("features", None)
        one = lambda: rc.voxelize(points, features, **options)  # noqa: B023, E731
        two = lambda: rc.voxelize_depth(depth, CAMERA, features=features, **options)  # noqa: B023, E731
        first = assert_refused(one, "InvalidArgument", argument, op="voxelize")
        second = assert_refused(two, "InvalidArgument", argument, op="voxelize_depth")
        assert str(first).split(": ", 1)[1] == str(second).split(": ", 1)[1]
    other = lambda: rc.voxelize_depth(depth, CAMERA, features=torch.ones(3, 20, 1, device=device),  # noqa: E731
                                      reduce="sum", **GRID)  # fmt: skip
    assert_refused(other, "InvalidArgument", "depth", "batch of 2", op="voxelize_depth")


@pytest.mark.gpu
def test_captured_after_a_warmup():
    depth = to_torch(picture(np.random.default_rng(0), (2, 48, 64), "uint16"), "cuda")
    features = torch.randn(2, 48 * 64, 3, device="cuda")
    for options in ({}, {"reduce": "count"}, {"reduce": "mean", "features": features},
                    {"sparse": True, "max_voxels": 99, "max_points_per_voxel": 2}):  # fmt: skip
        call = (depth, camera_of((48, 64)), POSE)
        assert rc.warmup("voxelize_depth", *call, **options, **GRID) is None
        want = parts(rc.voxelize_depth(*call, **options, **GRID))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = parts(rc.voxelize_depth(*call, **options, **GRID))
        graph.replay()
        for mine, theirs in zip(got, want, strict=True):
            assert_same_bits(mine, theirs, options)


def test_warmup_on_the_cpu_does_nothing():
    depth, features = torch.ones(4, 5), torch.ones(20, 1, requires_grad=True)
    for options in ({}, {"sparse": True}, {"reduce": "sum", "features": features},
                    {"reduce": "max", "features": features, "sparse": True}):  # fmt: skip
        assert rc.warmup("voxelize_depth", depth, CAMERA, **options, **GRID) is None


def test_refusals_name_this_op_and_its_arguments():
    """Not `voxelize` and its points, whatever stage finds the fault."""
    depth = torch.ones(2, 4, 5, dtype=torch.uint16)
    spare = torch.zeros(2, 2, 2, 2, dtype=torch.uint8)
    with pytest.raises(rc.InvalidArgument) as caught:
        rc.voxelize_depth(depth, CAMERA, out=(spare, spare, spare), **GRID)
    assert caught.value.op == "voxelize_depth"
    features = torch.ones(3, 20, 2)
    for options in ({"reduce": "sum"}, {"reduce": "sum", "sparse": True}):
        with pytest.raises(rc.InvalidArgument) as caught:
            rc.voxelize_depth(depth, CAMERA, features=features, **GRID, **options)
        assert caught.value.op == "voxelize_depth" and "points" not in str(caught.value)
