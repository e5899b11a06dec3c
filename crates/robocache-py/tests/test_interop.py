"""Tensors of every framework in and out: who owns the result, what is copied, what is written."""

from __future__ import annotations

import array
import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch

import robocache as rc
from cases_clouds import GRID
from fake_dlpack import CUDA, READ_ONLY, Producer
from generate import random_values
from helpers import COPIED, assert_same_bits, dtype_of, on, to_numpy, to_torch
from refusal import assert_refused

# Both are in requirements.txt; a GPU machine may have neither.
jax, jnp = pytest.importorskip("jax"), pytest.importorskip("jax.numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

VALUES = np.arange(24, dtype=np.float32).reshape(2, 4, 3) * 1.5
TIMES = np.array([0, 10, 20, 40])
TARGETS = np.array([[-1, 0, 5, 17, 40], [3, 20, 39, 41, 10]])
WANT = rc.resample(VALUES, TIMES, TARGETS)


class Foreign:
    """Some framework that knows DLPack and nothing else."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class OldForeign(Foreign):
    """The same from before versions existed: `__dlpack__` takes no `max_version`."""

    def __dlpack__(self, stream=None):
        return self.tensor.__dlpack__()


MAKERS = {
    "numpy": np.array,
    "torch": to_torch,
    "foreign": lambda x: Foreign(np.array(x)),
    "old-foreign": lambda x: OldForeign(np.array(x)),
    "legacy-capsule": lambda x: Producer(np.array(x)),
    "versioned-capsule": lambda x: Producer(np.array(x), versioned=True),
    "list": lambda x: np.asarray(x).tolist(),
}
RESULTS = {"torch": torch.Tensor}


@pytest.mark.parametrize(("first", "rest"), itertools.product(MAKERS, MAKERS))
def test_frameworks_mix_and_the_values_decide(first, rest):
    plain = VALUES.astype(np.float64) if first == "list" else VALUES  # lists hold doubles
    values = MAKERS[first](plain)
    times, targets = MAKERS[rest](TIMES), MAKERS[rest](TARGETS)
    lengths = MAKERS[rest](np.array([4, 4]))
    out, valid = rc.resample(values, times, targets, lengths=lengths, return_valid=True)
    kind = RESULTS.get(first, np.ndarray)
    assert type(out) is kind and type(valid) is kind
    assert_same_bits(out, rc.resample(plain, TIMES, TARGETS))
    assert to_numpy(valid).dtype == np.bool_
    for argument in (values, times, targets, lengths):
        if isinstance(argument, Producer):
            assert argument.exported
            argument.assert_nothing_leaked()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "uint8", "int32"])
def test_jax_in_jax_out(dtype):
    values = jnp.asarray(VALUES).astype(dtype)
    method = "linear" if "float" in dtype else "nearest"
    out, valid = rc.resample(values, TIMES, TARGETS, method=method, return_valid=True)
    assert isinstance(out, jax.Array) and isinstance(valid, jax.Array)
    assert out.dtype == values.dtype and valid.dtype == bool
    assert_same_bits(out, rc.resample(np.asarray(values), TIMES, TARGETS, method=method))
    times, targets = (jnp.asarray(x, jnp.float32) for x in (TIMES, TARGETS))
    seconds = [np.asarray(x) for x in (times, targets)]
    got = rc.resample(np.asarray(values), times, targets, method=method)
    assert type(got) is np.ndarray
    assert_same_bits(got, rc.resample(np.asarray(values), *seconds, method=method))


def test_jax_arrays_cannot_be_written():
    """They are constants by contract, whatever their memory would allow."""
    out = jnp.zeros((2, 5, 3), jnp.float32)
    assert_refused(
        lambda: rc.resample(jnp.asarray(VALUES), TIMES, TARGETS, out=out), "InvalidArgument", "out"
    )
    assert (np.asarray(out) == 0).all()


@pytest.mark.parametrize("dtype", COPIED)
def test_every_dtype_in_numpy_and_torch(dtype):
    values = random_values(np.random.default_rng(3), (2, 4, 3), dtype)
    for_numpy = rc.resample(values, TIMES, TARGETS, method="previous")
    for_torch = rc.resample(to_torch(values), TIMES, TARGETS, method="previous")
    assert type(for_numpy) is np.ndarray and type(for_torch) is torch.Tensor
    assert for_numpy.dtype == dtype_of(dtype)
    assert for_torch.dtype == getattr(torch, dtype)
    assert_same_bits(for_torch, for_numpy)


def test_bfloat16_of_ml_dtypes():
    values = VALUES.astype(ml_dtypes.bfloat16)
    out = rc.resample(values, TIMES, TARGETS)
    assert out.dtype == ml_dtypes.bfloat16
    assert_same_bits(out, rc.resample(to_torch(values), TIMES, TARGETS))
    given = np.zeros(out.shape, ml_dtypes.bfloat16)
    assert rc.resample(values, TIMES, TARGETS, out=given) is given
    assert_same_bits(given, out)


@pytest.mark.parametrize("steps", [3, 400_000], ids=["small", "large"])
def test_bfloat16_without_ml_dtypes_says_what_is_missing(steps, monkeypatch):
    """Small results lie in NumPy's memory, large ones in the engine's own."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    targets, points = np.arange(steps) % 40, np.zeros((1, 3, 3), np.float32)
    for call, op in (
        (lambda: rc.resample(VALUES, TIMES, targets, out_dtype="bfloat16"), "resample"),
        (lambda: rc.fuse([rc.Stream(VALUES, TIMES)], targets, out_dtype="bfloat16"), "fuse"),
        (lambda: rc.voxelize(points, dtype="bfloat16", **GRID), "voxelize"),
    ):
        assert_refused(call, "Unsupported", "out", "pip install ml_dtypes", op=op)
    # torch has its own.
    kept = rc.resample(torch.from_numpy(VALUES), TIMES, targets, out_dtype="bfloat16")
    assert kept.dtype == torch.bfloat16


# -- what is copied ---------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("how", ["big-endian", "read-only", "unaligned", "list", "odd-strides"])
def test_what_cannot_be_viewed_is_copied(which, how):
    arguments = [VALUES.astype(np.float64), TIMES.copy(), TARGETS.copy()]
    want = rc.resample(*arguments)
    plain = arguments[which]
    if how == "big-endian":
        odd = plain.astype(plain.dtype.newbyteorder(">"))
    elif how == "read-only":
        odd = plain.copy()
        odd.flags.writeable = False
    elif how == "unaligned":
        odd = np.zeros(plain.nbytes + 3, np.uint8)[3:].view(plain.dtype).reshape(plain.shape)
        odd[...] = plain
        assert not odd.flags.aligned
    elif how == "list":
        odd = plain.tolist()
    else:  # a field of packed records: strides are no multiple of the element
        records = np.zeros(plain.shape, [("flag", "u1"), ("x", plain.dtype)])
        records["x"] = plain
        odd = records["x"]
        assert odd.strides[-1] % odd.itemsize != 0
    before = np.array(odd)
    arguments[which] = odd
    out = rc.resample(*arguments)
    assert type(out) is np.ndarray
    assert_same_bits(out, want)
    np.testing.assert_array_equal(np.array(odd), before)


def test_a_read_only_dlpack_tensor_can_be_read_but_not_written():
    values = Producer(VALUES, versioned=True, flags=READ_ONLY)
    assert_same_bits(rc.resample(values, TIMES, TARGETS), WANT)
    values.assert_nothing_leaked()
    out = Producer(np.zeros_like(WANT), versioned=True, flags=READ_ONLY)
    assert_refused(
        lambda: rc.resample(VALUES, TIMES, TARGETS, out=out), "InvalidArgument", "out", "read-only"
    )
    out.assert_nothing_leaked()


def test_python_sequences_and_buffers():
    assert_same_bits(
        rc.resample([[0.0], [4.0]], (0, 8), [2, 4, 8]), np.array([[1.0], [2.0], [4.0]])
    )
    stamps = array.array("q", [0, 8])
    assert_same_bits(rc.resample([[0.0], [4.0]], stamps, [2]), np.array([[1.0]]))
    for ragged in ([[1.0], [2.0, 3.0]], [["a"], ["b"]], [[None], [None]]):
        assert_refused(lambda x=ragged: rc.resample(x, [0, 1], [0]), "InvalidArgument", "values")


def test_a_newer_dlpack_is_refused_by_version():
    producer = Producer(VALUES, versioned=True, version=(2, 0))
    assert_refused(lambda: rc.resample(producer, TIMES, TARGETS), "Unsupported", "values", "2.0")
    producer.assert_nothing_leaked()


def test_a_capsule_that_was_used_before_is_refused():
    class Stale(Foreign):
        """Returns the same capsule every time."""

        def __init__(self):
            super().__init__(VALUES)
            self.capsule = VALUES.__dlpack__()

        def __dlpack__(self, **_):
            return self.capsule

    stale = Stale()
    assert_same_bits(rc.resample(stale, TIMES, TARGETS), WANT)
    assert_refused(
        lambda: rc.resample(stale, TIMES, TARGETS), "InvalidArgument", "values", "DLPack"
    )


@pytest.mark.parametrize("answer", [None, 5, "capsule", object()])
def test_an_object_that_lies_about_dlpack(answer):
    class Liar(Foreign):
        def __dlpack__(self, **_):
            return answer

    liar = Liar(VALUES)
    assert_refused(lambda: rc.resample(liar, TIMES, TARGETS), "InvalidArgument", "values")


def test_an_exception_of_the_producer_is_told():
    class Broken(Foreign):
        def __dlpack__(self, **_):
            raise BufferError("the lid is stuck")

    broken = Broken(VALUES)
    assert_refused(lambda: rc.resample(broken, TIMES, TARGETS), "Unsupported", "values", "lid")


@pytest.mark.parametrize("device", [(4, 0), (99, 0), (-1, 0)])
def test_devices_of_others_are_refused(device):
    producer = Producer(VALUES, device=device)
    assert_refused(
        lambda: rc.resample(producer, TIMES, TARGETS), "Unsupported", "values", str(device[0])
    )
    producer.assert_nothing_leaked()


def test_cuda_memory_beside_host_memory_is_refused():
    """Claims to live on a GPU, so its pointer must not be touched: it is a bad one."""
    producer = Producer(TIMES, data=64, device=(CUDA, 0))
    assert_refused(
        lambda: rc.resample(VALUES, producer, TARGETS), "InvalidArgument", "times", "cuda"
    )
    producer.assert_nothing_leaked()


# -- out= -------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_out_is_written_in_place_and_returned(framework, device):
    if framework == "numpy" and device != "cpu":
        pytest.skip("NumPy lives on the host")
    place = on(device, framework)
    arguments = place(VALUES), place(TIMES), place(TARGETS)
    out = place(np.full_like(WANT, 7.0))
    address = out.data_ptr() if framework == "torch" else out.ctypes.data
    assert rc.resample(*arguments, out=out) is out
    assert_same_bits(out, WANT)
    assert address == (out.data_ptr() if framework == "torch" else out.ctypes.data)
    valid = place(np.zeros((2, 5), bool))
    both = rc.resample(*arguments, out=(out, valid), return_valid=True)
    assert both[0] is out and both[1] is valid
    one = rc.resample(*arguments, out=out, return_valid=True)
    assert one[0] is out
    assert_same_bits(one[1], valid)


def test_out_may_come_from_another_framework():
    out = torch.zeros(2, 5, 3)
    assert rc.resample(VALUES, TIMES, TARGETS, out=out) is out
    assert_same_bits(out, WANT)


def test_out_may_be_any_view_and_only_it_is_written(device):
    place = on(device)
    arguments = place(VALUES), place(TIMES), place(TARGETS)
    for name, make in {
        "transposed": lambda: place(np.full((3, 5, 2), 7.0, "f4")).permute(2, 1, 0),
        "every second": lambda: place(np.full((2, 5, 6), 7.0, "f4"))[:, :, 1::2],
        "column range": lambda: place(np.full((2, 5, 9), 7.0, "f4"))[:, :, 4:7],
        "rows apart": lambda: place(np.full((4, 7, 3), 7.0, "f4"))[1::2, 1:6],
    }.items():
        view = make()
        untouched = view.untyped_storage().nbytes() // 4 - view.numel()
        rc.resample(*arguments, out=view)
        assert_same_bits(view, WANT, name)
        whole = torch.empty(0, dtype=torch.float32, device=view.device)
        whole.set_(view.untyped_storage())
        assert int((whole == 7.0).sum()) >= untouched, f"{name}: wrote beside the view"


BAD_OUT = [
    pytest.param(np.zeros((2, 5, 4), "f4"), r"\[2, 5, 3\].*\[2, 5, 4\]", id="width"),
    pytest.param(np.zeros((2, 3), "f4"), r"\[2, 5, 3\]", id="rank"),
    pytest.param(np.zeros((2, 5, 3), "f8"), "float32.*float64", id="dtype"),
    pytest.param(np.zeros((2, 5, 3), ">f4"), "", id="big-endian"),
    pytest.param(np.broadcast_to(np.float32(0), (2, 5, 3)), "", id="stride-0"),
    pytest.param([[0.0]], "list", id="list"),
    pytest.param(3.0, "", id="number"),
    pytest.param((np.zeros((2, 5, 3), "f4"), np.zeros((2, 5), bool)), "", id="one-too-many"),
    pytest.param((), "", id="empty-tuple"),
]


@pytest.mark.parametrize(("out", "message"), BAD_OUT)
def test_out_that_does_not_fit(out, message):
    assert_refused(
        lambda: rc.resample(VALUES, TIMES, TARGETS, out=out), "InvalidArgument", "out", message
    )


def test_out_that_is_read_only():
    out = np.zeros_like(WANT)
    out.flags.writeable = False
    assert_refused(
        lambda: rc.resample(VALUES, TIMES, TARGETS, out=out), "InvalidArgument", "out", "read-only"
    )
    assert (out == 0).all()


def test_valid_that_does_not_fit():
    out, valid = np.zeros_like(WANT), np.zeros((2, 4), bool)
    for bad in (valid, np.zeros((2, 5), np.uint8)):
        assert_refused(
            lambda v=bad: rc.resample(VALUES, TIMES, TARGETS, out=(out, v), return_valid=True),
            "InvalidArgument",
            "valid",
        )
    shared = np.zeros(30 * 4 + 10, np.uint8)
    pair = shared[:120].view(np.float32).reshape(2, 5, 3), shared[100:110].view(bool).reshape(2, 5)
    assert_refused(
        lambda: rc.resample(VALUES, TIMES, TARGETS, out=pair, return_valid=True),
        "InvalidArgument",
        "valid",
    )


# -- streams and dates ------------------------------------------------------------------------


def test_dates_say_how_they_become_nanoseconds():
    dates = np.array(TIMES, "datetime64[us]")
    texts = set()
    for values in (torch.tensor(VALUES), torch.tensor(VALUES, requires_grad=True)):
        call = lambda v=values: rc.resample(v, dates, TARGETS)  # noqa: E731
        texts.add(str(assert_refused(call, "Unsupported", "times", r"datetime64\[ns\].*int64")))
    assert len(texts) == 1
    in_nanoseconds = dates.astype("datetime64[ns]").astype("int64")
    assert_same_bits(rc.resample(VALUES, in_nanoseconds, TARGETS * 1000), WANT)


@pytest.mark.parametrize("wanted", [False, True], ids=["engine", "torch"])
def test_stamps_as_they_lie(wanted):
    """Swapped bytes and negative strides, also where torch must see the call."""
    values = torch.tensor(VALUES, requires_grad=wanted)
    back = np.array(TARGETS[:, ::-1])[:, ::-1]
    for times, targets in (
        (TIMES.astype(">i8"), TARGETS),
        (TIMES, back),
        (TIMES[::-1][::-1], back),
    ):
        assert_same_bits(rc.resample(values, times, targets).detach(), WANT)


def test_streams_of_every_framework_in_one_call():
    makers = [MAKERS[name] for name in ("torch", "numpy", "foreign", "list")] + [jnp.asarray]
    want = np.concatenate([WANT.astype(np.float64)] * len(makers), axis=-1)
    seconds = [x.astype(np.float32) for x in (TIMES, TARGETS)]  # JAX has no doubles of its own
    for turn in range(len(makers)):
        turned = makers[turn:] + makers[:turn]
        streams = [rc.Stream(make(VALUES), np.array(seconds[0])) for make in turned]
        out, valid, age = rc.fuse(
            streams, seconds[1], out_dtype="float64", return_valid=True, return_age=True
        )
        kind = type(turned[0](VALUES))
        kind = np.ndarray if kind in (list, Foreign) else kind
        assert all(isinstance(result, kind) for result in (out, valid, age)), kind
        np.testing.assert_allclose(np.asarray(out), want, rtol=2e-6)
        assert np.asarray(valid).dtype == np.bool_ and np.asarray(age).dtype == np.float32


def test_jax_streams_in_jax_out():
    values, other = jnp.asarray(VALUES), jnp.asarray(VALUES[..., :2]).astype(jnp.bfloat16)
    times, targets = (jnp.asarray(x, jnp.float32) for x in (TIMES, TARGETS))
    made = rc.fuse([rc.Stream(values, times), rc.Stream(other, times, method="next")], targets)
    assert isinstance(made, jax.Array) and made.dtype == jnp.float32 and made.shape == (2, 5, 5)
    plain = rc.resample(VALUES, np.asarray(times), np.asarray(targets))
    np.testing.assert_array_equal(np.asarray(made)[..., :3], plain)


# -- nothing is copied that need not be -------------------------------------------------------

MEASURE_COPIES = """
import resource, sys
import numpy as np, torch, jax.numpy as jnp, robocache as rc
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
space = {"numpy": np, "torch": torch, "jax": jnp}[sys.argv[1]]
rows, width = 1024, 65536
times = np.arange(rows)
rc.resample(space.ones((rows, 1), dtype=space.float32), times, times[:2])
values = space.ones((rows, width), dtype=space.float32)
start = peak()
rc.resample(values, times, times[:2])
after_call = peak()
copy = np.array(values)
print(after_call - start, peak() - start)
"""


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_inputs_are_not_copied(framework):
    """256 MiB of values, two targets: the peak of the process must hardly move."""
    command = [sys.executable, "-c", MEASURE_COPIES, framework]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    by_call, by_copy = (int(word) for word in done.stdout.split())
    assert by_call < 64, f"the call took {by_call} MiB"
    if by_copy <= 192:
        pytest.skip("the peak of this process's memory does not show copies here")


def test_references_are_given_back():
    """After good and refused calls alike."""
    values, times, targets = VALUES.copy(), TIMES.copy(), to_torch(TARGETS)
    out = np.zeros_like(WANT)
    objects = [values, times, targets, out]

    def calls():
        rc.resample(values, times, targets, out=out)
        rc.resample(values, times, targets, return_valid=True)
        for bad in ({"method": "none"}, {"max_gap": -1.0}, {"out": values}):
            with pytest.raises(rc.InvalidArgument):
                rc.resample(values, times, targets, **bad)

    calls()
    before = [sys.getrefcount(x) for x in objects]
    for _ in range(100):
        calls()
    assert [sys.getrefcount(x) for x in objects] == before


def test_objects_whose_array_must_be_copied_again():
    """NumPy makes a big-endian array of a memoryview; the copy of that array must stay alive."""
    times = memoryview(np.arange(100_000, dtype=">f8"))
    values = np.arange(100_000.0)[:, None]
    targets = np.arange(0.5, 99_998.0)
    for _ in range(20):
        out = rc.resample(values, times, targets)
        np.ones(100_000)  # Takes the memory over if it was given back.
        assert np.array_equal(out[:, 0], targets)
