"""What `fuse` refuses, by the name of the stream and its argument, with and without gradients."""

from __future__ import annotations

import time

import pytest
import torch

import robocache as rc


def bad(error, argument, message, streams, targets=None, **options):
    return pytest.param(
        error, argument, message, streams, targets, options, id=f"{argument}: {message}"
    )


def good(**changes):
    return rc.Stream(**{"values": torch.ones(2, 3, 4), "times": torch.arange(3.0), **changes})


TARGETS = torch.tensor([[0.5, 1.5], [0.5, 1.5]])
INVALID, UNSUPPORTED = rc.InvalidArgument, rc.Unsupported


@pytest.mark.parametrize(
    ("error", "argument", "message", "streams", "targets", "options"),
    [
        bad(INVALID, "streams", "1 to 32", list),
        bad(INVALID, "streams", "1 to 32.*33", lambda: [good()] * 33),
        bad(INVALID, "streams", "1 to 32.*33", lambda: (good(),) * 33),
        bad(INVALID, "streams", "list of Stream", lambda: 3),
        bad(INVALID, "streams", "list of Stream, got range", lambda: range(2**60)),
        bad(INVALID, "streams", "list of Stream, got range", lambda: range(10**10)),
        bad(INVALID, "streams", "index 0, got int", lambda: [0] * 1_000_000),
        bad(INVALID, "streams", "index 1, got Tensor", lambda: [good(), torch.ones(2)]),
        bad(INVALID, "streams[0].times", "3 samples", lambda: [good(times=torch.arange(4.0))]),
        bad(INVALID, 'streams["arm"].times', "3 samples", lambda: [good(times=torch.arange(4.0), name="arm")]),
        bad(INVALID, "streams[1].values", "linear.*int32", lambda: [good(), good(values=torch.ones(3, 1, dtype=torch.int32))]),
        bad(INVALID, "streams[0].method", "no range covers column 3", lambda: [good(method=[("linear", 0, 3)])]),
        bad(INVALID, "streams[0].method", "overlaps", lambda: [good(method=[("linear", 0, 3), ("next", 2, 4)])]),
        bad(INVALID, "streams[0].method", "name, start, end", lambda: [good(method=[("linear", 0)])]),
        bad(INVALID, "streams[0].method", "expected one of.*slerp.*spline", lambda: [good(method="spline")]),
        bad(INVALID, "streams[0].values", "slerp takes 4 columns.*5", lambda: [good(values=torch.ones(3, 5), method="slerp")]),
        bad(INVALID, "streams[0].max_gap", "-1", lambda: [good(max_gap=-1.0)]),
        bad(INVALID, "streams[1].lengths", "row 1.*9", lambda: [good(), good(lengths=torch.tensor([3, 9]))]),
        bad(INVALID, "streams[1].times", "row 0.*index 2", lambda: [good(), good(times=torch.tensor([0.0, 2, 1]))]),
        bad(INVALID, "streams[0].scale", "int8.*float32", lambda: [good(scale=2.0)]),
        bad(INVALID, "streams[0].dim", "5 columns.*4", lambda: [good(dim=5)]),
        bad(INVALID, "streams[0].method", "no range covers columns 1 to 3", lambda: [good(method=[("linear", 0, 1)])]),
        bad(INVALID, "streams[0].method", "has no columns", lambda: [good(method=[("linear", 0, 4), ("next", 4, 4)])]),
        bad(INVALID, "streams[0].method", "has no columns", lambda: [good(method=[("linear", 3, 0)])]),
        bad(INVALID, "streams[0].method", "whole numbers from 0 on.*-1", lambda: [good(method=[("linear", -1, 4)])]),
        bad(INVALID, "streams[0].method", "ends after the last of 4", lambda: [good(method=[("linear", 0, 5)])]),
        bad(INVALID, "targets", "float32 seconds.*int64 nanoseconds", lambda: [good()], torch.zeros(2, dtype=torch.int64)),
        bad(INVALID, "targets", "float32 seconds.*float64 seconds", lambda: [good(), good()], TARGETS.double()),
        bad(INVALID, 'streams["imu"].times', "float32 seconds like the targets, got float64", lambda: [good(), good(times=torch.arange(3.0).double(), name="imu")]),
        bad(INVALID, "streams[1].times", "float64 seconds like the targets, got int64 nano", lambda: [good(times=torch.arange(3.0).double()), good(times=torch.arange(3))], TARGETS.double()),
        bad(INVALID, "streams[1].max_gap", "-1", lambda: [good(name="a"), good(name="a", max_gap=-1)]),
        bad(INVALID, 'streams["imu"].values', r'batch of 3, but streams\["arm"\].values has a batch of 2', lambda: [good(name="arm"), good(name="imu", values=torch.ones(3, 3, 4))], TARGETS[0]),
        bad(INVALID, "streams[1].lengths", r"batch of 3, but streams\[0\].values has a batch of 2", lambda: [good(), good(values=torch.ones(3, 4), lengths=torch.ones(3, dtype=torch.int64))], TARGETS[0]),
        bad(INVALID, 'streams["leg"].values', "batch of 2, but targets has a batch of 3", lambda: [good(name="arm", values=torch.ones(3, 4)), good(name="leg")], torch.ones(3, 2)),
        bad(INVALID, "targets", "stamps are.*got int32", lambda: [good(), good(times=torch.arange(3, dtype=torch.int32))], torch.zeros(2, dtype=torch.int32)),
        bad(INVALID, "targets", "stamps are.*got int32", lambda: [rc.Stream(None, dim=6)], torch.zeros(2, dtype=torch.int32)),
        bad(INVALID, "target_lengths", "got float32", lambda: [rc.Stream(None, dim=6)], target_lengths=torch.ones(2)),
        bad(INVALID, "streams[0].values", "dimensions|axes|shape", lambda: [good(values=torch.ones(2, 3, 4, 5))]),
        bad(UNSUPPORTED, "extrapolate", "previous", lambda: [good(), rc.Stream(None, dim=6, method="previous")], extrapolate="linear"),
        bad(INVALID, "streams[1].max_gap", "-1", lambda: [good(), rc.Stream(None, dim=6, max_gap=-1)]),
        bad(INVALID, "streams[1].dim", "slerp takes 4 columns at a time, got 6", lambda: [good(), rc.Stream(None, dim=6, method="slerp")]),
        bad(INVALID, "streams[1].method", "no range covers columns 4 to 5", lambda: [good(), rc.Stream(None, dim=6, method=[("slerp", 0, 4)])]),
        bad(INVALID, "streams[1].lengths", "int32 or int64, got float32", lambda: [good(), rc.Stream(None, dim=6, lengths=torch.ones(2))]),
        bad(INVALID, "streams[1].lengths", r"batch of 3, but streams\[0\].values has a batch of 2", lambda: [good(), rc.Stream(None, dim=6, lengths=torch.ones(3, dtype=torch.int64))], TARGETS[0]),
        bad(INVALID, "streams[1].scale", "1 or 6 numbers, got 5", lambda: [good(), rc.Stream(None, dim=6, scale=torch.ones(5))]),
        bad(INVALID, "streams[1].scale", "expected a tensor or numbers", lambda: [good(), rc.Stream(None, dim=6, scale="a")]),
        bad(INVALID, "out_dtype", "float.*int32", lambda: [good()], out_dtype=torch.int32),
        bad(INVALID, "out_dtype", "dtype such as", lambda: [good()], out_dtype="floaty"),
        bad(UNSUPPORTED, "extrapolate", "previous", lambda: [good(), good(method="previous")], extrapolate="linear"),
        bad(INVALID, "targets", "row 1 index 0 is 9", lambda: [good()], torch.tensor([[0.5], [9.0]]), extrapolate="error"),
        bad(INVALID, "target_lengths", "row 0 is 5", lambda: [good()], target_lengths=torch.tensor([5, 1])),
    ],
)  # fmt: skip
def test_refused_by_name(error, argument, message, streams, targets, options):
    targets = TARGETS if targets is None else targets
    with pytest.raises(error, match=message) as caught:
        rc.fuse(streams(), targets, **options)
    assert caught.value.op == "fuse" and caught.value.argument == argument
    with pytest.raises(error) as seen:
        rc.fuse(with_gradients(streams()), targets, **options)
    assert str(seen.value) == str(caught.value)


def with_gradients(streams):
    """The same streams, such that torch must see the call."""
    if not isinstance(streams, list):
        return streams
    for each in streams:
        if (
            isinstance(each, rc.Stream)
            and each.values is not None
            and each.values.is_floating_point()
        ):
            each.values.requires_grad_()
    return streams


def test_a_long_list_is_not_looked_at_to_its_end():
    streams, targets = [good()] * 40_000_000, TARGETS
    started = time.perf_counter()
    with pytest.raises(rc.InvalidArgument, match="1 to 32 streams, got 40000000"):
        rc.fuse(streams, targets)
    # To describe all of them took gigabytes and half a minute.
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"values": 1}, "times"),
        ({"times": 1}, "values"),
        ({}, "dim"),
        ({"dim": -1}, "dim"),
        ({"dim": 2, "name": 3}, "name"),
    ],
)
def test_a_stream_needs_all_of_its_parts(options, argument):
    with pytest.raises(rc.InvalidArgument) as caught:
        rc.Stream(**options)
    assert caught.value.argument == argument
