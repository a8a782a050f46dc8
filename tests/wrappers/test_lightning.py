"""The callback updates, logs and shows slices and resamples as it does metrics."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from fixtures.histories import floats
from fixtures.items import NUM_ITEMS

from torch_recmetrics import NDCG, RecMetricCollection, Sliced, UserBootstrap

pytest.importorskip("pytorch_lightning")
from processes import lightning_models, lightning_plays

from torch_recmetrics.lightning import RankingMetrics

SCORES = torch.randint(0, 9, (10, NUM_ITEMS), generator=torch.Generator().manual_seed(1)).float()
WANTED = torch.arange(10).unsqueeze(1) % NUM_ITEMS
SLICES = torch.tensor([0, 1, 0, 1, 1, -1, 0, 0, 1, 1])


class Model(lightning_models.Returns):
    def validation_step(self, batch: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        return dict(zip(("preds", "target_ids", "slice_ids", "sample_ids"), batch, strict=True))


def made() -> list[Any]:
    return [NDCG(3), Sliced(NDCG(3), ("cold", "warm")), UserBootstrap(NDCG(3), num_replicates=9)]


@pytest.mark.filterwarnings("ignore")
def test_slices_are_logged(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    rows = torch.utils.data.TensorDataset(SCORES, WANTED, SLICES, torch.arange(10))
    asked = RankingMetrics(made(), log_errors=True)
    trainer = lightning_plays.trainer(1, callbacks=[asked], default_root_dir=tmp_path)
    with caplog.at_level(logging.INFO):
        (logged,) = trainer.validate(Model(), torch.utils.data.DataLoader(rows, batch_size=4), verbose=False)
    alone = RecMetricCollection(made(), prefix="val_")
    alone.update(SCORES, target_ids=WANTED, slice_ids=SLICES, sample_ids=torch.arange(10))
    expected = floats(alone.compute())
    assert asked.names() == list(expected) == alone.value_names()
    assert {name: logged[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    error = float(alone["ndcg@3/slices"].standard_error()["cold"])
    assert logged["val_ndcg@3/cold_se"] == pytest.approx(error, abs=1e-6)
    assert f"ndcg/cold {expected['val_ndcg@3/cold']:.4f} +- {error:.4f}" in " ".join(" ".join(caplog.messages).split())
