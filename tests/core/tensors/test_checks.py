"""Rules about values that are collected and read together: the same is said on every device, after as few reads."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fixtures.devices import Reads, take_the_cpu_for_a_gpu

from torch_recmetrics import ERR, NDCG, Recall
from torch_recmetrics.core.tensors import checks
from torch_recmetrics.core.tensors.checks import LOOKS, ValueChecks, plain_tensor

FALSE, SECOND_ROW = torch.zeros(3, dtype=torch.bool), torch.tensor([False, True, False])


def collected(*rules: torch.Tensor, warned: tuple[torch.Tensor, ...] = ()) -> ValueChecks:
    checks = ValueChecks(warns=LOOKS)
    for number, broken in enumerate(rules):
        checks.defer(broken, lambda row, number=number: f"rule {number} in row {row}")
    for number, holds in enumerate(warned):
        checks.defer_warning(holds, f"warning {number}")
    return checks


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_what_holds_is_said(device: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    if device == "gpu":
        take_the_cpu_for_a_gpu(monkeypatch, in_checks=True)
    yes, no = SECOND_ROW.any(), FALSE.any()
    with pytest.raises(ValueError, match=r"^rule 1 in row 1$"):
        collected(FALSE, SECOND_ROW, SECOND_ROW, warned=(yes,)).raise_first()
    collected(FALSE, FALSE, warned=(no, no)).raise_first()
    assert not recwarn.list
    collected(FALSE, FALSE, warned=(no, yes)).raise_first()
    assert [str(warning.message) for warning in recwarn.list] == ["warning 1"]
    collected(warned=(yes, no)).raise_first()
    assert [str(warning.message) for warning in recwarn.list] == ["warning 1", "warning 0"]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_which_row_is_looked_for_once_one_is_broken(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "gpu":
        take_the_cpu_for_a_gpu(monkeypatch, in_checks=True)
    places, looks = torch.stack([FALSE, SECOND_ROW, ~FALSE]), []

    def where() -> torch.Tensor:
        looks.append(places)
        return places

    for broken in (FALSE.any(), SECOND_ROW.any()):
        assert not looks
        checks = ValueChecks()
        checks.defer(broken, lambda row: f"row {row}", where)
        with pytest.raises(ValueError, match=r"^row 1$") if bool(broken) else contextlib.nullcontext():
            checks.raise_first()
    assert len(looks) == 1


def test_a_warning_does_not_wait_once_for_each_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    take_the_cpu_for_a_gpu(monkeypatch, in_checks=True)
    checks = collected(*[FALSE] * 20, warned=(SECOND_ROW.any(),))
    with Reads() as reads, pytest.warns(UserWarning, match="warning 0"):
        checks.raise_first()
    assert reads.seen == ["_local_scalar_dense"]  # `tolist`, which waits too, is none of the operations that are noted


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["a"], "numbers, got text such as 'a'"),
        ([[1], [1, 2]], "of one length"),
        (np.array("a"), "numbers, got text such as 'a'"),
        (pd.DataFrame({"column": ["a"]}, index=[7]), "numbers, got text such as 'a'"),
    ],
)
def test_what_holds_no_numbers_is_refused(given: object, says: str) -> None:
    with pytest.raises(TypeError, match=f"`x` must be .*{says}"):
        plain_tensor("x", given)


def test_the_least_relevance_that_is_a_gain() -> None:
    least = torch.tensor([[0.0, 1e-290]], dtype=torch.float64)
    metric = NDCG(2)
    with pytest.raises(ValueError, match=r"relevance must be 0 or at least 1e-290 .*, got 9.99e-291 in row 0"):
        metric.update(torch.tensor([[0.1, 0.2]]), least * 0.999)
    metric.update(torch.tensor([[0.1, 0.2]]), least)
    assert float(metric.compute()) == 1
    for other in (Recall(1), ERR(1, max_relevance=1)):  # relevant, and no gain
        other.update(torch.tensor([[0.1, 0.2]]), least * 0.999)
    assert float(other.compute()) > 0


@pytest.mark.parametrize(
    ("rule", "taken", "refused"),
    [
        (checks.check_cutoff, [1, None], [0, 1.0, True]),
        (checks.check_seed, [0, 2**63 - 1], [-1, 2**63, 0.5, None]),
        (checks.check_share, [1e-9, 0.999], [0.0, 1.0, -0.5, math.nan, None]),
        (checks.check_above_zero, [1e-9, 1, 1e300], [0, -1.0, math.inf, math.nan, None]),
        (checks.check_max_relevance, [1, 1.5, 1023], [0.999, 1023.5, None]),
        (checks.check_ignore_index, [-5, 0, None], [0.0, False]),
        (checks.check_min_relevance, [1e-9, 4, None], [0, math.inf]),
        (checks.check_positive, [1], [0, 1.0, None]),
        (checks.check_optional_positive, [1, None], [0]),
    ],
)
def test_the_ends_of_options(rule: Callable[[str, Any], None], taken: list[Any], refused: list[Any]) -> None:
    for value in taken:
        rule("x", value)
    for value in refused:
        with pytest.raises(ValueError, match="`x` must be a"):
            rule("x", value)
