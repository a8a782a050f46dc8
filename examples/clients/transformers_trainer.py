"""The Trainer of Hugging Face: BERT4Rec, a masked language model of items.

    python -m examples.clients.transformers_trainer

The model gives logits (B, T, N) and the labels are (B, T), -100 where nothing is masked: the layout of sequences.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM, EvalPrediction, Trainer, TrainingArguments

from torch_recmetrics import ranking_metrics

N_ITEMS, LENGTH = 50, 8
MASK = N_ITEMS  # the item of no user


def simulate(n_users: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Users who go through the catalogue in steps; their last item is masked."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(N_ITEMS, (n_users, 1), generator=generator)
    step = torch.randint(1, 4, (n_users, 1), generator=generator)
    items = (start + step * torch.arange(LENGTH)) % N_ITEMS
    labels = torch.full_like(items, -100)
    labels[:, -1] = items[:, -1]
    items[:, -1] = MASK
    return [{"input_ids": row, "labels": label} for row, label in zip(items, labels)]


class Evaluation:
    """What Trainer calls: once with all logits, or after each batch (`batch_eval_metrics`), and then it keeps none."""

    def __init__(self) -> None:
        # Trainer gathers the rows of all processes by itself.
        self.metrics = ranking_metrics(("hit_rate", "ndcg", "mrr"), 10, ignore_index=-100, sync_on_compute=False)

    def __call__(self, evaluated: EvalPrediction, compute_result: bool = True) -> dict[str, float]:
        labels = torch.as_tensor(evaluated.label_ids)
        self.metrics.update(torch.as_tensor(evaluated.predictions), target_ids=labels)
        if not compute_result:
            return {}
        values = {name: float(value) for name, value in self.metrics.compute().items()}
        self.metrics.reset()
        return values


def main(max_steps: int = 200) -> list[dict[str, float]]:
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(vocab_size=N_ITEMS + 1, max_position_embeddings=LENGTH, **size))
    shared: dict[str, Any] = {"use_cpu": True, "report_to": "none", "save_strategy": "no", "disable_tqdm": True}
    shared |= {"learning_rate": 1e-2, "per_device_train_batch_size": 64, "per_device_eval_batch_size": 64}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for batch_eval_metrics in (False, True):
            arguments = TrainingArguments(
                folder,
                max_steps=max_steps,
                batch_eval_metrics=batch_eval_metrics,
                **shared,
            )
            trainer = Trainer(
                model,
                arguments,
                train_dataset=simulate(1000, seed=1),
                eval_dataset=simulate(200, seed=2),
                compute_metrics=Evaluation(),
            )
            if not batch_eval_metrics:
                trainer.train()
            values = trainer.evaluate()
            found.append({name: values[name] for name in ("eval_hit_rate@10", "eval_ndcg@10", "eval_mrr@10")})
    return found


if __name__ == "__main__":
    for values in main():
        print("  ".join(f"{name} {value:.4f}" for name, value in values.items()))
