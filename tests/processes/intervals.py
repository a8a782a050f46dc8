"""Who gets which updates, and what standard errors and intervals all processes must then say."""

from __future__ import annotations

from typing import Any

from fixtures.variants import named

from processes.exchanges import (
    COST,
    OF_RANKINGS,
    Asked,
    Shards,
    copies_differ,
    idle,
    mixed_memories,
    nobody_has_data,
    one_with_an_empty_batch,
    padded_sampler,
    same_user_everywhere,
    uneven,
)

ASKED: Asked = {
    **{f"ndcg {k}": (named("NDCG"), k) for k in (1, 3, None)},
    **{f"hits {k}": (named("HitRate"), k) for k in (1, 3)},
    **{f"dcg {k}": (named("DCG", gain="linear"), k) for k in range(1, 18)},
    "pooled": (named("HitRate", pooled=True), 3),
    "mrr": (named("MRR"), None),
}  # 24 numbers
WHO: dict[str, Any] = {
    **{f"uneven, {history}": uneven(history) for history in OF_RANKINGS},
    **{f"idle, {history}": idle(history) for history in OF_RANKINGS},
    "an empty batch": one_with_an_empty_batch,
    "nobody has data": nobody_has_data,
    "same user everywhere": same_user_everywhere,
    "padded sampler": padded_sampler,
    "copies differ": copies_differ,
    "mixed memories": mixed_memories,
}
SCENARIOS = {f"{who}, {way}": (share, way) for who, share in WHO.items() for way in ("together", "alone")}
AT_MOST = {f"{who}, {h}, together": n for h, n in COST.items() for who in ("uneven", "idle")}


def shards_of(name: str, world: int) -> Shards:
    return SCENARIOS[name][0](world)


def play(name: str, rank: int, world: int) -> dict[str, Any]:
    """The ends of the intervals and the standard errors, and how many collectives the intervals took."""
    import torch.distributed as dist

    from torch_recmetrics import RecMetricCollection

    members = {label: variant.make(k) for label, (variant, k) in ASKED.items()}
    metrics = RecMetricCollection(members)
    for update in shards_of(name, world)[rank]:
        metrics.update(**update)
    group: Any = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    if name.endswith("together"):
        found = metrics.confidence_intervals(0.9)
    else:
        found = {label: member.clone().confidence_interval(0.9) for label, member in metrics.items()}
    used = group._get_sequence_number_for_group() - before
    errors = {label: float(member.standard_error()) for label, member in metrics.items()}
    values = {label: float(value) for label, value in metrics.compute().items()}
    return {
        "intervals": {label: (float(low), float(high)) for label, (low, high) in found.items()},
        "errors": errors,
        "values": values,
        "collectives": used,
    }
