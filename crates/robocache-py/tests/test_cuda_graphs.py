"""CUDA graphs: captured after `rc.warmup`, replayed with other data; what `rc.warmup` does not do."""

from __future__ import annotations

import pytest
import torch

import oracle
import robocache as rc
from agreement import assert_same
from gpu import assert_gpu_works, capture
from refusal import assert_refused

pytestmark = pytest.mark.gpu

CALL = {"method": "linear", "extrapolate": "linear"}


def inputs(seed: int, dtype=torch.float32, batch=5, source=70, steps=90, dim=12):
    """values, times, targets on the CPU; other numbers for every seed."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-500, 500, (batch, source, dim), generator=generator).to(dtype)
    times = torch.cumsum(torch.randint(1, 99, (batch, source), generator=generator), 1)
    targets = torch.randint(-50, 4000, (batch, steps), generator=generator)
    return values, times, targets


def on_gpu(tensors):
    return [tensor.cuda() for tensor in tensors]


def load(static, tensors) -> None:
    for there, here in zip(static, tensors, strict=True):
        there.copy_(here)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
def test_a_replay_computes_anew(dtype):
    static = on_gpu(inputs(0, dtype))
    rc.warmup("resample", *static, **CALL)
    graph, out = capture(lambda: rc.resample(*static, **CALL))
    for seed in range(1, 6):
        fresh = inputs(seed, dtype)
        load(static, fresh)
        graph.replay()
        assert_same(out.cpu(), rc.resample(*fresh, **CALL), seed)
    assert_gpu_works()


@pytest.mark.parametrize("method", oracle.METHODS)
def test_lengths_and_valid_are_read_anew(method):
    static = on_gpu(inputs(0))
    options = {"method": method, "max_gap": 30e-9, "return_valid": True}
    lengths = torch.full((5,), 70, device="cuda")
    target_lengths = torch.full((5,), 90, device="cuda", dtype=torch.int32)
    ragged = {"lengths": lengths, "target_lengths": target_lengths}
    rc.warmup("resample", *static, **options, **ragged)
    graph, (out, valid) = capture(lambda: rc.resample(*static, **options, **ragged))
    for seed in range(1, 5):
        fresh = inputs(seed)
        generator = torch.Generator().manual_seed(seed)
        rows = {
            "lengths": torch.randint(0, 71, (5,), generator=generator),
            "target_lengths": torch.randint(0, 91, (5,), generator=generator, dtype=torch.int32),
        }
        load([*static, lengths, target_lengths], [*fresh, *rows.values()])
        graph.replay()
        want, want_valid = rc.resample(*fresh, **options, **rows)
        assert_same(out.cpu(), want, seed)
        assert_same(valid.cpu(), want_valid, seed)


def test_a_graph_with_several_calls_and_torch_between():
    static = on_gpu(inputs(0))
    values, times, targets = static
    out = torch.empty(5, 90, 12, device="cuda")

    grid = torch.arange(90, device="cuda") * 40

    def step():
        rc.resample(values, times, targets, out=out)
        doubled = out * 2 + 1
        return rc.resample(doubled, grid, targets, method="previous")

    rc.warmup("resample", values, times, targets)
    rc.warmup("resample", out, grid, targets, method="previous")
    step()  # torch warms up too
    graph, result = capture(step)
    for seed in range(1, 4):
        fresh = inputs(seed)
        load(static, fresh)
        graph.replay()
        doubled = rc.resample(*fresh) * 2 + 1
        want = rc.resample(doubled, grid.cpu(), fresh[2], method="previous")
        assert_same(result.cpu(), want, seed)


def test_eager_calls_between_replays_change_nothing():
    static = on_gpu(inputs(0))
    rc.warmup("resample", *static)
    graph, out = capture(lambda: rc.resample(*static))
    want = rc.resample(*inputs(0))
    for seed in range(3):
        rc.resample(*on_gpu(inputs(seed, torch.float64)))
        graph.replay()
        assert_same(out.cpu(), want)


def test_capture_on_a_stream_of_the_caller():
    static, side = on_gpu(inputs(0)), torch.cuda.Stream()
    rc.warmup("resample", *static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        out = rc.resample(*static)
    load(static, inputs(4))
    graph.replay()
    assert_same(out.cpu(), rc.resample(*inputs(4)))


def test_warmup_returns_nothing_computes_nothing_and_allocates_nothing():
    static = on_gpu(inputs(0))
    out = torch.full((5, 90, 12), 7.0, device="cuda")
    before = torch.cuda.memory_allocated()
    assert rc.warmup("resample", *static, out=out) is None
    assert rc.warmup("resample", *static, return_valid=True) is None
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
    assert bool((out == 7.0).all())
    assert rc.warmup("resample", *inputs(0)) is None  # nothing to do on the CPU


def test_warmup_does_not_look_at_the_data():
    values, times, targets = on_gpu(inputs(0))
    assert rc.warmup("resample", values, times.flip(1), targets) is None
    rc.synchronize()


def test_warmup_refuses_what_the_call_would_refuse():
    values, times, targets = on_gpu(inputs(0))
    refused = (
        ((values[0, 0], times, targets), {}, "InvalidArgument", "values"),
        ((values, times[:, 1:], targets), {}, "InvalidArgument", "times"),
        ((values, times, targets.float()), {}, "InvalidArgument", "targets"),
        ((values, times, targets), {"method": "quadratic"}, "InvalidArgument", "method"),
        ((values.int(), times, targets), {}, "InvalidArgument", "values"),
        ((values, times.cpu(), targets), {}, "InvalidArgument", "times"),
    )
    for arguments, options, error, argument in refused:
        assert_refused(
            lambda a=arguments, o=options: rc.warmup("resample", *a, **o), error, argument
        )
    with pytest.raises(TypeError):
        rc.warmup("resample", values, times)
    assert_refused(
        lambda: rc.warmup("resize", values, times, targets), "InvalidArgument", "op", op="warmup"
    )
    assert_gpu_works()  # computes: no refusal left the thread warming up
