"""Attention of groups of items, worked by hand; and what holds of several values with names."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.histories import updated
from fixtures.refusals import refused
from fixtures.stand_ins import SHOWN, OneShare

import torch_recmetrics
from torch_recmetrics import (
    NDCG,
    ExposureDisparity,
    GroupExposure,
    RecMetricCollection,
    Sliced,
    UserBootstrap,
    ranking_metrics,
)
from torch_recmetrics.core.kernels.runtime import plain

GROUPS = torch.tensor([0, 0, 1, 1, 2, -1])
NAMES = ("indie", "major", "own")
LISTS = torch.tensor([[0, 2, 5], [1, 5, -1], [5, -1, -1], [-1, -1, -1], [4, 3, 1]])
A = [1.0, 1 / math.log2(3), 1 / 2]  # attention of the first three ranks


def test_groups_may_be_made_without_contents() -> None:
    with torch.device("meta"):
        metric = GroupExposure(torch.empty(6, dtype=torch.int64))
    assert metric.value_names("exposure") == ["exposure/0"]


def halved(ranks: torch.Tensor) -> torch.Tensor:
    return 0.5**ranks


def floats(values: Any) -> Any:
    return {name: floats(value) for name, value in values.items()} if isinstance(values, dict) else float(values)


def test_shares_by_hand() -> None:
    """The item of no group takes a rank and no attention; lists without a group are left out."""
    users = [(A[0] / (A[0] + A[1]), A[1] / (A[0] + A[1]), 0), (1, 0, 0), (A[2] / sum(A), A[1] / sum(A), A[0] / sum(A))]
    got = floats(updated(GroupExposure(GROUPS, 3, names=NAMES), item_ids=LISTS).compute())
    wanted = [math.fsum(user[g] for user in users) / 3 for g in range(3)]
    assert got == pytest.approx(dict(zip(NAMES, wanted, strict=True)), abs=1e-15)
    assert list(got) == list(NAMES)
    system = floats(updated(GroupExposure(GROUPS, 3, per="system"), item_ids=LISTS).compute())
    all_of_it = 2 * A[0] + A[1] + sum(A)
    assert system == pytest.approx(
        {"0": (2 * A[0] + A[2]) / all_of_it, "1": 2 * A[1] / all_of_it, "2": A[0] / all_of_it}, abs=1e-15
    )
    plain = floats(updated(GroupExposure(GROUPS, 3, attention="none"), item_ids=LISTS[:1]).compute())
    assert plain == {"0": 0.5, "1": 0.5, "2": 0.0}
    rbp = floats(updated(GroupExposure(GROUPS, 3, attention="rbp", persistence=0.5), item_ids=LISTS[:1]).compute())
    assert rbp == pytest.approx({"0": 2 / 3, "1": 1 / 3, "2": 0.0})
    assert floats(updated(GroupExposure(GROUPS, 3, attention=halved), item_ids=LISTS[:1]).compute()) == rbp
    weighted = updated(GroupExposure(GROUPS, 3), item_ids=LISTS, weights=torch.tensor([0.0, 3, 1, 1, 1]))
    assert floats(weighted.compute())["0"] == pytest.approx((3 + users[2][0]) / 4)


def test_attention_may_write_to_the_ranks_that_it_gets() -> None:
    """They are its own: the same list has the same exposure again, and so has that of other metrics."""
    wanted = floats(updated(GroupExposure(GROUPS, 3), item_ids=LISTS).compute())
    metric = GroupExposure(GROUPS, 3, attention=lambda r: r.add_(1).log2_().reciprocal_())
    for _ in range(2):
        assert floats(updated(metric, item_ids=LISTS).compute()) == pytest.approx(wanted, abs=1e-15)
    assert floats(updated(GroupExposure(GROUPS, 3), item_ids=LISTS).compute()) == wanted


def test_items_of_several_groups() -> None:
    amounts = torch.tensor([[2.0, 2.0], [0.0, 5.0], [0.0, 0.0], [1.0, 3.0]])
    got = updated(GroupExposure(amounts, 2, attention="none"), item_ids=torch.tensor([[0, 1], [2, 3], [2, -1]]))
    assert floats(got.compute()) == {"0": (1 / 4 + 1 / 4) / 2, "1": (3 / 4 + 3 / 4) / 2}
    one_hot = torch.nn.functional.one_hot(GROUPS.clamp(min=0), 3) * (GROUPS >= 0).unsqueeze(1)
    for per in ("list", "system"):
        metrics = [GroupExposure(groups, 3, per=per) for groups in (GROUPS, one_hot, one_hot.bool())]  # type: ignore[arg-type]
        same = [updated(metric, item_ids=LISTS).compute() for metric in metrics]
        assert floats(same[0]) == pytest.approx(floats(same[1])) == floats(same[2])


def drawn(seed: int, n: int = 50) -> torch.Tensor:
    draw = random.Random(seed)
    rows = [draw.sample(range(40), draw.randint(0, 12)) for _ in range(n)]
    return torch_recmetrics.pad_ids(rows)


@pytest.mark.parametrize("per", ["list", "system"])
@pytest.mark.parametrize("groups", ["one", "several"])
def test_laws(per: Any, groups: str) -> None:
    """Shares add up to 1; items may change places with others of their group; scores give what their lists do."""
    generator = torch.Generator().manual_seed(1)
    of_items = torch.randint(-1, 4, (40,), generator=generator)
    known = of_items if groups == "one" else torch.rand(40, 4, generator=generator) * (of_items >= 0).unsqueeze(1)
    lists = drawn(3)
    values = updated(GroupExposure(known, 10, per=per), item_ids=lists).compute()
    assert sum(floats(values).values()) == pytest.approx(1, abs=1e-12)
    if groups == "one":
        order = torch.arange(40)
        for group in range(-1, 4):
            (members,) = (of_items == group).nonzero(as_tuple=True)
            order[members] = members[torch.randperm(len(members), generator=generator)]
        moved = torch.where(lists >= 0, order[lists.clamp(min=0)], -1)
        assert floats(updated(GroupExposure(known, 10, per=per), item_ids=moved).compute()) == floats(values)
        for distance in ("js", "l1", "l2", "kl", "max_ratio"):
            pair = [
                float(updated(ExposureDisparity(known, 10, per=per, distance=distance), item_ids=ids).compute())  # type: ignore[arg-type]
                for ids in (lists, moved)
            ]
            assert pair[0] == pytest.approx(pair[1], abs=1e-12)
    scores = torch.rand(30, 40, generator=generator)
    target = torch.rand(30, 40, generator=generator) < 0.1
    of_scores = updated(ExposureDisparity(known, 10, per=per, target="relevance"), scores, target)
    of_lists = updated(
        ExposureDisparity(known, 10, per=per, target="relevance"),
        item_ids=scores.argsort(1, descending=True),
        target_ids=torch_recmetrics.pad_ids([row.nonzero().flatten().tolist() for row in target]),
    )
    assert float(of_scores.compute()) == pytest.approx(float(of_lists.compute()), abs=1e-12)
    ready = torch_recmetrics.rank(scores, target, top_k=10)
    assert updated(ExposureDisparity(known, 10, per=per, target="relevance"), ready).compute() == of_scores.compute()


def test_disparities_by_hand() -> None:
    groups, lists = torch.tensor([0, 0, 0, 1]), torch.tensor([[0, 3], [0, 1]])  # 3/4 and 1/4 of the catalogue
    shares = [(0.5, 0.5), (1.0, 0.0)]

    def of(distance: str, **how: Any) -> float:
        metric = ExposureDisparity(groups, 2, attention="none", distance=distance, **how)  # type: ignore[arg-type]
        return float(updated(metric, item_ids=lists, target_ids=torch.tensor([[3, 2], [0, 1]])).compute())

    assert of("l1") == (1 / 4 + 1 / 4) / 2
    assert of("l2") == (2 / 16 + 2 / 16) / 2
    assert of("difference") == (-1 / 4 + 1 / 4) / 2
    assert of("kl") == pytest.approx((0.5 * math.log2(2 / 3) + 0.5 * math.log2(2) + math.log2(4 / 3)) / 2)
    middle = [((a + 3 / 4) / 2, (b + 1 / 4) / 2) for a, b in shares]
    halves = [
        (
            sum(p * math.log2(p / m) for p, m in zip(own, mid) if p)
            + sum(t * math.log2(t / m) for t, m in zip((3 / 4, 1 / 4), mid))
        )
        / 2
        for own, mid in zip(shares, middle)
    ]
    assert of("js") == pytest.approx(sum(halves) / 2)
    assert of("max_ratio") == math.inf  # the second list shows nothing of the other group
    assert of("l1", per="system") == 0.0 and of("max_ratio", per="system") == 1.0  # 3 and 1 of 4 places
    assert of("l1", target="uniform") == (0 + 1 / 2) / 2
    assert of("l1", target=[3, 1]) == of("l1")
    assert of("l1", target="relevance") == (0 + 0) / 2
    assert of("difference", target=[0.0, 2.0], per="system") == 3 / 4
    # All of the relevant items of all users are 3 and 1; each counts once, whatever its relevance.
    assert of("l2", target="relevance", per="system") == 0.0
    graded = ExposureDisparity(groups, 2, attention="none", distance="l1", target="relevance")
    graded.update(item_ids=lists[:1], target_ids=torch.tensor([[3, 2]]), target_relevance=torch.tensor([[5.0, 0.0]]))
    assert float(graded.compute()) == 0.5


def test_a_group_that_nothing_is_asked_of_and_nothing_shown_of_has_no_ratio() -> None:
    groups, lists = torch.tensor([0, 1, 2]), torch.tensor([[0, 1], [0, 2]])
    for row, target, ratio in ((0, [1, 3, 0], 3.0), (0, [1, 1, 2], math.inf), (1, [1, 1, 0], math.inf)):
        options: Any = {"attention": "none", "distance": "max_ratio", "target": target}
        assert float(updated(ExposureDisparity(groups, 2, **options), item_ids=lists[row : row + 1]).compute()) == ratio


def test_who_counts_towards_relevance() -> None:
    """A list needs relevant items with a group to be held against them; of all lists together each counts."""
    lists, wanted = torch.tensor([[0], [3], [1], [5]]), torch.tensor([[0], [5], [-1], [3]])
    own = updated(ExposureDisparity(GROUPS, 1, target="relevance", distance="l1"), item_ids=lists, target_ids=wanted)
    assert float(own.compute()) == 0.0  # of the first user alone
    system = ExposureDisparity(GROUPS, 1, target="relevance", distance="l1", per="system")
    system.update(item_ids=lists, target_ids=wanted)
    assert float(system.compute()) == pytest.approx(1 / 3)  # shown 2 and 1, wanted 1 and 0: the last list has no group


@pytest.mark.parametrize("per", ["list", "system"])
def test_several_values_are_those_of_one_each(per: Any) -> None:
    """In everything that a metric can be asked: `OneShare` obeys the laws."""
    both = [GroupExposure(GROUPS, 3, names=NAMES, per=per), OneShare(GROUPS, 3, names=NAMES, per=per)]
    ids = torch.tensor([3, 9, 4, 3, 1])
    updates = [
        {"item_ids": LISTS},
        {"item_ids": LISTS.flip(0), "weights": torch.tensor([1.0, 2, 0, 3, 1])},
        {"item_ids": LISTS, "sample_ids": ids},
    ]
    for update in updates:
        got, one = (metric(**update) for metric in both)
        assert got[NAMES[SHOWN]] == one
    several, single = both
    assert several.compute()[NAMES[SHOWN]] == single.compute()
    assert several.standard_error()[NAMES[SHOWN]] == single.standard_error()
    for method in (None, "logit"):
        of_each = several.confidence_interval(0.9, method=method)
        assert of_each[NAMES[SHOWN]] == single.confidence_interval(0.9, method=method)
    for copied in (copy.deepcopy(several), pickle.loads(pickle.dumps(several)), several.clone()):
        assert copied.compute() == several.compute()
    merged = GroupExposure(GROUPS, 3, names=NAMES, per=per)
    merged.merge_state(several)
    assert merged.compute() == several.compute()
    for wrapped in (lambda m: Sliced(m, ("x", "y")), lambda m: UserBootstrap(m, num_replicates=20)):
        results = []
        for metric in (GroupExposure(GROUPS, 3, names=NAMES, per=per), OneShare(GROUPS, 3, names=NAMES, per=per)):
            wrapper = wrapped(metric)
            for update in updates:
                slices = {"slice_ids": torch.tensor([0, 1, 0, 1, 1])} if isinstance(wrapper, Sliced) else {}
                wrapper.update(**update, **slices)
            results.append(wrapper.compute())
        own = {n.removeprefix("major/"): v for n, v in results[0].items() if n.startswith("major/")}
        assert floats(own or results[0]["major"]) == pytest.approx(floats(results[1]), nan_ok=True)


def test_names_of_any_kind_are_shown_as_a_tuple() -> None:
    for names in (["a", "b"], np.array(["a", "b"]), ("a", "b")):
        metric = GroupExposure(torch.tensor([0, 1]), names=names)
        assert repr(metric) == "GroupExposure(top_k=10, names=('a', 'b'))"
    assert repr(GroupExposure(torch.tensor([0, 1]))) == "GroupExposure(top_k=10)"


def test_names_in_a_collection_and_wrappers() -> None:
    metrics = RecMetricCollection(
        [
            NDCG(2),
            GroupExposure(GROUPS, 3, names=NAMES),
            Sliced(GroupExposure(GROUPS, 2, names=NAMES), ("x", "y")),
            UserBootstrap(GroupExposure(GROUPS, 1, names=NAMES), num_replicates=9),
        ],
        prefix="val_",
        keep_users=True,
    )
    update = {"item_ids": LISTS, "target_ids": LISTS, "sample_ids": torch.arange(5)}
    forward = metrics(**update, slice_ids=torch.tensor([0, 0, 1, 1, 1]))
    values = metrics.compute()
    assert floats(values) == pytest.approx(floats(forward), nan_ok=True)
    assert list(values) == metrics.value_names()
    assert list(values)[1:4] == [f"val_exposure@3/{name}" for name in NAMES]
    assert "val_exposure@2/indie/x" in values and "val_exposure@1/own/low" in values
    assert set(metrics.confidence_intervals()) >= {"val_ndcg@2", "val_exposure@3/indie"}
    users = metrics.users()
    assert list(users) == ["val_ndcg@2", *(f"val_exposure@3/{name}" for name in NAMES)]
    for name in NAMES:
        assert users.mean(f"val_exposure@3/{name}") == pytest.approx(float(values[f"val_exposure@3/{name}"]))
    system = RecMetricCollection([NDCG(2), GroupExposure(GROUPS, 3, names=NAMES, per="system")], keep_users=True)
    system.update(**update)
    summaries = system.users().summaries
    assert list(summaries) == [f"exposure@3/{name}" for name in NAMES]
    assert summaries["exposure@3/own"][0] == float(system.compute()["exposure@3/own"])
    by_name = ranking_metrics(
        ("exposure", "exposure_disparity"),
        (2, 3),
        options={"exposure": {"groups": GROUPS}, "exposure_disparity": {"groups": GROUPS}},
    )
    by_name.update(item_ids=LISTS)
    deep = updated(GroupExposure(GROUPS, 3), item_ids=LISTS).compute()
    assert {n: v for n, v in by_name.compute().items() if "@3/" in n} == {f"exposure@3/{g}": v for g, v in deep.items()}
    alone = updated(RecMetricCollection([GroupExposure(torch.zeros(6, dtype=torch.int64), 3)]), item_ids=LISTS)
    assert floats(alone.compute()) == {"exposure@3/0": 1}


@pytest.mark.parametrize("per", ["list", "system"])
def test_one_group_alone_has_all_attention_in_a_collection_too(per: Any) -> None:
    """A metric of one part is no plain mean for that: it has a name for it, or is a distance."""
    groups, update = torch.tensor([0, 0, -1, 0]), {"item_ids": torch.tensor([[0, 2, 1], [3, 2, 0]])}
    update["target_ids"] = torch.tensor([[0], [0]])
    made = [GroupExposure(groups, 3, per=per), ExposureDisparity(groups, 3, per=per)]
    metrics = RecMetricCollection([*made, NDCG(3)])
    forward = metrics(**update)
    assert (
        floats(metrics.compute())
        == floats(forward)
        == {
            "exposure@3/0": 1.0,
            "exposure_disparity@3": 0.0,
            "ndcg@3": 0.75,
        }
    )


def test_a_median_of_each_group() -> None:
    metric = updated(
        GroupExposure(GROUPS, 3, aggregation="median", keep_users=True), item_ids=LISTS, sample_ids=torch.arange(5)
    )
    users = metric.users()
    wanted = {name: float(users[f"exposure@3/{name}"].nanmedian()) for name in "012"}
    assert floats(metric.compute()) == wanted
    assert (
        floats(RecMetricCollection([GroupExposure(GROUPS, 3, aggregation="median")])(item_ids=LISTS))["exposure@3/0"]
        == wanted["0"]
    )


def test_a_median_of_each_group_in_slices() -> None:
    slices = torch.tensor([0, 1, 0, 1, 0])
    sliced = Sliced(GroupExposure(GROUPS, 3, names=NAMES, aggregation="median"), ("x", "y"))
    sliced.update(item_ids=LISTS, slice_ids=slices)
    values = sliced.compute()
    for number, name in enumerate("xy"):
        alone = GroupExposure(GROUPS, 3, names=NAMES, aggregation="median")
        of_each = updated(alone, item_ids=LISTS[slices == number]).compute()
        assert {f"{group}/{name}": float(value) for group, value in of_each.items()} == {
            key: float(value) for key, value in values.items() if key.endswith(f"/{name}")
        }


def test_a_mean_beside_a_median_in_a_bootstrap() -> None:
    """It was the largest value of a user."""
    lists, both = torch.tensor([[0], [2], [0]]), torch.tensor([[0], [0], [1]])
    metrics = RecMetricCollection([NDCG(1, aggregation="median"), GroupExposure(GROUPS, 1)])
    resampled = updated(UserBootstrap(metrics, num_replicates=5), item_ids=lists, target_ids=both)
    assert float(resampled.compute()["exposure@1/0"]["value"]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(("distance", "most"), [("js", 1), ("l1", 1), ("l2", 2)])
def test_intervals_stay_within_what_a_distance_can_be(distance: Any, most: int) -> None:
    """Three of four lists are as far from the target as they can be, or as near."""
    for lists, end in (([[2, 3]] * 3, most), ([[0, 1]] * 3, 0)):
        metric = ExposureDisparity(torch.tensor([0, 0, 1, 1]), 2, distance=distance, target=torch.tensor([1.0, 0.0]))
        metric.update(item_ids=torch.tensor([*lists, [0, 2]]))
        assert float(metric.confidence_interval()[end > 0]) == end != float(metric.compute())


def test_what_has_no_interval_in_closed_form() -> None:
    metric = updated(ExposureDisparity(GROUPS, 3, per="system"), item_ids=LISTS)
    with pytest.raises(NotImplementedError, match=r"UserBootstrap\(metric\)"):
        metric.standard_error()
    resampled = updated(UserBootstrap(ExposureDisparity(GROUPS, 3, per="system"), num_replicates=50), item_ids=LISTS)
    assert resampled.compute()["value"] == metric.compute() and resampled.compute()["standard_error"] > 0
    sliced = Sliced(ExposureDisparity(GROUPS, 3, per="system"), 2)
    sliced.update(item_ids=LISTS, slice_ids=torch.tensor([0, 0, 1, 1, 1]))
    alone = updated(ExposureDisparity(GROUPS, 3, per="system"), item_ids=LISTS[2:]).compute()
    assert float(sliced.compute()["1"]) == pytest.approx(float(alone), abs=1e-15)
    assert float(sliced.overall) == pytest.approx(float(metric.compute()), abs=1e-15)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GroupExposure(torch.tensor([0, -2])), "-1 for none, got -2 for item 1"),
        (lambda: GroupExposure(torch.tensor([-1, -1])), "none is in any"),
        (
            lambda: GroupExposure([0, 10**9]),
            "at most 1048576, or -1 for none, got 1000000000 for item 1: number the groups 0, 1, 2",
        ),
        (lambda: GroupExposure(torch.tensor([0, 3]), names=("a", "b")), "must name all 4 groups, got 2"),
        (lambda: GroupExposure(torch.eye(2), names=("a",)), "must name the 2 columns"),
        (lambda: GroupExposure(torch.eye(2), names=("a", "a")), "must name each group once"),
        (lambda: GroupExposure(torch.eye(2) - 1), "must be >= 0 and finite"),
        (lambda: GroupExposure(torch.full((2, 2), 1e308, dtype=torch.float64)), "must be >= 0 and below"),
        (lambda: GroupExposure(torch.zeros(2, 2, 2)), "must be .num_items,., the group of each item"),
        (lambda: GroupExposure(torch.zeros(0, dtype=torch.int64)), "with an item and a group at least"),
        (lambda: GroupExposure(GROUPS, attention="log10"), "must be one of 'log2', 'none', 'rbp', or a function"),
        (lambda: GroupExposure(GROUPS, attention=lambda r: r), "never rise"),
        (lambda: GroupExposure(GROUPS, per="system", aggregation="median"), "one share of all attention"),
        (lambda: ExposureDisparity(GROUPS, target="best"), "`target` must be"),
        (lambda: ExposureDisparity(GROUPS, target=[1.0, 2.0]), "share for each of the 3 groups, got 2"),
        (lambda: ExposureDisparity(GROUPS, target=[0.0, 0.0, 0.0]), "must have a share above 0"),
        (lambda: ExposureDisparity(GROUPS, target=torch.tensor([1j, 1, 1])), "must be bool, integer or floating"),
        (lambda: ExposureDisparity(GROUPS, distance="difference"), "is for two groups, got 3"),
    ],
)
def test_options_that_are_refused(make: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        make()


COUNTS, MEMBERS = torch.tensor([8, 4, 4, 1, 2]), torch.tensor([[1, 0], [1, 1], [0, 1], [1, 0], [0, 1]])


@pytest.mark.parametrize(
    "make",
    [
        partial(GroupExposure, torch.tensor([0, 1, 1, 0, 2])),
        partial(GroupExposure, MEMBERS),
        partial(torch_recmetrics.CategoryDiversity, MEMBERS),
        partial(torch_recmetrics.ILS, MEMBERS),
        partial(torch_recmetrics.ILS, similarity=torch.arange(25.0).view(5, 5)),
        partial(torch_recmetrics.Popularity, COUNTS),
        partial(torch_recmetrics.Novelty, COUNTS, num_users=20),
        partial(torch_recmetrics.TailShare, COUNTS),
        partial(torch_recmetrics.Unexpectedness, COUNTS),
    ],
)
def test_an_item_beyond_the_table_that_is_not_checked_counts_as_the_last(make: Any) -> None:
    found = []
    for without_loops in (contextlib.nullcontext(), plain()):
        with without_loops:
            lists = (torch.tensor([[1, 2, item]]) for item in (4, 5, 6, 99))
            found += [floats(updated(make(top_k=3, validate_args=False), item_ids=ids).compute()) for ids in lists]
    assert found == [found[0]] * 8


def test_updates_that_are_refused() -> None:
    metric = updated(GroupExposure(GROUPS, 3), item_ids=LISTS)
    with refused(metric, "knows 6 items, so ids must be below 6, got 9"):
        metric.update(item_ids=torch.tensor([[1, 9]]))
    wants = ExposureDisparity(GROUPS, 3, target="relevance")
    with refused(wants, "`target_ids` is missing"):
        wants.update(item_ids=LISTS)
