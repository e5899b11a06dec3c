"""Files that must not break a reader (numbers 39, 41, 48 and 58 to 65 of the list), from Python.

Each row is a named fault of lerobot_faults.py, and what a user sees: the class of the error, the
file that it names, and a word of its text. After each the next good call works.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import robocache as rc
from dataset_reference import TESTDATA, Reference, assert_equal
from helpers import assert_same_bits
from lerobot_edit import CAMERA, STATE, data_file, episodes_file, info_file, video_file
from lerobot_faults import FAULTS, KINDS, OUTSIDE
from lerobot_files import IMAGES, SCALARS, VECTORS, VIDEOS, Layout, sample
from refusal import BUILTIN, snake_case

FEATURES = {**VECTORS, **SCALARS, **IMAGES, **VIDEOS}
BOTH = ("v3.0", "v2.1")


@pytest.fixture(scope="module", params=BOTH)
def version(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def good(version, tmp_path_factory) -> Path:
    """A dataset that nobody changes."""
    return sample(tmp_path_factory.mktemp("good"), Layout(version), FEATURES)


@pytest.fixture
def broken(good, tmp_path) -> Path:
    """A copy of it, to be broken."""
    return Path(shutil.copytree(good, tmp_path / "copy"))


def use(root: Path) -> rc.Dataset:
    """Reads everything that there is."""
    ds = rc.dataset(root)
    for at in range(len(ds)):
        episode = ds.episode(at)
        for name in ds.streams:
            _ = episode[name].values, episode[name].times
    return ds


def assert_works() -> None:
    """The next good call."""
    values = rc.dataset(TESTDATA / "lerobot_v21").episode(1)["action"].values
    assert values.shape == (20, 8) and values[0, 7] == np.float32(0.06)


def assert_refused(call: Callable[[], object], error: str, file: str, says: str = "") -> None:
    """`call` raises exactly `error`, which names the file, and the next good call works."""
    started = time.monotonic()
    with pytest.raises(rc.RoboCacheError) as caught:
        call()
    raised, text = caught.value, str(caught.value)
    assert type(raised).__name__ in error.split("|"), f"{type(raised).__name__}: {text}"
    assert isinstance(raised, BUILTIN.get(type(raised).__name__, Exception))
    assert raised.kind == snake_case(type(raised).__name__)
    assert raised.path is not None and str(raised.path).endswith(file), f"{raised.path}: {text}"
    assert str(raised.path) in text
    assert re.search(says, text, re.DOTALL), f"{says!r} is not in {text!r}"
    assert time.monotonic() - started < 30
    assert_works()


@dataclass(frozen=True)
class Row:
    """A fault, and how it must show."""

    number: int
    fault: str
    error: str
    file: Callable[[Path], Path] | str
    says: str = ""
    versions: tuple[str, ...] = BOTH


def root_itself(root: Path) -> Path:
    return root


ROWS: list[Row] = []


def add(number: int, faults: str, error: str, file, says: str = "", versions=BOTH) -> None:
    ROWS.extend(Row(number, fault, error, file, says, versions) for fault in faults.split())


# 39: nothing, next to nothing, the first bytes only.
for kind in ("info", "episodes", "data", "video"):
    shown = info_file if kind == "episodes" else KINDS[kind]
    add(39, f"{kind}_of_one_byte {kind}_of_magic_only", "CorruptData", KINDS[kind])
    # An empty table of lines is a good table without episodes, which info.json contradicts.
    if kind == "episodes":
        add(39, "episodes_empty", "CorruptData", episodes_file, versions=("v3.0",))
        add(39, "episodes_empty", "CorruptData", info_file, r"\b5\b.*\b0\b", ("v2.1",))
    else:
        add(39, f"{kind}_empty", "CorruptData", KINDS[kind])

# 41: what a crash leaves.
add(41, "data_cut", "CorruptData", data_file, r"footer.*(killed|crash|closed)")
add(41, "episodes_cut", "CorruptData", episodes_file, r"footer.*(killed|crash|closed)", ("v3.0",))
add(41, "episodes_cut", "CorruptData", episodes_file, "line 4", ("v2.1",))
add(41, "video_cut", "CorruptData", video_file, "moov")
add(41, "info_cut", "CorruptData", info_file, "JSON")

# 48: files of one dataset that do not agree.
LAST = {"v3.0": "file-002.parquet", "v2.1": "episode_000004.parquet"}
for version_, last in LAST.items():
    in_last = f"{STATE}.*episode 4"
    add(48, "column_missing column_renamed", "CorruptData", last, in_last, (version_,))
    add(48, "column_of_doubles", "CorruptData", last, f"{STATE}.*float32.*float64", (version_,))
    add(48, "column_of_text column_with_null", "CorruptData", last, in_last, (version_,))
    add(48, "column_narrower column_ragged", "CorruptData", last, r"\b8\b.*\b7\b", (version_,))
    add(48, "scalar_of_text", "CorruptData", last, r"next\.reward", (version_,))

# 58: positional metadata shifts every later episode.
add(58, "total_episodes_too_large", "CorruptData", info_file, r"\b6\b.*\b5\b")
add(58, "total_episodes_too_small", "CorruptData", info_file, r"\b4\b.*\b5\b")

# 59: episodes and rates that make no sense. A gap is a finding: see test_dataset_check.py.
add(59, "duplicate_episode", "CorruptData", info_file, "episode 1")
add(59, "length_too_long", "CorruptData", LAST["v3.0"], r"\b10\b.*\b9\b", ("v3.0",))
add(59, "length_too_long", "CorruptData", LAST["v2.1"], r"\b10\b.*\b9\b", ("v2.1",))
add(59, "length_too_short", "CorruptData", "", r"\b6\b.*\b7\b")
add(59, "negative_length", "CorruptData", episodes_file)
add(59, "rows_of_another_episode", "CorruptData", data_file, "episode 1", ("v3.0",))
add(59, "range_ends_before_its_start", "CorruptData", episodes_file, "episode 1", ("v3.0",))
add(
    59,
    "fps_zero fps_negative fps_text fps_null fps_huge fps_absent",
    "CorruptData",
    info_file,
    "fps",
)
add(59, "fps_nan fps_infinite", "CorruptData", info_file)

# 60: videos that do not hold what the samples need.
add(60, "video_short video_without_last_frame", "CorruptData", video_file, r"\bsample \d+ at")
add(60, "video_hides_last_frame", "CorruptData", video_file, r"\bsample \d+ at", ("v2.1",))
add(60, "video_scribbled", "CorruptData", video_file, CAMERA)
add(60, "video_missing", "FileError", video_file, CAMERA)
add(60, "video_offset_is_nan", "CorruptData", episodes_file, CAMERA, ("v3.0",))

# 61: JSON.
add(61, "info_in_latin_1", "CorruptData", info_file, "UTF-8")
add(61, "info_with_nan", "CorruptData", info_file, "JSON")
add(61, "info_with_a_key_twice", "CorruptData", info_file, "fps.*twice")
add(61, "info_too_deep", "CorruptData|LimitExceeded", info_file)
add(61, "info_is_a_list", "CorruptData", info_file, "object")
add(61, "info_too_large", "LimitExceeded", info_file, "1073741824")

# 62: paths in metadata.
for name in OUTSIDE:
    add(62, f"data_path_{name} video_path_{name}", "CorruptData", info_file)
add(62, "video_key_goes_up", "CorruptData", info_file, "outside", ("v3.0",))
add(62, "image_path_goes_up", "CorruptData", "", "outside")

# 63: things that are no files.
for kind in ("info", "episodes", "data", "video"):
    odd = "is_folder is_fifo is_device is_loop links_nowhere"
    add(63, " ".join(f"{kind}_{what}" for what in odd.split()), "FileError", KINDS[kind])
add(63, "data_missing", "FileError", data_file, r"episode \d")
add(63, "info_missing", "Unsupported", root_itself, "info.json")
add(63, "episodes_missing", "FileError", episodes_file, versions=("v2.1",))
add(63, "episodes_missing", "CorruptData", info_file, r"\b5\b.*\b0\b", ("v3.0",))


def row_cases() -> list:
    """Each row for each version that it is about; sorted, so that each dataset is made once."""
    cases = [(version, row) for version in BOTH for row in ROWS if version in row.versions]
    return [pytest.param(v, row, id=f"{row.number}-{row.fault}-{v}") for v, row in cases]


@pytest.mark.parametrize(("version", "row"), row_cases(), indirect=["version"], scope="module")
def test_bad_input(version, row, broken):
    file = row.file if isinstance(row.file, str) else str(row.file(broken))
    FAULTS[row.fault](broken)
    assert_refused(lambda: use(broken), row.error, file, row.says)


def test_every_number_has_rows():
    assert {row.number for row in ROWS} == {39, 41, 48, 58, 59, 60, 61, 62, 63}


# -- what the rest of a dataset is worth ------------------------------------------------------

OF_ONE_FILE = ["data_cut", "data_missing", "data_is_fifo", "data_empty"]


@pytest.mark.parametrize("fault", OF_ONE_FILE, ids=lambda fault: f"41-{fault}")
def test_41_the_other_episodes_of_the_dataset_can_be_read(fault, good, broken):
    reference = Reference(good)
    bad = data_file(broken)
    FAULTS[fault](broken)
    ds = rc.dataset(broken)
    for at in range(len(ds)):
        if reference.place(at, "data_path").name == bad.name:
            with pytest.raises((rc.CorruptData, rc.FileError), match=f"episode {at}"):
                _ = ds.episode(at)[STATE].values
        else:
            assert_same_bits(ds.episode(at)[STATE].values, reference.values(at, STATE))


OF_ONE_VIDEO = ["video_cut", "video_missing", "video_short", "video_scribbled", "video_is_fifo"]


@pytest.mark.parametrize("fault", OF_ONE_VIDEO, ids=lambda fault: f"60-{fault}")
def test_60_the_other_streams_can_be_read(fault, good, broken):
    """A broken video costs its camera, nothing else."""
    reference = Reference(good)
    FAULTS[fault](broken)
    ds = rc.dataset(broken)
    assert_same_bits(ds.episode(1)[STATE].values, reference.values(1, STATE))
    with pytest.raises((rc.CorruptData, rc.FileError), match=re.escape(CAMERA)):
        _ = ds.episode(1)[CAMERA].values
    assert_same_bits(ds.episode(1)["action"].values, reference.values(1, "action"))
    assert_same_bits(ds.episode(4)[CAMERA].values, reference.values(4, CAMERA))


OF_TASKS = [fault for fault in FAULTS if fault.startswith("tasks_") and "denied" not in fault]


@pytest.mark.parametrize("fault", OF_TASKS, ids=lambda fault: f"39-{fault}")
def test_39_without_tasks_the_rest_is_read(fault, good, broken):
    """Tasks that cannot be read cost their words; `check` says so."""
    FAULTS[fault](broken)
    ds = rc.dataset(broken)
    assert len(ds.tasks) < 3 and ds.episode(1).tasks == ["pläce the cube", "valid"]
    assert_same_bits(ds.episode(1)[STATE].values, Reference(good).values(1, STATE))
    assert any("tasks" in f"{f.code} {f.message} {f.where}" for f in ds.check())


def test_61_a_byte_order_mark_is_skipped(good, broken):
    FAULTS["info_with_bom"](broken)
    assert_equal(rc.dataset(broken), good)


# -- 63: links are followed -------------------------------------------------------------------


def test_63_links_and_hard_links_are_followed(good, tmp_path):
    """Symbolic and hard links to files elsewhere: hub downloads are made of them."""
    for name, link in (("soft", os.symlink), ("hard", os.link)):
        root = tmp_path / name
        for path in good.rglob("*"):
            if path.is_file():
                there = root / path.relative_to(good)
                there.parent.mkdir(parents=True, exist_ok=True)
                link(path, there)
        assert_equal(rc.dataset(root), good, pictures=True)


@pytest.mark.parametrize("place", ["a file", "nothing", "a folder", "a pipe"])
def test_63_what_is_no_dataset(tmp_path, place):
    path = tmp_path / "x"
    make = {"a file": Path.touch, "a folder": Path.mkdir, "a pipe": os.mkfifo}
    make.get(place, lambda path: None)(path)
    assert_refused(lambda: rc.dataset(path), "FileError|Unsupported", "x")


# -- 64: files that change under the reader ---------------------------------------------------


@pytest.mark.parametrize("find", [data_file, video_file], ids=["64-data", "64-video"])
def test_64_a_file_that_is_cut_after_it_was_opened(find, good, broken):
    ds = rc.dataset(broken)
    key = STATE if find is data_file else CAMERA
    _ = ds.episode(1)[key].values
    path = find(broken)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises((rc.CorruptData, rc.FileError), match=re.escape(path.name)):
        _ = ds.episode(1)[key].values
    assert_works()
    # What is whole again can be read again.
    shutil.copy(good / path.relative_to(broken), path)
    assert_same_bits(rc.dataset(broken).episode(1)[key].values, Reference(good).values(1, key))


@pytest.mark.parametrize("find", [data_file, video_file], ids=["64-data", "64-video"])
def test_64_a_file_that_is_replaced_gives_no_mixture(find, good, broken, tmp_path, version):
    """Either the file that was opened or an error, never numbers of both."""
    ds, reference = rc.dataset(broken), Reference(good)
    key = STATE if find is data_file else CAMERA
    _ = ds.episode(1)[key].values
    other = sample(tmp_path / "other", Layout(version), FEATURES, (12, 9, 3, 3, 3))
    os.replace(find(other), find(broken))
    want, name = reference.values(1, key), find(broken).name
    try:
        got, refusal = ds.episode(1)[key].values, ""
    except (rc.CorruptData, rc.FileError) as error:
        got, refusal = want, str(error)
    assert not refusal or name in refusal
    assert_same_bits(got, want)
    assert_works()


# -- 65: permissions --------------------------------------------------------------------------


def as_nobody(root: Path, answer) -> None:
    """What a user without rights sees; runs in a process of its own."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    try:
        use(root)
        answer.send(("nothing", "", ""))
    except rc.RoboCacheError as error:
        answer.send((type(error).__name__, str(error), error.path))
    try:
        answer.send(rc.dataset(root).episode(4)[STATE].values.shape)
    except rc.RoboCacheError as error:
        answer.send(type(error).__name__)


@pytest.mark.parametrize(
    "kind", ["info", "episodes", "data", "video", "root"], ids=lambda kind: f"65-{kind}_denied"
)
def test_65_permission_denied(kind, good):
    with tempfile.TemporaryDirectory() as folder:  # not below tmp_path, which is closed to others
        root = Path(shutil.copytree(good, Path(folder) / "set"))
        find = KINDS.get(kind, root_itself)
        path = find(root)
        for place in (Path(folder), root, *(p for p in root.rglob("*") if p.is_dir())):
            place.chmod(0o755)
        path.chmod(0)
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=as_nobody, args=(root, there))
        child.start()
        there.close()
        name, text, named = here.recv()
        after = here.recv()
        child.join(30)
        root.chmod(0o755)
    assert name == "FileError" and named.startswith(str(path)), text
    assert "denied" in text.lower()
    assert after == ((9, 8) if kind in ("data", "video") else "FileError")
    assert_works()


def relative_as_nobody(folder: Path, answer) -> None:
    """Two names look like those of the hub, which must not be asked for what is here."""
    os.chdir(folder)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    for work in (rc.dataset, lambda path: rc.ingest(path, "cache", progress=False)):
        try:
            work("closed/set")
            answer.send(("nothing", ""))
        except rc.RoboCacheError as error:
            answer.send((type(error).__name__, str(error)))


def test_65_a_relative_path_below_a_closed_folder(good):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(folder) / "closed"
        shutil.copytree(good, closed / "set")
        closed.chmod(0)
        here, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        child = context.Process(target=relative_as_nobody, args=(Path(folder), there))
        child.start()
        there.close()
        answers = [here.recv(), here.recv()]
        child.join(30)
        closed.chmod(0o755)
    for name, text in answers:
        assert name == "FileError" and "denied" in text.lower(), text


def test_65_a_file_that_cannot_be_read_at_all(broken):
    """/proc/self/mem opens, is a regular file, and fails at the first read."""
    path = data_file(broken)
    path.unlink()
    path.symlink_to("/proc/self/mem")
    with pytest.raises((rc.CorruptData, rc.FileError), match=path.name):
        use(broken)
    assert_works()
