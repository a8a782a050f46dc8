"""What processes tell each other beside their collectives, in the store that the process group was started with.

Who came to an exchange: processes that wait for one that never comes say which one it is. And who spoke first:
processes that must all do the same follow the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Back ends whose collectives raise in the process that waits. The others (NCCL) end the whole process some time after
# their time-out, and nobody is left who could say what was missing: there the wait comes before the collective.
RAISING = frozenset({"gloo"})


@contextmanager
def name_missing_ranks(group: Any) -> Iterator[None]:
    """Around one collective: this process has come to it; if it fails, the error names those that have not.

    Every process counts its collectives in the store that the process group was started with, a few microseconds each.

    Raises:
        RuntimeError: in place of the back end's own, where other processes did not come.
    """
    store = store_of_processes()
    if store is None:
        yield
        return
    ranks = dist.get_process_group_ranks(group)
    key = f"torch_recmetrics/{everyone_in(group).group_name}"
    mine = arrive(store, f"{key}/{dist.get_rank()}")
    try:
        if mine and dist.get_backend(group) not in RAISING:
            wait_for_all(store, f"{key}/exchange{mine}", len(ranks), time_limit(group))
        yield
    except RuntimeError as error:
        missing = [rank for rank in ranks if (came := arrivals(store, f"{key}/{rank}")) is not None and came < mine]
        if missing:
            names = f"process{'es' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            who = f"{names} of {len(ranks)} did not come to it"
        elif not mine or arrivals(store, f"{key}/{ranks[0]}") is None:
            who = "who did not come to it cannot be told, since the process that keeps the list (process 0) is gone"
        else:
            raise
        raise RuntimeError(
            f"process {dist.get_rank()} waited in vain in an exchange of metrics: {who}. Every process must call "
            "`compute` equally often, also one without data; a process that has ended or hangs says why in its own "
            f"output. The back end says: {error}"
        ) from error


def store_of_processes() -> Any:
    """The key-value store all processes have in common; None where the group was started without one."""
    try:
        return dist.distributed_c10d._get_default_store()
    except (AttributeError, RuntimeError, ValueError):
        return None


def everyone_in(group: Any) -> Any:
    """The process group; that of all processes for None."""
    return dist.group.WORLD if group is None else group


def arrive(store: Any, key: str) -> int:
    """Count this process; the number of collectives that it has come to, 0 where the store is gone."""
    try:
        return int(store.add(key, 1))
    except RuntimeError:
        return 0  # a collective of processes that are all there must not fail for it


def arrivals(store: Any, key: str) -> int | None:
    """The number of collectives that a process has come to; None where the store is gone."""
    try:
        return int(store.get(key)) if store.check([key]) else 0
    except RuntimeError:
        return None


def next_round(group: Any) -> int:
    """A number that is the same on all processes, if all of them call this equally often; 0 without a store."""
    store = store_of_processes()
    return (
        0
        if store is None
        else arrive(store, f"torch_recmetrics/{everyone_in(group).group_name}/round/{dist.get_rank()}")
    )


def agree_on_first(group: Any, key: str, word: str) -> str:
    """What the first process said that called this with the key; the own word without a store."""
    store = store_of_processes()
    if store is None:
        return word
    try:
        said: bytes = store.compare_set(f"torch_recmetrics/{everyone_in(group).group_name}/{key}", "", word)
    except RuntimeError:
        return word
    return said.decode()


def time_limit(group: Any) -> timedelta:
    """How long a collective of this group may wait."""
    for device in everyone_in(group)._device_types:
        limit = getattr(
            getattr(everyone_in(group)._get_backend(torch.device(device)), "options", None), "_timeout", None
        )
        if isinstance(limit, timedelta):
            return limit
    return timedelta(minutes=30)


def wait_for_all(store: Any, key: str, n_processes: int, limit: timedelta) -> None:
    """Come back when all processes have called this with the key."""
    if store.add(key, 1) == n_processes:
        store.set(f"{key}/all", "")
        return
    store.wait([f"{key}/all"], limit)
