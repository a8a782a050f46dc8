"""Two lists of each user, worked by hand, held against the definition, and in every layout."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from fixtures.histories import updated
from fixtures.refusals import refused
from oracles import agreement

import torch_recmetrics
from torch_recmetrics import (
    NDCG,
    RBO,
    Coverage,
    Jaccard,
    KendallTau,
    Overlap,
    RecMetricCollection,
    Sliced,
    UserBootstrap,
    ranking_metrics,
)
from torch_recmetrics.core.kernels import runtime
from torch_recmetrics.core.tensors import thresholds

METRICS: list[tuple[Any, Any, dict[str, Any]]] = [
    (Overlap, agreement.overlap, {"denominator": "k"}),
    (Overlap, agreement.overlap, {"denominator": "min"}),
    (Jaccard, agreement.jaccard, {}),
    (RBO, agreement.rbo, {"persistence": 0.9}),
    (RBO, agreement.rbo, {"persistence": 0.4}),
    (KendallTau, agreement.kendall_tau, {"missing": "left_out"}),
    (KendallTau, agreement.kendall_tau, {"missing": "tied"}),
]
every = pytest.mark.parametrize(("metric", "oracle", "options"), METRICS)
OLD, NEW = [[1, 2, 3, 4], [5, 6, -1, -1]], [[2, 1, 9, 4], [7, 8, -1, -1]]


def value(metric: Any, some: list[list[int]], others: list[list[int]], **given: Any) -> float:
    metric.update(item_ids=torch.tensor(some), reference_ids=torch.tensor(others), **given)
    return float(metric.compute())


def drawn_lists(seed: int, n: int = 40) -> tuple[list[list[int]], list[list[int]]]:
    """Lists of 0 to 9 of 12 items, some equal, some reversed."""
    draw = random.Random(seed)
    some = [draw.sample(range(12), draw.randint(0, 9)) for _ in range(n)]
    others = [draw.sample(range(12), draw.randint(0, 9)) for _ in range(n - 6)]
    return some, [*others, *some[-6:-3], *(row[::-1] for row in some[-3:])]


def expected(oracle: Any, some: Any, others: Any, k: int | None, options: dict[str, Any]) -> float:
    given = (k,) if oracle is agreement.overlap else ()
    values = [oracle(a[:k], b[:k], *given, **options) for a, b in zip(some, others, strict=True)]
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else math.nan


@every
@pytest.mark.parametrize("k", [1, 2, 5, 12, None])
def test_any_two_lists_equal_the_definition(metric: Any, oracle: Any, options: dict[str, Any], k: int | None) -> None:
    some, others = drawn_lists(k or 0)
    ids = [torch_recmetrics.pad_ids(rows) for rows in (some, others)]
    wanted = expected(oracle, some, others, k, options)
    forward = updated(metric(top_k=k, **options), item_ids=ids[0], reference_ids=ids[1])
    assert float(forward.compute()) == pytest.approx(wanted, abs=1e-12, nan_ok=True)
    turned = updated(metric(top_k=k, **options), item_ids=ids[1], reference_ids=ids[0])
    assert float(turned.compute()) == pytest.approx(
        wanted, abs=1e-12, nan_ok=True
    )  # it does not matter which comes first
    halves = metric(top_k=k, **options)
    for part in (slice(0, 13), slice(13, None)):
        halves.update(item_ids=ids[0][part], reference_ids=ids[1][part])
    assert float(halves.compute()) == pytest.approx(wanted, abs=1e-12, nan_ok=True)


@every
def test_a_list_compared_with_itself_gives_1(metric: Any, oracle: Any, options: dict[str, Any]) -> None:
    rows = [random.Random(seed).sample(range(99), 10) for seed in range(30)]
    for k in (3, 10):
        assert value(metric(top_k=k, **options), rows, rows) == 1.0


@every
def test_disjoint_lists(metric: Any, oracle: Any, options: dict[str, Any]) -> None:
    """0; Kendall's tau knows no pair, or puts all pairs across the two lists against each other."""
    got = value(metric(top_k=3, **options), [[1, 2, 3]], [[4, 5, 6]])
    if metric is not KendallTau:
        assert got == 0.0
    elif options["missing"] == "tied":
        assert got == pytest.approx(-2 * 3 / (3 * 3 - 1), abs=1e-15)
    else:
        assert math.isnan(got)


@every
def test_two_empty_lists_are_left_out(metric: Any, oracle: Any, options: dict[str, Any]) -> None:
    empty = [-1, -1, -1]
    assert math.isnan(value(metric(top_k=3, **options), [empty], [empty]))
    one = value(metric(top_k=3, **options), [[1, 2, 3], empty], [[1, 2, 3], empty])
    assert one == 1.0
    alone = value(metric(top_k=3, **options), [[1, 2, 3]], [empty])
    assert math.isnan(alone) if metric is KendallTau else alone == 0.0
    nobody = metric(top_k=3, **options)
    nobody.update(item_ids=torch.zeros((0, 3), dtype=torch.int64), reference_ids=torch.zeros((0, 2), dtype=torch.int64))
    assert math.isnan(float(nobody.compute()))


def test_by_hand() -> None:
    assert value(Overlap(4), OLD, NEW) == (3 / 4 + 0) / 2
    assert value(Overlap(4), [[1, 2]], [[1, 2]]) == 2 / 4  # two places are empty in both
    assert value(Overlap(4, denominator="min"), [[1, 2]], [[1, 2, 3]]) == 1.0
    assert value(Overlap(None), [[1, 2]], [[1, 3, 2]]) == 2 / 3
    assert value(Jaccard(4), OLD, NEW) == (3 / 5 + 0) / 2
    # (2, 3) and (2, 9, 4, 3): agreement 1, 1/2; behind the second place half of it is shared.
    first = [1, 1 / 2, (1 + 1 / 2) / 3, (2 + 2 / 2) / 4]
    end = (2 - 1) / 4 + 1 / 2
    wanted = 0.5 * sum(a * 0.5**d for d, a in enumerate(first)) + end * 0.5**4
    assert value(RBO(persistence=0.5), [[2, 3]], [[2, 9, 4, 3]]) == pytest.approx(wanted, abs=1e-15)
    assert value(KendallTau(4), OLD[:1], NEW[:1]) == pytest.approx((2 - 1) / 3, abs=1e-15)
    assert value(KendallTau(4), [[1, 2, 3]], [[3, 2, 1]]) == -1.0


def test_rbo_of_prefixes_is_the_sum_of_its_definition() -> None:
    """Of lists so long that nothing is left behind their ends the sum needs no extrapolation."""
    draw = random.Random(5)
    some = draw.sample(range(900), 800)
    others = sorted(some, key=lambda item: some.index(item) + draw.uniform(0, 9))
    p = 0.9
    shared = [len({*some[:d]} & {*others[:d]}) / d for d in range(1, 801)]
    wanted = (1 - p) * math.fsum(p ** (d - 1) * a for d, a in enumerate(shared, 1))
    assert value(RBO(persistence=p), [some], [others]) == pytest.approx(wanted, abs=1e-12, nan_ok=True)
    assert value(RBO(800, persistence=p), [some], [others]) == pytest.approx(wanted, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.97])
def test_ranks_that_rbo_does_not_look_at_count_nothing(p: float) -> None:
    """The worst case: up to there all is shared, and nothing behind it."""
    from torch_recmetrics.metrics.agreement import reach

    depth, some = reach(p), list(range(2000))
    others = [*some[:depth], *range(5000, 7000 - depth)]
    shared = [min(d, depth) / d for d in range(1, 2001)]
    wanted = (1 - p) * math.fsum(p ** (d - 1) * a for d, a in enumerate(shared, 1))
    assert value(RBO(persistence=p), [some], [others]) == pytest.approx(wanted, abs=1e-12)


def test_rbo_is_that_of_the_package_of_this_name() -> None:
    """Of lists of one length and of two."""
    rbo = pytest.importorskip("rbo")
    draw = random.Random(2)
    for _ in range(40):
        some, others = (draw.sample(range(20), draw.randint(1, 15)) for _ in range(2))
        wanted = rbo.RankingSimilarity(some, others).rbo_ext(p=0.9)
        assert value(RBO(), [some], [others]) == pytest.approx(wanted, abs=1e-12)


def test_kendall_tau_is_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = random.Random(2)
    for _ in range(40):
        some, others = draw.sample(range(9), 6), draw.sample(range(9), draw.randint(3, 6))
        common = sorted({*some} & {*others})
        union = sorted({*some} | {*others})
        for missing, items in (("left_out", common), ("tied", union)):
            places = [[row.index(i) if i in row else len(row) for i in items] for row in (some, others)]
            wanted = stats.kendalltau(*places).statistic if len(items) > 1 else math.nan
            padded = [[*others, *[-1] * (6 - len(others))]]
            got = value(KendallTau(6, missing=missing), [some], padded)  # type: ignore[arg-type]
            assert got == pytest.approx(wanted, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("depth", [4, 9])
def test_some_users_are_compared_at_a_time(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no loop is compiled, all pairs of a list stand beside each other."""
    ids = [torch_recmetrics.pad_ids(rows) for rows in drawn_lists(3)]
    whole = updated(KendallTau(depth), item_ids=ids[0], reference_ids=ids[1]).compute()
    monkeypatch.setattr(thresholds, "STEP_ELEMENTS", 5)
    with runtime.plain():
        assert torch.equal(updated(KendallTau(depth), item_ids=ids[0], reference_ids=ids[1]).compute(), whole)


# Layouts -------------------------------------------------------------------------------------------------------------

SCORES, BEFORE = torch.tensor([[5.0, 4, 3, 2, 1], [1, 2, 3, 4, 5]]), torch.tensor([[5.0, 3, 4, 1, 2], [5, 4, 3, 2, 1]])
LISTS, LISTS_BEFORE = SCORES.argsort(1, descending=True), BEFORE.argsort(1, descending=True)


def all_four() -> RecMetricCollection:
    return RecMetricCollection([Overlap(2), Jaccard(3), RBO(), KendallTau(5)])


WANTED = updated(all_four(), item_ids=LISTS, reference_ids=LISTS_BEFORE).compute()


@pytest.mark.parametrize(
    "update",
    [
        {"preds": SCORES, "reference_preds": BEFORE},
        {"preds": SCORES, "reference_ids": LISTS_BEFORE},
        {"item_ids": LISTS, "reference_preds": BEFORE},
        {
            "item_ids": LISTS,
            "reference_ids": torch.cat([LISTS_BEFORE[:, :2], LISTS_BEFORE[:, 1:2] * 0 - 1, LISTS_BEFORE[:, 2:]], 1),
        },
        {"preds": SCORES.flip(1), "item_ids": torch.arange(4, -1, -1), "reference_preds": BEFORE.flip(1)},
        {"user_embeddings": SCORES, "item_embeddings": torch.eye(5), "reference_preds": BEFORE},
        {"preds": SCORES, "target": SCORES > 2, "reference_preds": BEFORE.to(torch.bfloat16)},
        {"preds": torch_recmetrics.rank(SCORES, reference_preds=BEFORE, top_k=None)},
    ],
    ids=["scores", "scores and ids", "ids and scores", "padding within", "candidates", "embeddings", "target", "ready"],
)
def test_layouts_give_the_same(update: dict[str, Any]) -> None:
    assert updated(all_four(), **update).compute() == WANTED
    for name, member in all_four().items():
        assert updated(member, **update).compute() == WANTED[name]


def test_what_was_seen_or_masked_is_in_neither_list() -> None:
    lists = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[1, 5, 2, 3]])
    assert float(updated(Overlap(2), item_ids=lists[0], reference_ids=lists[1]).compute()) == 1 / 2
    seen = updated(Overlap(2), item_ids=lists[0], reference_ids=lists[1], seen_ids=torch.tensor([[1, 5]]))
    assert float(seen.compute()) == 1.0
    mask = torch.tensor([[True, False, True, True, True]]).expand(2, 5)
    masked = updated(all_four(), preds=SCORES, reference_preds=BEFORE, mask=mask).compute()
    rows = torch.tensor([[0, 2, 3, 4], [4, 3, 2, 0]]), torch.tensor([[0, 2, 4, 3], [0, 2, 3, 4]])
    assert masked == updated(all_four(), item_ids=rows[0], reference_ids=rows[1]).compute()
    embedded = {"user_embeddings": SCORES, "item_embeddings": torch.eye(5)}
    padded = torch.cat([LISTS_BEFORE, LISTS_BEFORE[:, :1] * 0 - 1], 1)
    for update in (
        {"preds": SCORES, "mask": mask},
        {**embedded, "mask": mask},
        {**embedded, "mask": mask[0]},
        {**embedded, "item_ids": torch.tensor([4, 0, 3, 2])},
    ):
        assert updated(all_four(), reference_ids=padded, **update).compute() == masked
        assert updated(all_four(), reference_preds=BEFORE, **update).compute() == masked
    nothing = torch.zeros(1, 0)  # no items at all
    empty = updated(Overlap(2), preds=nothing, mask=nothing > 0, reference_ids=torch.tensor([[-1]]))
    assert empty.compute().isnan()
    ignoring = Overlap(2, ignore_index=-100)
    ignoring.update(SCORES[:1], torch.tensor([[-100, 0, 0, 1, 0]]), reference_ids=torch.tensor([[0, 2, 1, 4, 3]]))
    assert float(ignoring.compute()) == 1.0  # 1 and 2 of both


def test_sequences_labels_and_ragged_lists() -> None:
    steps = {"item_ids": LISTS.unsqueeze(0), "target_ids": torch.tensor([[0, 1]])}
    for name, before in (("reference_ids", LISTS_BEFORE), ("reference_preds", BEFORE)):
        assert updated(all_four(), **steps, **{name: before.unsqueeze(0)}).compute() == WANTED
    ignoring = Overlap(2, ignore_index=-100)
    ignoring.update(item_ids=torch.tensor([[1, 2]]), reference_ids=torch.tensor([[-100, 2]]))
    assert float(ignoring.compute()) == 1 / 2
    ragged = torch.nested.nested_tensor([torch.tensor([2, 1]), torch.tensor([7])], layout=torch.jagged)
    got = updated(Jaccard(3), item_ids=torch.tensor([[1, 2], [7, 8]]), reference_ids=ragged)
    assert float(got.compute()) == (1 + 1 / 2) / 2


def test_what_is_refused() -> None:
    with refused(Overlap(2), "`reference_ids` is missing"):
        Overlap(2).update(item_ids=LISTS)
    with refused(Overlap(2), "`reference_ids` and `reference_preds` must not be given together"):
        Overlap(2).update(item_ids=LISTS, reference_ids=LISTS, reference_preds=BEFORE)
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"item_ids": LISTS, "reference_ids": LISTS[:1]}, ValueError, "`reference_ids`"),
        (
            {"item_ids": LISTS, "reference_ids": LISTS * 0},
            ValueError,
            "`reference_ids` must not repeat|`reference_ids`",
        ),
        ({"item_ids": LISTS, "reference_ids": LISTS - 3}, ValueError, "`reference_ids`"),
        ({"preds": SCORES, "reference_ids": LISTS + 1}, ValueError, "`reference_ids` must be below .*, 5, got 5 in"),
        ({"item_ids": LISTS, "reference_ids": SCORES}, TypeError, "`reference_ids`"),
        ({"preds": SCORES, "reference_preds": LISTS}, TypeError, "`reference_preds`"),
        ({"preds": SCORES, "reference_preds": BEFORE.sum()}, ValueError, "`reference_preds` must have 2 dimensions"),
        ({"preds": SCORES, "reference_preds": BEFORE[:, :4]}, ValueError, "`reference_preds`"),
        *(
            (
                {"user_embeddings": SCORES[:, :3], "item_embeddings": torch.eye(5)[:, :3], "reference_preds": before},
                ValueError,
                r"`reference_preds` must have the shape \(2, 5\) of the scores of all items, got \(2, [37]\)",
            )
            for before in (BEFORE[:, :3], torch.rand(2, 7))
        ),
        ({"preds": SCORES, "reference_preds": BEFORE / 0 * 0}, ValueError, "`reference_preds` must not be NaN"),
        ({"preds": SCORES[0], "target": SCORES[0] > 2, "indexes": LISTS[0]}, ValueError, "looks at item ids"),
    ]
    for update, error, words in cases:
        metric = RecMetricCollection([Overlap(2), NDCG(2)]) if "target" not in update else Overlap(2)
        with pytest.raises(error, match=words):
            metric.update(**update, **({} if "target" in update else {"target_ids": torch.tensor([0, 1])}))
        members = metric.values() if isinstance(metric, RecMetricCollection) else [metric]
        assert not any(member.update_count for member in members)  # type: ignore[union-attr]
    for metric in (
        NDCG(2),
        RecMetricCollection([NDCG(2)]),
        ranking_metrics("coverage", options={"coverage": {"num_items": 5}}),
    ):
        with pytest.raises(TypeError, match="reference_ids"):
            metric.update(item_ids=LISTS, target_ids=torch.tensor([0, 1]), reference_ids=LISTS)
    with pytest.raises(ValueError, match="knows no second lists"):
        Overlap(2).update(torch_recmetrics.rank(SCORES))
    rows: dict[str, Any] = {"preds": SCORES[0], "target": SCORES[0] > 2, "indexes": LISTS[0]}
    for name, before in (("reference_ids", LISTS_BEFORE), ("reference_preds", BEFORE[0])):
        rows[name] = before
        for reads in (torch_recmetrics.rank, RecMetricCollection([NDCG(2)]).update, Overlap(2).update):
            with pytest.raises(ValueError, match=f"`{name}` must not be given with flat rows .* give `item_ids`"):
                reads(**rows)
        del rows[name]


# Together with others ------------------------------------------------------------------------------------------------


def test_in_a_collection_wrappers_and_by_name() -> None:
    metrics = ranking_metrics(
        ("ndcg", "overlap", "rbo", "kendall_tau", "jaccard", "coverage"),
        3,
        options={"coverage": {"num_items": 5}},
        keep_users=True,
    )
    update: dict[str, Any] = {"preds": SCORES, "reference_preds": BEFORE, "sample_ids": torch.tensor([4, 2])}
    metrics.update(**update, target_ids=torch.tensor([0, 1]))
    values, users = metrics.compute(), metrics.users()
    assert float(values["overlap@3"]) == users.mean("overlap@3") == 2 / 3
    assert values["rbo@3"] == updated(RBO(3), **update).compute()
    assert set(metrics.confidence_intervals()) == {"ndcg@3", "overlap@3", "rbo@3", "kendall_tau@3", "jaccard@3"}
    sliced = Sliced(RecMetricCollection([Overlap(3), Coverage(5, 3)]), 2)
    sliced.update(**update, slice_ids=torch.tensor([0, 1]))
    assert {float(v) for n, v in sliced.compute().items() if "overlap" in n} == {1.0, 1 / 3}
    resampled = UserBootstrap(RBO(), num_replicates=50)
    resampled.update(**update)
    assert resampled.compute()["value"] == WANTED["rbo"]


def test_plain_collections_of_torchmetrics_hand_each_what_it_takes() -> None:
    from torchmetrics import MetricCollection

    metrics = MetricCollection({"overlap": Overlap(2), "ndcg": NDCG(2)}, compute_groups=False)
    metrics.update(SCORES, SCORES > 2, reference_preds=BEFORE)
    assert metrics.compute()["overlap"] == WANTED["overlap@2"]
