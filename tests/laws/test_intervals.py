"""Standard errors and intervals of every mean over users are those of the values, whatever way the users came."""

from __future__ import annotations

import io
import math
import warnings
from typing import Any

import pytest
import scipy
import torch
from fixtures import clicks
from fixtures.cases import Update, holds
from fixtures.histories import fed
from fixtures.variants import CLICKED, STATES, VARIANTS, Variant, ways
from hypothesis import strategies as st
from oracles import intervals
from packaging.version import Version
from scipy import stats
from torchmetrics import SumMetric

import torch_recmetrics
from torch_recmetrics import (
    DCG,
    NDCG,
    BinaryAUC,
    Calibration,
    Coverage,
    HitRate,
    LogLoss,
    NormalizedEntropy,
    Popularity,
    Precision,
    RecMetricCollection,
    Sliced,
    ranking_metrics,
)
from torch_recmetrics.state.intervals import Spread, draw_interval, student_quantile

CLICKS = [v for v in CLICKED if v.label != "bins" and v.make().has_interval]
MEANS = [v for v in VARIANTS if v.reads in ("ranking", "users", "lists")]
NEAR: dict[str, Any] = {"rel": 1e-9, "abs": 1e-10, "nan_ok": True}


def expected(variant: Variant, updates: list[Update], *asked: Any) -> Any:
    if variant.reads == "clicks":
        rows = clicks.rows_of(updates)
        if str(variant) == "BinaryAUC" and clicks.squares_are_lost(updates):
            return pytest.approx(math.nan, nan_ok=True)
        return pytest.approx(intervals.of_clicks(variant.name, rows, **variant.options), **NEAR)
    return pytest.approx(intervals.standard_error(variant.parts(updates, *asked)), **NEAR)


def ends(metric: Any, level: float = 0.95, **named: Any) -> tuple[float, float]:
    low, high = metric.confidence_interval(level, **named)
    assert low.dtype == high.dtype == torch.float64 and low.shape == high.shape == ()
    return float(low), float(high)


@pytest.mark.parametrize("variant", MEANS + CLICKS, ids=str)
def test_standard_errors_are_those_of_the_values(variant: Variant) -> None:
    def law(updates: list[Update], top_k: Any, ties: Any, action: Any) -> None:
        metric = variant.fed(updates, top_k, ties=ties, empty_target_action=action)
        error = metric.standard_error()
        assert error.dtype == torch.float64 and error.shape == ()
        assert float(error) == expected(variant, updates, top_k, ties, action)

    holds(
        law,
        f"interval {variant}",
        examples=6,
        updates=variant.drawn(None),
        top_k=st.sampled_from(variant.cuts),
        ties=st.sampled_from(variant.rules),
        action=st.sampled_from(variant.actions),
    )


def merged(variant: Variant, updates: list[Update]) -> Any:
    metric = variant.fed(updates[:1])
    metric.merge_state(variant.fed(updates[1:3]))
    metric.merge_state(variant.fed(updates[3:]).metric_state)
    return metric


def resumed(variant: Variant, updates: list[Update]) -> Any:
    source, metric = variant.fed(updates[:2]), variant.make()
    file = io.BytesIO()
    source.persistent(True)
    torch.save(source.state_dict(), file)
    file.seek(0)
    metric.load_state_dict(torch.load(file, weights_only=True))
    return fed(metric, updates[2:])


def stepped(variant: Variant, updates: list[Update]) -> Any:
    metric = variant.make()
    for update in updates:
        metric(**update)
        metric.standard_error()
    return metric


def member(variant: Variant, updates: list[Update]) -> Any:
    metric = variant.make()
    others = [] if variant.reads == "clicks" else [NDCG(7)]
    fed(RecMetricCollection([metric, *others]), updates)
    return metric


WAYS = {"fed": Variant.fed, "merged": merged, "resumed": resumed, "stepped": stepped, "a member": member}


@pytest.mark.parametrize(("variant", "history"), ways([v for v in STATES if v in MEANS + CLICKS], "histories"))
def test_whatever_happens_between_updates(variant: Variant, history: str) -> None:
    updates = variant.history(history)
    error = expected(variant, updates)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for way, of in WAYS.items():
            assert float(of(variant, updates).standard_error()) == error, way


@pytest.mark.parametrize("variant", MEANS, ids=str)
def test_intervals_are_cut_to_the_range(variant: Variant) -> None:
    for history in variant.histories if variant in STATES else variant.histories[:1]:
        updates = variant.history(history)
        metric = variant.fed(updates)
        low, high = metric.value_range
        assert low is None or low <= float(metric.compute())
        assert high is None or float(metric.compute()) <= high
        limits = -math.inf if low is None else low, math.inf if high is None else high
        for level in (0.5, 0.999):
            interval = intervals.interval(variant.parts(updates), level, *limits)
            assert ends(metric, level, method="t") == pytest.approx(interval, **NEAR)
            if metric.interval_method == "t":
                assert ends(metric, level) == ends(metric, level, method="t")
            if low is None or high is None:
                with pytest.raises(ValueError, match='`method` "logit" is for a metric that has a least'):
                    metric.confidence_interval(level, method="logit")
                continue
            interval = intervals.of_mean(variant.parts(updates), level, low, high)
            assert ends(metric, level, method="logit") == pytest.approx(interval, **NEAR)
            if metric.interval_method == "logit":
                assert ends(metric, level) == ends(metric, level, method="logit")


@pytest.mark.parametrize("history", ["plain", "weights"])
def test_ends_of_an_auc(history: str) -> None:
    """Between 0 and 1, by the log odds, and as sure as the rows of both classes are."""
    g = torch.Generator().manual_seed(3)
    for n, n_positive in ((5, 2), (20, 6), (30, 15), (60, 3)):
        for levels in (2, 5, 1000):  # many ties, some, none
            scores = torch.randint(levels, (n,), generator=g).double()
            target, weights = torch.arange(n) < n_positive, torch.ones(n, dtype=torch.float64)
            if history == "weights":
                weights = torch.randint(4, (n,), generator=g).double()
                weights[:2] = weights[-2:] = 1
            update: Update = {"preds": scores, "target": target, "weights": weights}
            of_rows = intervals.of_auc(clicks.rows_of([update]), 0.9)
            metric = fed(BinaryAUC(), [update])
            assert ends(metric, 0.9) == pytest.approx(of_rows, **NEAR)
            assert ends(metric, 0.9) == ends(metric, 0.9, method="logit")
            clustered = fed(BinaryAUC(clustered=True), [{**update, "indexes": torch.arange(n)}])
            assert ends(clustered, 0.9) == pytest.approx(of_rows, **NEAR)
            sliced = fed(Sliced(BinaryAUC(), 1), [{**update, "slice_ids": torch.zeros(n, dtype=torch.int64)}])
            assert tuple(map(float, sliced.confidence_interval(0.9)["0"])) == pytest.approx(of_rows, **NEAR)


@pytest.mark.parametrize("clustered", [False, True])
def test_an_auc_without_an_error_is_not_sure(clustered: bool) -> None:
    """Six positives, all above the others, below them, or equal: six pairs of rows say so, and no more."""
    target, least = torch.arange(20) < 6, 0.025 ** (1 / 6)
    for scores, expected in (
        (target.double(), (least, 1)),
        (-target.double(), (0, 1 - least)),
        (torch.zeros(20), (least / 2, 1 - least / 2)),
    ):
        metric = BinaryAUC(clustered=clustered)
        metric.update(scores, target, **({"indexes": torch.arange(20)} if clustered else {}))
        assert float(metric.standard_error()) == 0
        assert ends(metric) == pytest.approx(expected)
        assert ends(metric, method="t") == (float(metric.compute()),) * 2


@pytest.mark.parametrize("way", ["plain", "clustered", "sliced", "bins", "half"])
def test_positives_in_one_tie_are_as_sure_as_so_few_rows(way: str) -> None:
    """Four positives beside half of 196 negatives: another one may have any place."""
    scores, target = torch.tensor([1.0] * 102 + [0.0] * 98), torch.arange(200) < 4
    metric: Any = BinaryAUC(num_bins=1 << 18 if way == "bins" else None, clustered=way == "clustered")
    update: Update = {"preds": scores.half() if way == "half" else scores, "target": target}
    if way == "clustered":
        update["indexes"] = torch.arange(200)
    if way == "sliced":
        metric, update["slice_ids"] = Sliced(metric, 2), torch.zeros(200, dtype=torch.int64)
    metric.update(**update)
    found = metric.confidence_interval()
    low, high = map(float, found["0"] if way == "sliced" else found)
    assert (low, high) == pytest.approx((0.75 * 0.025**0.25, 1 - 0.25 * 0.025**0.25))


def test_clusters_that_share_no_rows_count_as_pairs() -> None:
    """Of nine users with a row of each class, four pairs of users have nothing in common."""
    metric = BinaryAUC(clustered=True)
    metric.update(torch.arange(18) % 2 * 1.0, torch.arange(18) % 2, indexes=torch.arange(18) // 2)
    assert ends(metric) == pytest.approx((0.025 ** (1 / 4), 1))


def test_users_who_all_have_one_value_are_not_all_users() -> None:
    metric = Precision(2)
    metric.update(item_ids=torch.arange(60).view(30, 2), target_ids=torch.full((30, 1), 99))
    assert ends(metric, method="logit") == pytest.approx((0, 1 - 0.025 ** (1 / 30)))
    assert ends(metric, method="t") == (0, 0)


CENTRES = [(1.0, 1e-9), (0.5, 1e-9), (0.0, 1e-9), (0.6309, 1e-8), (1e6, 1e-3), (3.0, 1.0)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("centre", "spread"), CENTRES)
def test_no_digits_are_lost_where_values_are_nearly_the_same(centre: float, spread: float, weighted: bool) -> None:
    """Sums of plain squares would give 0, nan or anything."""
    g = torch.Generator().manual_seed(0)
    values = (centre + spread * torch.randn(3000, 1, dtype=torch.float64, generator=g)).abs()
    weights = torch.rand(3000, dtype=torch.float64, generator=g) * 1000 if weighted else None
    ids, parts = torch.arange(3000), []
    for first in range(0, 3000, 500):
        metric = Popularity(values.flatten(), top_k=1)
        for step in (ids[first : first + 100], ids[first + 100 : first + 500]):
            metric.update(item_ids=step.unsqueeze(1), weights=None if weights is None else weights[step])
        parts.append(metric)
    for other in parts[1:]:
        parts[0].merge_state(other)
    of = [1.0] * 3000 if weights is None else weights.tolist()
    truth = intervals.standard_error([(v * w, w) for v, w in zip(values.flatten().tolist(), of, strict=True)])
    assert float(parts[0].standard_error()) == pytest.approx(truth, rel=1e-6 if weighted else 1e-12)


def test_values_of_a_ranking_metric_near_one() -> None:
    g = torch.Generator().manual_seed(0)
    relevance = 1 + 1e-9 * torch.randn(5000, 1, dtype=torch.float64, generator=g)
    metric = DCG(1, gain="linear")
    for part in relevance.split(700):
        metric.update(torch.zeros(part.shape[0], 1), part)
    assert float(metric.standard_error()) == pytest.approx(float(relevance.std()) / math.sqrt(5000), rel=1e-6)


def test_samples_of_several_rows_have_the_spread_of_their_rows() -> None:
    g = torch.Generator().manual_seed(0)
    preds, target = torch.rand(6, 4, generator=g), torch.rand(6, 4, generator=g) < 0.4
    for metric in (LogLoss(), NormalizedEntropy(), Calibration()):
        metric.update(preds, target)
        truth = float(metric.standard_error())
        metric.reset()
        metric.update(preds[:4], target[:4], sample_ids=torch.arange(4))
        metric.update(preds[2:], target[2:], sample_ids=torch.arange(2, 6))
        assert float(metric.standard_error()) == pytest.approx(truth, rel=1e-12)
        metric.reset()
        metric.update(preds.flatten()[:13], target.flatten()[:13], sample_ids=torch.arange(13))
        metric.update(preds.flatten()[13:], target.flatten()[13:])
        assert float(metric.standard_error()) == pytest.approx(truth, rel=1e-12)


def test_losses_that_are_nearly_the_same() -> None:
    losses = 1 + 1e-9 * torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    preds, metric = (-losses).exp(), LogLoss()
    for part in preds.split(300):
        metric.update(part, torch.ones(part.shape[0]))
    assert float(metric.standard_error()) == pytest.approx(float(losses.std()) / math.sqrt(1000), rel=1e-5)


def test_an_auc_in_bins_has_the_error_of_tied_scores() -> None:
    g = torch.Generator().manual_seed(0)
    preds, target = torch.rand(300, generator=g), torch.rand(300, generator=g) < 0.3
    binned, tied = BinaryAUC(1 << 12), BinaryAUC()
    binned.update(preds, target)
    tied.update((preds.view(torch.int32) >> 20 << 20).view(torch.float32), target)  # the bits that decide on the bin
    assert float(binned.compute()) == float(tied.compute()) and float(binned.error_bound()) > 0
    assert float(binned.standard_error()) == pytest.approx(float(tied.standard_error()), rel=1e-12)
    binned.update(preds, target, weights=torch.rand(300, generator=g))
    with pytest.warns(UserWarning, match="leave `num_bins` out"):
        assert all(map(math.isnan, ends(binned)))


@pytest.mark.parametrize("positives", [0, 1, 9])
def test_an_auc_of_a_class_of_one_row_has_no_interval(positives: int) -> None:
    metric = BinaryAUC()
    metric.update(torch.rand(10), torch.arange(10) < positives)
    assert metric.standard_error().isnan() and all(map(math.isnan, ends(metric)))


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_users_have_no_interval(n: int) -> None:
    for metric in (NDCG(2), HitRate(2)):
        metric.update(torch.rand(n, 3), torch.ones(n, 3))
        metric.update(torch.rand(2, 3), torch.ones(2, 3), weights=torch.zeros(2))  # these do not count
        metric.update(torch.rand(2, 3), torch.zeros(2, 3))  # nor do these
        assert metric.standard_error().isnan()
        assert all(map(math.isnan, ends(metric)))


def hits(n_hits: int, n: int, **more: Any) -> HitRate:
    metric = HitRate(1)
    metric.update(item_ids=torch.zeros(n, 1).long(), target_ids=(torch.arange(n) >= n_hits).long()[:, None], **more)
    return metric


@pytest.mark.parametrize(("n_hits", "n"), [(0, 10), (2, 2), (3, 10), (5, 5), (0, 300), (299, 300), (1000, 5000)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_hit_rates_have_the_interval_of_wilson(n_hits: int, n: int, level: float) -> None:
    metric = hits(n_hits, n)
    assert ends(metric, level) == pytest.approx(intervals.wilson(n_hits, n, level), rel=1e-9, abs=1e-15)
    assert ends(metric, level) == ends(metric, level, method="wilson")
    if n_hits in (0, n):
        assert ends(metric, level)[n_hits > 0] == (n_hits > 0)  # to the last digit
    parts = [(float(user < n_hits), 1.0) for user in range(n)]
    assert ends(metric, level, method="t") == pytest.approx(intervals.interval(parts, level, 0, 1), **NEAR)


def test_wilson_is_for_values_of_0_and_1_without_weights() -> None:
    for weight, n_users in ((2.0, 5), (1 / 3, 9)):
        metric = hits(3, n_users, weights=torch.full((n_users,), weight))
        assert ends(metric) == ends(metric, method="t")
        with pytest.raises(ValueError, match=r"`method`.*without weights"):
            metric.confidence_interval(method="wilson")
    tied = HitRate(1)
    tied.update(torch.zeros(5, 2), torch.tensor([[1, 0]] * 5))
    assert ends(tied, method="t") == (0.5, 0.5)  # every order of the two equal scores counts
    some = Precision(1)
    some.update(item_ids=torch.tensor([[0], [0], [0]]), target_ids=torch.tensor([[0], [1], [0]]))
    assert ends(some, method="wilson") == pytest.approx(intervals.wilson(2, 3, 0.95))
    assert ends(some) == ends(some, method="t")


def test_bad_arguments_and_metrics_without_an_interval() -> None:
    metric = hits(3, 9)
    for level in (0, 1, 95, 1.5, "0.9", None):
        with pytest.raises(ValueError, match="`level` must be a float between 0 and 1"):
            metric.confidence_interval(level)
        with pytest.raises(ValueError, match="`level` must be a float between 0 and 1"):
            RecMetricCollection([metric.clone()]).confidence_intervals(level)
    with pytest.raises(ValueError, match="`method` must be"):
        metric.confidence_interval(method="normal")
    counts = Coverage(5)
    assert "confidence_interval" not in dir(counts) and "confidence_interval" in dir(metric)
    for ask in (counts.standard_error, counts.confidence_interval):
        with pytest.raises(NotImplementedError, match="coverage@10 has no standard error in closed form"):
            ask()


def test_a_collection_has_the_intervals_of_its_members() -> None:
    metrics = ranking_metrics(("ndcg", "hit_rate", "mrr", "coverage"), 2, options={"coverage": {"num_items": 9}})
    metrics = RecMetricCollection([metrics, SumMetric()], prefix="val_", postfix="!")
    alone = {name: member.clone() for name, member in metrics.items(keep_base=True)}
    g = torch.Generator().manual_seed(1)
    for n in (3, 0, 8):
        update = {"preds": torch.rand(n, 9, generator=g), "target": torch.rand(n, 9, generator=g) < 0.2}
        for name in ("ndcg@2", "hit_rate@2", "mrr@2"):
            alone[name].update(**update)
        metrics["ndcg@2"].update(**update)
        metrics["hit_rate@2"].update(**update)
        metrics["mrr@2"].update(**update)
    found = metrics.confidence_intervals(0.8)
    assert list(found) == ["val_ndcg@2!", "val_hit_rate@2!", "val_mrr@2!"]
    for name, (low, high) in found.items():
        member = alone[name.removeprefix("val_").removesuffix("!")]
        assert (float(low), float(high)) == pytest.approx(ends(member, 0.8), rel=1e-12)
        assert low < high


def test_every_metric_says_whether_it_has_an_interval() -> None:
    for variant in VARIANTS:
        has_none = (
            variant.reads in ("counts", "all") or variant.name == "average_precision" or "max_fpr" in variant.options
        )
        assert variant.make().has_interval != has_none, str(variant)
    assert torch_recmetrics.NDCG.has_interval


@pytest.mark.parametrize(("error", "alike"), [(0.0, True), (1e-8, True), (3e-8, False), (0.02, False)])
def test_an_interval_on_the_scale_of_log_odds_goes_with_the_range(error: float, alike: bool) -> None:
    """Values of 50 users that differ by rounding alone, by less than 1e-7 of the range, are one value."""
    value, n = 0.3, torch.tensor(50.0, dtype=torch.float64)
    room = 0.7 * (1 - 0.025 ** (1 / 50))
    for bottom, width in ((0.0, 1.0), (-200.0, 1000.0), (1.0, 1e-3)):
        spread = Spread(*n.new_tensor([bottom + width * value, width * error]), n)
        low, high = (float(end - bottom) / width for end in spread.interval(0.95, "logit", (bottom, bottom + width)))
        assert (low, high) == pytest.approx((value * 0.025 ** (1 / 50), value + room), rel=1e-9) or not alike
        assert high - low == pytest.approx(2 * error * student_quantile(50.0, 0.95), rel=0.01) or alike


def test_axes_make_room_for_an_interval_and_a_twentieth_beyond_it() -> None:
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    axes.set_ylim(0.45, 0.5)
    for low, high, expected in ((0.3, 0.7, (0.28, 0.72)), (0.4, 0.5, (0.28, 0.72)), (0.6, 1.0, (0.28, 1.02))):
        draw_interval(axes, 0, torch.tensor((low + high) / 2), (torch.tensor(low), torch.tensor(high)))
        assert axes.get_ylim() == pytest.approx(expected)


def test_intervals_of_chances_next_to_one_end_at_one() -> None:
    """All scores are equal, and of 167 items 59 are relevant: a list of 50 without any is drawn once in 10^12 times."""
    metric = HitRate(50)
    metric.update(torch.zeros(3, 167), torch.arange(167).expand(3, -1) < 59)
    low, high = metric.confidence_interval()
    assert metric.compute() < 1 and 0.43 < low < 0.44 and high == 1


@pytest.mark.skipif(Version(scipy.__version__) < Version("1.12"), reason="quantiles of SciPy 1.11 are off by 2e-9")
@pytest.mark.parametrize("level", [0.01, 0.5, 0.8, 0.95, 0.99, 0.9999, 1 - 1e-9])
def test_quantiles_are_those_of_student(level: float) -> None:
    for n in (2, 3, 4, 5, 6, 10, 30, 101, 999, 1000, 1001, 1002, 10_000, 10**7, 10**12):
        truth = stats.t.isf((1 - level) / 2, n - 1)
        assert student_quantile(float(n), level) == pytest.approx(truth, rel=5e-11)
        assert student_quantile(float(n), level) > student_quantile(n + 1.0, level) * (1 - 1e-12)
    assert math.isnan(student_quantile(1.0, level)) and math.isnan(student_quantile(0.0, level))
