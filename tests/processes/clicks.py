"""What else click metrics say of the rows of several processes, and the bytes that each process sends for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from fixtures.cases import Update, without
from fixtures.clicks import clicks

from processes.exchanges import CLICK_SHARDS, Shards, even_clicks

ROWS = 20_000
# Curves need both classes; scores of two dtypes share no bins.
CURVES = [name for name in CLICK_SHARDS if name not in ("nobody has data", "only positive")]
SCENARIOS = [*CURVES, "traffic", "synced steps"]


def rows_of_rank(rank: int) -> Update:
    """20,000 rows with 5 % positives."""
    preds = torch.rand(ROWS, generator=torch.Generator().manual_seed(rank))
    return {**clicks(rank, ROWS, rate=0.05), "preds": preds}


@contextmanager
def counted(sent: list[tuple[str, int]]) -> Iterator[None]:
    """Write down the bytes that this process hands to each collective."""
    import torch.distributed as dist

    of = {"all_reduce": 0, "all_gather": 1, "all_to_all_single": 1}  # the argument that is sent
    own = {name: getattr(dist, name) for name in of}

    def listening(name: str) -> Callable[..., Any]:
        def collective(*arguments: Any, **named: Any) -> Any:
            tensor = arguments[of[name]]
            sent.append((name, tensor.numel() * tensor.element_size()))
            return own[name](*arguments, **named)

        return collective

    for name in of:
        setattr(dist, name, listening(name))
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(dist, name, function)


def traffic(rank: int) -> dict[str, Any]:
    """What each process sends for its rows."""
    from torch_recmetrics import AveragePrecision, BinaryAUC, GroupAUC

    mine, world = rows_of_rank(rank), torch.distributed.get_world_size()
    own_groups = {**mine, "indexes": torch.randint(100, (ROWS,)) * world + rank}
    cases = {
        "auc": (BinaryAUC(), mine),
        "auc of mostly positive rows": (BinaryAUC(), {**mine, "target": 1 - mine["target"]}),
        "auc of half precision": (BinaryAUC(), {**mine, "preds": mine["preds"].half()}),
        "auc in bins": (BinaryAUC(64), mine),
        "average precision": (AveragePrecision(), mine),
        "group auc": (GroupAUC(), own_groups),
        "group auc of whole groups": (GroupAUC(groups_local=True), own_groups),
    }
    outcome: dict[str, Any] = {"positives": int(mine["target"].sum())}
    for name, (metric, some) in cases.items():
        sent: list[tuple[str, int]] = []
        metric.update(**(some if isinstance(metric, GroupAUC) else without(some, "indexes")))
        with counted(sent):
            value = float(metric.compute())
        outcome[name] = {"value": value, "sent": sent}
    return outcome


def synced_steps(shard: list[Update]) -> list[float]:
    """The value of each step over all processes."""
    from torch_recmetrics import BinaryAUC

    metric = BinaryAUC(dist_sync_on_step=True)
    steps = [float(metric(**without(some, "indexes"))) for some in shard]
    return [*steps, float(metric.compute())]


def curves(shards: Shards, rank: int) -> dict[str, Any]:
    """Curves, tables and bounds of all rows."""
    from torch_recmetrics import AveragePrecision, BinaryAUC, GroupAUC

    auc, binned, grouped = BinaryAUC(), BinaryAUC(1 << 16), GroupAUC()
    for update in shards[rank]:
        grouped.update(**update)
        auc.update(**without(update, "indexes"))
        binned.update(**without(update, "indexes"))
    told: dict[str, Any] = {"value": float(auc.compute()), "bound": float(auc.error_bound())}
    told["curve"] = [column.tolist() for column in auc.roc()]
    told["table"] = [column.tolist() for column in grouped.per_group()]
    try:
        precision = AveragePrecision(1 << 16)
        for update in shards[rank]:
            precision.update(**without(update, "indexes"))
        told["average precision in bins"] = float(precision.compute()), float(precision.error_bound())
        told["bound in bins"] = float(binned.error_bound())
        told["curve in bins"] = [column.tolist() for column in binned.roc()]
    except ValueError as error:
        told["refused"] = str(error)
    return told


def play(name: str, rank: int, world: int) -> dict[str, Any]:
    if name == "traffic":
        return traffic(rank)
    if name == "synced steps":
        return {"steps": synced_steps(even_clicks(world)[rank])}
    return curves(CLICK_SHARDS[name](world), rank)
