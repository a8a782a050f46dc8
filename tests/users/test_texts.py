"""Numbers as text: one form for a column, and what a reader must not be told."""

from __future__ import annotations

import math

import pytest

from torch_recmetrics.users.texts import Column, count_text, json_text, p_text


@pytest.mark.parametrize(
    ("numbers", "widths", "form"),
    [
        ([0.0141, -0.0008314, 0.029], [0.0298], ".4f"),
        ([0.25, 0.0004], [], ".4f"),
        ([0.25, 12345.6], [], ".4f"),
        ([0.25, 0.5], [0.0009, 0.3], ".5f"),  # ends that four places would not tell apart
        ([0.25, 0.5], [0.0, math.nan, math.inf, None], ".4f"),
        ([0.0004, 0.0002], [], ".5f"),  # else a column of one figure
        ([3e-6, 0.0, math.nan, None], [], ".7f"),
        ([0.5], [1e-12], ".8f"),
        ([4e-7], [], ".4e"),
        ([1e-6], [], ".7f"),
        ([9.99e-7], [], ".4e"),
        ([999_999_999.0], [], ".4f"),
        ([1e9], [], ".4e"),
        ([2e9, 0.5], [], ".4e"),
        ([0.0, math.nan, math.inf], [], ".4f"),
        ([], [], ".4f"),
    ],
)
def test_a_column_has_four_places_or_those_that_its_intervals_need(
    numbers: list[float | None], widths: list[float | None], form: str
) -> None:
    assert Column.of(numbers, widths).form == form


def test_signs_zeros_and_what_is_no_number() -> None:
    column = Column(".4f")
    assert [column.text(value, signed=True) for value in (0.5, -0.5, 0.0, -0.0, 0.00001, -0.00001)] == [
        "+0.5000", "-0.5000", "0.0000", "0.0000", "+0.0000", "-0.0000",
    ]  # fmt: skip
    assert [column.text(value) for value in (-0.0, None, math.nan, math.inf, -math.inf)] == [
        "0.0000", "-", "-", "inf", "-inf",
    ]  # fmt: skip
    assert column.interval(None, 0.25) == "[-, 0.2500]"


def test_p_values() -> None:
    assert [p_text(p) for p in (1.0, 0.0432, 0.0001, 0.00009999, 1e-300, 0.0, math.nan, None)] == [
        "1.0000", "0.0432", "0.0001", "< 0.0001", "< 0.0001", "< 0.0001", "-", "-",
    ]  # fmt: skip


def test_json_is_for_people_and_machines() -> None:
    assert json_text({1: [math.nan, "é", None]}) == '{\n  "1": [\n    null,\n    "é",\n    null\n  ]\n}'


def test_counts() -> None:
    assert [count_text(count) for count in (None, math.nan, math.inf, 12345)] == ["-", "-", "inf", "12,345"]
