"""Which tests belong to which folder of the package: the one table that CONTRIBUTING shows and the tools here read."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "torch_recmetrics"
LAWS = "tests/laws"

# Beside these a folder has its doctests. The quick ones come first, since a fault is mostly caught by them.
TESTS: dict[str, tuple[str, ...]] = {
    "core/auc": (
        "tests/core/auc", "tests/metrics/test_auc.py", "tests/metrics/test_group_auc.py", f"{LAWS}/test_intervals.py",
        f"{LAWS}/test_slices.py", f"{LAWS}/test_processes.py",
    ),
    "core/catalogue": ("tests/core/catalogue",),
    "core/distributed": ("tests/core/distributed", f"{LAWS}/test_processes.py"),
    "core/kernels": ("tests/core/kernels", "tests/core/scores"),
    "core/layouts": (
        "tests/core/layouts", f"{LAWS}/test_layouts.py", f"{LAWS}/test_labels.py", "tests/metrics/test_mean_rank.py",
        "tests/metrics/test_propensities.py", "tests/metrics/test_agreement.py",
    ),
    "core/ranking": (
        "tests/core/ranking", "tests/metrics/test_ranking.py", "tests/metrics/test_from_sampled.py",
        "tests/metrics/test_popularity.py", f"{LAWS}/test_oracle.py", f"{LAWS}/test_waiting.py",
    ),
    "core/scores": ("tests/core/scores", f"{LAWS}/test_layouts.py"),
    "core/tensors": (
        "tests/core/tensors", "tests/core/scores", "tests/core/layouts", "tests/core/auc",
        "tests/wrappers/test_bootstrap.py",
    ),
    "state/ranked": (
        "tests/metrics", f"{LAWS}/test_splits.py", f"{LAWS}/test_kept_users.py", f"{LAWS}/test_waiting.py",
        f"{LAWS}/test_intervals.py", f"{LAWS}/test_refused_updates.py", f"{LAWS}/test_empty_users.py",
        f"{LAWS}/test_memory.py", f"{LAWS}/test_processes.py", f"{LAWS}/test_processes_intervals.py",
        f"{LAWS}/test_collections.py", f"{LAWS}/test_slices.py", f"{LAWS}/test_aliasing.py", "tests/wrappers",
    ),
    "state": (
        "tests/metrics", f"{LAWS}/test_splits.py", f"{LAWS}/test_exact_states.py", f"{LAWS}/test_kept_users.py",
        f"{LAWS}/test_waiting.py", f"{LAWS}/test_intervals.py", f"{LAWS}/test_refused_updates.py",
        f"{LAWS}/test_empty_users.py", f"{LAWS}/test_checkpoints.py", f"{LAWS}/test_memory.py",
        f"{LAWS}/test_processes.py", f"{LAWS}/test_processes_intervals.py", f"{LAWS}/test_collections.py",
        f"{LAWS}/test_slices.py", f"{LAWS}/test_aliasing.py", f"{LAWS}/test_compilers.py", f"{LAWS}/test_invariance.py",
        "tests/wrappers",
    ),
    "metrics": (
        "tests/metrics", f"{LAWS}/test_oracle.py", f"{LAWS}/test_intervals.py", f"{LAWS}/test_collections.py",
        f"{LAWS}/test_processes.py", f"{LAWS}/test_registry.py", "tests/core/auc/test_exchange.py",
    ),
    "collection": ("tests/collection", "tests/metrics/test_from_sampled.py", f"{LAWS}/test_collections.py"),
    "wrappers": ("tests/wrappers", f"{LAWS}/test_slices.py", f"{LAWS}/test_processes_intervals.py"),
    "users": ("tests/users", "tests/compare", "tests/laws/test_kept_users.py"),
    "compare": ("tests/compare",),
    "lightning": ("tests/lightning",),
    "offline/reports": (
        "tests/offline/test_report.py", "tests/offline/test_page.py", "tests/offline/test_warnings.py",
        "tests/offline/test_commands.py", "tests/offline/test_outputs.py",
    ),
    "offline/inputs": ("tests/offline",),
    "offline": ("tests/offline",),
    "versions.py": ("tests/test_versions.py", "tests/users"),
    "functional.py": ("tests/test_functional.py", "tests/metrics/test_options.py", f"{LAWS}/test_labels.py"),
    "search.py": ("tests/core/catalogue",),
}  # fmt: skip


def folder_of(path: str) -> str | None:
    """The folder of the table that a path below the root belongs to; None for what is no part of the package."""
    inside = path.removeprefix(f"{PACKAGE}/")
    if inside == path:
        return None
    return next((folder for folder in TESTS if inside == folder or inside.startswith(f"{folder}/")), None)


def tests_of(folder: str) -> list[str]:
    """What pytest is given: the doctests of the folder, and its tests."""
    return [f"{PACKAGE}/{folder}", *TESTS[folder]]


def markdown() -> str:
    """The table as CONTRIBUTING shows it."""
    rows = [f"| `{folder}` | {', '.join(f'`{test}`' for test in tests)} |" for folder, tests in TESTS.items()]
    return "\n".join(["| folder | tests |", "| --- | --- |", *rows])


def git(*words: str) -> list[str]:
    """The lines that a git command prints."""
    found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return found.stdout.splitlines()
