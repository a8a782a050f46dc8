"""How sure is any value? Resamples of the users, each drawn again in every replicate as its id says."""

from __future__ import annotations

from typing import Any

from torch_recmetrics.core.tensors import checks as check
from torch_recmetrics.state.intervals import Spread
from torch_recmetrics.state.options import option
from torch_recmetrics.wrappers.wrapper import Wrapper


class UserBootstrap(Wrapper):
    r"""The interval of any metric, counts over items included, from resamples of the users.

    In each of R replicates, how often a user counts is drawn from Poisson's distribution with mean 1. That is like
    drawing as many users with replacement from the sample. The ends of the interval are percentiles of the values of
    the replicates, the standard error is their standard deviation. A replicate without a value is left out.

    The draw depends only on ``seed``, the replicate and the user's ``sample_ids`` (``indexes`` of flat rows, the group
    of ``GroupAUC``). So the replicates are the same to the last bit for any split into batches and processes, two
    metrics with one seed draw the same users, and a user that comes twice counts once. Without ids the draw depends on
    the user's place and process: another split into processes draws other numbers, and of two metrics that are merged
    the users of one place are drawn together, so give ids to those. In click metrics without groups the rows are drawn;
    rows with one sample id are drawn together, and with ``BinaryAUC(clustered=True)`` the rows with one value of
    ``indexes``.

    A resample holds fewer different users than the sample. That lowers coverage, entropy and personalization and raises
    Gini, so these counts over items have a jackknife in place of it: users are left out one by one, or from R users on
    in at most R groups of one size. What is certain is the value of users like these, as many as there are: of more
    users coverage and entropy are higher. The interval lies about the value and is as skew as the users' parts in it.
    The square of its standard error is on average at least that of one group fewer (B. Efron and C. Stein 1981); the
    error is too large by about a half where all items are equally popular, and more where nearly all are covered.

    A distance, such as ``ExposureDisparity(per="system")``, is larger in a sample than of all users: near the target
    its interval is that of as many users too, and lies above the truth.

    Means over users and click metrics keep R sums; with ids also the users' values, 24 bytes for each user and 16 more
    for each metric, until ``compute``. Counts over items keep the lists, a median the values, AUCs the rows. Between
    processes these go to all of them. ``update`` takes the arguments of the metric's ``update``.

    ``UserBootstrap(Sliced(metric))`` and ``Sliced(UserBootstrap(metric))`` have the same results: those of each slice
    are what its users alone would have, but that users without an id are drawn by their place among all.

    Undefined: nan where the metric is; standard error and ends also of fewer than two users with a value (of rows,
    where these are drawn; an AUC needs two of each class, personalization three users).  Range: that of the metric.
    Source: B. Efron, Bootstrap methods: another look at the jackknife, Annals of Statistics 1979; N. Chamandy et al.,
    Estimating uncertainty for massive data streams, Google 2012, for Poisson's weights; B. Efron and C. Stein, The
    jackknife estimate of variance, Annals of Statistics 1981; B. Efron, Better bootstrap confidence intervals, JASA
    1987, for the skewness.

    Raises:
        TypeError, ValueError: for what is no metric of this package or a collection of such, for fewer than two
            replicates, for an AUC with ``num_bins``, which would keep no rows to draw, and for ``aggregation="min"`` or
            ``"max"``: no resample goes beyond the sample, so its ends say nothing of those of other users.

    >>> import torch
    >>> from torch_recmetrics import HitRate
    >>> metric = UserBootstrap(HitRate(1), num_replicates=1000, level=0.9)
    >>> metric.update(item_ids=torch.arange(100).unsqueeze(1), target_ids=torch.arange(100) // 2 * 2,
    ...               sample_ids=torch.arange(100))
    >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
    {'value': 0.5, 'standard_error': 0.05, 'low': 0.42, 'high': 0.58}
    """

    stem = "bootstrap"
    does = "draws"
    public = ("replicates", "metric")

    num_replicates: int = option(
        default=1000,
        kw_only=False,
        check=check.number_check("an integer >= 2", int, least=2),
        doc="R >= 2, the number of resamples.",
    )
    level: float = option(
        default=0.95, kw_only=False, check=check.check_share, doc="How often the interval holds the truth."
    )
    seed: int = option(
        default=0, kw_only=False, check=check.check_seed, doc="What the draws follow from, from 0 to 2^63 - 1."
    )

    def setup(self) -> None:
        super().setup()
        for member in self.members.values():
            if getattr(member, "num_bins", None) is not None:
                raise ValueError("`num_bins` keeps no rows that could be drawn: leave it out")
            if getattr(member, "aggregation", None) in ("min", "max"):
                raise ValueError(
                    f"`metric` must not have aggregation={member.aggregation!r}: resamples never go beyond the sample, "
                    "so their interval does not hold the extremes of other users"
                )

    @property
    def ending(self) -> str:
        return f"/{self.stem}"

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add users, or rows: the arguments of the metric's own ``update``.

        Args:
            args, kwargs: those of the metric; of a collection ``preds``, ``target`` and ``indexes`` by position.

        Raises:
            ValueError, TypeError: for input that breaks a rule, before anything is counted.
        """
        self.count_update(args, kwargs)

    def replicates(self) -> Any:
        """(R,) float64: the value in each replicate; of a collection by the name of the metric, of slices by theirs.

        Of a count over items (G,): the value without each of G <= R groups of users.

        All ranks must call it.
        """
        slots = self.read(self.of_slots).items()
        return self.arranged({name: [one.values[:-1] for one in of_each] for name, of_each in slots})

    def spread(self) -> Spread:
        """Refused: `compute` has the standard error and the interval."""
        raise NotImplementedError(f"{self.name} has its standard error and its interval in what compute() returns")
