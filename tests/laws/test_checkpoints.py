"""A checkpoint in the middle of an epoch goes on where it stopped; a checkpoint of something else is refused."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from histories import HISTORIES, sums, users_of
from variants import VARIANTS, Variant

import torch_recmetrics

EXACT = {"abs": 1e-12, "rel": 0, "nan_ok": True}
K = 3


def on_disk(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_resume_in_the_middle_of_an_epoch(variant: Variant, history: str) -> None:
    updates = HISTORIES[history](4)
    module = torch.nn.ModuleDict({"metric": variant.make(K)})
    module["metric"].persistent(True)
    for update in updates[:2]:
        module["metric"].update(**update)
    state = on_disk(module.state_dict())

    resumed = torch.nn.ModuleDict({"metric": variant.make(K)})
    resumed["metric"].persistent(True)
    resumed.load_state_dict(state)
    assert resumed["metric"].update_called
    first_half = variant.expected(users_of(updates[:2]), K)
    assert float(resumed["metric"].compute()) == pytest.approx(first_half, **EXACT)
    for update in updates[2:]:
        resumed["metric"].update(**update)
    assert float(resumed["metric"].compute()) == pytest.approx(variant.expected(users_of(updates), K), **EXACT)
    assert float(module["metric"].compute()) == pytest.approx(first_half, **EXACT)  # nothing is shared with the source


@pytest.mark.parametrize("history", HISTORIES)
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
@pytest.mark.parametrize("history", HISTORIES)
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
