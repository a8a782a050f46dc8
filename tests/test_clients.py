"""The clients of examples/clients run as they are, and what they print is what their data say."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torch_recmetrics.lightning.inputs import Step, named_arguments

ROOT = Path(__file__).parents[1]
CLIENTS = sorted(path for path in (ROOT / "examples" / "clients").glob("*.py") if path.stem != "__init__")
# What a client would write if the package did not take its data as they are.
GLUE = re.compile(
    r"\.(reshape|view|flatten|unsqueeze|squeeze|repeat_interleave)\(|pad_sequence|\.pad\(|for .* in zip\(preds"
)


def client(name: str, *needs: str) -> Any:
    for library in needs:
        pytest.importorskip(library, reason=f"{library} is not installed")
    return importlib.import_module(f"examples.clients.{name}")


@pytest.mark.parametrize("path", CLIENTS, ids=lambda path: path.stem)
def test_no_client_needs_glue(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert not GLUE.findall(source)
    assert {
        base for bases in re.findall(r"^class \w+\((.*)\)", source, re.MULTILINE) for base in bases.split(", ")
    } <= {"torch.nn.Module"}
    assert f"({path.name})" in (path.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore")
def test_transformers_trainer() -> None:
    found = client("transformers_trainer", "transformers", "accelerate")
    at_once, by_batches = found.main(max_steps=60)
    assert at_once == pytest.approx(by_batches, abs=1e-12)
    assert at_once["eval_hit_rate@10"] > 0.3  # chance is 0.2
    logits = np.array([[[3.0, 2, 1, 0], [0, 1, 2, 3]], [[3, 2, 1, 0], [0, 0, 0, 0]]], dtype=np.float32)
    labels = np.array([[1, 3], [-100, -100]])
    evaluated = importlib.import_module("transformers").EvalPrediction(predictions=logits, label_ids=labels)
    assert found.Evaluation()(evaluated)["mrr@10"] == (1 / 2 + 1) / 2
    # The callback of Lightning reads what such a model returns.
    outputs = importlib.import_module("transformers.modeling_outputs").MaskedLMOutput(logits=torch.zeros(2, 3))
    step = Step("validation_step", outputs, {"labels": torch.zeros(2)}, None, 0, 0)
    assert named_arguments({"preds": "logits", "target_ids": "batch.labels"}, step)["preds"] is outputs.logits
    with pytest.raises(ValueError, match=r"has no 'loss': .*It has logits"):
        named_arguments({"preds": "loss"}, step)


@pytest.mark.filterwarnings("ignore")
def test_accelerate_loop(capsys: pytest.CaptureFixture[str]) -> None:
    values = client("accelerate_loop", "accelerate").main()
    assert values["hit_rate@10"] > 0.7 and values["coverage@10"] == 1  # chance is 10 of 56
    assert f"hit_rate@10  {values['hit_rate@10']:.4f}\n" in capsys.readouterr().out


def test_sequences() -> None:
    values = client("sequences").main(epochs=20)
    assert 0.5 < values["hit_rate@10"] <= 1  # chance is 0.25


def test_sampled_negatives(capsys: pytest.CaptureFixture[str]) -> None:
    values = client("sampled_negatives").main(n_negatives=49)
    assert 'candidates="sampled(50)"' in capsys.readouterr().out
    assert values["sampled_ndcg@10"] > values["full_ndcg@10"]  # another measurement
    assert values["sampled_mrr@10"] > 0.2  # chance is 0.059


def test_leave_one_out() -> None:
    pandas = pytest.importorskip("pandas")
    found = client("leave_one_out", "pandas")
    log = pandas.DataFrame(
        [("a", "x", 2), ("a", "y", 1), ("b", "z", 1), ("c", "x", 1), ("c", "y", 3), ("c", "z", 2)],
        columns=["user", "item", "time"],
    )
    # Of what is left of each user x, y and z were taken once, y by a, x and z by c; wanted are x, z and y.
    values = found.main(log)
    assert values["hit_rate@10"] == 1
    # a: x and z are tied, ranks 1 and 2; b: all three are tied; c: y alone is left.
    assert values["mrr@10"] == pytest.approx(((1 + 1 / 2) / 2 + (1 + 1 / 2 + 1 / 3) / 3 + 1) / 3, abs=1e-12)
    assert 0.3 < found.main()["hit_rate@10"] < 0.7


def test_two_towers(capsys: pytest.CaptureFixture[str]) -> None:
    values = client("two_towers").main(["--num-items", "3000", "--num-users", "300", "--dim", "16"])
    assert "300 users, 3,000 items" in capsys.readouterr().out
    assert 0.05 < values["recall@10"] < 1 and 0 < values["coverage@10"] < 1
