"""What ranks tell each other beside their collectives, through the store that the process group was started with.

The store counts the collectives that each rank has reached, so a rank that waits for another can name it. It also keeps
the word of the rank that spoke first, for ranks that must all do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")

# Back ends whose collectives raise in the rank that waits. The others (NCCL) end the whole process after their
# time-out, and nobody is left to name the missing ranks. There the wait comes before the collective.
RAISING = frozenset({"gloo"})


@contextmanager
def name_missing_ranks(group: Any) -> Iterator[None]:
    """Around one collective: if it fails, the error names the ranks that never reached it.

    With gloo it costs one call of the store, a few microseconds.

    Raises:
        RuntimeError: in place of the back end's own, where ranks are missing.
    """
    store = store_of_processes()
    if store is None:
        yield
        return
    ranks = dist.get_process_group_ranks(dist.group.WORLD if group is None else group)
    prefix = store_key(group)
    count = ask_store(lambda: int(store.add(f"{prefix}/{dist.get_rank()}", 1)), 0)
    try:
        if count and dist.get_backend(group) not in RAISING:
            key = f"{prefix}/exchange{count}"
            if store.add(key, 1) == len(ranks):  # the last rank lets the others go
                store.set(f"{key}/all", "")
            else:
                store.wait([f"{key}/all"], time_limit(group))
        yield
    except RuntimeError as error:
        reached: dict[int, int] = ask_store(lambda: {rank: store.add(f"{prefix}/{rank}", 0) for rank in ranks}, {})
        missing = [rank for rank, n_reached in reached.items() if n_reached < count]
        if missing:
            names = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            reason = f"{names} of {len(ranks)} never reached the collective"
        elif not count or not reached:
            reason = "the missing ranks are unknown, since rank 0, which keeps the list, is gone"
        else:
            raise
        raise RuntimeError(
            f"rank {dist.get_rank()} timed out syncing metrics: {reason}. Every rank must call `compute` equally "
            "often, also one without data; a rank that has ended or hangs says why in its own output. The back end "
            f"says: {error}"
        ) from error


def store_of_processes() -> Any:
    """The key-value store that all ranks share; None where the group was started without one."""
    try:
        return dist.distributed_c10d._get_default_store()
    except (AttributeError, RuntimeError, ValueError):
        return None


def store_key(group: Any) -> str:
    """What the keys of a group begin with."""
    world: Any = dist.group.WORLD
    return f"torch_recmetrics/{(group or world).group_name}"


def ask_store(ask: Callable[[], T], otherwise: T) -> T:
    """What the store says. Where it is gone, a collective of ranks that are all there must not fail for it."""
    try:
        return ask()
    except RuntimeError:
        return otherwise


def next_round(group: Any) -> int:
    """A number that is the same on all ranks if all call this equally often; 0 without a store."""
    store = store_of_processes()
    return (
        0 if store is None else ask_store(lambda: int(store.add(f"{store_key(group)}/round/{dist.get_rank()}", 1)), 0)
    )


def agree_on_first(group: Any, key: str, word: str) -> str:
    """The word of the first rank that called this with the key; the own word where there is no store, or none left."""
    store = store_of_processes()
    if store is None:
        return word
    return ask_store(lambda: str(store.compare_set(f"{store_key(group)}/{key}", "", word), "utf-8"), word)


def time_limit(group: Any) -> timedelta:
    """How long a collective of this group may wait; torch's own 30 minutes where its back end does not say."""
    group = group or dist.group.WORLD
    for device in group._device_types:
        limit = getattr(getattr(group._get_backend(torch.device(device)), "options", None), "_timeout", None)
        if isinstance(limit, timedelta):
            return limit
    return timedelta(minutes=30)
