"""What Lightning logs of lists and catalogues is what they compute."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from fixtures.histories import updated
from fixtures.items import ITEMS, NUM_ITEMS

from torch_recmetrics import ILS, NDCG, Coverage, Gini, IntraListDiversity, RecMetricCollection

pytest.importorskip("pytorch_lightning")
from processes import lightning_models, lightning_plays

from torch_recmetrics.lightning import RankingMetrics

SCORES = torch.randint(0, 9, (10, NUM_ITEMS), generator=torch.Generator().manual_seed(1)).float()
WANTED = torch.arange(10).unsqueeze(1) % NUM_ITEMS
FEATURES = torch.tensor(ITEMS.vectors)


def made() -> list[Any]:
    return [NDCG(3), ILS(FEATURES, 3), IntraListDiversity(FEATURES, 3), Coverage(NUM_ITEMS, 3), Gini(NUM_ITEMS, 3)]


class Model(lightning_models.Returns):
    def __init__(self) -> None:
        super().__init__()
        self.train_metrics = RecMetricCollection([ILS(FEATURES, 3), Coverage(NUM_ITEMS, 3)], prefix="train_")
        self.val_metrics = RecMetricCollection(made(), prefix="val_")
        self.alone = torch.nn.ModuleList(made())

    def training_step(self, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        self.log_dict(self.train_metrics(batch[0]), on_step=True)
        return self.weight.sum() * 0

    def validation_step(self, batch: tuple[torch.Tensor, ...]) -> None:
        scores, wanted = batch
        self.val_metrics.update(scores, target_ids=wanted)
        self.log_dict(self.val_metrics, on_epoch=True)
        for metric in self.alone:
            metric.update(scores, target_ids=wanted)
            self.log(f"alone_{metric.name}", metric, on_epoch=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
def test_what_is_logged(tmp_path: Any, precision: str) -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(SCORES, WANTED), batch_size=4)
    trainer = lightning_plays.trainer(1, max_epochs=2, precision=precision, default_root_dir=tmp_path)
    model = Model()
    trainer.fit(model, loader, loader)
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    for metric in made():
        metric.update(SCORES, target_ids=WANTED)
        expected = pytest.approx(float(metric.compute()), abs=1e-6)  # Lightning keeps float32
        assert logged[f"val_{metric.name}"] == logged[f"alone_{metric.name}"] == expected
    last = updated(Coverage(NUM_ITEMS, 3), SCORES[8:])
    assert logged["train_coverage@3"] == pytest.approx(float(last.compute()), abs=1e-6)
    (again,) = trainer.validate(model, loader, verbose=False)
    assert again["val_ils@3"] == pytest.approx(logged["val_ils@3"], abs=1e-7)


class Plain(lightning_models.Returns):
    def validation_step(self, batch: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        return {"preds": batch[0], "target_ids": batch[1]}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("log_errors", [False, True])
def test_standard_errors_in_the_table_and_logged_on_request(
    tmp_path: Any, log_errors: bool, caplog: pytest.LogCaptureFixture
) -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(SCORES, WANTED), batch_size=4)
    asked = RankingMetrics([NDCG(3), Coverage(NUM_ITEMS, 3)], log_errors=log_errors)
    trainer = lightning_plays.trainer(1, callbacks=[asked], default_root_dir=tmp_path)
    with caplog.at_level(logging.INFO):
        (values,) = trainer.validate(Plain(), loader, verbose=False)
    alone = NDCG(3)
    alone.update(SCORES, target_ids=WANTED)
    error = float(alone.standard_error())
    assert 0 < error < 0.5
    assert f"{float(alone.compute()):.4f} +- {error:.4f}" in "\n".join(caplog.messages)
    assert ("val_ndcg@3_se" in values) == log_errors and "val_coverage@3_se" not in values
    assert list(asked.errors) == ["val_ndcg@3"]
    assert float(asked.errors["val_ndcg@3"]) == pytest.approx(error, rel=1e-14)  # added up in another order
    if log_errors:
        assert values["val_ndcg@3_se"] == pytest.approx(error, abs=1e-6)
