"""Who gets which updates, and what standard errors and intervals all processes must then say."""

from __future__ import annotations

from typing import Any

from fixtures.variants import CLICKED, named

from processes.exchanges import (
    CLICK_SHARDS,
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
OF_CLICKS: Asked = {str(v): (v, None) for v in CLICKED if v.label != "bins" and v.make().has_interval}
SCENARIOS = {f"{who}, {way}": (share, way) for who, share in WHO.items() for way in ("together", "alone")}
SCENARIOS |= {f"clicks, {who}": (share, "clicks") for who, share in CLICK_SHARDS.items()}
AT_MOST = {f"{who}, {h}, together": n for h, n in COST.items() for who in ("uneven", "idle")}


def shards_of(name: str, world: int) -> Shards:
    return SCENARIOS[name][0](world)


def asked(name: str) -> Asked:
    return OF_CLICKS if name.startswith("clicks") else ASKED


def play(name: str, rank: int, world: int) -> dict[str, Any]:
    """The ends of the intervals and the standard errors, and how many collectives the intervals took."""
    import torch.distributed as dist

    from torch_recmetrics import RecMetricCollection

    which, updates = asked(name), shards_of(name, world)[rank]
    metrics = RecMetricCollection({label: variant.make(k) for label, (variant, k) in which.items()})
    for label, (variant, _) in which.items() if name.startswith("clicks") else ():
        for update in updates:
            metrics[label].update(**variant.takes(update))
    for update in () if name.startswith("clicks") else updates:
        metrics.update(**update)
    group: Any = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    if not name.endswith("alone"):
        found = metrics.confidence_intervals(0.9)
    else:
        found = {label: member.clone().confidence_interval(0.9) for label, member in metrics.items()}
    used = group._get_sequence_number_for_group() - before
    before = group._get_sequence_number_for_group()
    both = metrics.values_and_errors() if name.endswith("together") else None
    used_by_both = group._get_sequence_number_for_group() - before
    errors = {label: float(member.standard_error()) for label, member in metrics.items()}
    values = {label: float(value) for label, value in metrics.compute().items()}
    return {
        "intervals": {label: (float(low), float(high)) for label, (low, high) in found.items()},
        "errors": errors,
        "values": values,
        "collectives": max(used, used_by_both),
        "same": both is None
        or str(both) == str((metrics.compute(), {n: m.standard_error() for n, m in metrics.items()})),
    }
