"""Next items of sequences, every step of them: a recurrent model in plain torch.

    python -m examples.clients.sequences

The model gives scores (B, T, N); the next item of each step is (B, T), padded with -1 where a sequence has ended. Steps
are the rows that are averaged, each one that has a next item.
"""

from __future__ import annotations

import torch

from torch_recmetrics import pad_ids, ranking_metrics

N_ITEMS, DIM = 40, 24
LIMITS = ((0, N_ITEMS), (1, 4), (3, 13))  # of the first item, the step to the next one, the length


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.items = torch.nn.Embedding(N_ITEMS + 1, DIM, padding_idx=N_ITEMS)
        self.reader = torch.nn.GRU(DIM, DIM, batch_first=True)

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        states, _ = self.reader(self.items(items % (N_ITEMS + 1)))  # -1, the padding, is the last row
        return states @ self.items.weight[:N_ITEMS].T


def simulate(n_users: int, seed: int) -> list[list[int]]:
    """What each user took, in order: sequences of 3 to 12 items."""
    generator = torch.Generator().manual_seed(seed)
    sequences = []
    for _ in range(n_users):
        start, step, length = (int(torch.randint(low, high, (), generator=generator)) for low, high in LIMITS)
        sequences.append([(start + step * place) % N_ITEMS for place in range(length)])
    return sequences


def main(epochs: int = 60, n_users: int = 200) -> dict[str, float]:
    torch.manual_seed(0)
    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    items = pad_ids(simulate(n_users, seed=1))
    for _ in range(epochs):
        optimizer.zero_grad()
        scores = model(items[:, :-1])
        torch.nn.functional.cross_entropy(scores.mT, items[:, 1:], ignore_index=-1).backward()
        optimizer.step()

    metrics = ranking_metrics(("hit_rate", "ndcg", "mrr"), (1, 10))
    items = pad_ids(simulate(n_users, seed=2))
    with torch.no_grad():
        metrics.update(model(items[:, :-1]), target_ids=items[:, 1:])
    return {name: float(value) for name, value in metrics.compute().items()}


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:<12} {value:.4f}")
