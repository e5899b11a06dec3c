"""fuse: N streams are N calls of resample side by side, in one tensor and one launch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import robocache as rc
from agreement import assert_same
from devices import DEVICES, marks

ON = [pytest.param(device, marks=marks(device)) for device in DEVICES]
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
BLENDS = ("linear", "cubic", "slerp", "angle", "rot6d")
COPIES = ("nearest", "previous", "next")


def random_times(rng, batch, count, kind):
    gaps = rng.uniform(0.001, 0.05, (batch, count))
    gaps[rng.random((batch, count)) < 0.1] = 0
    seconds = np.cumsum(gaps, axis=1)
    if kind == torch.int64:
        return torch.tensor(1_760_000_000_000_000_000 + np.rint(seconds * 1e9).astype(np.int64))
    return torch.tensor(seconds).to(kind)


def random_stream(rng, batch, kind, dtypes):
    """A stream and what `resample` is to be called with."""
    dtype = dtypes[rng.integers(len(dtypes))]
    count = int(rng.integers(1, 60))
    rows = batch if rng.random() < 0.7 else None
    method = rng.choice(COPIES if dtype in INTEGERS or rng.random() < 0.4 else BLENDS)
    width = int(rng.integers(1, 4)) * {"slerp": 4, "rot6d": 6}.get(method, int(rng.integers(1, 9)))
    if rng.random() < 0.3 and dtype in FLOATS:
        method = [
            ("slerp", 0, 4),
            ("previous", 4, 5),
            ("linear", 5, 5 + width),
            ("cubic", 5 + width, 6 + width),
        ]
        width += 6
    elif rng.random() < 0.3 and dtype in INTEGERS:
        method, width = [("next", 0, 1), ("nearest", 1, 2 + width)], width + 2
    shape = (count, width) if rows is None else (rows, count, width)
    values = torch.tensor(rng.normal(size=shape) * 50).to(dtype)
    times = random_times(rng, rows or 1, count, kind)
    times = times[0] if rows is None or rng.random() < 0.2 else times
    options = {"method": method}
    if rng.random() < 0.5:
        options["max_gap"] = float(rng.choice([0.0, 0.01, 0.03]))
    if rng.random() < 0.4 and times.dim() == 2:
        options["lengths"] = torch.tensor(rng.integers(0, count + 1, batch))
    return values, times, options


def to(device, x):
    return x.to(device) if isinstance(x, torch.Tensor) else x


def promoted(streams):
    dtype = streams[0][0].dtype
    for values, _, _ in streams[1:]:
        dtype = torch.promote_types(dtype, values.dtype)
    return dtype


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("kind", [torch.int64, torch.float64, torch.float32])
@pytest.mark.parametrize(
    "dtypes",
    [*((x,) for x in FLOATS), FLOATS, (torch.uint8,), INTEGERS, FLOATS + INTEGERS],
    ids=str,
)
def test_streams_side_by_side(device, kind, dtypes):
    """Floats bit for bit with one stream alone, integers after one conversion."""
    for seed in range(12):
        rng = np.random.default_rng([seed, len(dtypes)])
        batch, steps = int(rng.integers(1, 5)), int(rng.integers(1, 40))
        streams = [random_stream(rng, batch, kind, dtypes) for _ in range(int(rng.integers(1, 9)))]
        span = max(float((t.max() - t.min()).item()) for _, t, _ in streams)
        start = min(t.min().item() for _, t, _ in streams)
        offsets = rng.uniform(-0.1, 1.1, (batch, steps)) * span
        targets = (torch.tensor(offsets).to(kind) + start).to(kind)
        for _, times, _ in streams:
            if times.dim() == 1 and rng.random() < 0.5:
                targets[0, 0] = times[-1]
        lengths = torch.tensor(rng.integers(0, steps + 1, batch)) if rng.random() < 0.5 else None
        made = [
            rc.Stream(
                to(device, v), to(device, t), **{k: to(device, o) for k, o in options.items()}
            )
            for v, t, options in streams
        ]
        got, valid, age = rc.fuse(
            made,
            to(device, targets),
            target_lengths=to(device, lengths),
            return_valid=True,
            return_age=True,
        )
        assert (
            got.dtype == promoted(streams)
            and valid.dtype == torch.bool
            and age.dtype == torch.float32
        )
        start = 0
        for index, (values, times, options) in enumerate(streams):
            options |= {"out_dtype": got.dtype} if values.dtype in FLOATS else {}
            out, ok = rc.resample(
                values, times, targets, target_lengths=lengths, return_valid=True, **options
            )
            part = got[..., start : start + values.shape[-1]].cpu()
            start += values.shape[-1]
            want = out.to(got.dtype).expand_as(part)
            if values.dtype not in FLOATS and got.dtype in FLOATS:
                missing = torch.isnan(part)
                assert not ok.expand(part.shape[:-1])[missing.any(-1)].any()
                part = torch.where(missing, want, part)
            assert_same(part, want.contiguous(), (seed, index, values.dtype, options["method"]))
            assert torch.equal(valid[..., index].cpu(), ok.expand(part.shape[:-1])), (seed, index)
        assert start == got.shape[-1]


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("kind", [torch.int64, torch.float64])
def test_age_is_the_time_since_the_newest_sample(device, kind):
    scale = 1_000_000_000 if kind == torch.int64 else 1.0
    times = (torch.tensor([0.0, 0.5, 0.5, 2.0], dtype=torch.float64) * scale).to(kind)
    targets = (torch.tensor([-1.0, 0.0, 0.25, 0.5, 1.5, 2.0, 7.0], dtype=torch.float64) * scale).to(
        kind
    )
    stream = rc.Stream(torch.zeros(4, 1, device=device), times.to(device))
    _, age = rc.fuse([stream, rc.Stream(None, dim=2)], targets.to(device), return_age=True)
    expected = torch.tensor([torch.nan, 0.0, 0.25, 0.0, 1.0, 0.0, 5.0])
    torch.testing.assert_close(age[:, 0].cpu(), expected, equal_nan=True, rtol=0, atol=0)
    assert age[:, 1].isnan().all()


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_ages_of_targets_that_are_no_times(device, kind):
    inf, nan = torch.inf, torch.nan
    times = torch.tensor([0.0, 2.0], dtype=kind, device=device)
    targets = torch.tensor([[inf, -inf, nan, 1.0, 3.0]], dtype=kind, device=device)
    streams = [rc.Stream(torch.ones(2, 3, device=device), times), rc.Stream(None, dim=2)]
    ends = torch.tensor([4], device=device)
    options = {"return_valid": True, "return_age": True, "target_lengths": ends}
    out, valid, age = rc.fuse(streams, targets, **options)
    assert age[0, :, 0].cpu().tolist()[0] == inf and age[0, 3, 0] == 1
    assert age[0, [1, 2, 4], 0].isnan().all() and age[0, :, 1].isnan().all()
    assert valid[0, :, 0].tolist() == [False, False, False, True, False]
    assert not valid[0, :, 1].any()
    assert (out[0, [0, 1, 3], :3] == 1).all() and out[0, [2, 4], :3].isnan().all()
    assert (out[0, :, 3:] == 0).all(), "a missing stream is 0 in padding too"


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64])
def test_a_missing_modality_is_zero_and_never_valid(device, dtype):
    values = torch.ones(2, 3, 5, dtype=dtype, device=device)
    times = torch.arange(3.0, device=device)
    made = [
        rc.Stream(None, dim=6),
        rc.Stream(values, times, method="previous"),
        rc.Stream(None, dim=1),
    ]
    out, valid = rc.fuse(made, times, return_valid=True)
    assert out.dtype == dtype and out.shape == (2, 3, 12)
    assert (out[..., :6] == 0).all() and (out[..., 6:11] == 1).all() and (out[..., 11] == 0).all()
    assert valid.tolist() == [[[False, True, False]] * 3] * 2
    alone = rc.fuse([rc.Stream(None, dim=4)], times)
    assert alone.shape == (3, 4) and alone.dtype == torch.float32 and not alone.any()


@pytest.mark.parametrize("device", ON)
def test_lengths_of_a_missing_modality_are_of_the_batch(device):
    times = torch.arange(3.0, device=device)
    lengths = torch.tensor([1, 2, 3], device=device)
    there = rc.Stream(torch.ones(3, 4, device=device), times)
    away = rc.Stream(
        None, dim=6, lengths=lengths, max_gap=1, method=[("slerp", 0, 4), ("next", 4, 6)]
    )
    for call in (rc.fuse, torch.compile(rc.fuse, backend="eager", fullgraph=True)):
        out, valid = call([there, away], times, return_valid=True)
        assert out.shape == (3, 3, 10) and (out[..., :4] == 1).all() and not out[..., 4:].any()
        assert valid[..., 0].all() and not valid[..., 1].any()


@pytest.mark.parametrize("device", ON)
def test_many_streams_and_out(device):
    times, targets = torch.arange(20.0, device=device), torch.rand(3, 11, device=device) * 25
    values = [
        torch.randn(20, width, device=device)
        for width in itertools.islice(itertools.cycle((1, 4, 3, 8)), 32)
    ]
    made = [rc.Stream(v, times) for v in values]
    want = torch.cat([rc.resample(v, times, targets) for v in values], dim=-1)
    assert torch.equal(rc.fuse(made, targets), want)
    padded = torch.full((3, 13, want.shape[-1] + 3), 7.0, device=device)
    view = padded[:, 1:12, 1:-2]
    assert rc.fuse(made, targets, out=view) is view
    assert torch.equal(view, want)
    view.fill_(7.0)
    assert (padded == 7.0).all()
    assert rc.fuse(made[:1], targets, out_dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16], ids=str)
def test_out_of_any_strides_where_rows_are_kept_near(dtype, device):
    times, targets = torch.arange(40.0, device=device), torch.rand(300, 50, device=device) * 39
    values = [torch.randint(-9, 9, (300, 40, w), device=device).to(dtype) for w in (32, 64, 3, 1)]
    method = "linear" if dtype.is_floating_point else "nearest"
    made = [rc.Stream(v, times, method=method) for v in values]
    want = torch.cat([rc.resample(v, times, targets, method=method) for v in values], dim=-1)
    wide = torch.full((300, 50, 200), 7, dtype=dtype, device=device)
    turned = torch.full((100, 300, 50), 7, dtype=dtype, device=device)
    for out in (wide[..., ::2], wide[..., :100], turned.permute(1, 2, 0)):
        rc.fuse(made, targets, out=out)
        assert torch.equal(out, want)
        out.fill_(7)
        assert (wide == 7).all() and (turned == 7).all()


# Widths of streams, with units of 16 bytes down to one number, and targets: of whole and broken lines.
LINES = [
    ((512, 64, 12), 50),
    ((16, 48), 256),
    ((64, 64), 33),
    ((8,) * 16, 40),
    ((4,) * 12, 30),
    ((5, 3, 7), 24),
    ((24, 40), 1),
]


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", [torch.int64, torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("widths", "count"), LINES, ids=str)
def test_lines_of_rows_that_are_kept_near(widths, count, kind, dtype, device):
    """Many short rows of lines alone, which a GPU has a kernel of its own for: the bits of the CPU."""
    rng = np.random.default_rng([*widths, count])
    # Rows of whole vectors of 16 bytes, which alone are kept; of one sample where there is one target.
    batch, samples = 140, [8 * int(rng.integers(1, 4)) if count > 1 else 1 for _ in widths]
    streams = []
    for width, length in zip(widths, samples, strict=True):
        values = rng.normal(size=(batch, length, width)) * rng.choice(
            [1, 1e-30, 1e30], (batch, 1, 1)
        )
        # Too large for a difference, and what is no number.
        worst = float(torch.finfo(dtype).max)
        some = rng.random(values.shape) < 0.02
        values[some] = rng.choice([np.nan, np.inf, -np.inf, worst, -worst, 0.0, -0.0], some.sum())
        streams.append((torch.tensor(values).to(dtype), random_times(rng, batch, length, kind)))
    first, last = streams[0][1][:, :1], streams[0][1][:, -1:]
    part = torch.tensor(rng.uniform(-0.2, 1.2, (batch, count)))
    targets = (first + ((last - first).double() * part).to(kind)).contiguous()
    exact = torch.tensor(rng.random((batch, count)) < 0.2)
    on = streams[-1][1][:, torch.tensor(rng.integers(0, samples[-1], count))]
    targets = torch.where(exact, on, targets)
    outside = {"extrapolate": "clamp"}, {"extrapolate": "nan"}, {"extrapolate": "linear"}
    for options in (*outside, {"check": False}):
        want = rc.fuse([rc.Stream(v, t) for v, t in streams], targets, **options)
        made = [rc.Stream(v.to(device), t.to(device)) for v, t in streams]
        assert_same(rc.fuse(made, targets.to(device), **options).cpu(), want, options)
    # An output that begins anywhere in a line, and touches nothing around it.
    numbers = want.numel()
    for shift in (1, 4, 8, 40):
        memory = torch.full((numbers + 80,), 7, dtype=dtype, device=device)
        rc.fuse(made, targets.to(device), out=memory[shift : shift + numbers].view(want.shape))
        rest = torch.cat([memory[:shift], memory[shift + numbers :]])
        assert bool((rest == 7).all()), shift
        assert_same(
            memory[shift : shift + numbers].view(want.shape).cpu(),
            rc.fuse([rc.Stream(v, t) for v, t in streams], targets),
        )


# Streams as widths and methods, whose columns end anywhere in a row; samples, targets and rows.
POSE = [("linear", 0, 7), ("slerp", 7, 11), ("previous", 11, 12)]
FRAME = [("rot6d", 0, 6), ("angle", 6, 7), ("cubic", 7, 9)]
NARROW = [
    ([(12, POSE)], 64, 256, 300),
    ([(12, POSE)], 512, 300, 150),  # Two tiles, the second not full.
    ([(12, POSE)], 20_000, 1024, 12),  # More stamps than shared memory holds.
    ([(12, POSE), (9, FRAME), (2, "next")], 32, 64, 600),
    ([(5, "linear"), (None, 3), (4, "slerp")], 30, 132, 300),
    ([(4, "slerp"), (1, "nearest")], 7, 16, 400),
    ([(4, "slerp"), (1, "nearest")], 7, 100_003, 1),  # A last vector that is not full.
    ([(4, "slerp"), (1, "nearest")], 7, 1, 400),
    ([(12, POSE), (9, FRAME)], 32, 51, 9),  # A block for each segment.
    ([(9, FRAME), (12, POSE)], 900, 260, 3),
    (
        [(16, [("slerp", 0, 8), ("linear", 8, 11), ("slerp", 11, 15), ("next", 15, 16)])],
        64,
        256,
        300,
    ),
    ([(90, [("angle", 0, 1), ("linear", 1, 90)])], 40, 256, 40),
    ([(140, [("angle", 0, 1), ("linear", 1, 140)])], 40, 256, 40),  # Too wide to be collected.
]


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("dtypes", [*([dtype] for dtype in FLOATS), FLOATS], ids=str)
@pytest.mark.parametrize(("streams", "samples", "count", "batch"), NARROW, ids=str)
def test_narrow_results_of_several_methods(streams, samples, count, batch, dtypes, device):
    """A GPU collects them before it writes; the bits of the CPU, and nothing around them."""
    rng = np.random.default_rng([samples, count, batch])
    times = random_times(rng, batch, samples, torch.float64)
    part = torch.tensor(rng.uniform(-0.1, 1.1, (batch, count)))
    targets = times[:, :1] + (times[:, -1:] - times[:, :1]) * part
    short = {
        "lengths": torch.tensor(rng.integers(0, samples + 1, batch)),
        "target_lengths": torch.tensor(rng.integers(0, count + 1, batch)),
    }
    values = []
    for index, (width, _) in enumerate(streams):
        numbers = torch.tensor(rng.normal(size=(batch, samples, width or 1)))
        numbers[numbers > 2.5] = torch.nan
        values.append(numbers.to(dtypes[index % len(dtypes)]))

    def call(device, lengths=None, **options):
        made = [
            rc.Stream(None, dim=method)
            if width is None
            else rc.Stream(
                v.to(device), times.to(device), method=method, max_gap=0.5, lengths=lengths
            )
            for v, (width, method) in zip(values, streams, strict=True)
        ]
        return rc.fuse(made, targets.to(device), **options)

    want, valid = call("cpu", return_valid=True, **short)
    got, own = call(device, return_valid=True, **{k: x.to(device) for k, x in short.items()})
    assert_same(got.cpu(), want)
    assert torch.equal(own.cpu(), valid)
    want = call("cpu")
    assert_same(call(device).cpu(), want)
    numbers, width = want[0].numel(), want.shape[2]
    # From any place on, and with rows of the batch apart by whole vectors: nothing else is touched.
    for shift, pad in ((0, 0), (8, 0), (3, 0), (0, 16 + -numbers % 16)):
        memory = torch.full((8 + batch * (numbers + pad),), 7, dtype=want.dtype, device=device)
        rows = memory[shift : shift + batch * (numbers + pad)].view(batch, numbers + pad)
        out = rows[:, :numbers].unflatten(1, (count, width))
        call(device, out=out)
        assert_same(out.cpu(), want, (shift, pad))
        out.fill_(7)
        assert bool((memory == 7).all()), (shift, pad)
    wide = torch.full((batch, count, width + 1), 7, dtype=want.dtype, device=device)
    call(device, out=wide[..., :-1])
    assert_same(wide[..., :-1].cpu(), want)
    assert bool((wide[..., -1] == 7).all())


@pytest.mark.parametrize("device", ON)
def test_bad_rows_among_those_that_are_kept_near(device):
    """The bad stream and row are named; on a GPU all else is whole."""
    times = torch.arange(20.0).repeat(200, 2, 1)
    times[77, 1, 5] = 3.0  # goes back
    values, targets = torch.rand(200, 20, 16), torch.rand(200, 40) * 19

    def call(second, targets, **options):
        made = [rc.Stream(values.to(device), t.to(device)) for t in (times[:, 0], second)]
        return rc.fuse(made, targets.to(device), **options).cpu()

    def told(second, targets, **options):
        call(second, targets, **options)
        rc.synchronize()

    with pytest.raises(rc.InvalidArgument, match=r"streams\[1\]") as raised:
        told(times[:, 1], targets)
    assert "77" in str(raised.value)
    with pytest.raises(rc.InvalidArgument, match="targets"):
        told(times[:, 0], targets + 15, extrapolate="error")
    want = call(times[:, 0], targets)
    if device == "cuda":
        got = call(times[:, 1], targets)
        with pytest.raises(rc.InvalidArgument, match=r"streams\[1\]"):
            rc.synchronize()
        assert bool(got[77, :, 16:].isnan().all())
        got[77, :, 16:] = want[77, :, 16:]
        assert_same(got, want)


@pytest.mark.parametrize("device", ON)
def test_empty_sizes(device):
    times = torch.arange(3.0, device=device)
    stream = rc.Stream(torch.ones(3, 2, device=device), times)
    assert rc.fuse([stream], times[:0]).shape == (0, 2)
    assert rc.fuse([stream], torch.ones(0, 4, device=device)).shape == (0, 4, 2)
    out, valid = rc.fuse(
        [rc.Stream(torch.ones(3, 0, device=device), times)], times, return_valid=True
    )
    assert out.shape == (3, 0) and valid.all()


def test_numpy_in_numpy_out():
    made = rc.fuse([rc.Stream(np.ones((3, 2), "f4"), np.arange(3.0))], np.array([0.5]))
    assert isinstance(made, np.ndarray) and made.dtype == np.float32


@pytest.mark.gpu
@pytest.mark.skipif(DEVICES == ["cpu"], reason="needs a GPU")
class TestOnTheGpu:
    def test_bad_rows_are_reported_once_and_spoil_only_their_stream(self):
        times = torch.arange(3.0, device="cuda").repeat(2, 1)
        wrong = times.clone()
        wrong[1, 2] = 0
        values = torch.ones(2, 3, 4, device="cuda")
        out, valid = rc.fuse(
            [rc.Stream(values, times), rc.Stream(values, wrong)], times, return_valid=True
        )
        with pytest.raises(
            rc.InvalidArgument, match=r"fuse: streams\[1\].times: row 1 decreases at index 2"
        ):
            rc.synchronize()
        rc.synchronize()
        assert (
            not out[0].isnan().any()
            and not out[1, :, :4].isnan().any()
            and out[1, :, 4:].isnan().all()
        )
        assert valid.tolist() == [[[True, True]] * 3, [[True, False]] * 3]

    def test_a_graph_replays(self):
        times = torch.arange(30.0, device="cuda")
        streams = [
            rc.Stream(torch.randn(4, 30, w, device="cuda"), times, method=m)
            for w, m in ((8, "linear"), (4, "slerp"), (3, "cubic"))
        ]
        targets = torch.rand(4, 20, device="cuda") * 29
        rc.warmup("fuse", streams, targets)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = rc.fuse(streams, targets)
        targets.copy_(torch.rand(4, 20) * 29)
        graph.replay()
        assert torch.equal(out, rc.fuse(streams, targets))

    def test_more_samples_than_shared_memory_holds(self):
        times = torch.arange(40_000, dtype=torch.float64)
        values = torch.randn(40_000, 5)
        targets = torch.rand(2, 300, dtype=torch.float64) * 41_000
        for method in ("linear", "cubic", [("slerp", 0, 4), ("next", 4, 5)]):
            want = rc.fuse([rc.Stream(values, times, method=method)] * 2, targets)
            got = rc.fuse(
                [rc.Stream(values.cuda(), times.cuda(), method=method)] * 2, targets.cuda()
            )
            assert_same(got.cpu(), want, method)
