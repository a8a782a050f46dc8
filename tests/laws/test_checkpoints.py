"""A checkpoint in the middle of an epoch goes on where it stopped; a checkpoint of something else is refused."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from fixtures import old_checkpoints
from fixtures.histories import HISTORIES, OF_RANKINGS, fed, sums
from fixtures.variants import STATES, Variant, ways

import torch_recmetrics
from torch_recmetrics.state.scored_rows import FOLD_ROWS

K = 3


def on_disk(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(("variant", "history"), ways(STATES, "histories"))
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


@pytest.mark.parametrize(("name", "history", "how"), old_checkpoints.NAMES)
def test_checkpoints_of_before_are_read(name: str, history: str, how: str) -> None:
    state, said = old_checkpoints.read()[name, history, how]
    metric = old_checkpoints.made(name, how)
    metric.load_state_dict(state)
    assert old_checkpoints.said(metric, how) == pytest.approx(said, rel=1e-13, abs=1e-15, nan_ok=True)


def test_state_names_stay_what_they_are() -> None:
    """A golden list: renaming a state would break the checkpoints of users."""
    metric = torch_recmetrics.NDCG(10)
    metric.persistent(True)
    assert len(metric.state_dict()) >= 1
    assert sorted(metric.state_dict()) == sorted(torch_recmetrics.NDCG(10, ties="average").metric_state)


def changed(state: dict[str, Any], how: str) -> dict[str, Any]:
    """The states of a metric, one of them with another shape."""
    name = next(name for name, value in state.items() if isinstance(value, torch.Tensor) or value)
    value = state[name] if isinstance(state[name], torch.Tensor) else state[name][0]
    wrong: Any = {
        "0-dim": value.double().sum() if value.ndim else value.expand(3).clone(),
        "one more": torch.zeros((*(n + 1 for n in value.shape[1:]), 1, 1, 1), dtype=value.dtype),
        "no tensor": 1.0,
    }[how]
    return {**state, name: wrong if isinstance(state[name], torch.Tensor) else [wrong]}


@pytest.mark.parametrize(("variant", "history"), ways(STATES, "histories"))
def test_point_15_states_of_another_shape_are_refused(variant: Variant, history: str) -> None:
    """Neither a checkpoint nor a merge changes anything then, not even by the states that would fit."""
    updates = variant.history(history)
    source, target = variant.fed(updates[:3]), variant.fed(updates[:1])
    source.persistent(True)
    before, count = float(target.compute()), target.update_count
    for how in ("0-dim", "one more", "no tensor"):
        wrong = changed(dict(source.metric_state), how)
        stem = next(name for name, value in wrong.items() if value is not source.metric_state[name])
        with pytest.raises(ValueError, match=f"`{stem.partition('__')[0]}.* must be"):
            target.merge_state(wrong)
        with pytest.raises(RuntimeError, match=r"must be"):
            target.load_state_dict({**source.state_dict(), **wrong})
        assert float(target.compute()) == pytest.approx(before, nan_ok=True, abs=0), how
    assert target.update_count == count
    assert all(
        len(value) == len(other) and all(map(torch.equal, value, other))
        for value, other in zip(target.metric_state.values(), variant.fed(updates[:1]).metric_state.values())
        if isinstance(value, list)
    )


def test_point_15_rows_without_a_dimension_are_refused() -> None:
    """Of each list: of a list of numbers too, where no dimension is left to be wrong."""
    source, target = (fed(torch_recmetrics.NDCG(K), HISTORIES["sample ids"](2)) for _ in range(2))
    source.persistent(True)
    before = float(target.compute())
    lists = {name: rows for name, rows in source.metric_state.items() if isinstance(rows, list) and rows}
    assert len(lists) == 3
    for name, (first, *others) in lists.items():
        wrong = {name: [first[0], *others]}
        with pytest.raises(ValueError, match=f"`{name.partition('__')[0]}` of ndcg@3 must be rows"):
            target.merge_state({**source.metric_state, **wrong})
        with pytest.raises(RuntimeError, match="must be rows"):
            target.load_state_dict({**source.state_dict(), **wrong})
        assert float(target.compute()) == before


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_a_checkpoint_that_lacks_a_state_is_refused() -> None:
    """As one does that was written before the metric kept the spread of its rows: its interval would be too narrow."""
    source, target = torch_recmetrics.LogLoss(), torch_recmetrics.LogLoss()
    source.persistent(True)
    source.update(torch.tensor([0.2, 0.7, 0.4]), torch.tensor([0, 1, 1]))
    old = {name: value for name, value in source.state_dict().items() if not name.startswith("spread__")}
    with pytest.raises(RuntimeError, match="`log_loss` without its `spread`"):
        target.load_state_dict(old)
    assert not target.update_called and target.compute().isnan()


def test_point_15_counts_of_another_catalogue_are_refused() -> None:
    metric = torch_recmetrics.Coverage(10)
    (name,) = (name for name, value in metric.metric_state.items() if isinstance(value, torch.Tensor))
    four = {**metric.metric_state, name: torch.ones(4, dtype=torch.int64)}
    with pytest.raises(RuntimeError, match=r"`counts`.*\(11,\).*\(4,\)"):
        metric.load_state_dict(four)
    with pytest.raises(ValueError, match="integers"):
        metric.merge_state({**four, name: torch.ones(11)})
    assert not metric.update_called
    assert metric.metric_state[name].tolist() == [0] * 11


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("history", OF_RANKINGS)
def test_point_15_sums_keep_their_dtype(history: str, dtype: torch.dtype) -> None:
    source = torch_recmetrics.NDCG(K)
    source.update(**HISTORIES[history](2)[0])
    cast = {
        name: [v.to(dtype) if v.is_floating_point() else v for v in value]
        if isinstance(value, list)
        else value.to(dtype)
        for name, value in source.metric_state.items()
    }
    for take in (torch_recmetrics.NDCG.load_state_dict, torch_recmetrics.NDCG.merge_state):
        target = torch_recmetrics.NDCG(K)
        take(target, cast)
        states = [v for s in target.metric_state.values() for v in (s if isinstance(s, list) else [s])]
        assert all(v.dtype == torch.float64 for v in states if v.is_floating_point())
        assert float(target.compute()) == pytest.approx(float(source.compute()), abs=1e-2)


def shorter(state: dict[str, Any], how: str) -> dict[str, Any] | None:
    """The states of a metric, one list of which lacks a piece or a row; None where no list goes with another."""
    lists = {name: value for name, value in state.items() if isinstance(value, list) and value and len(value[0])}
    name, value = list(lists.items())[-1] if lists else ("", [])
    if len(lists) < 2 and "counts" not in name:
        return None
    return {**state, name: value[1:] if how == "a piece" else [value[0][1:], *value[1:]]}


@pytest.mark.parametrize(("variant", "history"), ways(STATES, "histories"))
def test_point_15_lists_of_other_lengths_are_refused(variant: Variant, history: str) -> None:
    updates = variant.history(history)
    source, target = variant.fed(updates[:3]), variant.fed(updates[:1])
    source.persistent(True)
    before = float(target.compute())
    for how in ("a piece", "a row"):
        wrong = shorter(dict(source.metric_state), how)
        if wrong is None:
            return
        with pytest.raises(ValueError, match="must be of the same rows, piece by piece"):
            target.merge_state(wrong)
        with pytest.raises(RuntimeError, match="must be of the same rows, piece by piece"):
            target.load_state_dict({**source.state_dict(), **wrong})
        assert float(target.compute()) == pytest.approx(before, nan_ok=True, abs=0) and target.update_count == 1, how


@pytest.mark.parametrize(("row", "slot"), [(2, 0), (-1, 0), (0, 3), (0, -1)])
def test_entries_of_rows_and_slices_that_are_not_there_are_refused(row: int, slot: int) -> None:
    """There are two rows, of three columns, and two slices beside all rows."""
    metric = torch_recmetrics.Sliced(torch_recmetrics.BinaryAUC(), ("a", "b"))
    metric.update(torch.tensor([0.2, 0.8]), torch.tensor([0, 1]), slice_ids=torch.tensor([0, 1]))
    state = dict(metric.metric_state)
    metric.clone().merge_state(state)
    name = next(name for name in state if name.startswith("entries"))
    entries = state[name][0].clone()
    entries[0] = torch.tensor([row, slot])
    with pytest.raises(ValueError, match="must be of the same rows, piece by piece"):
        metric.merge_state({**state, name: [entries]})


def test_point_15_a_histogram_of_other_bins_is_refused() -> None:
    binned, keys = torch_recmetrics.BinaryAUC(64), torch.zeros(0, dtype=torch.int32)
    state = {name.partition("__")[0]: name for name in binned.metric_state}
    for bins in (32, 1 << 16):
        wrong = {**binned.metric_state, state["counts"]: [torch.ones(2 * bins).long()], state["count_keys"]: [keys]}
        with pytest.raises(ValueError, match=f"piece by piece, got counts: .{2 * bins}"):
            binned.merge_state(wrong)
    assert binned.compute().isnan()
    own = torch_recmetrics.BinaryAUC(64)
    own.update(torch.linspace(-1, 1, FOLD_ROWS), torch.arange(FOLD_ROWS) % 2)
    assert own.state("counts")
    binned.merge_state(dict(own.metric_state))
    assert binned.compute() == own.compute()
