"""Who gets which updates, and what metrics around metrics must then say on all processes: played by `intervals`."""

from __future__ import annotations

from typing import Any

from fixtures.cases import Update
from fixtures.items import NUM_ITEMS
from fixtures.slices import with_slices
from fixtures.unbiased import as_log
from torch.nn.functional import pad

from processes.exchanges import (
    Shards,
    Share,
    copies_differ,
    idle,
    mixed_memories,
    nobody_has_data,
    padded_sampler,
    same_user_everywhere,
    uneven,
)

WHO: dict[str, Share] = {
    "uneven, sums": uneven("sums"),
    "idle, sums": idle("sums", 1),
    "uneven, flat rows": uneven("flat rows"),
    "idle, sample ids": idle("sample ids"),
    "nobody has data": nobody_has_data,
    "same user everywhere": same_user_everywhere,
    "padded sampler": padded_sampler,
    "copies differ": copies_differ,
    "mixed memories": mixed_memories,
    "uneven, clicks": uneven("clicks"),
    "idle, weighted clicks": idle("weighted clicks"),
    "uneven, clicks with sample ids": uneven("clicks with sample ids"),
    "uneven, clicks as a log": lambda world: [
        [as_log(update, slates=False) for update in shard] for shard in uneven("clicks")(world)
    ],
}
OTHERS = "of others, "  # the first process belongs to another group
WHO_OF_OTHERS = (
    *("uneven, sums", "uneven, flat rows", "idle, sample ids"),
    *("uneven, clicks with sample ids", "idle, weighted clicks", "uneven, clicks as a log"),
)
SLICES = 6  # of clicks one alone, and the rows of one user, are in the last but two and one; nobody in the last
WITHOUT_ITEMS = ("flat rows", "same user", "padded", "copies", "mixed")


def metrics_of(name: str) -> Any:
    """What the metrics are around."""
    from torch_recmetrics import (
        MRR,
        NDCG,
        AveragePrecision,
        BinaryAUC,
        Calibration,
        Coverage,
        GroupAUC,
        HitRate,
        LogLoss,
        OffPolicyValue,
        RecMetricCollection,
    )

    if "log" in name:
        return RecMetricCollection([OffPolicyValue()])
    if "clicks" in name:
        areas = {"auc": BinaryAUC(), "clustered": BinaryAUC(clustered=True), "precision": AveragePrecision()}
        return RecMetricCollection({**areas, "groups": GroupAUC(), "loss": LogLoss(), "calibration": Calibration()})
    counts = [] if any(word in name for word in WITHOUT_ITEMS) else [Coverage(NUM_ITEMS, 3)]
    return RecMetricCollection([NDCG(3), HitRate(2, pooled=True), MRR(), *counts])


def sliced(name: str) -> Any:
    from torch_recmetrics import BinaryAUC, RecMetricCollection, Sliced

    # Bins keep no rows that could be drawn, so only slices have them.
    bins = {"bins": BinaryAUC(num_bins=64)} if "clicks" in name and "log" not in name else {}
    return Sliced(RecMetricCollection({**metrics_of(name), **bins}), SLICES)


def medians(name: str) -> Any:
    """Slices of values that are kept, beside those of a mean; None where there are no users."""
    from torch_recmetrics import MRR, NDCG, RecMetricCollection, Sliced

    return None if "clicks" in name else Sliced(RecMetricCollection([NDCG(3, aggregation="median"), MRR()]), SLICES)


def bootstrap(name: str) -> Any:
    from torch_recmetrics import UserBootstrap

    return UserBootstrap(metrics_of(name), num_replicates=10)


def nested(name: str) -> list[Any]:
    """Slices of resamples and resamples of slices."""
    from torch_recmetrics import Sliced, UserBootstrap

    return [Sliced(bootstrap(name), SLICES), UserBootstrap(Sliced(metrics_of(name), SLICES), num_replicates=10)]


def has_ids(name: str) -> bool:
    """Whether units are drawn by an id that is theirs in every split."""
    return any(word in name for word in ("sample ids", "flat", "user everywhere", "padded", "copies", "nobody"))


def taken(metric: Any, updates: list[Update]) -> list[Update]:
    known = metric._update_signature.parameters
    return [{key: value for key, value in update.items() if key in known} for update in updates]


def sliced_shards(name: str, world: int) -> Shards:
    shards = [with_slices(updates, overlapping=True) for updates in WHO[name](world)]
    shards = [[{**own, "slice_ids": pad(own["slice_ids"], (0, 3))} for own in shard] for shard in shards]
    if "clicks" in name:
        first = next(own for shard in shards for own in shard)
        click = int(first.get("target", first.get("reward")).argmax())
        first["slice_ids"][click, SLICES - 3] = True
        if "indexes" in first:
            first["slice_ids"][:, SLICES - 2] = first["indexes"] == first["indexes"][click]
    return shards


def floats(values: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def said_of_slices(metric: Any) -> dict[str, Any]:
    return {
        "values": floats(metric.compute()),
        "overall": floats(metric.overall),
        "errors": floats(metric.standard_error()),
        "gap": floats(metric.gap()),
    }


def said_of_replicates(metric: Any) -> dict[str, Any]:
    values = metric.compute()
    return {
        "replicates": {name: [repr(float(one)) for one in drawn] for name, drawn in metric.replicates().items()},
        "values": {name: float(result["value"]) for name, result in values.items()},
        "results": repr(values),
    }


def play(name: str, rank: int, world: int) -> dict[str, Any]:
    """What this process says, and that its own updates are there afterwards; nothing of one outside of the group."""
    group: Any = None
    if name.startswith(OTHERS):
        import torch.distributed as dist

        group = dist.new_group(range(1, world))
        if not rank:
            return {}
        name, rank, world = name.removeprefix(OTHERS), rank - 1, world - 1
    median, both = medians(name), nested(name)
    metric, drawn = sliced(name), bootstrap(name)
    for one in (metric, drawn, *both, *([median] if median is not None else [])):
        one.process_group = group
    for update in taken(metric, sliced_shards(name, world)[rank]):
        metric.update(**update)
    before = str(metric.metric_state)
    said = said_of_slices(metric)
    for update in taken(drawn, WHO[name](world)[rank]):
        drawn.update(**update)
    for one in both:
        for update in taken(one, sliced_shards(name, world)[rank]):
            one.update(**update)
    for update in [] if median is None else taken(median, sliced_shards(name, world)[rank]):
        median.update(**update)
    return {
        "medians": None if median is None else floats(median.compute()),
        "slices": said,
        "kept": str(metric.metric_state) == before,
        "bootstrap": said_of_replicates(drawn),
        "nested": [repr(one.compute()) for one in both],
        "replicates of slices": said_of_replicates(both[1]),
    }
