"""The comparison of three runs: text, a table, a record of the decision, three pictures."""

import json
import sys
from pathlib import Path

from examples.compare.lists import draw_lists, lists_of, lists_text
from torch_recmetrics.compare import Comparison, ComparisonRow, Gate, UserValues, Verdict, compare

BASELINE, INCUMBENT, CANDIDATE = "Popularity", "MatrixFactorization", "TwoTower"
METRICS = ("val_ndcg@10", "val_hit_rate@10", "val_recall@20", "val_mrr")
DECIDES = METRICS[0]
GATE = Gate(better=(DECIDES,), not_worse={"val_recall@20": 0.05})


def files_of(run_dir: Path) -> dict[str, Path]:
    """Where the demo leaves what is compared, by name."""
    return {
        BASELINE: run_dir / "mf" / f"{BASELINE}.parquet",
        INCUMBENT: run_dir / "mf" / f"{INCUMBENT}.parquet",
        CANDIDATE: run_dir / "two_tower" / f"{CANDIDATE}.parquet",
        "slices": run_dir / "mf" / "slices.json",
        "groups": run_dir / "mf" / "groups.json",
    }


def write_comparison(run_dir: Path) -> str:
    """Compare the runs of this directory, write what came of it to ``compare`` in it, and say it."""
    files = files_of(run_dir)
    slices: dict[str, list[int]] = json.loads(files.pop("slices").read_text())
    groups: dict[str, list[list[int]]] = json.loads(files.pop("groups").read_text())
    runs = {name: UserValues.load(path) for name, path in files.items()}
    table = compare(runs, baseline=BASELINE, metrics=METRICS)
    duel = compare({name: runs[name] for name in (INCUMBENT, CANDIDATE)}, baseline=INCUMBENT, metrics=METRICS)
    lists = lists_of(runs, groups)
    of_slices = compare_slices(runs, slices)
    verdict = GATE.decide(candidate=runs[CANDIDATE], incumbent=runs[INCUMBENT])

    out = run_dir / "compare"
    out.mkdir(exist_ok=True)
    (out / "table.md").write_text(table.to_markdown() + "\n" + duel.to_markdown())
    verdict.to_json(out / "verdict.json")
    parts = [str(table), str(duel), slices_text(of_slices)]
    parts += [lists_text(*lists, old=INCUMBENT, new=CANDIDATE), gate_text(verdict)]
    parts += [finding(duel.row(CANDIDATE, DECIDES))]
    places = [f"table: {out / 'table.md'}", f"record: {out / 'verdict.json'}"]
    try:
        draw_forest(out / "forest.png", table, duel)
        draw_slices(out / "slices.png", of_slices, slices_text(of_slices))
        draw_lists(out / "lists.png", *lists, old=INCUMBENT, new=CANDIDATE)
        places.append(f"pictures: {out / 'forest.png'}, {out / 'slices.png'}, {out / 'lists.png'}")
    except ImportError:
        print("no pictures: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
    return "\n\n".join(["", *parts, "\n".join(places)])


def compare_slices(runs: dict[str, UserValues], slices: dict[str, list[int]]) -> dict[str, ComparisonRow]:
    """The two models among all users and among those of each slice; slices of fewer than two users are left out."""
    users = {"all": runs[INCUMBENT].sample_ids.tolist(), **slices}
    found = {}
    for name, ids in users.items():
        if len(ids) > 1:
            some = {model: runs[model].select(ids) for model in (INCUMBENT, CANDIDATE)}
            found[name] = compare(some, baseline=INCUMBENT, metrics=DECIDES, correction=None).row(CANDIDATE, DECIDES)
    return found


def slices_text(rows: dict[str, ComparisonRow]) -> str:
    """A line for each slice."""
    lines = [f"{DECIDES} by how many items of a user are known ({CANDIDATE} - {INCUMBENT})"]
    for name, row in rows.items():
        ends = f"[{row.low:+.4f}, {row.high:+.4f}]"
        lines.append(
            f"  {name:<5} {row.n:>5,} users  {row.baseline_value:.4f} -> {row.value:.4f}  {row.difference:+.4f} {ends}"
            f"  {p_words(row)}"
        )
    return "\n".join(lines)


def gate_text(verdict: Verdict) -> str:
    return f"Does {CANDIDATE} replace {INCUMBENT}? {verdict}"


def finding(row: ComparisonRow) -> str:
    """Which of the two models is better, and whether that is beyond chance."""
    better, other = (CANDIDATE, INCUMBENT) if row.difference >= 0 else (INCUMBENT, CANDIDATE)
    values = sorted((row.value, row.baseline_value), reverse=True)
    said = f"{better} is better than {other}: {DECIDES} {values[0]:.4f} against {values[1]:.4f}"
    if row.difference == 0:
        said = f"{better} and {other} are alike: {DECIDES} {row.value:.4f}"
    beyond = row.p <= 0.05
    needed = (
        "" if beyond or not row.users_needed else f"; about {row.users_needed:,.0f} users would show such a difference"
    )
    chance = "That is beyond chance" if beyond else "That may be chance"
    return f"{said}.\n{chance}: {p_words(row)} over {row.n:,} users{needed}."


def p_words(row: ComparisonRow) -> str:
    """Such as ``p = 0.0052``."""
    return f"p = {row.p:.4f}" if row.p >= 0.0001 else "p < 0.0001"


def draw_forest(path: Path, table: Comparison, duel: Comparison) -> None:
    """Both models against popularity, and against each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained", dpi=130)
    for axes, comparison in zip(figure.subplots(1, 2), (table, duel)):
        comparison.plot(axes)
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Description": f"{table}\n\n{duel}"})


def draw_slices(path: Path, rows: dict[str, ComparisonRow], text: str) -> None:
    """The value of both models in each slice, and their difference; `text` goes into the file, to be read there."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.2), layout="constrained", dpi=130)
    values, differences = figure.subplots(1, 2)
    names, places = [f"{name}\n{row.n:,} users" for name, row in rows.items()], range(len(rows))
    for shift, model, heights in (
        (-0.2, INCUMBENT, [row.baseline_value for row in rows.values()]),
        (0.2, CANDIDATE, [row.value for row in rows.values()]),
    ):
        values.bar([place + shift for place in places], heights, width=0.38, label=model)
    values.set_xticks(list(places), names)
    values.set_ylabel(DECIDES)
    figure.legend(loc="outside upper center", ncols=2)
    for place, row in zip(places, rows.values()):
        differences.plot((row.low, row.high), (-place, -place), color="C0", linewidth=2)
        differences.plot([row.difference], [-place], "o", color="C0")
    differences.axvline(0, color="0.3", linewidth=0.8)
    differences.set_yticks([-place for place in places], names)
    differences.set_ylim(-len(rows) + 0.5, 0.5)
    differences.set_xlabel(f"{CANDIDATE} - {INCUMBENT}, 95 % interval")
    for axes in (values, differences):
        axes.grid(axis="y" if axes is values else "x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Description": text})
