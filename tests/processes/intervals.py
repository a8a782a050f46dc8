"""Who gets which updates, and what standard errors, intervals and values of users all processes must then say."""

from __future__ import annotations

from typing import Any

import torch
from fixtures.variants import CLICKED, Asked, named, together

from processes import wrappers
from processes.exchanges import (
    CLICK_SHARDS,
    COST,
    OF_RANKINGS,
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
ALONE = ("ndcg 3", "hits 1", "pooled", "mrr")  # each has an exchange of its own
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


def sampled_candidates(world: int) -> Shards:
    """Process r ranks the users among r + 2 candidates, and the first process has no data."""
    shards: Shards = [[]]
    for rank in range(1, world):
        scores = torch.arange(2.0 * (rank + 2)).view(2, rank + 2).sin()
        update = {"preds": scores, "item_ids": torch.arange(rank + 2), "target_ids": torch.tensor([0, 1])}
        if rank == 1:
            update["seen_ids"] = torch.tensor([[2], [2]])
        shards.append([{**update, "sample_ids": torch.tensor([100 - rank, rank])}])
    return shards


INTERVALS = {f"{who}, {way}": (share, way) for who, share in WHO.items() for way in ("together", "alone")}
INTERVALS |= {f"clicks, {who}": (share, "clicks") for who, share in CLICK_SHARDS.items()}
# Values of users, some of them as medians
OF_USERS: Asked = {name: ASKED[name] for name in ("ndcg 3", "hits 1", "mrr", "pooled")}
MEDIANS: Asked = {f"{how} {name}": ASKED[name] for name in ("ndcg 3", "mrr") for how in ("median", "max")}
USERS = {f"users, {who}": (share, "users") for who, share in WHO.items()}
USERS["users, sampled candidates"] = (sampled_candidates, "users")
AROUND = "around, "  # scenarios of metrics around metrics
SCENARIOS = {**INTERVALS, **USERS, **{AROUND + who: share for who, share in wrappers.WHO.items()}}
OF_TWO = [name for name in SCENARIOS if "uneven" in name]  # what two processes do else three do too
SCENARIOS |= {AROUND + wrappers.OTHERS + who: wrappers.WHO[who] for who in wrappers.WHO_OF_OTHERS}
OF_TWO += [f"clicks, {name}" for name in ("the first idle", "samples again")] + ["users, sampled candidates"]
NAMELESS = {"uneven, sums", "idle, sums", "an empty batch", "mixed memories"}  # some users have no id
AT_MOST = {f"{who}, {h}, together": n for h, n in COST.items() for who in ("uneven", "idle")}


def shards_of(name: str, world: int) -> Shards:
    return SCENARIOS[name][0](world)


def asked(name: str) -> Asked:
    if name.startswith("clicks"):
        return OF_CLICKS
    return {label: ASKED[label] for label in ALONE} if name.endswith("alone") else ASKED


def play(name: str, rank: int, world: int) -> dict[str, Any]:
    """The ends of the intervals and the standard errors, and how many collectives the intervals took."""
    if name.startswith(AROUND):
        return wrappers.play(name.removeprefix(AROUND), rank, world)
    import torch.distributed as dist

    if name in USERS:
        return users_of_ranks(name, world, rank)
    which, updates = asked(name), shards_of(name, world)[rank]
    metrics = together(which)
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


def keeping(name: str) -> Any:
    """The collections of a scenario about users: of all values, where all have an id, and of medians."""
    from torch_recmetrics import RecMetricCollection

    medians = {n: variant.make(k, aggregation=n.partition(" ")[0]) for n, (variant, k) in MEDIANS.items()}
    members = {n: variant.make(k) for n, (variant, k) in OF_USERS.items()}
    all_named = name.removeprefix("users, ") not in NAMELESS
    return RecMetricCollection({**medians, **members}, keep_users=all_named), all_named


def told_of(metrics: Any, all_named: bool) -> dict[str, Any]:
    """The values of users, and what they come to."""
    told: dict[str, Any] = {"values": {name: float(value) for name, value in metrics.compute().items()}}
    told["one by one"] = {name: float(member.compute()) for name, member in metrics.items()}
    if all_named:
        users = metrics.users()
        told |= {"ids": users.sample_ids.tolist(), "users": {name: users[name].tolist() for name in users}}
        told["weights"] = None if users.weights is None else users.weights.tolist()
        told |= {
            "candidates": users.candidates,
            "hidden": users.hidden,
            "summaries": users.summaries,
            "definitions": users.definitions,
        }
        told["one metric"] = metrics["mrr"].users()["mrr"].tolist()
    else:
        try:
            metrics["mrr"].start_keeping_users()
            metrics["mrr"].users()
        except ValueError as error:
            told["refused"] = str(error)
    return told


def users_of_ranks(name: str, world: int, rank: int) -> dict[str, Any]:
    """What the rank says after half of its updates, a checkpoint and the rest."""
    metrics, all_named = keeping(name)
    updates = shards_of(name, world)[rank]
    for update in updates[: len(updates) // 2]:
        metrics.update(**update)
    metrics.persistent(True)
    resumed, _ = keeping(name)
    resumed.persistent(True)
    resumed.load_state_dict(metrics.state_dict())
    for update in updates[len(updates) // 2 :]:
        resumed.update(**update)
    return told_of(resumed, all_named)
