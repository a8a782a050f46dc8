"""Options, their defaults, names, and what is refused when a metric is made."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import torchmetrics
from fixtures.histories import updated
from fixtures.refusals import refused
from fixtures.variants import DEFAULTS, RANKED, RANKING_NAMES, Variant

import torch_recmetrics
from torch_recmetrics.state.options import documented

NAMES = tuple(variant.metric.__name__ for variant in DEFAULTS)
WORDS = dict(zip(NAMES, RANKING_NAMES, strict=True))
# Options with named choices, the default first.
CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "HitRate": {"pooled": (False, True)},
    "Precision": {"denominator": ("k", "retrieved")},
    "Recall": {"denominator": ("relevant", "min"), "pooled": (False, True)},
    "NDCG": {"gain": ("exponential", "linear"), "ideal": ("relevant", "retrieved")},
    "DCG": {"gain": ("exponential", "linear")},
    "MAP": {"denominator": ("min", "relevant", "hits")},
    "MeanRank": {"pooled": (False, True)},
    "MeanPercentileRank": {"pooled": (False, True)},
}
# The default of the cutoff is None.
WHOLE_LIST = ("MRR", "RBP", "RPrecision", "UserAUC", "MeanRank", "MeanPercentileRank")
EVERYWHERE = {
    "empty_target_action": ("skip", "neg", "pos", "error"),
    "ties": ("average", "optimistic", "pessimistic", "stable"),
}


def made(name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(torch_recmetrics, name)(*args, **kwargs)


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_is_a_torchmetrics_metric(name: str) -> None:
    metric = made(name)
    assert isinstance(metric, torchmetrics.Metric)
    assert metric.is_differentiable is False
    assert made(name, sync_on_compute=False).sync_on_compute is False
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert metric.compute().isnan()


@pytest.mark.parametrize("name", NAMES)
def test_names_and_the_default_cut_off(name: str) -> None:
    assert made(name).name == (WORDS[name] if name in WHOLE_LIST else f"{WORDS[name]}@10")
    assert made(name, top_k=10).name == f"{WORDS[name]}@10"
    assert made(name, top_k=None).name == WORDS[name]
    assert made(name, 3).name == f"{WORDS[name]}@3"


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_is_by_keyword_only_and_the_first_is_the_default(name: str) -> None:
    for option, allowed in {**CHOICES.get(name, {}), **EVERYWHERE}.items():
        assert getattr(made(name), option) == allowed[0], option
        with pytest.raises(TypeError, match="positional"):
            made(name, 10, allowed[0])
        for choice in allowed:
            assert getattr(made(name, **{option: choice}), option) == choice


@pytest.mark.parametrize("name", NAMES)
def test_a_choice_that_is_not_allowed_is_refused(name: str) -> None:
    for option, allowed in {**CHOICES.get(name, {}), **EVERYWHERE}.items():
        for wrong in ("mean", "", None, 3, "Average"):
            with pytest.raises(ValueError, match=option) as refusal:
                made(name, **{option: wrong})
            message = str(refusal.value)
            assert repr(wrong) in message
            assert all(str(choice) in message for choice in allowed)


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_off_below_one_is_refused(name: str) -> None:
    for wrong in (0, -1, 2.5, "10", True, float("inf")):
        with pytest.raises((ValueError, TypeError), match="top_k") as refusal:
            made(name, wrong)
        assert str(wrong) in str(refusal.value)


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.5, 1.5, 0, 1, True, None, "0.8", float("nan")])
def test_a_persistence_that_is_no_share_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="persistence") as refusal:
        torch_recmetrics.RBP(persistence=wrong)
    assert repr(wrong) in str(refusal.value)


@pytest.mark.parametrize("wrong", [0, -1.0, True, None, "1", float("nan"), float("inf")])
def test_a_beta_that_is_not_above_zero_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="beta") as refusal:
        torch_recmetrics.F1(beta=wrong)
    assert repr(wrong) in str(refusal.value)


@pytest.mark.parametrize("wrong", [0, 0.5, -1, 1024, True, None, "4", float("nan"), float("inf")])
def test_a_top_of_the_scale_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_relevance") as refusal:
        torch_recmetrics.ERR(max_relevance=wrong)
    assert repr(wrong) in str(refusal.value)


def test_relevance_above_the_scale_is_refused() -> None:
    metric = torch_recmetrics.ERR(2, max_relevance=3)
    message = r"relevance must be at most max_relevance=3, got 4 in row 1: give ERR the top of your scale"
    update = {"preds": torch.tensor([[3.0, 2.0], [2.0, 3.0]]), "target": torch.tensor([[1, 3], [0, 4]])}
    ids = torch.tensor([[0, 1], [1, -1]])
    for given in (
        update,
        {**update, "target": update["target"].to(torch.int8)},
        {"item_ids": torch.tensor([[0, 1], [0, 1]]), "target_ids": ids, "target_relevance": update["target"].flip(1)},
        {"preds": update["preds"], "target_ids": ids, "target_relevance": update["target"].flip(1)},
        (torch.tensor([3.0, 2.0]), torch.tensor([1, 4]), torch.tensor([0, 0])),
    ):
        with refused(metric, message):
            metric.update(*given) if isinstance(given, tuple) else metric.update(**given)
    both = torch_recmetrics.RecMetricCollection([metric, torch_recmetrics.ERR(5)])
    with refused(both, message):
        both.update(**update)
    with pytest.raises(ValueError, match=message):
        torch_recmetrics.functional.err(**update, max_relevance=3)
    assert torch_recmetrics.functional.err(**update, max_relevance=4).tolist() == [
        1 / 16 + 15 / 16 * 7 / 16 / 2,
        15 / 16,
    ]


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_refused(name: str) -> None:
    with pytest.raises((TypeError, ValueError), match="topk"):
        made(name, topk=3)


@pytest.mark.parametrize("variant", DEFAULTS, ids=str)
def test_defaults_are_the_first_named(variant: Variant) -> None:
    preds, target = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0, 1, 2]])
    plain, named = variant.metric(2), variant.make(2)
    plain.update(preds, target)
    named.update(preds, target)
    assert torch.equal(plain.compute(), named.compute())


@pytest.mark.parametrize("variant", RANKED, ids=str)
def test_arguments_may_be_positional(variant: Variant) -> None:
    preds, target, indexes = torch.tensor([3.0, 2.0]), torch.tensor([0, 1]), torch.tensor([8, 8])
    flat, dense = variant.make(2), variant.make(2)
    flat.update(preds, target, indexes)
    dense.update(preds[None], target[None])
    assert torch.equal(flat.compute(), dense.compute())


@pytest.mark.parametrize("name", NAMES)
def test_plot_follows_torchmetrics(name: str) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    metric = updated(made(name, 2), torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0, 1, 0]]))
    for values in (None, metric.compute(), [metric.compute(), metric.compute()]):
        figure, axis = metric.plot(values)
        assert figure is not None and axis is not None
        matplotlib.pyplot.close(figure)


@pytest.mark.parametrize("variant", DEFAULTS, ids=str)
def test_torchmetrics_own_arguments_change_no_value(variant: Variant) -> None:
    preds, target, indexes = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 0]), torch.tensor([8, 8, 9])
    for option in ("compute_on_cpu", "compute_with_cache", "dist_sync_on_step"):
        plain, metric = variant.make(2), variant.make(2, **{option: True})
        for layout in ((preds, target, indexes), (preds[None], target[None])):
            plain.update(*layout)
            metric(*layout)
            assert torch.equal(metric.compute(), plain.compute()), option
        other = updated(variant.make(2), preds.flip(0)[None], target[None].clamp(min=1))
        for one in (plain, metric):
            one.merge_state(other)
        assert torch.equal(metric.compute(), plain.compute()), option


@pytest.mark.parametrize("variant", RANKED, ids=str)
def test_the_definition_says_every_option(variant: Variant) -> None:
    top_k = None if "num_items" in variant.options else 7  # of which a list that is cut says nothing
    line = variant.make(top_k, ties="stable", empty_target_action="neg").definition()
    assert "\n" not in line and variant.metric.__name__ in line and (top_k is None or "7" in line)
    missing = [value for value in (*variant.options.values(), "stable", "neg") if str(value) not in line]
    assert not missing, f'{missing} not in {line!r}: does config="changed" hide a default that VARIANTS lists?'


def test_docstrings_name_the_defaults() -> None:
    """And none where there is none."""
    of_rbp, of_coverage = (
        " ".join(metric.__doc__.split()) for metric in (torch_recmetrics.RBP, torch_recmetrics.Coverage)
    )
    assert "persistence: p, the probability to read on, a float between 0 and 1. Default: 0.8. propensities:" in of_rbp
    assert "their ids are 0 to N - 1. top_k: Cutoff K >= 1. Default: 10. nan_action:" in of_coverage


def test_docstrings_without_indentation_name_the_options_too() -> None:
    """As Python 3.13 and newer leave them."""
    written = "What it is.\n\n    Raises:\n        ValueError: never.\n\n    >>> 1\n    1\n    "
    with_options = documented(written, torch_recmetrics.RBP.declared_options)
    of_options = (with_options or "").partition("\nRaises:")[0].partition("\nArgs:\n")[2]
    assert "\n    persistence: p, " in of_options
    assert documented(inspect.cleandoc(written), torch_recmetrics.RBP.declared_options) == with_options


class Fixed(torch_recmetrics.NDCG):
    """Of a user: plain attributes in the place of options."""

    top_k = 2
    gain = "exponential"
    nan_action = "worst"


class FixedRank(torch_recmetrics.MeanRank):
    num_items = 9


class Weighed(torch_recmetrics.DCG):
    gain = "linear"


def test_an_option_that_a_subclass_fixes_is_read_as_one_that_is_given() -> None:
    """As the docstring of state/options.py has it: a plain attribute takes an inherited option away."""
    scores, target = torch.tensor([[0.3, 0.1, float("nan")]]), torch.tensor([[0, 2, 1]])
    lists = {"item_ids": torch.tensor([[1, 2]]), "target_ids": torch.tensor([3])}
    weights = {"propensities": torch.tensor([0.5, 0.5, 0.25])}
    for fixed, given, update in (
        (Fixed(), made("NDCG", 2, nan_action="worst"), {"preds": scores, "target": target}),
        (FixedRank(), made("MeanRank", num_items=9), lists),
        (Weighed(**weights), made("DCG", gain="linear", **weights), {"preds": scores.nan_to_num(), "target": target}),
    ):
        assert updated(fixed, **update).compute() == updated(given, **update).compute()
        assert fixed.requirements() == given.requirements() and fixed.name == given.name
    with refused(Fixed(), "relevance must be at most 1023"):
        Fixed().update(scores, target * 600)
