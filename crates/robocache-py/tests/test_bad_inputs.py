"""The faults of docs/faults.md: ids carry their numbers.

Each is refused with a typed error that names the argument, or has a defined result; either way
the process stays healthy and the next good call works. Numbers that need a GPU are not here.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oracle
import robocache as rc
from fake_dlpack import COMPLEX, FLOAT, OPAQUE, Producer
from helpers import FLOATS, assert_matches, assert_same_bits, dtype_of, on, to_numpy
from refusal import assert_refused, assert_works

VALUES = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
TIMES = np.array([0.0, 1.0, 2.0])
TARGETS = np.array([0.5, 1.0, 1.75])


def refused(error, argument, message="", values=VALUES, times=TIMES, targets=TARGETS, **keywords):
    def call():
        return rc.resample(values, times, targets, **keywords)

    return assert_refused(call, error, argument, message)


# -- sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", ["values", "times", "targets"])
@pytest.mark.parametrize("rank", [0, 9], ids=["1-rank-0", "2-rank-9"])
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_ranks(argument, rank, framework, device):
    if framework == "numpy" and device != "cpu":
        pytest.skip("NumPy lives on the host")
    dtype = VALUES.dtype if argument == "values" else TIMES.dtype
    place = on(device, framework)
    arguments = {"values": VALUES, "times": TIMES, "targets": TARGETS}
    arguments[argument] = np.ones((1,) * rank, dtype)
    arguments = {name: place(array) for name, array in arguments.items()}
    refused("InvalidArgument", argument, "", **arguments)


def test_3_batch_0_is_empty(device):
    place = on(device)
    out, valid = rc.resample(place(VALUES[:0]), place(TIMES), place(TARGETS), return_valid=True)
    assert out.shape == (0, 3, 2) and valid.shape == (0, 3)
    assert out.dtype == torch.float32 and valid.dtype == torch.bool
    no_stamps = place(np.zeros((0, 3)))
    assert rc.resample(place(VALUES[:1]), no_stamps, place(TARGETS)).shape == (0, 3, 2)
    refused(
        "InvalidArgument",
        "times",
        "0",
        values=place(VALUES),
        times=no_stamps,
        targets=place(TARGETS),
    )
    assert_works()


def test_4_no_targets_is_empty(device):
    place = on(device)
    out, valid = rc.resample(place(VALUES), place(TIMES), place(TARGETS[:0]), return_valid=True)
    assert out.shape == (2, 0, 2) and valid.shape == (2, 0)
    assert rc.resample(place(VALUES[:, :, :0]), place(TIMES), place(TARGETS)).shape == (2, 3, 0)
    assert_works()


@pytest.mark.parametrize("extrapolate", oracle.EXTRAPOLATIONS)
def test_5_one_sample(extrapolate, device):
    place = on(device)
    values, times = VALUES[:, :1], TIMES[:1] + 1.0
    targets = np.array([1.0]) if extrapolate == "error" else np.array([-9.0, 1.0, 5.0])
    out, valid = rc.resample(
        place(values), place(times), place(targets), extrapolate=extrapolate, return_valid=True
    )
    assert_matches(
        out, valid, oracle.resample(values, times, targets, extrapolate=extrapolate), values
    )
    if extrapolate in ("clamp", "linear"):
        assert_same_bits(out, np.repeat(values, 3, axis=1))


@pytest.mark.parametrize("shape", [(0, 2), (2, 0, 2), (0, 0)])
def test_6_no_samples(shape):
    times = np.zeros(0)
    refused("InvalidArgument", "values", "no samples", np.zeros(shape, "f4"), times)
    refused("InvalidArgument", "values", "no samples", np.zeros(shape, "f4"), times, check=False)


@pytest.mark.parametrize("argument", ["times", "targets", "lengths", "target_lengths"])
def test_7_batches_differ(argument):
    wrong = {"times": np.stack([TIMES] * 3), "targets": np.stack([TARGETS] * 3)}
    changed = wrong.get(argument, np.ones(3, np.int64))
    refused("InvalidArgument", argument, "3.*2", **{argument: changed})


def huge(batch, source, dim):
    """A tensor that claims a size without having it: every stride is 0."""
    return torch.zeros(1).expand(batch, source, dim)


def huge_targets(steps):
    return torch.zeros(1, dtype=torch.float64).expand(steps)


@pytest.mark.parametrize(
    ("batch", "steps", "dim"),
    [
        pytest.param(2**30, 2**40, 2**28, id="8-elements-overflow-u64"),
        pytest.param(2**21, 2**22, 2**21, id="8-elements-are-2**64"),
        pytest.param(2**30, 2**30, 4, id="9-bytes-overflow-u64"),
        pytest.param(2**30, 2**30, 2, id="9-bytes-overflow-isize"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_sizes_that_overflow(batch, steps, dim, check):
    values, times = huge(batch, 2, dim), torch.tensor([0.0, 1.0], dtype=torch.float64)
    refused(
        "InvalidArgument", "out", "address space", values, times, huge_targets(steps), check=check
    )


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_10_an_output_that_no_allocator_can_give(framework):
    """512 TiB: more than the addresses of a process. The allocator itself must say no."""
    values, times = huge(2**20, 2, 2**7), torch.tensor([0.0, 1.0], dtype=torch.float64)
    targets = huge_targets(2**20)
    if framework == "numpy":
        values = np.broadcast_to(np.float32(0), values.shape)
        times, targets = times.numpy(), np.broadcast_to(np.float64(0), 2**20)
    raised = refused("OutOfMemory", "out", "", values, times, targets)
    assert isinstance(raised, MemoryError)


# -- dtypes and memory ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int8", "bool"])
def test_13_integers_where_floats_are_needed(dtype, device):
    values = on(device)(np.ones((3, 2), dtype))
    place = on(device)
    refused("InvalidArgument", "values", dtype, values, place(TIMES), place(TARGETS))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.ones((3, 2), np.complex64), id="14-numpy-complex64"),
        pytest.param(np.ones((3, 2), np.complex128), id="14-numpy-complex128"),
        pytest.param(torch.ones(3, 2, dtype=torch.complex64), id="14-torch-complex64"),
        pytest.param(np.ones((3, 2), "datetime64[ns]"), id="14-datetime"),
        pytest.param(np.ones((3, 2), np.longdouble), id="14-long-double"),
        pytest.param(np.ones((3, 2), "V3"), id="14-void"),
    ],
)
def test_dtypes_that_are_not_supported(values):
    name = str(values.dtype).removeprefix("torch.").split("[")[0]
    name = "complex" if "complex" in name else name
    name = "" if name in ("|V3", "float128") else name  # no common word for these
    refused("Unsupported", "values", name, values)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_14_quantised():
    quantised = torch.quantize_per_tensor(torch.zeros(3, 2), 0.1, 0, torch.quint8)
    refused("Unsupported", "values", "(?i)quint|quantized", quantised)


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param((COMPLEX, 64, 1), id="14-complex"),
        pytest.param((OPAQUE, 64, 1), id="14-opaque"),
        pytest.param((FLOAT, 32, 4), id="14-four-lanes"),
        pytest.param((FLOAT, 128, 1), id="14-float128"),
        pytest.param((200, 8, 1), id="14-unknown-code"),
    ],
)
def test_foreign_dlpack_dtypes(dtype):
    producer = Producer(np.zeros((3, 2), np.float64), dtype=dtype)
    refused("Unsupported", "values", "", producer)
    producer.assert_nothing_leaked()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("stamp_dtype", ["int64", "float64", "float32"])
def test_15_values_and_stamps_may_differ_in_dtype(dtype, stamp_dtype, device):
    """Allowed: values are blended in their own type, differences of stamps taken in theirs."""
    place = on(device)
    values = VALUES.astype(dtype_of(dtype))
    scale = 10**9 if stamp_dtype == "int64" else 1
    times, targets = ((x * scale).astype(stamp_dtype) for x in (TIMES, TARGETS))
    out = rc.resample(place(values), place(times), place(targets))
    assert_matches(out, None, oracle.resample(values, times, targets), values)
    if stamp_dtype != "float64":
        refused(
            "InvalidArgument", "targets", "float64", place(values), place(times), place(TARGETS)
        )


@pytest.mark.parametrize("argument", ["values", "times", "targets"])
def test_16_big_endian(argument):
    want = rc.resample(VALUES, TIMES, TARGETS)
    arguments = {"values": VALUES, "times": TIMES, "targets": TARGETS}
    array = arguments[argument]
    arguments[argument] = array.astype(array.dtype.newbyteorder(">"))
    assert_same_bits(rc.resample(**arguments), want)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_17_negative_strides(axis):
    backwards = np.flip(np.flip(VALUES, axis).copy(), axis)
    assert backwards.strides[axis] < 0
    want = rc.resample(VALUES, TIMES, TARGETS)
    assert_same_bits(rc.resample(backwards, TIMES[::-1].copy()[::-1], TARGETS), want)
    out = np.zeros((2, 3, 2), np.float32)
    rc.resample(VALUES, TIMES, TARGETS, out=np.flip(out, axis))
    assert_same_bits(np.flip(out, axis), want)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_18_an_expanded_output(axis, device):
    place = on(device)
    shape = [2, 3, 2]
    shape[axis] = 1
    out = place(np.zeros(shape, np.float32)).expand(2, 3, 2)
    arguments = place(VALUES), place(TIMES), place(TARGETS)
    refused("InvalidArgument", "out", "", *arguments, out=out)
    assert (to_numpy(out) == 0).all(), "a refused call must not write"


def test_18_an_output_whose_rows_overlap(device):
    place = on(device)
    out = torch.as_strided(place(np.zeros(16, np.float32)), (2, 3, 2), (5, 2, 1))
    refused("InvalidArgument", "out", "", place(VALUES), place(TIMES), place(TARGETS), out=out)


@pytest.mark.parametrize("argument", ["values", "times", "targets"])
def test_19_output_over_an_input(argument, device):
    place = on(device)
    arguments = {
        "values": place(np.ones((1, 3, 2), np.float64)),
        "times": place(np.array([[0.0, 1.0, 2.0]])),
        "targets": place(np.array([[0.5, 1.0, 1.5]])),
    }
    flat = arguments[argument].reshape(-1)
    out = torch.as_strided(flat, (1, 3, 2), (6, 2, 1)) if argument == "values" else None
    if out is None:  # an output that starts inside the stamps: [1,3,2] over a larger buffer
        buffer = place(np.zeros(12, np.float64))
        buffer[2:5] = flat
        arguments[argument] = buffer[2:5].reshape(1, 3)
        out = buffer[4:10].reshape(1, 3, 2)
    before = {name: to_numpy(x).copy() for name, x in arguments.items()}
    refused("InvalidArgument", "out", argument, **arguments, out=out)
    for name, tensor in arguments.items():
        assert_same_bits(tensor, before[name], "a refused call must not write")


def test_20_views_equal_their_copies(device):
    """In full in test_resample_properties.py; here the plainest of them."""
    place = on(device)
    values = place(VALUES)
    want = rc.resample(values, place(TIMES), place(TARGETS))
    turned = values.transpose(1, 2).contiguous().transpose(1, 2)
    stepped = place(np.repeat(TIMES, 2))[::2]
    assert not turned.is_contiguous() and not stepped.is_contiguous()
    assert_same_bits(rc.resample(turned, stepped, place(TARGETS)), want)


@pytest.mark.parametrize("dtype", FLOATS)
def test_21_one_element_off(dtype, device):
    place = on(device)
    rng = np.random.default_rng(21)
    values = rng.normal(size=(64, 40)).astype(dtype_of(dtype))
    times, targets = np.arange(64.0), rng.uniform(0, 63, 100)
    want = rc.resample(place(values), place(times), place(targets))
    flat = place(np.concatenate([values.reshape(-1)[:1], values.reshape(-1)]))
    out = place(np.zeros(4001, values.dtype))[1:].view(100, 40)
    off = flat[1:].view(64, 40)
    assert off.data_ptr() % 16 != 0 and out.data_ptr() % 16 != 0
    rc.resample(off, place(times), place(targets), out=out)
    assert_same_bits(out, want)


def unaligned(array: np.ndarray) -> np.ndarray:
    """The same array at an odd address."""
    raw = np.zeros(array.nbytes + 1, np.uint8)
    view = raw[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    assert not view.flags.aligned
    return view


@pytest.mark.parametrize("argument", ["values", "times", "targets"])
def test_22_unaligned_arrays(argument):
    arguments = {"values": VALUES, "times": TIMES, "targets": TARGETS}
    want = rc.resample(**arguments)
    arguments[argument] = unaligned(arguments[argument])
    assert_same_bits(rc.resample(**arguments), want)


def test_22_an_unaligned_pointer_through_dlpack():
    producer = Producer(unaligned(VALUES))
    refused("InvalidArgument", "values", "align", producer)
    producer.assert_nothing_leaked()
    out = unaligned(np.zeros((2, 3, 2), np.float32))
    refused("InvalidArgument", "out", "cannot be written", out=out)


def test_23_a_null_pointer():
    nothing = Producer(np.zeros((0, 3, 2), np.float32), data=0)
    assert np.asarray(rc.resample(nothing, TIMES, TARGETS)).shape == (0, 3, 2)
    nothing.assert_nothing_leaked()
    something = Producer(VALUES, data=0)
    refused("InvalidArgument", "values", "(?i)null", something)
    something.assert_nothing_leaked()
    stamps = Producer(TIMES, data=0)
    refused("InvalidArgument", "times", "(?i)null", times=stamps)
    stamps.assert_nothing_leaked()


def test_30_stamps_that_need_a_gradient(device):
    """There is one in the values only: see test_gradients.py."""
    place = on(device)
    values = place(VALUES).requires_grad_()
    rest = place(TIMES), place(TARGETS)
    stamps = rest[0].double().clone().requires_grad_()
    refused("Unsupported", "times", "grad", values, stamps, rest[1].double())
    with torch.no_grad():
        out = rc.resample(values, *rest)
    assert_same_bits(out, rc.resample(values.detach(), *rest))
    assert not out.requires_grad


# -- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [False, True], ids=["engine", "torch"])
@pytest.mark.parametrize("name", ["return_valid", "return_age", "check"])
@pytest.mark.parametrize("given", [1, "no", 0.0], ids=str)
def test_switches_that_are_neither_on_nor_off(name, given, wanted):
    """The same words whether torch must see the call or not."""
    values, times = torch.ones(3, 2, requires_grad=wanted), torch.arange(3.0)
    message = f"expected True or False, got {type(given).__name__}"
    call = lambda: rc.fuse([rc.Stream(values, times)], times, **{name: given})  # noqa: E731
    assert_refused(call, "InvalidArgument", name, message, op="fuse")
    if name != "return_age":
        refused("InvalidArgument", name, message, values, times, times, **{name: given})


@pytest.mark.parametrize("wanted", [False, True], ids=["engine", "torch"])
def test_options_as_files_of_settings_and_numpy_have_them(wanted):
    values = torch.rand(3, 2, dtype=torch.float64, requires_grad=wanted)
    times = torch.arange(3.0)
    ranges = [("linear", 0, 1), ("previous", 1, 2)]
    want = rc.resample(values, times, times + 0.5, method=ranges)
    got = rc.resample(values, times, times + 0.5, method=[list(item) for item in ranges])
    assert torch.equal(got, want)
    # Python's float has 64 bits, torch.float 32.
    for out_dtype, dtype in ((float, torch.float64), (torch.float, torch.float32)):
        assert rc.resample(values, times, times, out_dtype=out_dtype).dtype == dtype
    for name in ("half", "f16", "float16", "torch.float16"):
        assert rc.resample(values, times, times, out_dtype=name).dtype == torch.float16
    for name in ("long", "int", "floaty"):
        refused("InvalidArgument", "out_dtype", f'"{name}"', values, times, times, out_dtype=name)
    for method in ([("linear", 0, -1)], [("linear", 0, 1.5)], [["linear", 0]]):
        refused(
            "InvalidArgument",
            "method",
            "whole numbers from 0 on",
            values,
            times,
            times,
            method=method,
        )


def test_a_scale_that_numpy_computed():
    values = np.array([[1], [2], [3]], np.int8)
    scale = np.abs(np.array([1.0, 63.5])).max() / 127
    assert type(scale) is np.float64
    result = rc.resample(values, TIMES, TIMES, scale=scale)
    assert result.dtype == np.float32 and result.tolist() == [[0.5], [1.0], [1.5]]


@pytest.mark.parametrize("wanted", [False, True], ids=["engine", "torch"])
def test_devices_in_lists(wanted):
    values, times = torch.ones(3, 2, requires_grad=wanted), torch.arange(3.0)
    for device in ("cpu", ["cpu"], (torch.device("cpu"),)):
        assert torch.equal(rc.resample(values, times, times, device=device), values)
    refused("InvalidArgument", "device", "empty list", values, times, times, device=[])
    within_itself = []
    within_itself.append(within_itself)
    for device, given in (([["cpu"]], "list"), ([None], "NoneType"), (within_itself, "list")):
        refused("InvalidArgument", "device", f"got {given}", values, times, times, device=device)
    refused("InvalidArgument", "device", "tpu", values, times, times, device=["tpu"])
    with pytest.raises(rc.RoboCacheError) as caught:
        rc.resample(values, times, times, device=["cuda:0", "cuda:1"])
    assert caught.value.argument == "device"


# -- stamps whose difference is no number -----------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["linear", "cubic", "slerp", "angle", "nearest", "previous", "next"]
)
def test_a_gap_that_overflows_is_not_valid(method, device):
    place, most = on(device), float(np.finfo("float64").max)
    values = place(np.arange(16.0).reshape(4, 4))
    times = place(np.array([-most, most * 0.9, most * 0.95, most]))
    targets = place(np.array([-most, 0.0, most * 0.92, most]))
    for _ in range(2):
        _, valid = rc.resample(values, times, targets, method=method, return_valid=True)
        # Between the first two lies more than any number of seconds; hits and short gaps are fine.
        assert valid.tolist() == [True, False, True, True]
    _, valid = rc.fuse([rc.Stream(values, times, method=method)], targets, return_valid=True)
    assert valid.reshape(-1).tolist() == [True, False, True, True]
    with_gap, _ = rc.resample(
        values, times, targets, method=method, max_gap=1e300, return_valid=True
    )
    plain = rc.resample(values, times, targets, method=method)
    assert_same_bits(with_gap, plain)
