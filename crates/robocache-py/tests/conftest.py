"""Fixtures, the skipping of GPU tests and the summary line that every test module shares."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

import cases
import robocache as rc
from devices import DEVICES, NO_CUDA, marks
from helpers import scaled

settings.register_profile(
    "robocache",
    max_examples=scaled(60),
    deadline=None,  # two shared cores: one slow example is no fault
    derandomize=True,  # the same examples on every machine; raise the scale to see others
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("robocache")


@pytest.fixture(params=[pytest.param(name, marks=marks(name)) for name in DEVICES], scope="session")
def device(request) -> str:
    """Every device that this machine and this build can compute on."""
    return request.param


@pytest.fixture
def fresh_compiler():
    """What torch.compile has learned from other tests does not matter to this one."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def pytest_configure(config) -> None:
    """As in pyproject.toml, which does not travel with the tests."""
    config.addinivalue_line("markers", "slow: takes more than a few seconds")
    config.addinivalue_line("markers", "gpu: needs a CUDA device")
    if NO_CUDA and os.environ.get("ROBOCACHE_TEST_GPU") == "1":
        raise pytest.UsageError(f"ROBOCACHE_TEST_GPU=1, but there is no GPU to test on: {NO_CUDA}")


def pytest_collection_modifyitems(config, items) -> None:
    """Nothing may wait for ever: a test that hangs ends the run with a stack trace."""
    for item in items:
        # Machines without a GPU run all else; ROBOCACHE_TEST_GPU=1 makes its absence an error (above).
        if NO_CUDA and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {NO_CUDA}"))
        has_limit = item.get_closest_marker("timeout") is not None
        if config.pluginmanager.hasplugin("timeout") and not has_limit:
            item.add_marker(pytest.mark.timeout(180))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Bad data that a kernel found is raised later; it belongs to the test that queued it."""
    try:
        result = yield
    except BaseException:
        try:
            rc.synchronize()
        except rc.RoboCacheError as error:
            item.add_report_section("call", "findings", f"left by this test: {error}")
        raise
    rc.synchronize()
    return result


def pytest_report_header() -> str:
    missing = f" (no GPU: {NO_CUDA})" if NO_CUDA else ""
    return f"robocache devices: {', '.join(DEVICES)}{missing}"


def pytest_terminal_summary(terminalreporter) -> None:
    terminalreporter.section("robocache case table")
    for line in cases.summary(DEVICES):
        terminalreporter.write_line(line)
