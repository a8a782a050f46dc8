"""What is said of the package in more than one place is the same; the wheel and the sdist hold what they should."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    assert match is not None, pattern
    return match[1]


def test_one_version() -> None:
    version = found(r'^version = "(.+)"', PROJECT)
    assert found(r"^version: (.+)", read("CITATION.cff")) == version
    assert found(r'^__version__ = "(.+)"', read("torch_recmetrics/__init__.py")) == version
    newest = found(r"^## (.+)$", read("CHANGELOG.md"))
    assert newest in (version, f"Unreleased ({version})")


def test_the_pythons_are_those_that_are_tried() -> None:
    classified = re.findall(r"Python :: (3\.\d+)", PROJECT)
    assert re.findall(r'"(3\.\d+)"', found(r"python-version: \[(.+)\]", read(".github/workflows/ci.yml"))) == classified
    assert re.findall(r"python(3\.\d+)", found(r"^PYTHONS \?= (.+)", read("Makefile"))) == classified
    assert found(r'requires-python = ">=(.+)"', PROJECT) == classified[0]


def test_the_lowest_versions_are_those_of_the_project() -> None:
    lowest = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?==(\d+\.\d+)", read("lowest.txt"), re.MULTILINE))
    bounds = dict(re.findall(r'"([\w-]+)(?:\[[\w,]+\])?>=(\d+(?:\.\d+)?)', PROJECT))
    for name in (
        "numpy",
        "torch",
        "torchmetrics",
        "pytorch-lightning",
        "jsonargparse",
        "matplotlib",
        "scipy",
        "pyarrow",
    ):
        assert lowest[name].startswith(bounds[name]), name


def test_what_is_shipped(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "torch_recmetrics").rglob("*.*")}
    package = {path for path in package if "__pycache__" not in path}
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        told, description = archive.read(metadata).decode().split("\n\n", 1)
        needed = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", told, re.MULTILINE)
    assert shipped == package and "torch_recmetrics/py.typed" in shipped
    assert sorted(needed) == ["numpy", "torch", "torchmetrics"]
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert package | {"README.md", "LICENSE", "CITATION.cff", "SECURITY.md", "pyproject.toml"} <= names
    # A package index shows the README alone: it has no relative links, and the files that it names are in the sdist.
    assert "Content-Type: text/markdown" in told and description.startswith("# torch-recmetrics")
    assert not re.findall(r"\]\((?!https?:)[^)\s]*\)", re.sub(r"(?ms)^```.*?^```$", "", description))
    linked = set(re.findall(r"\]\((?!https?:)([^)\s]+)\)", re.sub(r"(?ms)^```.*?^```$", "", read("README.md"))))
    assert len(linked) > 15 and linked <= names
    assert all(f"`{path}`" in description for path in linked)
