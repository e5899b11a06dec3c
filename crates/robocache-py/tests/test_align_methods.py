"""cubic, slerp, angle, rot6d and column ranges against SciPy, NumPy and the definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import robocache as rc
from devices import DEVICES, marks

EPOCH_NS = 1_760_000_000_000_000_000
ON = [pytest.param(device, marks=marks(device)) for device in DEVICES]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6}
RICH = ("cubic", "slerp", "angle", "rot6d")
WIDTH = {"slerp": 4, "rot6d": 6}


def stamps(rng: np.random.Generator, count: int, kind: str) -> np.ndarray:
    seconds = np.cumsum(rng.uniform(0.002, 0.05, count))
    if kind == "int64":
        return EPOCH_NS + np.rint(seconds * 1e9).astype(np.int64)
    return seconds


def between(rng: np.random.Generator, times: np.ndarray, count: int) -> np.ndarray:
    picked = times[0] + (times[-1] - times[0]) * rng.random(count)
    return np.clip(picked.astype(times.dtype), times[0], times[-1])


def run(device: str, values, times, targets, **options) -> np.ndarray:
    place = [torch.as_tensor(x).to(device) for x in (values, times, targets)]
    return rc.resample(*place, **options).double().cpu().numpy()


def seconds_of(times: np.ndarray, origin) -> np.ndarray:
    """Exact for the small differences here."""
    return (times - origin).astype(np.float64) * (1e-9 if times.dtype.kind == "i" else 1.0)


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("kind", ["int64", "float64"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_cubic_is_scipys_pchip(device, kind, dtype):
    interpolate = pytest.importorskip("scipy.interpolate")
    for seed in range(40):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(3, 30))
        times = stamps(rng, count, kind)
        # Steps, turns and flat pieces: what the limiter is for.
        values = rng.choice([rng.normal(size=(count, 5)), rng.integers(-2, 3, (count, 5)) * 1.0])
        values = torch.tensor(values).to(dtype)
        targets = between(rng, times, 60)
        got = run(device, values, times, targets, method="cubic")
        x, at = seconds_of(times, times[0]), seconds_of(targets, times[0])
        want = interpolate.PchipInterpolator(x, values.double().numpy())(at)
        assert np.abs(got - want).max() <= TOLERANCE[dtype] * max(1, np.abs(want).max()) * 2


@pytest.mark.parametrize("device", ON)
def test_cubic_of_two_samples_is_a_line_and_never_overshoots(device):
    rng = np.random.default_rng(0)
    times, targets = np.array([0.0, 1.0]), rng.random(50)
    values = torch.randn(2, 3, dtype=torch.float64)
    line = run(device, values, times, targets)
    np.testing.assert_array_equal(run(device, values, times, targets, method="cubic"), line)
    times = np.arange(6.0)
    step = torch.tensor([[0.0], [0.0], [0.0], [1.0], [1.0], [1.0]], dtype=torch.float64)
    got = run(device, step, times, np.linspace(0, 5, 501), method="cubic")
    assert got.min() >= 0 and got.max() <= 1


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_slerp_is_scipys(device, dtype):
    transform = pytest.importorskip("scipy.spatial.transform")
    for seed in range(40):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 20))
        times = stamps(rng, count, "int64")
        values = rng.normal(size=(count, 4))
        if seed % 2:
            # A slow rotation whose recorder flips signs, with lengths that are not 1.
            base = transform.Rotation.from_rotvec(rng.normal(size=(count, 3)) * 1e-3).as_quat()
            values = base * rng.choice([-1, 1], (count, 1)) * rng.uniform(0.5, 2, (count, 1))
        values = torch.tensor(values).to(dtype)
        targets = between(rng, times, 40)
        got = run(device, values, times, targets, method="slerp")
        rotations = transform.Rotation.from_quat(values.double().numpy())
        seconds = [seconds_of(x, times[0]) for x in (times, targets)]
        want = transform.Slerp(seconds[0], rotations)(seconds[1]).as_quat()
        want *= np.sign((want * got).sum(1, keepdims=True))
        assert np.abs(got - want).max() <= TOLERANCE[dtype] * 2
        assert np.abs(np.linalg.norm(got, axis=1) - 1).max() <= TOLERANCE[dtype]


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_slerp_of_tiny_and_of_large_angles(device, dtype):
    for angle in (0.0, 1e-30, 1e-9, 1e-4, 1.0, 3.0, np.pi):
        ends = np.array([[0, 0, 0, 1.0], [np.sin(angle / 2), 0, 0, np.cos(angle / 2)]])
        values = torch.tensor(ends).to(dtype)
        got = run(device, values, np.array([0.0, 1.0]), np.linspace(0, 1, 11), method="slerp")
        want = np.outer(np.linspace(0, 1, 11), [angle / 2, 0, 0, 0])
        want[:, 3] = np.cos(want[:, 0])
        want[:, 0] = np.sin(want[:, 0])
        assert np.abs(got - want).max() <= TOLERANCE[dtype]


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("beside", [1, 2, 3, 4])
def test_slerp_of_any_lengths(device, dtype, beside):
    """Around powers of two, up to squares that are no floats; a GPU has a short way for those in the
    middle, and takes two at once where it can, which may be of different lengths.
    """
    rng = np.random.default_rng(5)
    powers = np.arange(-80, 81)
    pairs = rng.normal(size=(len(powers), 2, 2, 4))
    pairs[:, :, 1] = pairs[:, :, 0] + rng.normal(size=pairs[:, :, 0].shape) * 0.5
    pairs /= np.linalg.norm(pairs, axis=-1, keepdims=True)
    # Just below and above the root of an odd power, on the other side of 1, and the power.
    lengths = 2.0 ** np.stack([powers - 0.501, powers - 0.499, -powers + 0.01, powers], axis=1)
    values = torch.tensor(pairs.reshape(-1, 4, 4) * lengths[..., None]).to(dtype)
    times = np.arange(4.0)
    targets = np.concatenate(
        [times, [0.25, 0.5, 1.75, 2 + 2**-20, 3 - 2**-20], rng.uniform(0, 3, 60)]
    )
    side_by_side = torch.cat([values.roll(37 * i, 0) for i in range(beside)], -1)
    every = run(device, side_by_side, times, targets, method="slerp")
    np.testing.assert_array_equal(every, run("cpu", side_by_side, times, targets, method="slerp"))
    got = every[..., :4]
    for i in range(beside):
        np.testing.assert_array_equal(every[..., 4 * i : 4 * i + 4], np.roll(got, 37 * i, 0))
    usual = np.abs(powers) <= 60
    tolerance = max(TOLERANCE[torch.float32], 2 * torch.finfo(dtype).eps)
    assert np.abs(np.linalg.norm(got[usual], axis=-1) - 1).max() <= tolerance
    exact = run("cpu", values[usual].double(), times, targets, method="slerp")
    assert np.abs(got[usual] - exact).max() <= tolerance


@pytest.mark.parametrize("device", ON)
def test_slerp_keeps_the_stored_sign_at_a_hit(device):
    values = torch.tensor([[0, 0, 0, 2.0], [0, 0, 0, -3.0], [0, 1.0, 0, 0]], dtype=torch.float64)
    times = np.array([0.0, 1.0, 2.0])
    got = run(device, values, times, np.array([-1.0, 0, 1, 2, 9]), method="slerp")
    want = [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, -1], [0, 1, 0, 0], [0, 1, 0, 0]]
    np.testing.assert_array_equal(got, want)
    nothing = run(device, torch.zeros(3, 4), times, np.array([0.5]), method="slerp")
    assert np.isnan(nothing).all(), "a quaternion of length 0 has no direction"


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_angle_is_numpys_unwrap(device, dtype):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 40))
        times = stamps(rng, count, "float64")
        turning = np.cumsum(rng.uniform(-3, 3, (count, 3)), axis=0)
        wrapped = torch.tensor((turning + np.pi) % (2 * np.pi) - np.pi).to(dtype)
        targets = between(rng, times, 50)
        got = run(device, wrapped, times, targets, method="angle")
        smooth = np.unwrap(wrapped.double().numpy(), axis=0)
        want = np.stack([np.interp(targets, times, column) for column in smooth.T], axis=1)
        apart = (got - want + np.pi) % (2 * np.pi) - np.pi
        assert np.abs(apart).max() <= TOLERANCE[dtype] * 10
        pi = torch.tensor(np.pi).to(dtype).item()
        assert (-pi <= got).all() and (got < pi).all()


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_angles_of_many_turns_are_in_the_circle_or_nan(device, dtype):
    # From 2 to the power of its digits on, the neighbours of a number are 2 rad apart.
    limit = 2.0**53 if dtype == torch.float64 else 2.0**24
    sizes = [4.0, 100.0, 1e6, 1.6e7, limit / 2, limit * 2, limit * 4, 1e30]
    for size in sizes:
        values = torch.tensor([[size, -size], [size * 0.75, -0.5 * size]]).to(dtype)
        got = run(device, values, [0.0, 1.0], [0.0, 0.25, 0.5, 1.0], method="angle")
        lost = values.double().abs().numpy()[[0, 0, 0, 1]] >= limit
        pi = torch.tensor(np.pi).to(dtype).item()
        assert (np.isnan(got) == lost).all(), size
        assert ((np.abs(got) <= pi) | lost).all(), size
        if size == 100.0:
            ends = values.double().numpy()
            assert np.abs(np.sin(got[[0, 3]]) - np.sin(ends)).max() < 1e-2
    # Both hold an angle, but what lies between them does not.
    apart = torch.tensor([[-0.75], [0.75]]).to(dtype) * limit
    got = run(device, apart, [0.0, 1.0], [0.0, 0.5, 1.0], method="angle")
    assert np.isnan(got[:, 0]).tolist() == [False, True, False]
    zero = torch.zeros((1, 2), dtype=dtype)
    far = torch.cat([zero, torch.full_like(zero, 1e30)])
    got = run(device, far, [0.0, 1.0], [0.0, 0.5, 1.0], method="angle")
    assert (got[0] == 0).all() and np.isnan(got[1:]).all()


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rot6d_is_linear_then_gram_schmidt(device, dtype):
    rng = np.random.default_rng(0)
    times = stamps(rng, 20, "float64")
    values = torch.tensor(rng.normal(size=(20, 12))).to(dtype)
    targets = np.concatenate([between(rng, times, 60), times, [times[0] - 1, times[-1] + 1]])
    got = run(device, values, times, targets, method="rot6d").reshape(-1, 2, 2, 3)
    blended = run(device, values.double(), times, targets).reshape(-1, 2, 2, 3)
    first = blended[:, :, 0] / np.linalg.norm(blended[:, :, 0], axis=-1, keepdims=True)
    rest = blended[:, :, 1] - (first * blended[:, :, 1]).sum(-1, keepdims=True) * first
    second = rest / np.linalg.norm(rest, axis=-1, keepdims=True)
    # Nearly parallel columns lose digits; unit vectors are compared as a whole.
    assert np.abs(got - np.stack([first, second], axis=2)).max() <= TOLERANCE[dtype] * 50
    assert np.abs((got[:, :, 0] * got[:, :, 1]).sum(-1)).max() <= TOLERANCE[dtype] * 50


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("method", RICH)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_one_rounding_from_float32(device, method, dtype):
    rng = np.random.default_rng(1)
    times = stamps(rng, 30, "int64")
    values = torch.tensor(rng.normal(size=(30, 12))).to(dtype)
    targets = between(rng, times, 80)
    got = run(device, values, times, targets, method=method)
    wide = run(device, values.float(), times, targets, method=method)
    np.testing.assert_array_equal(got, torch.tensor(wide).to(dtype).double().numpy())


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_column_ranges_are_the_methods_side_by_side(device, dtype):
    ranges = [("linear", 0, 3), ("slerp", 3, 11), ("previous", 11, 12), ("angle", 12, 14)]
    ranges += [("rot6d", 14, 20), ("nearest", 20, 22), ("cubic", 22, 25), ("next", 25, 26)]
    rng = np.random.default_rng(2)
    times = np.stack([stamps(rng, 25, "int64") for _ in range(3)])
    times[:, 7] = times[:, 6]
    values = torch.tensor(rng.normal(size=(3, 25, 26))).to(dtype)
    values[1, 4] = torch.nan
    targets = np.concatenate([np.stack([between(rng, row, 40) for row in times]), times], axis=1)
    targets[:, 0] = times[:, 0] - 5
    options = {"lengths": torch.tensor([25, 20, 0], device=device), "max_gap": 0.03}
    place = [torch.as_tensor(x).to(device) for x in (values, times, targets)]
    got, valid = rc.resample(*place, method=ranges[::-1], return_valid=True, **options)
    for method, start, end in ranges:
        part = place[0][:, :, start:end]
        alone, own = rc.resample(part, *place[1:], method=method, return_valid=True, **options)
        torch.testing.assert_close(got[..., start:end], alone, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(valid, own)


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("method", ["linear", *RICH])
def test_nan_reaches_only_those_who_use_it(device, method):
    times, targets = np.arange(9.0), np.arange(0, 8.01, 0.25)
    values = torch.randn(9, 12, dtype=torch.float64)
    values[4] = torch.nan
    got = run(device, values, times, targets, method=method)
    near = (targets > 3) & (targets < 5) | (targets == 4)
    if method == "cubic":
        # Slopes reach one sample further, but not to the samples themselves.
        near = (targets > 2) & (targets < 6) & ((targets % 1 != 0) | (targets == 4))
    assert (np.isnan(got).any(axis=1) == near).all()


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_is_read_exactly(device, dtype):
    """Every code there is, as torch reads it, with and without a scale, by every kind of method."""
    codes = torch.arange(256, dtype=torch.uint8).reshape(32, 8)
    stored, numbers = codes.view(dtype), codes.view(dtype).float()
    times = np.arange(32.0)
    exactly = run(device, stored, times, times, method="previous")
    np.testing.assert_array_equal(exactly, numbers.double().numpy())
    rng = np.random.default_rng(4)
    targets, scales = rng.uniform(-1, 33, 80), torch.tensor(rng.uniform(0.5, 2, 8)).float()
    for scale, factor in ((None, 1.0), (0.25, 0.25), (scales, scales)):
        given = scale.to(device) if isinstance(scale, torch.Tensor) else scale
        for method in ("linear", "nearest", "slerp", [("previous", 0, 3), ("cubic", 3, 8)]):
            got = run(device, stored, times, targets, method=method, scale=given)
            want = run(device, numbers * factor, times, targets, method=method)
            np.testing.assert_array_equal(got, want)
    place = [torch.as_tensor(x).to(device) for x in (stored, times, targets)]
    assert rc.resample(*place).dtype == torch.float32
    assert rc.resample(*place, out_dtype=torch.float16).dtype == torch.float16
    wide = torch.zeros(32, 2, dtype=torch.float16, device=device)
    streams = [rc.Stream(place[0], place[1], scale=0.5), rc.Stream(wide, place[1])]
    fused = rc.fuse(streams, place[2])
    assert fused.dtype == torch.float32
    np.testing.assert_array_equal(
        fused[:, :8].double().cpu(), run(device, numbers * 0.5, times, targets)
    )


def test_float8_of_numpy_and_what_it_cannot_do():
    types = pytest.importorskip("ml_dtypes")
    values = np.array([[1.5], [-2.0], [0.125]]).astype(types.float8_e4m3fn)
    times = np.arange(3.0)
    got = rc.resample(values, times, np.array([0.5, 2.0]))
    assert got.dtype == np.float32 and got.ravel().tolist() == [-0.25, 0.125]
    with pytest.raises(rc.InvalidArgument, match="expected a float, got float8_e4m3fn"):
        rc.resample(values, times, times, method="previous", out_dtype="float8_e4m3fn")
    with pytest.raises(rc.InvalidArgument, match="float8_e4m3fn"):
        rc.voxelize(
            np.zeros((4, 3), types.float8_e4m3fn), origin=(0, 0, 0), voxel_size=1, shape=(2, 2, 2)
        )


@pytest.mark.parametrize("device", ON)
def test_int8_with_a_scale(device):
    rng = np.random.default_rng(3)
    times, targets = np.arange(20.0), rng.uniform(-1, 21, 60)
    stored = torch.tensor(rng.integers(-128, 128, (20, 8)), dtype=torch.int8)
    scales = torch.tensor(rng.uniform(0.01, 0.1, 8), dtype=torch.float32)
    for scale, numbers in (
        (0.05, stored.float() * np.float32(0.05)),
        (scales, stored.float() * scales),
    ):
        for method in ("linear", "slerp", "previous"):
            where = scale.to(device) if isinstance(scale, torch.Tensor) else scale
            got = run(device, stored, times, targets, method=method, scale=where)
            np.testing.assert_array_equal(got, run(device, numbers, times, targets, method=method))
    half = rc.resample(
        *(torch.as_tensor(x).to(device) for x in (stored, times, targets)),
        scale=0.5,
        out_dtype=torch.bfloat16,
    )
    assert half.dtype == torch.bfloat16
