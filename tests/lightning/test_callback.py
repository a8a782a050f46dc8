"""The parts of the callback, without a trainer: what a step may return, which rows are repeats, the table."""

from __future__ import annotations

import inspect
import math
import pydoc
import re
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
import torch
from fixtures.every_metric import OPTIONS
from fixtures.histories import updated
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset
from torchmetrics import MetricCollection

import torch_recmetrics
from torch_recmetrics.lightning import callback
from torch_recmetrics.lightning.inputs import arguments_of, check_known
from torch_recmetrics.lightning.padding import places_of_batch, without_repeats
from torch_recmetrics.lightning.table import table_of
from torch_recmetrics.state.registry import METRICS

# What a step returns --------------------------------------------------------------------------------------------------

SCORES, TARGET = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1, 0, 0]])


def test_what_a_step_may_return() -> None:
    assert arguments_of((SCORES, TARGET), "step", ()) == {"preds": SCORES, "target": TARGET}
    assert list(arguments_of([SCORES[0], TARGET[0], TARGET[0]], "step", ())) == ["preds", "target", "indexes"]
    assert list(arguments_of((SCORES, TARGET, None), "step", ())) == ["preds", "target"]
    given = {"preds": SCORES, "target": TARGET, "loss": 1.0, "seen_ids": None}
    assert list(arguments_of(given, "step", ["loss"])) == ["preds", "target"]


def test_embeddings_are_handed_on() -> None:
    """Issue 12, point 10: the metrics have the layout; the callback has none of its own."""
    given = {"user_embeddings": torch.randn(4, 3), "item_embeddings": torch.randn(7, 3), "item_bias": torch.zeros(7)}
    assert arguments_of(given, "step", ()) == given


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        (None, "NoneType"),
        (SCORES, "Tensor"),
        ((SCORES,), "1 values"),
        ((SCORES,) * 4, "4 values"),
        ((None, None), r"must return .*got \['None', 'None'\]"),
        ({"loss": SCORES}, "loss"),
        ((SCORES, TARGET, TARGET), r"flat rows .*the third has shape .*return a dict, .*'seen_ids'"),
    ],
)
def test_what_a_step_must_not_return(outputs: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        arguments_of(outputs, "validation_step", ["loss"])


def test_a_key_that_no_metric_takes() -> None:
    """Issue 12, point 19."""
    known = torch_recmetrics.ranking_metrics("ndcg").argument_names()
    check_known(["preds", "target", "item_bias"], known, "validation_step", ("loss",))
    with pytest.raises(
        ValueError, match=r"`validation_step` returned 'target_idx', .*did you mean 'target_ids'"
    ) as error:
        check_known(["preds", "target_idx"], known, "validation_step", ("loss",))
    assert "RankingMetrics(other_keys=('loss', 'target_idx'))" in str(error.value)
    assert "preds, target, indexes, item_ids, target_ids" in str(error.value)
    check_known(["anything"], None, "validation_step", ())


# Rows that are repeats ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(("n", "world"), [(1, 3), (2, 3), (6, 3), (7, 3), (8, 3), (11, 2), (5, 7)])
def test_every_row_is_kept_once(n: int, world: int, size: int, shuffle: bool, drop_last: bool) -> None:
    rows = TensorDataset(torch.arange(n))
    kept, all_rows = [], []
    for rank in range(world):
        sampler = DistributedSampler(rows, world, rank, shuffle=shuffle, drop_last=drop_last)
        loader = DataLoader(rows, batch_size=size, sampler=sampler)
        for batch_idx, (batch,) in enumerate(loader):
            given = without_repeats({"preds": batch[:, None], "item_ids": None}, loader, batch_idx)
            kept += given["preds"].flatten().tolist() if given else []
            all_rows += batch.tolist()
    assert sorted(kept) == sorted(set(all_rows))  # drop_last leaves rows out by itself, and repeats none
    assert drop_last or len(all_rows) == math.ceil(n / world) * world


def test_elements_that_are_batches_already() -> None:
    rows = TensorDataset(torch.arange(5))
    loader = DataLoader(rows, batch_size=None, sampler=DistributedSampler(rows, 2, 1, shuffle=False))
    given = {"preds": torch.zeros(9, 3)}
    assert [bool(without_repeats(given, loader, batch_idx)) for batch_idx in range(3)] == [True, True, False]


class Custom(BatchSampler):
    pass


def padded_loader() -> DataLoader:
    """Of five rows that two processes read, those of the second, which has the first row again."""
    rows = TensorDataset(torch.arange(5))
    return DataLoader(rows, batch_size=3, sampler=DistributedSampler(rows, 2, 1, shuffle=False))


def test_what_is_not_known_is_left_alone() -> None:
    places, n_rows, in_order = places_of_batch(padded_loader(), 0)
    assert (places.tolist(), n_rows, in_order) == ([1, 3, 5], 5, True)  # of which the last is a repeat
    rows, sampler = padded_loader().dataset, padded_loader().sampler
    for loader in (
        None,
        [1, 2],
        DataLoader(rows, batch_size=3, shuffle=True),
        SimpleNamespace(sampler=sampler),  # a loader around another one, which shows its sampler
    ):
        assert places_of_batch(loader, 0) is None
        assert without_repeats({"preds": SCORES}, loader, 0) == {"preds": SCORES}
    assert without_repeats({"preds": SCORES}, DataLoader(rows, batch_size=3), 0) == {"preds": SCORES}


def test_repeated_rows_that_are_not_known_are_warned_of_once() -> None:
    def given_to(*cases: tuple[int, int, dict[str, Any]]) -> None:
        for n_rows, batch_idx, more in cases:
            rows, given = range(n_rows), {"preds": SCORES, **more}
            sampler = DistributedSampler(rows, 2, 1, shuffle=False)
            own = DataLoader(rows, batch_sampler=Custom(sampler, 2, False))
            loose = DataLoader(rows, batch_size=2, sampler=sampler, num_workers=1, in_order=False)
            assert without_repeats(given, own, batch_idx) is without_repeats(given, loose, batch_idx) is given

    with pytest.warns(UserWarning, match="repeats 1 of the 5 rows, .* give `sample_ids`") as told:
        given_to((5, 0, {}), (5, 1, {}), (5, 0, {"sample_ids": torch.tensor([3])}), (6, 0, {}))
    assert len(told) == 2  # of the first case, one for each loader


def test_an_argument_of_other_rows_stays_for_the_update_to_refuse() -> None:
    given = {"preds": torch.zeros(3, 4), "weights": torch.ones(7)}
    assert {name: len(value) for name, value in without_repeats(given, padded_loader(), 0).items()} == {
        "preds": 2,
        "weights": 7,
    }


def test_a_step_that_returns_other_rows_than_it_got() -> None:
    given = {"preds": torch.zeros(2, 4)}
    with pytest.warns(UserWarning, match="repeats 1 of the 3 rows"):
        assert without_repeats(given, padded_loader(), 0) is given


def test_every_argument_loses_the_same_rows() -> None:
    ids, weights = torch.tensor([[1], [2], [3]]), torch.tensor([2.0, 0.5, 3.0])
    given = {"preds": torch.randn(3, 4), "target_ids": ids, "weights": weights}
    cut = without_repeats(given, padded_loader(), 0)
    assert {name: len(value) for name, value in cut.items()} == {"preds": 2, "target_ids": 2, "weights": 2}
    ranking = torch_recmetrics.rank(given["preds"], target_ids=given["target_ids"], top_k=2)
    assert without_repeats({"preds": ranking}, padded_loader(), 0)["preds"].weights.tolist() == [1, 1, 0]
    weighted = torch_recmetrics.rank(**given, top_k=2)
    assert without_repeats({"preds": weighted}, padded_loader(), 0)["preds"].weights.tolist() == [2, 0.5, 0]


@pytest.mark.parametrize("n_items", [3, 7])
def test_the_catalogue_is_never_cut_to_the_rows_of_the_batch(n_items: int) -> None:
    """Issue 12, point 10: also where there are as many items as rows."""
    users, items, bias = torch.randn(3, 2), torch.randn(n_items, 2), torch.randn(n_items)
    given = {"user_embeddings": users, "item_embeddings": items, "item_bias": bias, "target_ids": torch.ones(3, 1)}
    cut = without_repeats(given, padded_loader(), 0)
    lengths = {"user_embeddings": 2, "item_embeddings": n_items, "item_bias": n_items, "target_ids": 2}
    assert {name: len(value) for name, value in cut.items()} == lengths
    candidates = without_repeats({"preds": torch.randn(3, 3), "item_ids": torch.arange(3)}, padded_loader(), 0)
    assert {name: len(value) for name, value in candidates.items()} == {"preds": 2, "item_ids": 3}
    part = without_repeats({**given, "mask": torch.ones(n_items, dtype=torch.bool)}, padded_loader(), 0)
    assert len(part["mask"]) == n_items
    rows = {"preds": torch.randn(3), "indexes": torch.arange(3), "mask": torch.ones(3, dtype=torch.bool)}
    assert len(without_repeats(rows, padded_loader(), 0)["mask"]) == 2


def test_nested_tensors_lose_rows_too() -> None:
    """Issue 14, point 2: a jagged tensor has no slices of rows."""
    ids = torch.nested.nested_tensor([torch.tensor([1, 0]), torch.tensor([2]), torch.tensor([0])], layout=torch.jagged)
    relevance = torch.nested.nested_tensor([torch.ones(2), torch.ones(1), torch.ones(1)], layout=torch.jagged)
    given = {"item_ids": ids, "target_ids": ids, "target_relevance": relevance}
    cut = without_repeats(given, padded_loader(), 0)
    assert {name: value.tolist() for name, value in cut.items()} == {
        "item_ids": [[1, 0], [2, -1]],
        "target_ids": [[1, 0], [2, -1]],
        "target_relevance": [[1, 1], [1, 0]],
    }
    strided = torch.nested.nested_tensor([torch.tensor([1, 0]), torch.tensor([2]), torch.tensor([0])])
    for name, other in (("target_ids", {"preds": torch.zeros(3, 3)}), ("item_ids", {"target_ids": ids})):
        with pytest.raises(TypeError, match=f"`{name}` must be a nested tensor of the jagged layout"):
            without_repeats({**other, name: strided}, padded_loader(), 0)


# Construction and table -----------------------------------------------------------------------------------------------


@pytest.fixture
def RankingMetrics() -> Any:  # noqa: N802
    pytest.importorskip("pytorch_lightning")
    from torch_recmetrics.lightning import RankingMetrics

    return RankingMetrics


def test_names_and_refused_options(RankingMetrics: Any) -> None:
    assert RankingMetrics("ndcg", top_k=[2, None], at="_at_", prefix="dev_").names() == ["dev_ndcg_at_2", "dev_ndcg"]
    ready = torch_recmetrics.ranking_metrics("mrr", top_k=2, prefix="mine_")
    assert RankingMetrics(ready).names() == ["mine_mrr@2"]
    assert RankingMetrics(ready, prefix="other_").names() == ["other_mrr@2"]
    for other_keys in ("extra", ["extra"]):
        assert RankingMetrics(other_keys=other_keys).other_keys == ("extra",)
    for wrong in ({"metrics": "ndgc"}, {"top_k": 0}, {"ties": "random"}, {"options": {"map": {}}}, {"table": "yes"}):
        with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
            RankingMetrics(**wrong)


def test_the_signature_is_that_of_the_arguments(RankingMetrics: Any) -> None:
    """Issue 11, item 3: also of a subclass of the user, imported before or after Lightning."""
    for cls in (RankingMetrics, callback.RankingMetrics):
        parameters = inspect.signature(cls).parameters
        assert list(parameters)[:6] == ["metrics", "top_k", "options", "at", "ties", "empty_target_action"]
        shown = pydoc.render_doc(cls, renderer=pydoc.plaintext)
        assert re.search(r"RankingMetrics\([\s|]*metrics:", shown)
        assert "*args" not in shown.partition("Methods inherited")[0]

        class Mine(cls):  # type: ignore[misc, valid-type]
            def __init__(self, cutoff: int) -> None:
                super().__init__("ndcg", cutoff)

        assert list(inspect.signature(Mine).parameters) == ["cutoff"]
        assert Mine(3).names() == ["val_ndcg@3"]
        assert "Callback" in {base.__name__ for base in type(Mine(3)).__mro__}


def test_words_and_defaults_are_those_of_the_metrics() -> None:
    """Issue 11, item 4: `ties` and its like are typed as what is allowed."""
    for function in (callback.RankingMetrics.__init__, torch_recmetrics.ranking_metrics):
        hints, parameters = get_type_hints(function), inspect.signature(function).parameters
        for name in ("ties", "empty_target_action", "nan_action", "validate_args"):
            declared = torch_recmetrics.NDCG.declared_options[name]
            assert (hints[name], parameters[name].default) == (declared.annotation, declared.default)


PLAIN = MetricCollection({"mine": torch_recmetrics.NDCG(5)}, prefix="dev_")


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        (PLAIN, ["dev_mine"]),
        (torch_recmetrics.RecMetricCollection(PLAIN), ["val_dev_mine"]),
        (torch_recmetrics.NDCG(7), ["val_ndcg@7"]),
        ([torch_recmetrics.NDCG(7), torch_recmetrics.MAP(3)], ["val_ndcg@7", "val_map@3"]),
        ({"a": torch_recmetrics.NDCG(7), "b": PLAIN}, ["val_a", "val_b_dev_mine"]),
        (["mrr", torch_recmetrics.NDCG(7), "map"], ["val_mrr@10", "val_ndcg@7", "val_map@10"]),
        (iter(["mrr"]), ["val_mrr@10"]),
    ],
)
def test_metrics_of_the_user(RankingMetrics: Any, metrics: Any, names: list[str]) -> None:
    """Issue 12, point 11: objects, a list, a dict, a collection, names among objects."""
    assert RankingMetrics(metrics).names() == names


def test_the_users_own_metrics_are_left_alone(RankingMetrics: Any) -> None:
    metric = updated(torch_recmetrics.NDCG(2), SCORES, TARGET)
    RankingMetrics([metric])
    assert metric.update_count == 1 and float(metric.compute()) == 1


def test_every_metric_by_name(RankingMetrics: Any) -> None:
    """Issue 11, item 4."""
    names = [name.removeprefix("val_") for name in RankingMetrics(tuple(METRICS), top_k=2, options=OPTIONS).names()]
    # The shares of groups have names of their own, and what is estimated has that of the metric inside.
    assert list(dict.fromkeys(name.partition("@")[0] for name in names)) == [n for n in METRICS if n != "from_sampled"]


def test_table() -> None:
    values = {f"val_ndcg@{k}/dataloader_idx_{n}": torch.tensor(k / 100 + n) for n in range(2) for k in (5, 10)}
    values["val_mrr/dataloader_idx_1"] = torch.tensor(0.5)
    values["val_matrix/dataloader_idx_1"] = torch.ones(2, 2)  # no number, no place in the table
    values["val_curve/dataloader_idx_1"] = (torch.ones(3), torch.ones(3))  # type: ignore[assignment]
    assert table_of(values, "test", "val_").splitlines() == [
        "test, loader 0      @5     @10",
        "ndcg            0.0500  0.1000",
        "",
        "test, loader 1      @5     @10",
        "ndcg            1.0500  1.1000",
        "mrr                             0.5000",
    ]


def test_a_column_of_the_table_has_one_precision() -> None:
    values, errors = {"ndcg@5": 0.25, "recall@5": 0.0000812, "ndcg@10": 0.5}, {"ndcg@5": 0.0312, "recall@5": 0.000041}
    assert table_of(values, "test", errors=errors).splitlines() == [
        "test                      @5     @10",
        "ndcg    0.250000 +- 0.031200  0.5000",
        "recall  0.000081 +- 0.000041",
    ]
