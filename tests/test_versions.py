"""What is said of an environment, and updates in environments that are not as they should be."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes.start import python, torch_alone

import torch_recmetrics
from torch_recmetrics import show_versions
from torch_recmetrics.core.kernels import runtime

ROOT = Path(torch_recmetrics.__file__).parents[1]
# Small, so that torch starts no threads: after these a forked child of torch waits for ever.
VALUES = """
import torch, torch_recmetrics
torch.manual_seed(0)
metrics = torch_recmetrics.ranking_metrics(("ndcg", "map", "recall", "mrr"), (5, 10))
for _ in range(3):
    scores = torch.randn(20, 400).round(decimals=1)
    metrics.update(scores, target_ids=torch.rand(20, 400).topk(9).indices, seen_ids=torch.randint(400, (20, 20)))
auc = torch_recmetrics.BinaryAUC(1 << 12)
auc.update(torch.rand(1000), torch.randint(2, (1000,)))
print([value.item().hex() for value in (*metrics.compute().values(), auc.compute())])
"""
# Few loops, which are compiled soon.
CLICKS = """
import torch, torch_recmetrics
torch.manual_seed(0)
auc = torch_recmetrics.BinaryAUC(1 << 12)
auc.update(torch.rand(1000), torch.randint(2, (1000,)))
print(auc.compute().item().hex())
"""
BLOCKED = "import sys; sys.modules['numba'] = None\n"
REFUSED = """
import sys, types
class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name == "numba":
            raise {error}
sys.meta_path.insert(0, Refuses())
"""


def runs(*programs: list[str], **environment: str) -> list[list[str]]:
    """The lines that processes of their own print, which start together; nothing else is said."""
    found = python(torch_alone(), *programs, cwd=ROOT, **environment)
    for done in found:
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    return [done.stdout.splitlines() for done in found]


def run(code: str, **environment: str) -> list[str]:
    return runs(["-c", f"import sys\nassert 'numba' not in sys.modules\n{code}"], **environment)[0]


@pytest.fixture(scope="module")
def values() -> list[str]:
    return run(VALUES)


def test_it_names_versions_and_the_way() -> None:
    text = show_versions()
    assert repr(text) == text
    for line in ("torch: ", "numpy: ", "python: ", "processor: ", "sorts of columns: by "):
        assert f"\n{line}" in text
    assert f"\nloops: {'in torch, for' if runtime.why_not() else 'compiled by Numba'}" in text


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (BLOCKED, 'Numba is not installed (pip install "torch-recmetrics[fast]")'),
        ("import os; os.environ['NUMBA_DISABLE_JIT'] = '1'\n", "NUMBA_DISABLE_JIT is set"),
        (REFUSED.format(error="ImportError('Numba needs NumPy 2.5 or less. Got NumPy 2.9.')"), "NumPy 2.5 or less"),
        (REFUSED.format(error="SystemError('initialization of _internal failed')"), "SystemError: initialization"),
    ],
    ids=["missing", "switched off", "refuses this NumPy", "fails"],
)
def test_without_numba_values_are_the_same_and_the_reason_is_said(before: str, reason: str, values: list[str]) -> None:
    *same, said = run(
        before + VALUES + "print(torch_recmetrics.show_versions().partition('loops: ')[2].split('\\n')[0])"
    )
    assert same == values
    assert said.startswith("in torch, for ") and reason in said


def test_any_number_of_threads_gives_the_same(values: list[str]) -> None:
    one, three = (f"import torch; torch.set_num_threads({n})\n{VALUES}" for n in (1, 3))
    assert run(one + three) == values * 2


def test_where_nothing_can_be_written_loops_are_compiled_in_memory(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    nowhere = tmp_path / "a file"
    nowhere.write_text("")
    # The second keeps Numba from writing beside the modules; versions that do not know it write there.
    there = {"NUMBA_CACHE_DIR": str(nowhere / "cache"), "NUMBA_CACHE_LOCATOR_CLASSES": "_UserProvidedCacheLocator"}
    assert run(CLICKS, **there) == run(CLICKS)


@pytest.mark.processes
@pytest.mark.slow
def test_processes_that_start_together_with_an_empty_cache(tmp_path: Path) -> None:
    found = runs(*[["-c", CLICKS]] * 3, NUMBA_CACHE_DIR=str(tmp_path), OMP_NUM_THREADS="1")
    assert found == [run(CLICKS)] * 3


@pytest.mark.processes
@pytest.mark.parametrize(("start", "children"), [("fork", 2), ("spawn", 1)])
def test_children_rank_as_their_parent_did(start: str, children: int, tmp_path: Path, values: list[str]) -> None:
    script = tmp_path / "parent.py"
    body = VALUES.strip().replace("\n", "\n    ")
    script.write_text(
        "import multiprocessing, sys\n"
        f"def work():\n    {body}\n    sys.stdout.flush()\n"
        "if __name__ == '__main__':\n"
        "    work()\n"
        f"    context = multiprocessing.get_context('{start}')\n"
        f"    children = [context.Process(target=work) for _ in range({children})]\n"
        "    [child.start() for child in children]\n"
        "    [child.join() for child in children]\n"
        "    sys.exit(max(child.exitcode for child in children))\n"
    )
    assert runs([str(script)], PYTHONPATH=str(ROOT)) == [values * (1 + children)]
