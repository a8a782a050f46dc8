"""A checkpoint in the middle of an epoch goes on where it stopped; a checkpoint of something else is refused."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from fixtures.histories import HISTORIES, OF_RANKINGS, sums
from fixtures.variants import VARIANTS, Variant, ways

import torch_recmetrics

K = 3


def on_disk(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(("variant", "history"), ways(VARIANTS, "histories"))
def test_resume_in_the_middle_of_an_epoch(variant: Variant, history: str) -> None:
    updates = variant.history(history)
    source, resumed = (torch.nn.ModuleDict({"metric": variant.make()}) for _ in range(2))
    assert not source.state_dict(), "not in checkpoints unless asked for"
    for module in (source, resumed):
        module["metric"].persistent(True)
    for update in updates[:2]:
        source["metric"].update(**update)
    resumed.load_state_dict(on_disk(source.state_dict()))
    assert resumed["metric"].update_called
    assert float(resumed["metric"].compute()) == variant.expected(updates[:2])
    for update in updates[2:]:
        resumed["metric"].update(**update)
    assert float(resumed["metric"].compute()) == variant.expected(updates)
    assert float(source["metric"].compute()) == variant.expected(updates[:2])  # nothing is shared with the source


@pytest.mark.parametrize("history", OF_RANKINGS)
def test_loading_replaces_what_was_there(history: str) -> None:
    updates = HISTORIES[history](4)
    first, second = torch_recmetrics.NDCG(K), torch_recmetrics.NDCG(K)
    for metric, part in ((first, updates[:2]), (second, updates[2:])):
        metric.persistent(True)
        for update in part:
            metric.update(**update)
    second.load_state_dict(first.state_dict())
    assert float(second.compute()) == float(first.compute())


def test_a_checkpoint_before_the_first_update_loads() -> None:
    source, other = torch_recmetrics.NDCG(K), torch_recmetrics.NDCG(K)
    source.persistent(True)
    other.persistent(True)
    other.load_state_dict(on_disk(source.state_dict()))
    other.update(**sums(1)[0])
    assert not other.compute().isnan()


def test_states_are_not_in_checkpoints_unless_asked() -> None:
    """A metric that is added to a module must not make its old checkpoints unloadable."""
    module = torch.nn.Module()
    module.layer = torch.nn.Linear(2, 2)
    old = module.state_dict()
    module.metric = torch_recmetrics.NDCG(K)
    module.metric.update(**sums(1)[0])
    assert set(module.state_dict()) == set(old)
    module.load_state_dict(old, strict=True)


OTHERS = {
    "top_k": lambda: torch_recmetrics.NDCG(K + 1),
    "no cut": lambda: torch_recmetrics.NDCG(None),
    "gain": lambda: torch_recmetrics.NDCG(K, gain="linear"),
    "ideal": lambda: torch_recmetrics.NDCG(K, ideal="retrieved"),
    "ties": lambda: torch_recmetrics.NDCG(K, ties="stable"),
    "empty users": lambda: torch_recmetrics.NDCG(K, empty_target_action="neg"),
    "metric": lambda: torch_recmetrics.MAP(K),
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("history", OF_RANKINGS)
def test_a_checkpoint_of_other_options_is_refused(history: str, other: str, strict: bool) -> None:
    source, target = torch_recmetrics.NDCG(K), OTHERS[other]()
    for metric in (source, target):
        metric.persistent(True)
        metric.update(**HISTORIES[history](2)[0])
    before = float(target.compute())
    with pytest.raises((RuntimeError, ValueError), match=r"other options.*ndcg@3"):
        target.load_state_dict(source.state_dict(), strict=strict)
    assert float(target.compute()) == before


def test_state_names_stay_what_they_are() -> None:
    """A golden list: renaming a state would break the checkpoints of users."""
    metric = torch_recmetrics.NDCG(10)
    metric.persistent(True)
    assert len(metric.state_dict()) >= 1
    assert sorted(metric.state_dict()) == sorted(torch_recmetrics.NDCG(10, ties="average").metric_state)
