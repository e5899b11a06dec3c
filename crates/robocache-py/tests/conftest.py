"""Fixtures and the summary line that every test module shares; helpers are in helpers.py."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

import cases
from helpers import DEVICES, scaled

settings.register_profile(
    "robocache",
    max_examples=scaled(60),
    deadline=None,  # two shared cores: one slow example is no fault
    derandomize=True,  # the same examples on every machine; raise the scale to see others
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("robocache")


@pytest.fixture(params=DEVICES, scope="session")
def device(request) -> str:
    """Every device that this machine and this build can compute on."""
    return request.param


def pytest_collection_modifyitems(config, items) -> None:
    """Nothing may wait for ever: a test that hangs ends the run with a stack trace."""
    if config.pluginmanager.hasplugin("timeout"):
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(180))


def pytest_report_header() -> str:
    return f"robocache devices: {', '.join(DEVICES)}"


def pytest_terminal_summary(terminalreporter) -> None:
    terminalreporter.section("robocache case table")
    for line in cases.summary(DEVICES):
        terminalreporter.write_line(line)
