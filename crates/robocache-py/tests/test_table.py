"""Runs the table of cases.py, and fails when the table does not cover the public ops."""

from __future__ import annotations

from operator import attrgetter

import pytest

import cases
import robocache as rc
from devices import DEVICES, marks
from helpers import on
from refusal import assert_refused

samples = [
    pytest.param(*row, id=f"{row[0]}-{row[1].name}-{row[2]}-{row[3]}", marks=marks(row[3]))
    for row in cases.sample_rows(DEVICES)
]
failures = [
    pytest.param(*row, id=f"{row[0]}-{row[1].name}-{row[2]}", marks=marks(row[2]))
    for row in cases.failure_rows(DEVICES)
]


@pytest.mark.parametrize(("op", "sample", "dtype", "device"), samples)
def test_good_input(op, sample, dtype, device):
    sample.make(dtype).verify(attrgetter(op)(rc), on(device))


@pytest.mark.parametrize(("op", "failure", "device"), failures)
def test_bad_input(op, failure, device):
    positional, keywords = failure.make(on(device))
    assert_refused(
        lambda: attrgetter(op)(rc)(*positional, **keywords),
        failure.error,
        failure.argument,
        failure.message,
        op=op,
    )


def test_every_public_op_has_a_row():
    assert cases.public_ops() == set(cases.TABLE)
    for op, row in cases.TABLE.items():
        assert row.samples and row.failures, op


def test_the_list_of_non_ops_is_not_stale():
    assert set(rc.__all__) >= cases.NON_OPS


def test_the_table_is_large_enough():
    combinations = len(samples) + len(failures)
    assert combinations >= 108


def test_names_in_the_table_are_unique():
    for row in cases.TABLE.values():
        for entries in row.samples, row.failures:
            names = [entry.name for entry in entries]
            assert len(names) == len(set(names))
