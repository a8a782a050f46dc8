"""A training loop with accelerate, on one process or several.

    python -m examples.clients.accelerate_loop
    accelerate launch --cpu --num_processes 2 -m examples.clients.accelerate_loop

Nothing is gathered: every process updates with its own batches, and `compute` exchanges sums. accelerate repeats rows
so that all processes get equally many; the row numbers make them count once.
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from torch_recmetrics import ranking_metrics

N_USERS, N_ITEMS, N_KINDS, DIM = 301, 60, 6, 16


class Factorization(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(N_USERS, DIM)
        self.items = torch.nn.Embedding(N_ITEMS, DIM)

    def forward(self, users: torch.Tensor) -> torch.Tensor:
        return self.users(users) @ self.items.weight.T


def simulate() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(users, four items that each has taken, the one that it takes next), all of the user's own kind."""
    users = torch.arange(N_USERS)
    own = N_KINDS * torch.rand(N_USERS, N_ITEMS // N_KINDS).argsort(1) + (users % N_KINDS)[:, None]
    return users, own[:, :4], own[:, 4]


def main(epochs: int = 10) -> dict[str, float]:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    rows = TensorDataset(*simulate())
    train, test = DataLoader(rows, batch_size=32, shuffle=True), DataLoader(rows, batch_size=32)
    model = Factorization()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    for _ in range(epochs):
        for user, taken, _ in train:
            optimizer.zero_grad()
            accelerator.backward(-model(user).log_softmax(1).gather(1, taken).mean())
            optimizer.step()

    metrics = ranking_metrics(("hit_rate", "ndcg", "coverage"), 10, options={"coverage": {"num_items": N_ITEMS}})
    metrics.to(accelerator.device)
    with torch.no_grad():
        for user, seen, wanted in test:
            metrics.update(model(user), target_ids=wanted, seen_ids=seen, sample_ids=user)
    values = {name: float(value) for name, value in metrics.compute().items()}
    accelerator.print(*(f"{name:<12} {value:.4f}" for name, value in values.items()), sep="\n")
    return values


if __name__ == "__main__":
    main()
