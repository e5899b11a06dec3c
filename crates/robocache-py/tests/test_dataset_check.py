"""`check`: each fault gives a finding that names its place, and good datasets give none."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import robocache as rc
from dataset_reference import TESTDATA, shared_data
from lerobot_edit import CAMERA, POSE, STATE
from lerobot_faults import FAULTS
from lerobot_files import ARRAYS, GR00T, IMAGES, SCALARS, TEXT, VECTORS, VIDEOS, Layout, sample

FEATURES = {**VECTORS, **SCALARS, **IMAGES, **VIDEOS}
LENGTHS = (30, 40, 25, 20, 15)
BAD = ("error", "warning")
ANY = ("error", "warning", "note")
BOTH = ("v3.0", "v2.1")


@pytest.fixture(scope="module", params=BOTH)
def version(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def good(version, tmp_path_factory) -> Path:
    return sample(tmp_path_factory.mktemp("good"), Layout(version), FEATURES, LENGTHS)


def shown(findings) -> str:
    return "\n".join(f"{f.level} {f.code}: {f.where}: {f.message}" for f in findings) or "none"


def assert_none(root: Path, levels: tuple[str, ...] = BAD) -> None:
    found = [f for f in rc.dataset(root).check() if f.level in levels]
    assert not found, shown(found)


# Fault, level and code of the finding, what its place and text say, versions.
TABLE: list[tuple[str, str, str, str, tuple[str, ...]]] = [
    ("total_frames_wrong", "error", "counts_differ", r"info\.json.*140.*130", BOTH),
    ("episode_gap", "warning", "episode_gap", r"episode.*\b4\b.*\b5\b", BOTH),
    ("length_too_long", "error", "length_differs", r"episode 4.*\b16\b.*\b15\b", BOTH),
    ("rows_of_another_episode", "error", "ranges_do_not_tile", r"episode 1.*30.*28", ("v3.0",)),
    ("rows_of_another_episode", "error", "wrong_episode", r"episode 1.*\.parquet", ("v3.0",)),
    ("data_missing", "error", "missing_file", r"\.parquet.*episode", BOTH),
    ("data_cut", "error", "unreadable_file", r"\.parquet.*footer", BOTH),
    ("data_is_fifo", "error", "unreadable_file", r"\.parquet.*regular", BOTH),
    ("column_missing", "error", "column_missing", rf"{STATE}.*\.parquet", BOTH),
    ("column_of_doubles", "error", "dtype_differs", rf"{STATE}.*float32.*float64", BOTH),
    ("column_ragged", "error", "shape_differs", rf"{STATE}.*\b8\b.*\b7\b", BOTH),
    ("video_missing", "error", "missing_file", rf"{CAMERA}.*\.mp4", BOTH),
    ("videos_missing", "warning", "missing_files", CAMERA, BOTH),
    ("video_cut", "error", "unreadable_file", rf"{CAMERA}.*\.mp4.*moov", BOTH),
    ("video_short", "error", "video_short", rf"{CAMERA}.*\.mp4.*\b4\b", BOTH),
    ("video_short", "error", "video_no_frame", rf"episode 1.*{CAMERA}", BOTH),
    ("video_without_last_frame", "error", "video_no_frame", rf"{CAMERA}.*\b1 have none", BOTH),
    ("video_of_another_codec", "warning", "codec_differs", rf"{CAMERA}.*h264.*mpeg4", BOTH),
    ("codec_label_wrong", "warning", "codec_differs", rf"{CAMERA}.*hevc.*h264", BOTH),
    ("video_of_another_size", "warning", "shape_differs", rf"{CAMERA}.*64.*48.*32.*24", BOTH),
    ("video_offset", "error", "video_offset", rf"episode 1.*{CAMERA}.*400", ("v3.0",)),
    ("video_jitter", "warning", "video_rate", rf"{CAMERA}.*33\.3.*43\.3", BOTH),
    ("nan_values", "error", "not_finite", rf"episode 1.*{STATE}.*sample 3\b.*joint_3", BOTH),
    ("infinite_values", "error", "not_finite", rf"episode 1.*{STATE}.*sample 3\b.*joint_3", BOTH),
    ("constant_channel", "warning", "constant", rf"{STATE}.*joint_5", BOTH),
    ("saturated_channel", "note", "saturated", rf"{STATE}.*joint_1\b", BOTH),
    ("quaternion_off_the_sphere", "warning", "quaternion_norm", rf"episode 1.*{POSE}", BOTH),
    ("quaternion_flips", "warning", "quaternion_flip", rf"episode 1.*{POSE}.*sample 3\b", BOTH),
    ("unsorted_stamps", "warning", "stamps_decrease", r"episode 1.*sample 3\b", BOTH),
    ("duplicate_stamps", "warning", "stamps_duplicate", r"episode 1.*sample 3\b", BOTH),
    ("nan_stamps", "warning", "not_finite", r"episode 1.*timestamp.*sample 3\b", BOTH),
    ("stamps_drift", "warning", "stamps_drift", r"episode 1.*260\.0", BOTH),
    ("stamp_gap", "warning", "stamps_gap", r"episode 1.*sample 3\b", BOTH),
    ("frame_index_gap", "warning", "stamps_gap", r"episode 1.*sample 3\b", BOTH),
    ("task_unknown", "warning", "task_unknown", r"episode 1.*\b99\b", BOTH),
    ("stats_do_not_match", "warning", "stats_differ", rf"{STATE}.*-0\.5", BOTH),
    ("tasks_cut", "warning", "tasks_unreadable", r"meta/tasks\.", BOTH),
    ("tasks_missing", "warning", "tasks_unreadable", r"meta/tasks\.", BOTH),
]
CASES = [
    pytest.param(v, fault, level, code, says, id=f"{fault}-{code}-{v}")
    for v in BOTH
    for fault, level, code, says, versions in TABLE
    if v in versions
]


@pytest.mark.parametrize(
    ("version", "fault", "level", "code", "says"), CASES, indirect=["version"], scope="module"
)
def test_a_fault_is_found(version, good, tmp_path, fault, level, code, says):
    root = Path(shutil.copytree(good, tmp_path / "copy"))
    FAULTS[fault](root)
    findings = rc.dataset(root).check()
    fits = [f for f in findings if re.search(says, f"{f.where}: {f.message}", re.DOTALL)]
    wanted = f"{level} {code} {says!r}"
    assert (level, code) in {(f.level, f.code) for f in fits}, f"{wanted} among\n{shown(findings)}"
    for finding in findings:
        assert finding.level in ANY and re.fullmatch(r"[a-z][a-z0-9_]*", finding.code)
        assert len(finding.message) > 5
    ranks = [ANY.index(finding.level) for finding in findings]
    assert ranks == sorted(ranks), "the worst come first"


def test_a_good_dataset_has_no_findings(good):
    assert_none(good)


@pytest.mark.parametrize("name", ["lerobot_v30", "lerobot_v21"])
def test_the_samples_in_the_tree_have_none(name):
    assert_none(TESTDATA / name)


GOOD = {
    "lists": Layout(vectors="list", huggingface=False, row_groups="file"),
    "no statistics": Layout(stats=False),
    "float fps": Layout(fps=29.97),
    "few keys": Layout(omit=frozenset({"total_tasks", "splits", "names", "video info"})),
    "v2.0": Layout("v2.0"),
    "GR00T": GR00T,
}


@pytest.mark.parametrize("layout", GOOD.values(), ids=GOOD.keys())
def test_other_good_layouts_have_no_errors(tmp_path, layout):
    """What other writers do on purpose is no error."""
    features = {**FEATURES, **ARRAYS, **TEXT}
    assert_none(sample(tmp_path, layout, features, LENGTHS), ("error",))


def test_the_real_samples():
    """LeRobot's own has nothing to complain about; a camera of GR00T's has no files."""
    assert_none(shared_data("lerobot_v30"), ("error",))
    findings = rc.dataset(shared_data("lerobot_v20")).check()
    missing = [f for f in findings if f.code == "missing_files"]
    assert missing and {f.level for f in missing} == {"warning"}, shown(findings)
    assert "observation.images.egoview" in missing[0].where + missing[0].message
    assert not [f for f in findings if f.level == "error"], shown(findings)


def test_a_declared_camera_without_files(good, tmp_path):
    root = Path(shutil.copytree(good, tmp_path / "copy"))
    FAULTS["videos_missing"](root)
    ds = rc.dataset(root)
    assert [f.level for f in ds.check() if f.code == "missing_files"] == ["warning"]
    assert CAMERA in ds.streams and CAMERA in ds.episode(0).streams
    with pytest.raises(rc.FileError, match=re.escape(CAMERA)):
        _ = ds.episode(0)[CAMERA].values
    assert ds.episode(0)[STATE].values.shape == (30, 8)


def test_checking_changes_nothing(good):
    """Twice the same findings, and the files are as they were."""
    before = {p: p.stat().st_mtime_ns for p in good.rglob("*")}
    ds = rc.dataset(good)
    assert shown(ds.check()) == shown(ds.check())
    assert {p: p.stat().st_mtime_ns for p in good.rglob("*")} == before
    assert ds.episode(0)[STATE].values.shape == (30, 8)
