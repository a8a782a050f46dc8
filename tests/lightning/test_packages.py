"""``pytorch_lightning`` and ``lightning.pytorch``: each user gets the base class of the package that is in use."""

from __future__ import annotations

import importlib.util
import json
import textwrap
from pathlib import Path

import pytest
from fixtures.every_metric import OPTIONS
from processes.start import python, torch_alone

import torch_recmetrics  # noqa: F401 (fills the registry)
from torch_recmetrics.state.registry import METRICS

PACKAGES = {"pytorch_lightning": "lightning", "lightning.pytorch": "pytorch_lightning"}  # package -> the other one

pytestmark = pytest.mark.timeout(300)


def needs(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package.partition(".")[0]) is None:
            pytest.skip(f"{package} is not installed")


def run(program: str, folder: Path) -> str:
    """What it prints. Each program imports the package, and Lightning, on its own."""
    program = "import warnings\nwarnings.simplefilter('ignore')\n" + textwrap.dedent(program).replace("MODEL", MODEL)
    (done,) = python(torch_alone(), ["-c", program], cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


MODEL = """
import torch
from torch.utils.data import DataLoader, TensorDataset

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch):
        return self.weight.sum()

    def validation_step(self, batch):
        preds, target = batch
        return {"preds": preds, "target": target}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self):
        return self.val_dataloader()

    def val_dataloader(self):
        return DataLoader(TensorDataset(torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), torch.eye(2, 3)))

QUIET = dict(accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
             enable_checkpointing=False)
"""

YAML = """
trainer:
  accelerator: cpu
  devices: 1
  logger: false
  max_epochs: 1
  enable_progress_bar: false
  enable_model_summary: false
  callbacks:
    - class_path: torch_recmetrics.lightning.RankingMetrics
      init_args:
        metrics: [ndcg, map]
        top_k: [1, 2]
        options:
          map:
            denominator: relevant
        ties: stable
        at: _at_
    - class_path: torch_recmetrics.lightning.RankingMetrics
      init_args:
        prefix: ready_
        metrics:
          class_path: torch_recmetrics.RecMetricCollection
          init_args:
            metrics:
              - class_path: torch_recmetrics.NDCG
                init_args: {top_k: 2, gain: linear}
              - class_path: torch_recmetrics.MRR
    - class_path: torch_recmetrics.lightning.RankingMetrics
      init_args: {metrics: mrr, prefix: named_, preds: preds, target: batch.1, min_relevance: 1}
    - class_path: torch_recmetrics.lightning.RankingMetrics
      init_args: {metrics: mrr, prefix: made_, inputs: mine.arguments}
    - class_path: torch_recmetrics.lightning.SignificantStopping
      init_args: {monitor: val_ndcg_at_2, level: 0.8, patience: 2}
    - class_path: EarlyStopping
      init_args: {monitor: val_ndcg_at_2, mode: max}
    - class_path: ModelCheckpoint
      init_args: {monitor: ready_mrr, mode: max, dirpath: kept}
"""


IN_YAML = {name: OPTIONS.get(name, {}) for name in METRICS if name != "from_sampled"}  # which holds an object
BY_NAME: list[dict[str, object]] = [
    {"metrics": list(IN_YAML), "top_k": 2, "options": IN_YAML, "nan_action": "worst", "empty_target_action": "neg"},
    {"metrics": "coverage", "options": {"coverage": {"num_items": 9066}}, "prefix": "one_"},
    {"metrics": {"class_path": "torch_recmetrics.NDCG", "init_args": {"top_k": 3}}, "prefix": "object_"},
    {"metrics": ["mrr", {"class_path": "torch_recmetrics.NDCG", "init_args": {"top_k": 3}}], "prefix": "both_"},
    {"metrics": {"mine": {"class_path": "torch_recmetrics.NDCG"}}, "prefix": "dict_"},
    {
        "metrics": {
            "class_path": "torch_recmetrics.FromSampled",
            "init_args": {"metric": {"class_path": "torch_recmetrics.NDCG", "init_args": {"top_k": 4}}, "num_items": 9},
        },
        "prefix": "estimated_",
    },
]


N_VALIDATED = 3  # lines of the callback, its pickle and its copy, before those of the files


@pytest.fixture(scope="module", params=PACKAGES)
def configured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a run from a YAML file, and what it printed; another file is read behind it.

    Before it the callback is imported ahead of the package, and used: one process for each package.
    """
    package, folder = request.param, tmp_path_factory.mktemp("yaml")
    needs(package, "jsonargparse")
    (folder / "run.yaml").write_text(YAML)
    (folder / "mine.py").write_text("def arguments(outputs, batch):\n    return outputs['preds'], batch[1]\n")
    path = "torch_recmetrics.lightning.RankingMetrics"
    trainer = {"callbacks": [{"class_path": path, "init_args": arguments} for arguments in BY_NAME]}
    (folder / "names.yaml").write_text(json.dumps({"trainer": trainer}))  # YAML holds JSON
    told = run(
        f"""
        import copy, pickle, sys
        from torch_recmetrics.lightning import RankingMetrics
        assert not {{"lightning", "pytorch_lightning", "jsonargparse"}} & set(sys.modules)
        import {package} as pl
        MODEL
        callback = RankingMetrics("ndcg", top_k=2)
        assert isinstance(callback, pl.Callback)
        for again in (callback, pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
            assert type(again) is type(callback)
            trainer = pl.Trainer(callbacks=again, **QUIET)
            print(trainer.validate(Model(), verbose=False))
        assert "{PACKAGES[package]}" not in sys.modules, "the other Lightning was imported"

        from {package}.cli import LightningCLI
        cli = LightningCLI(Model, args=["fit", "--config", "run.yaml"])
        ours = [c for c in cli.trainer.callbacks if type(c).__name__ == "RankingMetrics"]
        assert len(ours) == 4 and all(isinstance(c, pl.Callback) for c in ours)
        print(sorted((name, float(value)) for name, value in cli.trainer.callback_metrics.items()))

        cli = LightningCLI(Model, run=False, args=["--config", "names.yaml"])
        for callback in cli.trainer.callbacks:
            if type(callback).__name__ == "RankingMetrics":
                print(callback.names())
        assert "{PACKAGES[package]}" not in sys.modules, "the other Lightning was imported"
        """,
        folder,
    )
    return folder, [line for line in told.splitlines() if line.startswith("[")]


def test_class_path_in_a_yaml_file(configured: tuple[Path, list[str]]) -> None:
    folder, told = configured
    value = (1 + 1 / 2) / 2
    ndcg = (1 + 0.6309297535714575) / 2
    wanted = [
        ("made_mrr@10", value),
        ("named_mrr@10", value),
        ("ready_mrr", value),
        ("ready_ndcg@2", ndcg),
        ("val_map_at_1", 0.5),
        ("val_map_at_2", value),
        ("val_ndcg_at_1", 0.5),
        ("val_ndcg_at_2", ndcg),
    ]
    assert eval(told[N_VALIDATED]) == [(name, pytest.approx(number, abs=1e-12)) for name, number in wanted]
    assert list((folder / "kept").glob("*.ckpt"))


def test_every_metric_by_name_in_a_yaml_file(configured: tuple[Path, list[str]]) -> None:
    """Issue 11, items 3 and 4: names, options of single metrics, objects and a mixture of them."""
    every, *others = (eval(line) for line in configured[1][N_VALIDATED + 1 :])
    assert list(dict.fromkeys(name.removeprefix("val_").partition("@")[0] for name in every)) == list(IN_YAML)
    assert others == [
        ["one_coverage@10"],
        ["object_ndcg@3"],
        ["both_mrr@10", "both_ndcg@3"],
        ["dict_mine"],
        ["estimated_ndcg@4"],
    ]


def test_the_package_may_be_imported_later(configured: tuple[Path, list[str]]) -> None:
    assert configured[1][:N_VALIDATED] == ["[{'val_ndcg@2': 0.8154648767857288}]"] * N_VALIDATED


def test_both_at_once(tmp_path: Path) -> None:
    needs(*PACKAGES)
    told = run(
        """
        import pickle
        from torch_recmetrics.lightning import RankingMetrics as unbound
        import pytorch_lightning as pl
        from torch_recmetrics.lightning import RankingMetrics as first
        of_first = first("ndcg", top_k=2)
        MODEL
        print(pl.Trainer(callbacks=of_first, **QUIET).validate(Model(), verbose=False))

        import lightning.pytorch as pl
        from torch_recmetrics.lightning import RankingMetrics as second
        MODEL
        for make in (second, unbound):
            of_both = make("ndcg", top_k=2)
            assert isinstance(of_both, pl.Callback)
            assert pickle.loads(pickle.dumps(of_both)).names() == ["val_ndcg@2"]
            print(pl.Trainer(callbacks=of_both, **QUIET).validate(Model(), verbose=False))
        from torch_recmetrics.lightning import SignificantStopping
        stop = SignificantStopping("val_ndcg@2")
        assert isinstance(stop, pl.Callback)
        fit = pl.Trainer(callbacks=[stop, second("ndcg", top_k=2, table=False)], max_epochs=2, **QUIET)
        fit.fit(Model())
        assert stop.wait_count == 1 and len(pickle.loads(pickle.dumps(stop)).best_users) == 2
        # a callback that was made for the other one serves in a list
        print(pl.Trainer(callbacks=[of_first], **QUIET).validate(Model(), verbose=False))
        assert pickle.loads(pickle.dumps(of_first)).names() == ["val_ndcg@2"]
        """,
        tmp_path,
    )
    assert told.splitlines() == ["[{'val_ndcg@2': 0.8154648767857288}]"] * 4
