"""FromSampled: its tables, what it refuses, and what it estimates."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.refusals import refused
from oracles import ranking, sampled

import torch_recmetrics as ours
from torch_recmetrics import FromSampled
from torch_recmetrics.collection import from_sampled
from torch_recmetrics.core.ranking.sampled_ranks import Sampling, corrected_tables

METRICS: list[tuple[Any, Any]] = [
    (ours.HitRate, ranking.hit_rate),
    (ours.Recall, ranking.recall),
    (ours.NDCG, ranking.ndcg),
    (ours.MAP, ranking.average_precision),
    (ours.MRR, ranking.reciprocal_rank),
    (ours.DCG, ranking.dcg),
    (ours.RBP, ranking.rbp),
    (ours.ERR, ranking.err),
    (ours.MeanRank, ranking.mean_rank),
    (ours.MeanPercentileRank, ranking.mean_percentile_rank),
    (ours.UserAUC, ranking.user_auc),
]
METHODS = ("naive", "rank", "bv", "em")
LINEAR = METHODS[:-1]


def of_rank(measure: Any, k: int | None, items: int) -> Any:
    return lambda rank: measure([float(r == rank) for r in range(1, items + 1)], [1.0], k)


def users(n: int, n_columns: int, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "preds": torch.rand(n, n_columns, generator=generator),
        "target_ids": torch.randint(0, n_columns, (n,), generator=generator),
    }


@pytest.mark.parametrize(("metric", "measure"), METRICS, ids=lambda m: getattr(m, "__name__", ""))
@pytest.mark.parametrize("k", [1, 3, 9, None])
def test_the_function_of_the_rank_is_that_of_the_metric(metric: Any, measure: Any, k: int | None) -> None:
    found = FromSampled(metric(k), 9).of_ranks(torch.arange(1, 10))
    expected = [of_rank(measure, k, 9)(r) for r in range(1, 10)]
    assert found.tolist() == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("method", LINEAR)
@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize(("metric", "measure"), METRICS[2:7:2], ids=lambda m: getattr(m, "__name__", ""))
def test_tables_equal_oracle(metric: Any, measure: Any, replacement: bool, method: str) -> None:
    for items, m, gamma in ((2, 1, 0.1), (7, 1, 0.3), (7, 5, 0.1), (30, 9, 0.01), (30, 29, 1.0)):
        made = FromSampled(metric(2), items, method=method, gamma=gamma, replacement=replacement)
        expected = sampled.table_of(of_rank(measure, 2, items), m, items, method, gamma, replacement)
        assert made.users_of_ranks(m).tolist() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize(("items", "m"), [(3000, 1), (3000, 7), (20_000, 40)])
def test_few_nodes_stand_for_all_ranks(items: int, m: int, replacement: bool) -> None:
    """A sum over a few nodes is that over all ranks."""
    functions = [lambda r: (r <= 10).double() / (r + 1.0).log2(), lambda r: r.double()]
    sampling, ranks = Sampling(items, replacement), torch.arange(1, items + 1)
    nodes, every = sampling.nodes(m, functions), sampling.chances(ranks, m)
    assert nodes.ranks.shape[0] < items / 2
    some = sampling.chances(nodes.ranks, m)
    assert (nodes.weights > 0).all()
    torch.testing.assert_close((some.T * nodes.weights) @ some, every.T @ every / items, rtol=1e-12, atol=1e-15)
    for column, function in enumerate(functions):
        all_of_them = every.T @ function(ranks) / items
        torch.testing.assert_close(some.T @ nodes.of_functions[:, column], all_of_them, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("metric", "measure"), METRICS, ids=lambda m: getattr(m, "__name__", ""))
def test_all_others_give_the_full_metric(metric: Any, measure: Any, method: str) -> None:
    update, k = users(30, 12), 4
    estimate = FromSampled(metric(k), 12, method=method, replacement=False)
    full = metric(k)
    estimate.update(**update)
    full.update(**update)
    assert float(estimate.compute()) == pytest.approx(float(full.compute()), rel=1e-6 if method == "em" else 1e-12)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize(("metric", "measure"), METRICS, ids=lambda m: getattr(m, "__name__", ""))
def test_ranks_by_expectation_maximisation_equal_oracle(metric: Any, measure: Any, replacement: bool) -> None:
    """Of samples of several sizes, some met by few users."""
    items, met = 30, {4: [40, 9, 3, 1, 0], 9: [1, 2, 0, 0, 1, 0, 0, 3, 0, 1], 1: [5, 6]}
    estimate = FromSampled(metric(5), items, method="em", replacement=replacement)
    for m, counts in met.items():
        others = torch.arange(m, 0, -1.0)
        rows = [
            torch.cat([m - torch.tensor([above - 0.5]), others]) for above, n in enumerate(counts) for _ in range(n)
        ]
        estimate.update(
            torch.stack(rows), item_ids=torch.arange(m + 1), target_ids=torch.tensor([[0, -1]]).repeat(len(rows), 1)
        )
    expected = sampled.by_expectation_maximisation(of_rank(measure, 5, items), met, items, replacement)
    assert float(estimate.compute()) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("metric", [metric for metric, _ in METRICS])
@pytest.mark.parametrize("k", [1, 4, 20, None])
def test_naive_is_the_metric_among_the_candidates(metric: Any, k: int | None) -> None:
    update = users(30, 12)
    update["preds"] = (update["preds"] * 8).round()
    naive, plain = FromSampled(metric(k), 40, method="naive"), metric(k)
    naive.update(**update)
    plain.update(**update)
    assert float(naive.compute()) == pytest.approx(float(plain.compute()), abs=1e-13)


@pytest.mark.parametrize("replacement", [True, False])
def test_the_mean_over_all_samples_is_what_the_chances_say(replacement: bool) -> None:
    """Every sample of a catalogue of six is ranked: the mean estimate of a user of rank r is row r of A f^."""
    items, m = 6, 3
    metric = FromSampled(ours.NDCG(2), items, replacement=replacement)
    a = sampled.chances(m, items, replacement)
    expected = a @ metric.users_of_ranks(m).numpy()
    for rank in range(1, items + 1):
        others = [-float(r) for r in range(1, items + 1) if r != rank]
        samples = list(itertools.product(others, repeat=m) if replacement else itertools.combinations(others, m))
        scores = torch.tensor([[-float(rank), *sample] for sample in samples], dtype=torch.float64)
        metric.reset()
        if replacement:  # one that was drawn twice stands in two places, beside itself
            scores = scores - torch.arange(m + 1) * 1e-9
        metric.update(scores, torch.tensor([[1] + [0] * m]).expand(len(samples), m + 1))
        assert float(metric.compute()) == pytest.approx(expected[rank - 1], abs=1e-12)


@pytest.mark.parametrize("gamma", [0.01, 0.1, 1.0])
def test_without_gamma_the_bias_is_least(gamma: float) -> None:
    sampling, function = Sampling(20, True), lambda r: (r <= 5).double()
    nodes = sampling.nodes(6, [function])
    a, f = sampling.chances(torch.arange(1, 21), 6), function(torch.arange(1, 21))

    def bias(table: torch.Tensor) -> float:
        return float((a @ table - f).square().mean())

    least, other = (corrected_tables(sampling, 6, g, nodes)[0] for g in (0.0, gamma))
    assert bias(least) < bias(other)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        assert bias(least) <= bias(least + 1e-3 * torch.randn(7, dtype=torch.float64, generator=generator))


def test_the_largest_sample_that_expectation_maximisation_takes() -> None:
    metric = FromSampled(ours.MRR(), 10**6, method="em")
    metric.update(torch.rand(1, 2**17), target_ids=torch.tensor([0]))
    with pytest.raises(ValueError, match="at most 131071 sampled items"):
        metric.update(torch.rand(1, 2**17 + 1), target_ids=torch.tensor([0]))


def test_equal_scores_spread_a_user_over_the_places() -> None:
    metric = FromSampled(ours.MRR(), 40)
    metric.update(torch.tensor([[1.0, 1.0, 1.0, 2.0, 0.0]]), torch.tensor([[1, 0, 0, 0, 0]]))
    assert float(metric.compute()) == pytest.approx(float(metric.users_of_ranks(4)[1:4].mean()), abs=1e-14)


def test_a_user_of_equal_scores_is_a_part_of_one_at_each_place_to_expectation_maximisation() -> None:
    """Beside two others, she is a third of a user at each of the ranks 2, 3 and 4 of five."""
    apart = torch.tensor([[3.0, 4.0, 2.0, 1.0, 0.0], [2.0, 4.0, 3.0, 1.0, 0.0], [1.0, 4.0, 3.0, 2.0, 0.0]])
    equal = torch.tensor([[1.0, 1.0, 1.0, 2.0, 0.0]])
    alone, spread = (FromSampled(ours.MRR(), 40, method="em") for _ in range(2))
    alone.update(equal, target_ids=torch.tensor([0]))
    spread.update(apart, target_ids=torch.zeros(3, dtype=torch.int64), weights=torch.ones(3) / torch.tensor(3).double())
    for metric in (alone, spread):
        metric.update(torch.arange(5.0).expand(2, 5), target_ids=torch.tensor([4, 2]))
    assert float(alone.compute()) == pytest.approx(float(spread.compute()), rel=1e-6)


def test_equal_scores_leave_nothing_at_places_where_nobody_is() -> None:
    """Expectation maximisation looks at each place that has a mass: rounding made it take five times as long."""
    metric, beside = FromSampled(ours.MRR(), 40, method="em"), torch.tensor([[0], [1], [2], [4]])
    scores = (torch.arange(9) <= beside).float() + 1e-3 * torch.arange(9, 0, -1) * (torch.arange(9) > beside)
    metric.update(scores, target_ids=torch.zeros(4, dtype=torch.int64), weights=torch.tensor([0.7, 0.1, 0.2, 0.3]))
    codes, masses = from_sampled.distinct(torch.cat(metric.state("values"))[:, 0], torch.cat(metric.state("weights")))
    (mass,) = from_sampled.masses_of(codes.long(), masses).values()
    expected = [0.7 + 0.1 / 2 + 0.2 / 3 + 0.3 / 5, 0.1 / 2 + 0.2 / 3 + 0.3 / 5, 0.2 / 3 + 0.3 / 5, 0.3 / 5, 0.3 / 5]
    assert mass.tolist() == pytest.approx([*expected, 0, 0, 0, 0], rel=1e-6)
    assert mass.count_nonzero() == 5


@pytest.mark.parametrize("ties", ["optimistic", "pessimistic", "stable"])
def test_other_rules_for_equal_scores(ties: str) -> None:
    scores, target = torch.tensor([[1.0, 1.0, 1.0, 2.0]]), torch.tensor([[0, 1, 0, 0]])
    place = {"optimistic": 1, "pessimistic": 3, "stable": 2}[ties]
    for metric in (FromSampled(ours.MRR(), 9, ties=ties), FromSampled(ours.MRR(ties=ties), 9)):
        metric.update(scores, target)
        assert float(metric.compute()) == pytest.approx(float(metric.users_of_ranks(3)[place]), abs=1e-14)


def test_samples_of_different_sizes() -> None:
    metric = FromSampled(ours.NDCG(3), 30)
    candidates = torch.tensor([[0, 1, 2, 3], [4, 5, -1, -1]])
    metric.update(torch.tensor([[4.0, 3, 2, 1], [1, 2, 9, 9]]), item_ids=candidates, target_ids=torch.tensor([1, 4]))
    both = metric.users_of_ranks(3)[1], metric.users_of_ranks(1)[1]
    assert float(metric.compute()) == pytest.approx(float(sum(both)) / 2, abs=1e-14)


@pytest.mark.parametrize("ties", ["average", "optimistic", "pessimistic", "stable"])
@pytest.mark.parametrize("method", METHODS)
def test_an_update_reads_nothing_back(method: str, ties: str) -> None:
    """On ``meta`` there is nothing to read."""
    metric = FromSampled(ours.Recall(3), 40, method=method, ties=ties, validate_args=False).to("meta")
    preds, ids = torch.empty(5, 9, device="meta"), torch.empty(5, 9, dtype=torch.int64, device="meta")
    metric.update(preds, item_ids=ids, target_ids=ids[:, 0])
    metric.update(preds, item_ids=ids, target_ids=ids[:, :2])
    metric.update(preds, torch.empty(5, 9, dtype=torch.bool, device="meta"))
    if method != "em":  # which is fitted to what it has seen
        assert metric.compute().device.type == "meta"


def test_tables_for_every_number_of_sampled_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where these cannot be read for nothing; of many candidates they are read."""
    asked: list[int] = []
    monkeypatch.setattr(from_sampled, "is_sync_free", lambda _: False)
    monkeypatch.setattr(FromSampled, "_table_of", lambda _, m: asked.append(m) or torch.zeros(m + 1).double())
    update = {"item_ids": torch.tensor([[3, 1, 2]]), "target_ids": torch.tensor([1])}
    FromSampled(ours.MRR(), 20).update(**update)
    assert asked == [1, 2, 3]
    monkeypatch.setattr(from_sampled, "EVERY_SIZE", 2)
    FromSampled(ours.MRR(), 20).update(**update)
    assert asked == [1, 2, 3, 2]


def test_one_table_for_all_sizes_has_the_values_of_each() -> None:
    """Batches of samples of other sizes, one after the other, in one metric and alone."""
    metric, values = FromSampled(ours.RBP(), 60), []
    for size in (3, 9, 3, 30, 1):
        update = users(7, size + 1, size)
        metric.update(**update)
        alone = FromSampled(ours.RBP(), 60)
        alone.update(**update)
        values.append(float(alone.compute()))
    assert float(metric.compute()) == pytest.approx(sum(values) / 5, abs=1e-14)


def test_a_relevant_item_that_is_no_candidate_was_not_recommended() -> None:
    metric = FromSampled([ours.Recall(3), ours.MeanRank(3), ours.MeanRank(), ours.MeanPercentileRank()], 30).values()
    for one, expected in zip(metric, (0, 4, 31, 1), strict=True):
        one.update(torch.tensor([[2.0, 1.0]]), item_ids=torch.tensor([[5, 6]]), target_ids=torch.tensor([[7]]))
        assert float(one.compute()) == expected


@pytest.mark.parametrize("method", ["naive", "bv", "em"])
def test_an_empty_sample_tells_nothing(method: str) -> None:
    metric = FromSampled(ours.Recall(1), 5, method=method)
    metric.update(torch.tensor([[1.0]]), torch.tensor([[1]]))
    assert metric.compute().isnan()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("metric", [ours.MRR, ours.MeanPercentileRank])
def test_users_without_relevant_items_count_what_is_asked(metric: Any, method: str) -> None:
    """Beside three others, and alone."""
    update = users(4, 12)
    update["target_ids"][1] = -1
    skipped, *counted = (
        FromSampled(metric(), 40, method=method, empty_target_action=action) for action in ("skip", "neg", "pos")
    )
    skipped.update(**update)
    for value, one in enumerate(counted):
        one.update(**update)
        assert float(one.compute()) == pytest.approx((3 * float(skipped.compute()) + value) / 4, rel=1e-12)
        one.reset()
        one.update(update["preds"][1:2], target_ids=update["target_ids"][1:2])
        assert float(one.compute()) == value


def test_several_relevant_items_are_each_ranked_among_the_sampled_ones() -> None:
    recall, dcg = FromSampled([ours.Recall(2), ours.DCG(2)], 9).values()
    for metric in (recall, dcg):
        metric.update(torch.tensor([[0.4, 0.3, 0.2, 0.1]]), torch.tensor([[1, 0, 0, 1]]))
    for metric, n in ((recall, 2), (dcg, 1)):  # Recall is a mean over them, DCG a sum
        table = metric.users_of_ranks(2)
        assert float(metric.compute()) == pytest.approx(float(table[0] + table[2]) / n)
    # One that is no candidate was not recommended, and is relevant all the same.
    recall.reset()
    recall.update(
        torch.tensor([[0.4, 0.3, 0.2]]), item_ids=torch.tensor([[7, 5, 6]]), target_ids=torch.tensor([[7, 8]])
    )
    assert float(recall.compute()) == pytest.approx(float(recall.users_of_ranks(2)[0]) / 2)


def test_a_collection_keeps_its_names() -> None:
    inside = ours.RecMetricCollection([ours.NDCG(2)], prefix="val_")
    assert list(FromSampled(inside, num_items=20)) == ["val_ndcg@2"]


def test_several_metrics_are_a_collection() -> None:
    several = FromSampled([ours.NDCG(2), ours.MRR()], num_items=20)
    assert isinstance(several, ours.RecMetricCollection)
    several.update(**users(5, 8))
    alone = FromSampled(ours.NDCG(2), 20)
    alone.update(**users(5, 8))
    assert list(several.compute()) == ["ndcg@2", "mrr"]
    assert float(several.compute()["ndcg@2"]) == float(alone.compute())
    named = FromSampled({"a": ours.MRR()}, num_items=20)
    assert list(named.keys()) == ["a"]


def test_runs_say_that_they_are_estimated() -> None:
    metric = FromSampled(ours.MRR(), 20, keep_users=True)
    metric.update(**users(5, 8), sample_ids=torch.arange(5))
    values = metric.users()
    assert values.candidates == "estimated(20)"
    assert 'candidates="estimated(20)"' in metric.definition() and "method='bv'" in metric.definition()
    other = FromSampled(ours.MRR(), 20, method="rank", keep_users=True)
    other.update(**users(5, 8), sample_ids=torch.arange(5))
    with pytest.raises(ValueError, match="method"):
        ours_compare({"a": values, "b": other.users()})


def test_estimates_from_samples_of_other_sizes_are_not_compared() -> None:
    """The bias goes by the size of the sample: the same model would look better or worse."""
    runs = {}
    for name, width in (("a", 8), ("b", 6), ("c", 8)):
        metric = FromSampled(ours.MRR(), 20, keep_users=True)
        metric.update(**users(5, width), sample_ids=torch.arange(5))
        runs[name] = metric.users()
    assert len(ours_compare({"a": runs["a"], "c": runs["c"]}).rows) == 1
    with pytest.raises(ValueError, match=r"candidates_at_most=8.*candidates_at_most=6"):
        ours_compare({"a": runs["a"], "b": runs["b"]})


def ours_compare(runs: Any) -> Any:
    from torch_recmetrics.compare import compare

    return compare(runs, baseline="a")


def test_expectation_maximisation_comes_near_the_truth() -> None:
    """Ranks of a known distribution among 400 items, 40 of which are sampled for each user."""
    generator = np.random.default_rng(0)
    items, m, n = 400, 40, 4000
    ranks = np.minimum(generator.geometric(0.02, n), items)
    above = generator.binomial(m, (ranks - 1) / (items - 1))
    scores = torch.zeros(n, m + 1)
    scores[:, 0] = 0.5
    scores[:, 1:] = (torch.arange(m) < torch.tensor(above)[:, None]).float()
    target = torch.zeros(n, m + 1, dtype=torch.int64)
    target[:, 0] = 1
    truth = float((ranks <= 20).mean())
    found = {}
    for method in METHODS:
        # No two scores are those of the relevant item, so all is known of its place.
        metric = FromSampled(ours.HitRate(20), items, method=method)
        metric.update(scores, target)
        found[method] = float(metric.compute())
    assert abs(found["em"] - truth) < 0.03
    assert abs(found["naive"] - truth) > 0.3


def test_em_has_no_values_of_users() -> None:
    metric = FromSampled(ours.MRR(), 20, method="em")
    metric.update(**users(5, 8))
    with pytest.raises(NotImplementedError, match=r"UserBootstrap\(metric\)"):
        metric.standard_error()
    with pytest.raises(ValueError, match="no values of users"):
        FromSampled(ours.MRR(keep_users=True), 20, method="em")
    resampled = ours.UserBootstrap(FromSampled(ours.MRR(), 20, method="em"), num_replicates=2)
    resampled.update(**users(50, 8))
    assert float(resampled.compute()["standard_error"]) > 0


def test_em_keeps_counts() -> None:
    metric, whole = (FromSampled(ours.MRR(), 50, method="em") for _ in range(2))
    for seed in range(12):
        metric.update(**users(1000, 21, seed))
    parts = [users(1000, 21, seed) for seed in range(12)]
    whole.update(**{name: torch.cat([part[name] for part in parts]) for name in parts[0]})
    assert sum(part.shape[0] for part in metric.state("weights")) < 5000
    assert float(metric.compute()) == pytest.approx(float(whole.compute()), abs=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FromSampled(ours.Precision(3), 9), "must be a function of the rank.*HitRate, Recall.*got Precision"),
        (lambda: FromSampled("ndcg", 9), "must be a function of the rank"),
        (lambda: FromSampled(ours.NDCG, 9), "must be a function of the rank.*got <class"),
        (lambda: FromSampled(ours.NDCG(10), 9), "`num_items` must be at least top_k=10"),
        (lambda: FromSampled(ours.NDCG(3), 1), "`num_items` must be an integer >= 2"),
        (lambda: FromSampled(ours.NDCG(3), 9, gamma=2), "`gamma` must be a number from 0"),
        (lambda: FromSampled(ours.NDCG(3), 9, method="avg"), "`method` must be one of"),
        (lambda: FromSampled(ours.HitRate(3, pooled=True), 9), "must have pooled=False"),
        (lambda: FromSampled(ours.MRR(aggregation="median"), 9), "must have aggregation='mean'"),
        (lambda: FromSampled(ours.Recall(3, propensities=[1.0]), 9), "must have no `propensities`"),
        (
            lambda: ours.Sliced(FromSampled(ours.Recall(3), 9), ours.slice_by_popularity([1, 2], [1])),
            "estimated|slices",
        ),
    ],
)
def test_what_it_is_not_made_of(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.parametrize("method", ["bv", "naive", "rank"])
@pytest.mark.parametrize("n_sampled", [-1, 0, 100, 1.0])
def test_tables_of_no_sample_are_refused(method: str, n_sampled: Any) -> None:
    with pytest.raises(ValueError, match=f"`n_sampled` must be an integer from 1 to 99, got {n_sampled}"):
        FromSampled(ours.NDCG(10), 100, method=method).users_of_ranks(n_sampled)


@pytest.mark.parametrize(
    ("metric", "update", "message"),
    [
        (
            FromSampled(ours.NDCG(2), 9),
            {"target": [[1, 1, 0]]},
            "one relevant item, got 2 of them in row 0.*Recall, DCG",
        ),
        (FromSampled(ours.Recall(2, denominator="min"), 9), {"target": [[1, 1, 0]]}, "got 2 of them in row 0"),
        (
            FromSampled(ours.Recall(2), 9, method="em"),
            {"target": [[1, 1, 0]]},
            'method="em" is a function.*method="bv"',
        ),
        (FromSampled(ours.DCG(2), 9), {"target": [[2, 0, 0]]}, "relevance must be 0 or 1.*row 0 has another"),
        (FromSampled(ours.ERR(2), 9), {"target": [[2, 0, 0]]}, "relevance must be 0 or 1"),
        (FromSampled(ours.MRR(2), 2), {"target": [[1, 0, 0]]}, "at most 1 sampled items.*got 2 in row 0"),
    ],
)
def test_what_an_update_refuses(metric: Any, update: dict[str, Any], message: str) -> None:
    with refused(metric, message):
        metric.update(torch.tensor([[0.3, 0.2, 0.1]]), torch.tensor(update["target"]))


def test_relevance_that_the_metric_does_not_read_may_be_graded() -> None:
    metric = FromSampled(ours.NDCG(2), 9)
    metric.update(torch.tensor([[0.3, 0.2, 0.1]]), torch.tensor([[0, 3, 0]]))
    assert float(metric.compute()) == pytest.approx(float(metric.users_of_ranks(2)[1]))


def test_graded_relevance_is_not_read_where_nothing_is_gained() -> None:
    """Of an item that is no candidate, and of one that is not relevant."""
    scores, candidates = torch.tensor([[0.3, 0.2, 0.1]]), torch.tensor([[1, 2, 3]])
    for ids, relevance in (([7], [2.0]), ([1, 2], [1.0, 0.0])):
        metric = FromSampled(ours.DCG(2), 9)
        metric.update(
            scores, item_ids=candidates, target_ids=torch.tensor([ids]), target_relevance=torch.tensor([relevance])
        )
        expected = 0.0 if ids == [7] else float(metric.users_of_ranks(2)[0])
        assert float(metric.compute()) == pytest.approx(expected)


def test_estimates_beside_each_other_in_a_collection() -> None:
    """They have the names of the metrics inside, so a dict tells them apart; all share one ranking."""
    update, inside = users(30, 12), [ours.NDCG(2), ours.MRR()]
    with pytest.raises(ValueError, match=r"two metrics are named 'ndcg@2': name them yourself with a dict"):
        ours.RecMetricCollection([ours.NDCG(2), FromSampled(ours.NDCG(2), 40)])
    members = {method: FromSampled(inside, 40, method=method) for method in ("naive", "bv")}
    metrics = ours.RecMetricCollection({"candidates": ours.NDCG(2), **members})
    assert list(metrics) == ["candidates", "naive_ndcg@2", "naive_mrr", "bv_ndcg@2", "bv_mrr"]
    metrics.update(**update)
    for method in members:
        alone = FromSampled(inside, 40, method=method)
        alone.update(**update)
        for name, value in alone.compute().items():
            assert float(metrics.compute()[f"{method}_{name}"]) == float(value)


@pytest.mark.parametrize("method", METHODS)
def test_two_that_are_alike_in_a_collection(method: Any) -> None:
    """They are measured by one call, at the cutoffs of both, which are None."""
    made = FromSampled(ours.MRR(), 40, method=method)
    metrics = ours.RecMetricCollection({"one": made.clone(), "other": made.clone(), "mrr": ours.MRR()})
    made.update(**users(30, 12))
    of_batch = metrics(**users(30, 12))
    for found in (of_batch, metrics.compute()):
        assert float(found["one"]) == float(found["other"]) == float(made.compute())


@pytest.mark.parametrize("ties", ["stable", "average"])
def test_an_item_of_relevance_0_is_one_of_the_sampled(ties: Any) -> None:
    preds, relevance, found = users(4, 9)["preds"], torch.tensor([[1.0, 0.0]]).expand(4, 2), []
    for beside in (5, -1):
        metric = FromSampled(ours.Recall(2, ties=ties), 30)
        metric.update(preds, target_ids=torch.tensor([[3, beside]] * 4), target_relevance=relevance)
        found.append(float(metric.compute()))
    assert found[0] == found[1]


@pytest.mark.parametrize(("method", "is_cut"), [("naive", True), ("rank", True), ("bv", False)])
def test_intervals_are_cut_to_the_range_where_each_user_is_in_it(method: str, is_cut: bool) -> None:
    metric = FromSampled(ours.HitRate(1), num_items=30, method=method, gamma=0.0)
    scores = torch.tensor([[0.9, 0.8]] * 3 + [[0.7, 0.8]])
    metric.update(scores, item_ids=torch.tensor([[10, 11]] * 4), target_ids=torch.tensor([10] * 4))
    low, high = metric.confidence_interval()
    assert (low >= 0 and high <= 1) == is_cut
