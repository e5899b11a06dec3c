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


# Fault, levels that are right, what place and text of the finding say.
TABLE: list[tuple[str, tuple[str, ...], str, tuple[str, ...]]] = [
    ("total_frames_wrong", BAD, r"140.*130|130.*140", BOTH),
    ("episode_gap", ("error",), r"episode.*\b(4|5)\b", BOTH),
    ("length_too_long", ("error",), r"episode 4", BOTH),
    ("rows_of_another_episode", ("error",), r"episode 1", ("v3.0",)),
    ("data_missing", ("error",), r"\.parquet", BOTH),
    ("data_cut", ("error",), r"\.parquet.*footer", BOTH),
    ("data_is_fifo", ("error",), r"\.parquet", BOTH),
    ("column_missing", ("error",), STATE, BOTH),
    ("column_of_doubles", ("error",), STATE, BOTH),
    ("column_ragged", ("error",), STATE, BOTH),
    ("video_missing", ("error",), rf"{CAMERA}.*\.mp4", BOTH),
    ("videos_missing", ("warning",), CAMERA, BOTH),
    ("video_cut", ("error",), rf"{CAMERA}.*\.mp4", BOTH),
    ("video_short", ("error",), rf"{CAMERA}.*\.mp4", BOTH),
    ("video_without_last_frame", ("error",), rf"{CAMERA}.*\.mp4", BOTH),
    ("video_of_another_codec", BAD, rf"{CAMERA}.*h264.*mpeg4|{CAMERA}.*mpeg4.*h264", BOTH),
    ("codec_label_wrong", BAD, rf"{CAMERA}.*hevc.*h264|{CAMERA}.*h264.*hevc", BOTH),
    ("video_of_another_size", BAD, rf"{CAMERA}.*(24|32)", BOTH),
    ("video_offset", BAD, rf"episode 1.*{CAMERA}", ("v3.0",)),
    ("video_jitter", ANY, CAMERA, BOTH),
    ("nan_values", BAD, rf"episode 1.*{STATE}", BOTH),
    ("infinite_values", BAD, rf"episode 1.*{STATE}", BOTH),
    ("constant_channel", ANY, rf"{STATE}.*(joint_5|\b4\b)", BOTH),
    ("saturated_channel", ANY, rf"{STATE}.*(joint_1|\b0\b)", BOTH),
    ("quaternion_off_the_sphere", BAD, rf"episode 1.*{POSE}", BOTH),
    ("quaternion_flips", ANY, rf"episode 1.*{POSE}", BOTH),
    ("unsorted_stamps", BAD, r"episode 1", BOTH),
    ("duplicate_stamps", BAD, r"episode 1", BOTH),
    ("nan_stamps", BAD, r"episode 1", BOTH),
    ("stamps_drift", BAD, r"episode 1", BOTH),
    ("stamp_gap", BAD, r"episode 1", BOTH),
    ("frame_index_gap", BAD, r"episode 1", BOTH),
    ("task_unknown", BAD, r"\b99\b", BOTH),
    ("stats_do_not_match", BAD, STATE, BOTH),
    ("tasks_cut", BAD, "tasks", BOTH),
    ("tasks_missing", BAD, "tasks", BOTH),
]
CASES = [
    pytest.param(v, fault, levels, says, id=f"{fault}-{v}")
    for v in BOTH
    for fault, levels, says, versions in TABLE
    if v in versions
]


@pytest.mark.parametrize(
    ("version", "fault", "levels", "says"), CASES, indirect=["version"], scope="module"
)
def test_a_fault_is_found(version, good, tmp_path, fault, levels, says):
    root = Path(shutil.copytree(good, tmp_path / "copy"))
    FAULTS[fault](root)
    findings = rc.dataset(root).check()
    fits = [f for f in findings if re.search(says, f"{f.where}: {f.message}", re.DOTALL)]
    assert any(f.level in levels for f in fits), f"{says!r} {levels} among\n{shown(findings)}"
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
