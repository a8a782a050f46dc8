"""What a metric remembers: reset, forward, clone, pickle, merge, whatever it stores and however it is made."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, NAMED, Update, rows
from fixtures.items import ITEMS
from fixtures.refusals import remembered
from fixtures.variants import CLICKED, DEFAULTS, FIRST, LISTED, OF_ROWS, RANKED, STATES, K, Variant, ways
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from torch_recmetrics import (
    ILS,
    MRR,
    NDCG,
    AveragePrecision,
    BinaryAUC,
    FromSampled,
    GroupAUC,
    LogLoss,
    NormalizedEntropy,
    RecMetricCollection,
    Sliced,
    UserBootstrap,
    rank,
)

AGAIN = [lambda m: m.clone(), copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
each = pytest.mark.parametrize(("variant", "history"), ways(STATES, "histories"))


@pytest.fixture
def updates(variant: Variant, history: str) -> list[Update]:
    return variant.history(history)


@each
def test_compute_twice(variant: Variant, updates: list[Update]) -> None:
    metric = variant.fed(updates)
    first = metric.compute()
    assert torch.equal(first, metric.compute())
    assert first.shape == () and first.dtype == torch.float64
    assert float(first) == variant.expected(updates)


@each
def test_compute_between_updates(variant: Variant, updates: list[Update]) -> None:
    metric = variant.make()
    for n, update in enumerate(updates, start=1):
        metric.update(**update)
        assert float(metric.compute()) == variant.expected(updates[:n])


@each
def test_reset_forgets_and_reset_twice_is_reset_once(variant: Variant, updates: list[Update]) -> None:
    metric = variant.fed(updates[:3])
    metric.compute()
    metric.reset()
    metric.reset()
    assert metric.update_called is False
    assert remembered(metric) == remembered(variant.make())
    metric.update(**updates[3])
    assert float(metric.compute()) == variant.expected(updates[3:])


@each
def test_between_sync_and_unsync_an_update_or_a_merge_is_refused(variant: Variant, updates: list[Update]) -> None:
    """`unsync` takes back the states of before, and with them whatever was counted meanwhile."""
    metric, other = variant.fed(updates[:2]), variant.fed(updates[2:3])
    metric._is_synced = True
    with pytest.raises(TorchMetricsUserError, match="is synced: call its `unsync` before an update"):
        metric.update(**updates[2])
    with pytest.raises(TorchMetricsUserError, match="is synced: call its `unsync` before a merge"):
        metric.merge_state(other)
    metric._is_synced = False
    assert float(metric.compute()) == variant.expected(updates[:2])


@each
def test_a_hash_reads_no_state(variant: Variant, updates: list[Update]) -> None:
    """Each walk over modules asks for it, and states that are lists grow with every update."""
    metric = variant.make()
    before = hash(metric)
    for update in updates:
        metric.update(**update)
    assert hash(metric) == before != hash(variant.make())


@each
def test_forward_gives_the_batch_value_and_accumulates(variant: Variant, updates: list[Update]) -> None:
    metric = variant.make()
    for update in updates:
        assert float(metric(**update)) == variant.expected([update])
    assert metric.update_count == len(updates)
    assert float(metric.compute()) == variant.expected(updates)


@each
def test_forward_and_update_may_alternate(variant: Variant, updates: list[Update]) -> None:
    metric = variant.make()
    for act, update in zip((metric.update, metric) * 2, updates, strict=True):
        act(**update)
    assert float(metric.compute()) == variant.expected(updates)


@pytest.mark.parametrize("variant", RANKED, ids=str)
def test_a_ranking_remembers_once_what_a_metric_reads_of_it(variant: Variant) -> None:
    ranking = rank(**LAYOUTS["dense"](NAMED["a block across the cut"]), top_k=2)
    kept = []
    for _ in range(3):
        variant.make(2).update(ranking)
        pickle.loads(pickle.dumps(ranking))
        kept.append([len(stats._gain_sums) for stats in ranking._stats.values()])
    assert kept[0] == kept[1] == kept[2]


READINGS: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "gain_sum": lambda stats, cutoffs: stats.gain_sum(cutoffs),
    "ideal_sum": lambda stats, cutoffs: stats.ideal_sum(cutoffs, "linear"),
    "stop_reciprocal": lambda stats, cutoffs: stats.stop_reciprocal(cutoffs, lambda grades: grades / 8),
    "hits_within": lambda stats, cutoffs: stats.hits_within(cutoffs, torch.ones(stats.ranking.n_users, 1)),
}
OF_CUTOFFS = ("max_hits", "n_retrieved", "hits", "p_hit", "precision_sum", "mean_precision", "reciprocal")


@pytest.mark.parametrize("cutoffs", [(1, 2), (None,), (2, None)], ids=str)
@pytest.mark.parametrize("reading", [*READINGS, *OF_CUTOFFS, "tie_sensitive"])
def test_what_a_measure_writes_to_is_its_own(reading: str, cutoffs: tuple[int | None, ...]) -> None:
    ranking = rank(**LAYOUTS["dense"](NAMED["a block across the cut"]), top_k=2 if None not in cutoffs else None)
    for ties in ("average", "optimistic"):
        stats = ranking.stats(ties)
        again = READINGS.get(reading, lambda stats, cutoffs: getattr(stats, reading)(cutoffs))
        read = again(stats, cutoffs)
        kept = read.tolist()
        read.add_(7)
        assert again(stats, cutoffs).tolist() == kept != read.tolist()


@each
def test_copies_go_on_alone(variant: Variant, updates: list[Update]) -> None:
    one, two = variant.expected(updates[:3]), variant.expected([*updates[:2], updates[3]])
    for again in AGAIN:
        metric = variant.fed(updates[:2])
        other = again(metric)
        assert str(other) == str(metric) and other.name == metric.name
        metric.update(**updates[2])
        other.update(**updates[3])
        assert float(metric.compute()) == one
        assert float(other.compute()) == two


class Group:
    """Of processes: torch's own cannot be copied either."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("cannot pickle a group")


def test_copies_exchange_with_the_same_processes() -> None:
    group: Any = Group()
    metric, other = NDCG(3, process_group=group), MRR(process_group=group)
    for again in AGAIN[:2]:
        copied = again(metric)
        copied.update(torch.rand(2, 4), torch.eye(2, 4))
        assert copied.process_group is group and copied.update_called and not metric.update_called
        assert all(member.process_group is group for member in again(RecMetricCollection([metric, other])).values())
    for inside in (metric, UserBootstrap(metric), RecMetricCollection([metric, other])):
        assert Sliced(inside, 2).process_group is group
    assert FromSampled(metric, 9).process_group is group


@each
def test_merge_state_joins_two_metrics(variant: Variant, updates: list[Update]) -> None:
    metric, other = variant.fed(updates[:2]), variant.fed(updates[2:])
    metric.merge_state(other)
    assert metric.update_called
    assert float(metric.compute()) == variant.expected(updates)
    assert float(other.compute()) == variant.expected(updates[2:])
    metric.update(**updates[0])  # goes on
    metric.compute()


@each
def test_merge_state_takes_a_state_and_nothing(variant: Variant, updates: list[Update]) -> None:
    metric = variant.make()
    metric.merge_state(variant.fed(updates).metric_state)
    metric.merge_state(variant.make())
    assert metric.update_count == 2  # each of them counts once, as an update does
    assert float(metric.compute()) == variant.expected(updates)


@pytest.mark.parametrize("variant", [v for v in STATES if "sample ids" in " ".join(v.histories)], ids=str)
def test_the_same_rows_merged_count_once(variant: Variant) -> None:
    updates = variant.history(next(name for name in variant.histories if "sample ids" in name))
    metric = variant.fed(updates)
    metric.merge_state(variant.fed(updates))
    assert float(metric.compute()) == variant.expected(updates)


def test_merge_state_refuses_another_configuration() -> None:
    for variant in DEFAULTS:
        metric = variant.fed(variant.history("sums"))
        before = float(metric.compute())
        for other in (variant.make(K + 1), variant.make(K, ties="stable"), variant.make(K, empty_target_action="neg")):
            with pytest.raises((ValueError, TypeError)):
                metric.merge_state(other)
            assert float(metric.compute()) == before


# Those that are told something of the items, which others are told otherwise.
TOLD = [v for v in LISTED if v.reads == "counts" or (v.data(ITEMS) and v.label != "weighed")]


@pytest.mark.parametrize("variant", [v for v in TOLD if str(v).partition("-")[2] not in ("function", "1")], ids=str)
def test_merge_state_refuses_other_data(variant: Variant) -> None:
    other = variant.make(num_items=13) if variant.reads == "counts" else variant.make(items=ITEMS.other())
    with pytest.raises(ValueError, match="only metrics of the same options merge"):
        other.merge_state(variant.fed(variant.history("sample ids")))


CLICK_PAIRS = [
    (BinaryAUC(), BinaryAUC(64)),
    (BinaryAUC(64), BinaryAUC(128)),
    (GroupAUC("uniform"), GroupAUC()),
    (LogLoss(), LogLoss(eps=0.1)),
    (LogLoss(), NormalizedEntropy()),
    (ILS(torch.eye(3), 2), ILS(torch.eye(3)[[1, 1, 1]], 2)),
]


@pytest.mark.parametrize(("one", "other"), CLICK_PAIRS)
def test_other_options_are_other_states(one: Any, other: Any) -> None:
    one.persistent(True)
    other.persistent(True)
    with pytest.raises(RuntimeError):
        other.load_state_dict(one.state_dict())
    with pytest.raises(ValueError, match="only metrics of the same options merge"):
        other.merge_state(one)


@pytest.mark.parametrize("variant", [v for v in STATES if v in OF_ROWS and "sums" in v.histories], ids=str)
def test_history_kinds_may_be_mixed(variant: Variant) -> None:
    """Rows named by sample ids and rows without a name, in one epoch."""
    plain, named = variant.history("sums", 2), variant.history("sample ids", 2)
    updates = [plain[0], named[0], plain[1], named[1]]
    assert float(variant.fed(updates).compute()) == variant.expected(updates)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
@pytest.mark.parametrize("variant", dict.fromkeys([*FIRST, *STATES]), ids=str)
def test_nothing_to_count(variant: Variant) -> None:
    """Is nan; no item of a catalogue is recommended where there is nobody to recommend it to."""
    (update,) = variant.history(variant.histories[0], 1)
    nothing = rows(update, slice(0, 0))
    for metric in (variant.make(), variant.fed([update]), variant.fed([nothing])):
        if metric.update_count and metric.compute().isfinite():
            metric.reset()
        assert float(metric.compute()) == variant.expected([nothing])
        assert variant.metric.__name__ == "Coverage" or metric.compute().isnan()


@pytest.mark.parametrize("name", ["no user", "only empty users", "no weight at all"])
@pytest.mark.parametrize(("variant", "layout"), ways([v for v in STATES if v in RANKED], "layouts"))
def test_updates_without_a_user_that_counts_are_nan(variant: Variant, layout: str, name: str) -> None:
    metric = variant.fed([LAYOUTS[layout](NAMED[name])])
    assert metric.compute().isnan()
    update = LAYOUTS[layout](NAMED["plain"])
    if layout == "flat":
        update["indexes"] = update["indexes"] + 1  # another user: the weight of one user does not change
    metric.update(**update)
    assert float(metric.compute()) == variant.expected([update])


@pytest.mark.parametrize(("variant", "history"), ways(CLICKED, "histories"))
def test_a_gather_function_of_ones_own(variant: Variant, history: str) -> None:
    """It exchanges sums: twice the same sums have the same value. Metrics that keep rows refuse it."""
    updates = variant.history(history)
    metric = variant.fed(updates, dist_sync_fn=lambda x, group: [x, x], distributed_available_fn=lambda: True)
    if "sample_ids" in updates[0] or isinstance(metric, AveragePrecision | BinaryAUC | GroupAUC):
        with pytest.raises(ValueError, match=r"`dist_sync_fn` exchanges sums only, but .* leave it out"):
            metric.compute()
        assert not metric._is_synced
        return
    assert float(metric.compute()) == variant.expected(updates)
    assert float(metric.compute()) == variant.expected(updates)
