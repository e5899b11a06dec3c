"""Paths that are no text, names that are none, and what errors make of control characters."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import robocache as rc
from cases_clouds import GRID
from refusal import assert_refused

TESTDATA = Path(__file__).resolve().parents[3] / "testdata"
SAMPLE = TESTDATA / "lerobot_v21"
HALF = "a\ud800"  # half a surrogate pair, which no system has in a path

pytestmark = pytest.mark.skipif(not SAMPLE.exists(), reason="no sample data here")


class Known:
    """A path of somebody else."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


# -- paths ----------------------------------------------------------------------------------------

NAMES = {"text": b"data", "no text": b"da\xffta", "newline": b"da\nta", "escape": b"da\x1b[2Jta"}
FORMS: dict[str, Callable[[bytes], object]] = {
    "bytes": lambda path: path,
    "str": os.fsdecode,
    "Path": lambda path: Path(os.fsdecode(path)),
    "bytes of somebody else": Known,
}


@pytest.fixture(params=NAMES)
def place(request, tmp_path) -> bytes:
    """A copy of the sample in a folder of an odd name."""
    path = os.fsencode(tmp_path) + b"/" + NAMES[request.param]
    try:
        shutil.copytree(os.fsencode(SAMPLE), path)
    except OSError:
        pytest.skip("this file system has no such names")
    return path


@pytest.mark.parametrize("form", FORMS)
def test_datasets_are_read_wherever_they_lie(form, place):
    dataset = rc.dataset(FORMS[form](place))
    want = rc.dataset(SAMPLE)
    assert os.fsencode(dataset.path) == place and len(dataset) == len(want)
    for name in ("action", *(name for name, info in want.streams.items() if info.kind == "video")):
        values = want.episode(1)[name].values
        np.testing.assert_array_equal(dataset.episode(1)[name].values, values)
    assert [f.code for f in dataset.check()] == [f.code for f in want.check()]
    assert len(pickle.loads(pickle.dumps(dataset))) == len(want)
    repr(dataset).encode()


@pytest.mark.parametrize("form", FORMS)
def test_caches_are_made_and_opened_wherever_they_lie(form, place):
    out = place + b"-cache"
    rc.ingest(SAMPLE, FORMS[form](out), images="skip", progress=False)
    cache = rc.open(FORMS[form](out))
    assert os.fsencode(cache.path) == out and cache.complete
    assert len(pickle.loads(pickle.dumps(cache))) == len(cache)
    repr(cache).encode()
    loader = rc.Loader(cache, 4, shuffle=False)
    again = pickle.loads(pickle.dumps(loader))
    assert torch.equal(next(iter(again))["action"], next(iter(loader))["action"])


def test_a_source_may_lie_anywhere(place):
    out = place + b"-cache"
    rc.ingest(place, out, images="skip", progress=False)
    # The same work again finds its source.
    assert rc.ingest(place, out, images="skip", progress=False).units_done == 0
    assert os.fsencode(rc.open(out).sources[0]["path"]) == os.path.realpath(place)


@pytest.mark.parametrize("wrong", [3, None, HALF, [b"a"], Path(HALF)], ids=ascii)
def test_what_is_no_path_is_refused_by_name(wrong, tmp_path):
    for call, op, argument in (
        (lambda: rc.dataset(wrong), "dataset", "path"),
        (lambda: rc.open(wrong), "open", "path"),
        (lambda: rc.ingest(wrong, tmp_path / "out"), "ingest", "path"),
        (lambda: rc.ingest(SAMPLE, wrong), "ingest", "out"),
    ):
        assert_refused(call, "InvalidArgument", argument, "expected a path", op=op)


# -- what errors show -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"a\nrobocache: all is well", b"a\x1b[2J", b"a\xff", b"a\r\x07"])
def test_errors_show_no_control_characters(name, tmp_path):
    path = os.path.join(os.fsencode(tmp_path), name)
    for call in (rc.dataset, rc.open):
        with pytest.raises(rc.FileError) as caught:
            call(path)
        text = str(caught.value)
        assert text.isprintable(), ascii(text)
        # The path itself stays usable.
        assert os.fsencode(caught.value.path).startswith(path)


# -- the command line -----------------------------------------------------------------------------


def command(*arguments: object) -> subprocess.CompletedProcess:
    line = [sys.executable, "-m", "robocache", *arguments]
    return subprocess.run(line, capture_output=True, timeout=120)


def test_commands_take_paths_that_are_no_text(place):
    out = place + b"-cache"
    for arguments in (
        ("inspect", place),
        ("inspect", "--json", place),
        ("ingest", "--json", "--images", "skip", SAMPLE, out),
        ("inspect", "--json", out),
        ("cache", "ls", "--json", out),
        ("cache", "ls", out),
        ("cache", "verify", "--json", out),
        ("cache", "gc", "--json", out),
    ):
        done = command(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        assert b"\x1b" not in done.stdout and b"da\nta" not in done.stdout
    assert command("check", "--json", place).returncode == command("check", SAMPLE).returncode


@pytest.mark.parametrize("name", [b"no\xff", b"no\nsuch", b"no\x1b[2J"])
def test_commands_refuse_what_is_not_there_on_one_line(name, tmp_path):
    path = os.path.join(os.fsencode(tmp_path), name)
    for arguments in (("inspect", path), ("check", path), ("cache", "ls", path)):
        done = command(*arguments)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"Traceback" not in done.stderr
        text = done.stderr.decode()
        assert text.endswith("\n") and text[:-1].isprintable(), ascii(text)


def test_options_that_are_no_text_are_refused():
    done = command("ingest", "--tag", b"a\xff", SAMPLE, "out")
    assert done.returncode == 2 and b"Traceback" not in done.stderr


def test_an_empty_path_is_refused_by_name(tmp_path):
    for call, op, argument in (
        (lambda: rc.dataset(""), "dataset", "path"),
        (lambda: rc.open(""), "open", "path"),
        (lambda: rc.ingest("", tmp_path / "cache"), "ingest", "path"),
        (lambda: rc.ingest(SAMPLE, ""), "ingest", "out"),
    ):
        assert_refused(call, "InvalidArgument", argument, "an empty one", op=op)


# -- names ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    out = tmp_path_factory.mktemp("names") / "cache"
    rc.ingest(SAMPLE, out, images="skip", progress=False)
    return rc.open(out)


INGEST = [
    {"streams": [HALF]},
    {"streams": {HALF: "b"}},
    {"streams": {"action": HALF}},
    {"streams": {"action": {"name": HALF}}},
    {"streams": {"action": {"dtype": HALF}}},
    {"streams": {3: "b"}},
    {"streams": [3]},
    {"streams": 3},
    {"methods": {HALF: "linear"}},
    {"methods": {"action": HALF}},
    {"methods": {"action": [(HALF, 0, 8)]}},
    {"methods": "linear"},
    {"images": HALF},
    {"images": None},
    {"tag": HALF},
    {"tag": 3},
    {"strict": 1},
    {"strict": "no"},
    {"progress": None},
]


@pytest.mark.parametrize("options", INGEST, ids=ascii)
def test_ingest_refuses_what_is_no_name(options, tmp_path):
    (argument,) = options
    options = {"images": "skip", "progress": False} | options
    call = lambda: rc.ingest(SAMPLE, tmp_path / "cache", **options)  # noqa: E731
    assert_refused(call, "InvalidArgument", argument, op="ingest")
    assert not (tmp_path / "cache").exists()


LOADER = [
    {"streams": HALF},
    {"streams": [HALF]},
    {"delta_timestamps": {HALF: [0.0]}},
    {"anchor": HALF},
    {"methods": {HALF: "linear"}},
    {"methods": {"action": HALF}},
    {"time_offset": {HALF: 0.0}},
    {"max_gap": {HALF: 1.0}},
    {"normalize": {HALF: "mean_std"}},
    {"normalize": {"action": HALF}},
    {"image_dtype": HALF},
    {"weights": {HALF: 1.0}},
    {"tasks": HALF},
    {"voxelize": {HALF: {}}},
    {"uneven": HALF},
    {"split": (HALF, 0.5)},
]


@pytest.mark.parametrize("options", LOADER, ids=ascii)
def test_the_loader_refuses_what_is_no_name(options, cache):
    (argument,) = options
    call = lambda: rc.Loader(cache, 4, **options)  # noqa: E731
    assert_refused(call, "InvalidArgument", argument, op="Loader")


@pytest.mark.parametrize("switch", [np.True_, np.False_], ids=repr)
def test_the_loader_takes_switches_of_numpy(switch, cache, tmp_path):
    loader = rc.Loader(cache, 4, shuffle=switch, drop_last=switch, causal=switch)
    assert loader.shuffle is bool(switch) and len(next(iter(loader))["index"]) == 4
    rc.ingest(SAMPLE, tmp_path / "c", images="skip", strict=switch, progress=np.False_)


def test_episodes_have_no_such_stream(cache):
    for episode in (rc.dataset(SAMPLE).episode(0), cache.episode(0)):
        assert HALF not in episode and episode.get(HALF) is None
        with pytest.raises(KeyError) as caught:
            episode[HALF]
        assert isinstance(caught.value, rc.InvalidArgument)
        assert caught.value.argument == "stream"


VALUES, STAMPS = np.ones((3, 2)), np.arange(3.0)
OPS = [
    ("resample", "method", HALF),
    ("resample", "method", [(HALF, 0, 2)]),
    ("resample", "extrapolate", HALF),
    ("resample", "out_dtype", HALF),
    ("resample", "device", HALF),
    ("resample", "max_memory", HALF),
    ("fuse", "extrapolate", HALF),
    ("fuse", "out_dtype", HALF),
    ("fuse", "device", HALF),
    ("voxelize", "reduce", HALF),
    ("voxelize", "dtype", HALF),
    ("voxelize", "device", HALF),
    ("voxelize", "fill", HALF),
]


@pytest.mark.parametrize("seen", [False, True], ids=["engine", "torch"])
@pytest.mark.parametrize(("op", "argument", "value"), OPS, ids=ascii)
def test_ops_refuse_what_is_no_name(op, argument, value, seen):
    values = torch.from_numpy(VALUES).requires_grad_(seen)
    option = {argument: value}
    calls = {
        "resample": lambda: rc.resample(values, STAMPS, STAMPS, **option),
        "fuse": lambda: rc.fuse([rc.Stream(values, STAMPS)], STAMPS, **option),
        "voxelize": lambda: rc.voxelize(
            torch.zeros(3, 3), values, **({"reduce": "sum"} | GRID | option)
        ),
    }
    assert_refused(calls[op], "InvalidArgument", argument, op=op)


@pytest.mark.parametrize("seen", [False, True], ids=["engine", "torch"])
def test_streams_refuse_what_is_no_name(seen):
    values = torch.from_numpy(VALUES).requires_grad_(seen)
    for option in ({"name": HALF}, {"method": HALF}):
        call = lambda: rc.fuse([rc.Stream(values, STAMPS, **option)], STAMPS)  # noqa: B023, E731
        with pytest.raises(rc.InvalidArgument) as caught:
            call()
        assert caught.value.argument.endswith(next(iter(option)))


@pytest.mark.parametrize("seen", [False, True], ids=["engine", "torch"])
def test_a_misspelt_dtype_is_pointed_at(seen):
    values = torch.from_numpy(VALUES).requires_grad_(seen)
    call = lambda: rc.resample(values, STAMPS, STAMPS, out_dtype="flaot32")  # noqa: E731
    assert_refused(call, "InvalidArgument", "out_dtype", 'did you mean "float32"', op="resample")


def test_a_misspelt_op_is_pointed_at():
    call = lambda: rc.warmup("resampel")  # noqa: E731
    assert_refused(call, "InvalidArgument", "op", 'did you mean "resample"', op="warmup")


def test_a_misspelt_method_is_pointed_at(tmp_path):
    options = {"methods": {"action": "linr"}, "images": "skip", "progress": False}
    call = lambda: rc.ingest(SAMPLE, tmp_path / "cache", **options)  # noqa: E731
    assert_refused(call, "InvalidArgument", "methods", 'did you mean "linear"', op="ingest")


@pytest.mark.parametrize("name", [HALF, "cuda:\ud800"], ids=ascii)
def test_backends_are_refused_by_name(name):
    with pytest.raises(rc.InvalidArgument) as caught:
        rc.resample_trajectories(VALUES, STAMPS, STAMPS, backend=name)
    assert caught.value.argument in ("backend", "device")
