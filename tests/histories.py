"""Sequences of updates for the laws about memory: one for each way in which a metric remembers."""

from __future__ import annotations

from collections.abc import Callable

import cases
import oracles
import torch
from cases import Case

Update = dict[str, torch.Tensor]


def _case(seed: int, n_users: int = 4, n_items: int = 6) -> Case:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-3, 3, (n_users, n_items), generator=generator)
    relevance = torch.randint(0, 4, (n_users, n_items), generator=generator) * (
        torch.rand(n_users, n_items, generator=generator) < 0.4
    )
    relevance[0] = 0  # the first user of each batch is empty
    weights = torch.rand(n_users, generator=generator).tolist()
    return Case(scores.double().tolist(), relevance.double().tolist(), weights)


def sums(n: int = 4) -> list[Update]:
    return [cases.target_ids(_case(seed)) for seed in range(n)]


def flat_rows(n: int = 4) -> list[Update]:
    """The users of all batches are the same, so their rows are spread over the updates; their weights agree."""
    updates = []
    for seed in range(n):
        update = cases.flat(_case(seed, n_items=2))
        update["weights"] = 1.0 + (update["indexes"] % 3).double()
        updates.append(update)
    return updates


def sample_rows(n: int = 4) -> list[Update]:
    """Every batch repeats a row of the one before."""
    return [{**cases.dense(_case(seed)), "sample_ids": torch.arange(4) + 3 * seed} for seed in range(n)]


HISTORIES: dict[str, Callable[[int], list[Update]]] = {
    "sums": sums,
    "flat rows": flat_rows,
    "sample ids": sample_rows,
}


def joined(updates: list[Update]) -> Update:
    """Updates of one layout as a single one; rows of ids are padded to one width."""
    widest = {name: max(u[name].shape[-1] for u in updates) for name in updates[0] if updates[0][name].ndim > 1}

    def padded(name: str, value: torch.Tensor) -> torch.Tensor:
        if value.ndim < 2:
            return value
        filler = -1 if name.endswith("_ids") else 0
        return torch.nn.functional.pad(value, (0, widest[name] - value.shape[1]), value=filler)

    return {name: torch.cat([padded(name, u[name]) for u in updates]) for name in updates[0]}


def users_of(updates: list[Update]) -> list[oracles.User]:
    """The users after all these updates; of repeated sample ids the first."""
    return oracles.once(cases.users_of(joined(updates)))
