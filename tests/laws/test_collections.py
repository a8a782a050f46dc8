"""Many metrics in one collection, torchmetrics' own or ours: the same values as alone."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fixtures.cases import LAYOUTS, NAMED, Case, Update, drawn, holds, users_of, without
from fixtures.histories import HISTORIES, OF_LISTS, fed, floats, updated
from fixtures.items import ITEMS, NUM_ITEMS
from fixtures.variants import (
    ACTIONS,
    CLICKED,
    DEFAULTS,
    FIRST,
    LISTED,
    RANKED,
    STATES,
    VARIANTS,
    Variant,
    emptied,
    named,
)
from hypothesis import strategies as st
from oracles.users import TIES
from torchmetrics import MetricCollection

import torch_recmetrics
from torch_recmetrics import MRR, NDCG, BinaryAUC, GroupAUC, LogLoss, RecMetricCollection, Sliced

CUTS = (1, 3, None)
Asked = dict[str, tuple[Variant, Any]]


def asked(variants: list[Variant], cuts: tuple[Any, ...] = CUTS) -> Asked:
    """Ranking metrics at every cutoff, others at one."""
    of = {"ranking": cuts, "clicks": (None,)}
    return {f"{v} {k}": (v, k) for v in variants for k in of.get(v.reads, (3,))}


def members(which: Asked, **options: Any) -> dict[str, Any]:
    return {name: variant.make(k, **options) for name, (variant, k) in which.items()}


def expected(which: Asked, updates: list[Update], *how: str) -> dict[str, Any]:
    of_users = not any("clicks" in str(v.histories) for v, _ in which.values())
    read = users_of(updates) if of_users else updates
    return {name: variant.expected(read, k, *how) for name, (variant, k) in which.items()}


@functools.cache
def value_after(variant: Variant, k: Any, history: str, places: tuple[int, ...]) -> Any:
    updates = HISTORIES[history](4)
    return variant.expected([updates[place] for place in places], k)


def after(which: Asked, history: str, *places: int) -> dict[str, Any]:
    """What is expected after these updates of a history; once for all laws."""
    return {name: value_after(variant, k, history, places) for name, (variant, k) in which.items()}


@pytest.fixture
def which(history: str, kind: str) -> Asked:
    """All metrics that can remember these updates; those with their defaults at every cutoff.

    In torchmetrics' collections each member counts alone: each kind of state, and beside it, where there are groups,
    the first variant of each ranking metric. Values of policies read other columns than clicks.
    """
    known = [v for v in VARIANTS if history in v.histories and v.reads != "rewards"]
    if kind == "ours":
        return asked(known, (3,)) | asked([v for v in known if v in DEFAULTS])
    return asked([v for v in known if v in STATES or (v in DEFAULTS and kind == "torchmetrics")], (3,))


COLLECTIONS = {
    "torchmetrics": lambda metrics: MetricCollection(metrics),
    "torchmetrics without groups": lambda metrics: MetricCollection(metrics, compute_groups=False),
    "ours": lambda metrics: RecMetricCollection(metrics),
}


@pytest.fixture(params=COLLECTIONS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


# Without groups it does what the metrics do alone: for them each history is tried there.
in_each = pytest.mark.parametrize(
    ("kind", "history"),
    [(k, h) for k in COLLECTIONS for h in HISTORIES if k != "torchmetrics without groups" or h in ("sums", "clicks")],
)
in_groups = pytest.mark.parametrize("kind", ["torchmetrics", "ours"])  # where one member may be taken for another


@pytest.fixture
def collect(kind: str) -> Any:
    return COLLECTIONS[kind]


@functools.cache
def made_once(kind: str, which: tuple[Any, ...]) -> Any:
    return COLLECTIONS[kind](members(dict(which)))


@pytest.fixture
def make(kind: str, which: Asked) -> Callable[[], Any]:
    """A new collection of all of them: a copy of one that was never updated, which is made once for all tests."""
    return lambda: copy.deepcopy(made_once(kind, tuple(which.items())))


# Laws over both kinds of collection ----------------------------------------------------------------------------------


@in_groups
def test_members_that_agree_on_the_first_batch_are_not_taken_for_the_same(collect: Any) -> None:
    """torchmetrics merges metrics of equal states: no hit in the first batch makes HitRate@1 and @3 look equal."""
    collection = collect({"at1": torch_recmetrics.HitRate(1), "at3": torch_recmetrics.HitRate(3)})
    preds = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    collection.update(preds, torch.tensor([[0, 0, 0, 1]]))
    for _ in range(3):
        collection.update(preds, torch.tensor([[0, 0, 1, 0]]))
    assert floats(collection.compute()) == {"at1": 0, "at3": 3 / 4}


@in_groups
def test_members_of_other_options_are_not_taken_for_the_same(collect: Any) -> None:
    first = LAYOUTS["dense"](Case([[3.0, 2.0, 1.0]], [[1, 0, 0]]))  # all agree here ...
    second = LAYOUTS["dense"](NAMED["a block across the cut"])  # ... and not here
    third = LAYOUTS["dense"](NAMED["an empty user"])
    # A pair of metrics that differ in one option, for each of its values.
    rules = [*((t, "skip") for t in TIES), *(("average", a) for a in ACTIONS[1:])]
    metrics = {f"{v} {t} {a}": (v, t, a) for v in RANKED for t, a in rules}
    collection = collect({n: v.make(2, ties=t, empty_target_action=a) for n, (v, t, a) in metrics.items()})
    users = users_of([first, second, third])
    values = floats(fed(collection, [first, second, third]).compute())
    for name, (variant, ties, action) in metrics.items():
        assert values[name] == variant.expected(users, 2, ties, action), name


@in_groups
@pytest.mark.parametrize("variant", LISTED, ids=str)
def test_metrics_of_lists_that_agree_on_empty_ones_are_not_taken_for_the_same(variant: Variant, collect: Any) -> None:
    """Neither of other cutoffs nor, where they have data, of other data."""
    data = {"": ITEMS} if variant.label == "function" else {"": ITEMS, "other": ITEMS.other()}
    collection = collect({f"{k}{n}": variant.make(k, items) for n, items in data.items() for k in (1, 2, 5)})
    nothing = {"item_ids": torch.full((2, 3), -1), "target_ids": torch.tensor([[1], [2]])}
    updates = [nothing, LAYOUTS["item_ids"](NAMED["several blocks"]), LAYOUTS["item_ids"](NAMED["weights"])]
    for n, update in enumerate(updates):
        update["sample_ids"] = torch.arange(len(update["item_ids"])) + 10 * n
        collection.update(**{name: value for name, value in update.items() if name != "weights"})
    values = collection.compute()
    users = users_of([{name: value for name, value in u.items() if name != "weights"} for u in updates])
    for name, items in data.items():
        for k in (1, 2, 5):
            assert float(values[f"{k}{name}"]) == variant.expected(users, k, items=items), f"{k} {name}"


@in_each
def test_values_are_those_of_the_members_alone(make: Any, history: str, which: Asked) -> None:
    updates = HISTORIES[history](3)
    collection = fed(make(), updates)
    values = floats(collection.compute())
    for name, value in after(which, history, 0, 1, 2).items():
        assert values[name] == value, name
    assert str(floats(collection.compute())) == str(values)
    collection.reset()
    collection.update(**updates[0])
    assert floats(collection.compute()) == after(which, history, 0)


@in_each
def test_forward(make: Any, history: str, which: Asked) -> None:
    updates = HISTORIES[history](3)
    collection = make()
    for place, update in enumerate(updates):
        assert floats(collection(**update)) == after(which, history, place)
    assert floats(collection.compute()) == after(which, history, 0, 1, 2)


@in_each
def test_members_computed_one_by_one(make: Any, history: str, which: Asked) -> None:
    """As Lightning's log_dict does, resets included."""
    updates = HISTORIES[history](3)
    collection = fed(make(), updates)
    wanted = after(which, history, 0, 1, 2)
    for name, member in collection.items(keep_base=True):
        assert float(member.compute()) == wanted[name], name
    for member in collection.values():
        member.reset()
    collection.update(**updates[1])
    assert floats(collection.compute()) == after(which, history, 1)


AGAIN = [lambda c: c.clone(), copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]


@in_each
def test_copies_go_on_alone(kind: str, make: Any, history: str, which: Asked) -> None:
    # One way to copy: another one with the next kind of collection, and with the next history.
    again = AGAIN[(list(COLLECTIONS).index(kind) + list(HISTORIES).index(history)) % 3]
    updates = HISTORIES[history](4)
    collection = updated(make(), **updates[0])
    other = again(collection)
    collection.update(**updates[1])
    fed(other, updates[2:])
    assert floats(collection.compute()) == after(which, history, 0, 1)
    assert floats(other.compute()) == after(which, history, 0, 2, 3)


@in_each
def test_checkpoint_in_the_middle_of_an_epoch(make: Any, history: str, which: Asked) -> None:
    updates = HISTORIES[history](3)
    first, second = make(), make()
    first.persistent(True)
    second.persistent(True)
    second.load_state_dict(fed(first, updates[:2]).state_dict())
    second.update(**updates[2])
    assert floats(second.compute()) == after(which, history, 0, 1, 2)


def test_a_drawn_mixture(kind: str, collect: Any) -> None:
    """In torchmetrics' collections, which compare the states of all pairs of members, those with their defaults."""
    which = asked(RANKED if kind == "ours" else DEFAULTS)

    def law(batches: list[Case], layout: str, ties: str, action: str) -> None:
        updates = [LAYOUTS[layout](case) for case in batches]
        collection = fed(collect(members(which, ties=ties, empty_target_action=action)), updates)
        assert floats(collection.compute()) == expected(which, updates, ties, action)

    holds(
        law,
        "collections",
        examples=12 if kind == "ours" else 4,
        batches=st.lists(drawn(), min_size=1, max_size=3),
        layout=st.sampled_from(["dense", "target_ids", "item_ids"]),
        ties=st.sampled_from(TIES),
        action=st.sampled_from(ACTIONS),
    )


@pytest.mark.parametrize("variant", [v for v in FIRST if v in LISTED and not v.needs_samples], ids=str)
def test_lists_beside_metrics_of_the_whole_list(variant: Variant) -> None:
    def law(case: Case, uncut: Any) -> None:
        metrics = RecMetricCollection({"list": variant.make(2), "uncut": uncut.clone(), "cut": NDCG(2)})
        update = LAYOUTS["target_ids"](case.in_catalogue(NUM_ITEMS))
        values = metrics(**update)
        assert float(values["list"]) == variant.expected([update], 2)
        assert float(values["uncut"]) == named(type(uncut).__name__).expected([update], None, uncut.ties)
        assert float(values["cut"]) == named("NDCG").expected([update], 2)

    uncut = st.sampled_from([MRR(), NDCG(None), MRR(ties="stable")])
    holds(law, f"beside {variant}", case=drawn(min_users=1), uncut=uncut, examples=6)


def test_an_uncut_metric_beside_cut_ones() -> None:
    """Its value follows from the ranks of the relevant items, ties at any depth included."""
    which = asked(RANKED, (2, None))

    def law(case: Case, layout: str, ties: str) -> None:
        metrics = updated(emptied(which, ties=ties), **LAYOUTS[layout](case))
        assert floats(metrics.compute()) == expected(which, [LAYOUTS[layout](case)], ties)

    layouts, ties = st.sampled_from(list(LAYOUTS)), st.sampled_from(TIES)
    holds(law, "uncut", examples=30, case=drawn(), layout=layouts, ties=ties)


@pytest.mark.parametrize("history", [*OF_LISTS])
def test_metrics_of_other_data_share_a_collection(history: str) -> None:
    """At every cutoff, with others that differ in nothing but their data, and beside metrics that need a target."""
    data = {"": ITEMS, "other": ITEMS.other()}
    which = {
        f"{v} {k} {name}": (v, k, items)
        for v in LISTED
        if history in v.histories
        for name, items in data.items()
        for k in (1, 3, 12)
    }
    updates = HISTORIES[history](2)
    metrics = RecMetricCollection(
        {name: v.make(k, items) for name, (v, k, items) in which.items()} | {"ndcg": NDCG(3), "mrr": MRR()}
    )
    metrics.update(**updates[0])
    values, total = metrics(**updates[1]), metrics.compute()
    for name, (variant, k, items) in which.items():
        assert float(values[name]) == variant.expected(updates[1:], k, items=items), name
        assert float(total[name]) == variant.expected(updates, k, items=items), name


ALIKE = ("nan_action", "validate_args", "ignore_index", "min_relevance")  # in all members of a collection
TABLES: dict[str, Any] = {"propensities": torch.linspace(0.1, 1, NUM_ITEMS), "num_items": 3 * NUM_ITEMS}


def other_values(name: str, declared: Any, value: Any) -> list[Any]:
    """What an option may be in place of a value, and some things that it may not."""
    if declared.choices:
        return [word for word in declared.choices if word != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [2 * value, value + 1, value / 2]
    return [TABLES.get(name, 2)] if value is None else []


def all_in_the_first(updates: list[Update]) -> list[Update]:
    """The same, each row in the first slice."""
    return [
        {**update, "slice_ids": torch.zeros(len(next(iter(update.values()))), dtype=torch.int64)} for update in updates
    ]


def changed_once(variant: Variant, **given: Any) -> dict[str, Any]:
    """A metric, and for each of its options those in which nothing else is another."""
    found = {"as it is": variant.make(**given)}
    for name, declared in variant.metric.declared_options.items():
        if name in (*given, *ALIKE) or (declared.config is False and name not in TABLES):
            continue
        for value in other_values(name, declared, getattr(found["as it is"], name, None)):
            with contextlib.suppress(ValueError, TypeError):
                found[f"{name} {value}".replace(".", ",")] = variant.make(**given, **{name: value})
    return found


@pytest.mark.parametrize("variant", [v for v in FIRST if v.reads != "rewards"], ids=str)
def test_members_of_which_one_option_is_another_share_nothing_else(variant: Variant) -> None:
    """Whatever members share is told apart by every option that it depends on, and by the data of the items; so are
    the values of a batch, of merged copies and of slices."""
    weighed = "propensities" in variant.metric.declared_options
    for given in [{}, {"propensities": TABLES["propensities"]}] if weighed else [{}]:
        metrics = changed_once(variant, **given)
        if variant.knows_items and variant.label != "function":
            metrics["other items"] = variant.make(items=ITEMS.other(), **given)
        for history in (name for name in variant.histories if not given or name != "flat rows"):
            updates = variant.history(history, 2)
            if given:
                graded = [without(update, "target_relevance") for update in updates]
                updates = [{n: v > 0 if n == "target" else v for n, v in update.items()} for update in graded]
            alone = {}
            for name, metric in metrics.items():
                with contextlib.suppress(ValueError):  # some options refuse these users
                    alone[name] = float(fed(metric.clone(), updates).compute())
            expected = pytest.approx(alone, rel=1e-12, abs=1e-15, nan_ok=True)
            together = RecMetricCollection({name: metrics[name].clone() for name in alone})
            first, second = (fed(copy.deepcopy(together), [update]) for update in updates)
            together.update(**updates[0])
            of_batch = pytest.approx(floats(second.compute()), rel=1e-12, abs=1e-15, nan_ok=True)
            assert floats(together(**updates[1])) == of_batch
            assert floats(together.compute()) == expected
            if history == variant.histories[0]:
                first.merge_state(pickle.loads(pickle.dumps(second)))
                assert floats(first.compute()) == expected
                slices = fed(Sliced(copy.deepcopy(together), ("all", "none")), all_in_the_first(updates))
                assert floats(slices.overall) == expected


def test_click_metrics_beside_ranking_metrics() -> None:
    """Scores of a batch of users: the AUC of all pairs beside the mean of the users' rankings."""
    metrics = RecMetricCollection([NDCG(2), BinaryAUC(), LogLoss()])
    preds, target = torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.8, 0.3]]), torch.tensor([[1, 0, 0], [1, 0, 0]])
    weights, sample_ids = torch.tensor([1.0, 3.0]), torch.tensor([4, 5])
    for _ in range(2):  # the same samples again count once
        metrics.update(preds, target, weights=weights, sample_ids=sample_ids)
    values = metrics.compute()
    rows = [{"preds": preds, "target": target, "weights": weights[:, None].expand(2, 3)}]
    for variant in (v for v in CLICKED if str(v) in ("BinaryAUC", "LogLoss")):
        assert float(values[variant.name]) == variant.expected(rows)
    assert float(values["ndcg@2"]) == pytest.approx(1 * 1 / 4)


def test_flat_rows_of_click_and_ranking_metrics() -> None:
    (update,) = HISTORIES["clicks"](1)
    metrics = RecMetricCollection([NDCG(2), BinaryAUC(), GroupAUC()])
    metrics.update(update["preds"], update["target"], update["indexes"])
    for variant in (v for v in VARIANTS if str(v) in ("BinaryAUC", "GroupAUC-impressions")):
        assert float(metrics[variant.name].compute()) == variant.expected([update])
    assert float(metrics["ndcg@2"].compute()) == named("NDCG").expected([update], 2)


def test_bins_that_agree_on_the_first_batch_are_not_taken_for_the_same() -> None:
    metrics = MetricCollection({"exact": BinaryAUC(), "coarse": BinaryAUC(4)})
    metrics.update(torch.tensor([1e-30, 1e30]), torch.tensor([0, 1]))
    for _ in range(2):
        metrics.update(torch.tensor([0.5, 0.25]), torch.tensor([0, 1]))
    values = metrics.compute()
    assert float(values["exact"]) == (3 + 2 * 1) / 9
    assert float(values["coarse"]) == (3 + 2 * 3 / 2) / 9  # all but 1e30 share a bin
