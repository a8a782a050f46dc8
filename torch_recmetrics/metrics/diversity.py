"""How much alike the items of a list are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from torch_recmetrics.core.ranking.ranking import Cutoffs, RankingStats
from torch_recmetrics.core.ranking.ties import constants
from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.core.tensors.chunks import steps
from torch_recmetrics.core.tensors.devices import accumulator_dtype, exact
from torch_recmetrics.state.options import Function, option
from torch_recmetrics.state.ranked.list_means import ItemTable, ListMeans
from torch_recmetrics.state.ranked.user_means import CUTOFF

__all__ = ["ILS", "IntraListDiversity"]

SIMILARITIES = ("cosine", "dot")
LARGEST_FEATURE = 1e140  # products of sums of larger ones are infinite
STEP_ELEMENTS = 1 << 18  # numbers that are held at a time: they stay in cache

Similarity = Callable[[Tensor, Tensor], Tensor]


class ILS(ListMeans):
    r"""Intra-list similarity: how much alike the first K items of a list are, on average over its pairs.

    .. math:: \text{ILS@K} = \frac{1}{n (n - 1)} \sum_{i \ne j} S(i, j), \qquad n = \text{items among the first K}

    High values mean lists of more of the same. It ignores what is relevant, and the order within the K. With
    features no pair is looked at: the sum over pairs is :math:`|\sum_i e_i|^2 - \sum_i |e_i|^2`, in which
    :math:`e_i` is the vector of an item, of length 1 for the cosine.

    Undefined: for lists of fewer than two items, which are left out; nan where no user counts.
    Range: [-1, 1] for the cosine, lower is more diverse.
    Source: C.-N. Ziegler, S. M. McNee, J. A. Konstan and G. Lausen, Improving recommendation lists through topic
    diversification, WWW 2005, who add up the pairs; their mean is what has become usual.

    Raises:
        ValueError: for features or similarities of another shape or that are not finite, and for a recommended id
            beyond them.

    >>> genres = torch.tensor([[1, 0], [1, 0], [0, 1], [1, 1]])
    >>> metric = ILS(genres, top_k=3)
    >>> metric.update(item_ids=torch.tensor([[0, 1, 2]]))  # one pair of three is alike
    >>> metric.compute()
    tensor(0.3333, dtype=torch.float64)
    >>> metric = ILS(similarity=lambda i, j: 1 / (i - j).abs(), top_k=2)
    >>> metric.update(torch.tensor([[0.9, 0.2, 0.3, 0.5]]))
    >>> metric.compute()
    tensor(0.3333, dtype=torch.float64)
    """

    stem = "ils"
    function: ClassVar[str | None] = "intra_list_similarity"
    higher_is_better = False
    plot_lower_bound = -1.0

    item_features: Tensor | None = option(
        default=None,
        kw_only=False,
        kept=False,
        doc="(N, d) bool, integer or floating point, finite: row i describes item i. A row of zeros has similarity 0 "
        "with every item. For the cosine, features that are not float64 are added up in float32: an error near 1e-7.",
    )
    top_k: int | None = option(default=10, kw_only=False, check=check.check_cutoff, doc=CUTOFF)
    similarity: str | Tensor | Similarity = option(
        default="cosine",
        doc='``"cosine"`` or ``"dot"`` of features; without features an (N, N) tensor of finite similarities, or a '
        "function of two (P,) int64 tensors of ids that gives the (P,) floating point similarities of the pairs. It "
        "need not be symmetric. A function makes an update wait for the device; in checkpoints its name stands for it.",
    )

    def make_table(self) -> ItemTable | None:
        table, self.function_of_pairs = similarity_source(self.item_features, self.similarity)
        if self.function_of_pairs is not None:
            self.can_wait = False  # it may give what is refused
            self.similarity = self.function_of_pairs.name
        elif not isinstance(self.similarity, str):
            self.similarity = "given"
        return table

    @property
    def value_range(self) -> tuple[float | None, float | None]:
        return super().value_range if self.similarity == "cosine" else (None, None)

    @staticmethod
    def measure(
        stats: RankingStats,
        cutoffs: Cutoffs,
        *,
        table: ItemTable | None,
        similarity: str,
        function_of_pairs: Function | None,
        validate_args: bool,
    ) -> Tensor:
        ids, n = stats.items(cutoffs), stats.n_retrieved(cutoffs)
        if not ids.numel():
            return torch.full_like(n, float("nan"))
        depths = [min(cutoff or ids.shape[1], ids.shape[1]) for cutoff in cutoffs]
        if table is None:
            sums = sums_of_pairs(functools.partial(called, function_of_pairs, validate_args), ids, depths)
        elif similarity in SIMILARITIES:
            sums = sums_of_vectors(table, ids, depths)
        else:
            sums = sums_of_pairs(functools.partial(looked_up, table["pairs"]), ids, depths)
        mean = sums / (n * (n - 1))
        if similarity == "cosine":
            mean = mean.clamp(-1, 1)  # rounded vectors are not exactly of length 1
        return torch.where(n >= 2, mean, float("nan"))


class IntraListDiversity(ILS):
    r"""Intra-list diversity: how different the first K items of a list are, on average over its pairs.

    .. math:: \text{diversity@K} = 1 - \text{ILS@K}

    Undefined: for lists of fewer than two items, which are left out; nan where no user counts.
    Range: [0, 2] for the cosine, higher is more diverse.
    Source: B. Smyth and P. McClave, Similarity vs. diversity, ICCBR 2001. Same convention as RecTools'
    ``IntraListDiversity`` with the distance 1 - S.

    >>> metric = IntraListDiversity(torch.eye(3), top_k=2)
    >>> metric.update(item_ids=torch.tensor([[0, 2]]))
    >>> metric.compute()
    tensor(1., dtype=torch.float64)
    """

    stem = "intra_list_diversity"
    function: ClassVar[str | None] = None
    higher_is_better = True
    plot_lower_bound = 0.0
    plot_upper_bound = 2.0

    def values(self, stats: RankingStats, cutoffs: Cutoffs) -> Tensor:
        return 1 - super().values(stats, cutoffs)


def similarity_source(item_features: Any, similarity: Any) -> tuple[ItemTable | None, Function | None]:
    """Where similarities come from: a table of vectors or of pairs, or a function."""
    if isinstance(similarity, str):
        check.check_choice("similarity", similarity, SIMILARITIES)
        if item_features is None:
            raise ValueError(f"`item_features` must be given for similarity={similarity!r}")
        return vectors_of(item_features, similarity), None
    if item_features is not None:
        raise ValueError("`item_features` and a `similarity` of your own must not be given together")
    if callable(similarity) and not isinstance(similarity, Tensor):
        return None, similarity
    if not isinstance(similarity, Tensor):
        words = ", ".join(map(repr, SIMILARITIES))
        raise TypeError(f"`similarity` must be one of {words}, a tensor or a function, got {type(similarity).__name__}")
    check.check_tensor("similarity", similarity, ndim=2)
    check.check_float("similarity", similarity)
    n_items = similarity.shape[0]
    check.check_shape("similarity", similarity, (n_items, n_items), "the pairs of items")
    refuse_infinite("similarity", similarity)
    if not n_items:
        raise ValueError("`similarity` must have at least one row, got shape (0, 0)")
    return ItemTable(similarity, pairs=similarity.detach().clone()), None


def sums_of_vectors(table: ItemTable, ids: Tensor, depths: list[int]) -> Tensor:
    """(B, cutoffs): the sum over the ordered pairs, from the sums of the vectors between the cutoffs."""
    vectors, squares = table["vectors"], table["squares"]
    ends = sorted(set(depths))
    rows = (ids[:, : ends[-1]] + 1).clamp_(0, vectors.shape[0] - 1)
    firsts = constants((0, *ends[:-1]), torch.int64, ids.device)
    parts = []
    for step in steps(rows.shape[0], len(ends) * vectors.shape[1], STEP_ELEMENTS):
        part = rows[step]
        bags = torch.arange(part.shape[0], device=ids.device).unsqueeze(1) * part.shape[1] + firsts
        sums = embedding_bag(part.flatten(), vectors, bags.flatten(), mode="sum")
        running = exact(sums).view(part.shape[0], len(ends), -1).cumsum(1)
        parts.append(running.square().sum(2))
    each = squares.index_select(0, rows.flatten()).view(rows.shape)
    alone = torch.stack([each[:, first:end].sum(1) for first, end in zip([0, *ends], ends, strict=False)], 1)
    found = torch.cat(parts) - alone.cumsum(1)
    return torch.stack([found[:, ends.index(end)] for end in depths], 1)


def sums_of_pairs(similarities: Similarity, ids: Tensor, depths: list[int]) -> Tensor:
    """(B, cutoffs): the sum over the ordered pairs, each looked at.

    Pairs are ordered by the later of the two, so that those of a shorter list come first.
    """
    later, earlier = torch.tril_indices(ids.shape[1], ids.shape[1], -1, device=ids.device).unbind(0)
    columns = [torch.zeros((0, len(depths)), dtype=accumulator_dtype(ids.device), device=ids.device)]
    for step in steps(ids.shape[0], later.shape[0], STEP_ELEMENTS):
        first, second = ids[step, earlier], ids[step, later]
        both = similarities(first, second) + similarities(second, first)
        running = torch.where(second >= 0, both, 0).cumsum(1)
        running = torch.nn.functional.pad(running, (1, 0))
        columns.append(torch.stack([running[:, end * (end - 1) // 2] for end in depths], 1))
    return torch.cat(columns)


def looked_up(pairs: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The similarities of pairs in a table, in the shape of the ids; of padding anything."""
    last = pairs.shape[0] - 1
    return exact(pairs[first.clamp(0, last), second.clamp(0, last)])


def called(function: Any, validate_args: bool, first: Tensor, second: Tensor) -> Tensor:
    """Those that a function of the user's gives."""
    pair = (first >= 0) & (second >= 0)
    found = function(first[pair], second[pair])
    check.check_tensor("similarity", found)
    check.check_shape("similarity", found, (int(pair.sum()),), "the pairs that it was given")
    check.check_float("similarity", found)
    if validate_args and not bool(found.isfinite().all()):
        raise ValueError("`similarity` must give finite numbers")
    values = torch.zeros(pair.shape, dtype=accumulator_dtype(pair.device), device=pair.device)
    values[pair] = exact(found.detach())
    return values


def vectors_of(item_features: Tensor, similarity: str) -> ItemTable:
    """The vectors that are added up, after one of zeros for padding, and their squared lengths."""
    check.check_tensor("item_features", item_features, ndim=2)
    check.check_relevance("item_features", item_features)
    refuse_infinite("item_features", item_features)
    if not item_features.numel():
        raise ValueError(
            f"`item_features` must have at least one column and one row, got shape {tuple(item_features.shape)}"
        )
    vectors = exact(item_features.detach())
    if similarity == "cosine":
        # Scaled first: the square of a very long vector is infinite, that of a very short one 0.
        largest = vectors.abs().amax(1, keepdim=True)
        vectors = vectors / torch.where(largest > 0, largest, 1)
        vectors = vectors / vectors.square().sum(1, keepdim=True).sqrt().clamp(min=1)
        if item_features.dtype != torch.float64:
            vectors = vectors.to(torch.float32)
    else:
        check.refuse(
            vectors.abs().amax() > LARGEST_FEATURE,
            lambda _: f'`item_features` must be at most {LARGEST_FEATURE:g} in size for similarity="dot"',
        )
    vectors = torch.nn.functional.pad(vectors, (0, 0, 1, 0))
    return ItemTable(item_features, vectors=vectors, squares=exact(vectors).square().sum(1))


def refuse_infinite(name: str, given: Tensor) -> None:
    """Data of items that are not finite numbers."""
    check.refuse(~given.isfinite(), lambda row: f"`{name}` must be finite, row {row} is not")
