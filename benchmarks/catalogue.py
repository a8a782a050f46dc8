"""The 100 best of 1,000,000 items for 256 users from embeddings of 64 numbers, beside faiss and the product alone.

Results are checked before anything is timed: the same items as faiss finds and as a float64 product ranks first, up to
scores that float32 cannot tell apart, and the same bits for several chunk sizes and for users one by one.
`--items 10000000 --others 0` runs ten million items with nothing but the table and what the search itself takes.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.harness import Contestant, Result, machine, race, table
from torch_recmetrics import MAP, MRR, RecMetricCollection, ranking_metrics, topk_catalogue

OURS, FAISS, THEN_TOPK = "topk_catalogue", "faiss IndexFlatIP", "product in pieces, then topk"
COSINE = "topk_catalogue, by cosine"
COLLECTION, UNCUT = "24 metrics, one update", "MRR of the whole list, one update"
ALL_PLACES = "MRR and MAP of the whole list, one update"
PRODUCT = "product alone"
PIECES = (2048, 4096, 16384)
CUTS = (5, 10, 20)
NAMES = ("hit_rate", "precision", "recall", "f1", "ndcg", "dcg", "map", "mrr")
LARGEST_EXTRA = 200 * 2**20  # bytes


@dataclass(frozen=True)
class Data:
    users: Tensor  # (U, d) float32
    items: Tensor  # (N, d) float32
    target_ids: Tensor  # (U, 20)
    k: int


def draw(users: int, items: int, numbers: int, k: int, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    table = torch.empty(items, numbers)
    for part in table.split(1 << 20):  # no second table on the way
        part.normal_(generator=generator)
    targets = torch.randint(items // 20, (users, 20), generator=generator) + torch.arange(20) * (items // 20)
    return Data(torch.randn(users, numbers, generator=generator), table, targets, k)


def product_users_first(data: Data, piece: int) -> Callable[[], None]:
    out = torch.empty(data.users.shape[0] * piece)

    def run() -> None:
        for part in data.items.split(piece):
            torch.mm(data.users, part.T, out=out[: data.users.shape[0] * part.shape[0]].view(-1, part.shape[0]))

    return run


def product_items_first(data: Data, piece: int) -> Callable[[], None]:
    out, users = torch.empty(piece, data.users.shape[0]), data.users.T.contiguous()

    def run() -> None:
        for part in data.items.split(piece):
            torch.mm(part, users, out=out[: part.shape[0]])

    return run


def product_then_topk(data: Data, piece: int = 16384) -> Callable[[], tuple[Tensor, Tensor]]:
    """What one writes without a library: the best of each piece, and the best of those."""

    def run() -> tuple[Tensor, Tensor]:
        found = []
        for first in range(0, data.items.shape[0], piece):
            scores = data.users @ data.items[first : first + piece].T
            top = scores.topk(min(data.k, scores.shape[1]), dim=1)
            found.append((top.values, top.indices + first))
        values, ids = (torch.cat(columns, 1) for columns in zip(*found, strict=True))
        top = values.topk(data.k, dim=1)
        return top.values, ids.gather(1, top.indices)

    return run


def faiss_search(data: Data) -> Callable[[], tuple[Tensor, Tensor]]:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(data.items.shape[1])
    index.add(data.items.numpy())

    def run() -> tuple[Tensor, Tensor]:
        scores, ids = index.search(data.users.numpy(), data.k)
        return torch.from_numpy(scores), torch.from_numpy(ids)

    return run


def update(data: Data, metrics: RecMetricCollection) -> Callable[[], dict[str, float]]:
    given = {"user_embeddings": data.users, "item_embeddings": data.items, "target_ids": data.target_ids}

    def run() -> dict[str, float]:
        metrics.reset()
        metrics.update(**given)
        return {name: float(value) for name, value in metrics.compute().items()}

    return run


def check_same_items(ours: tuple[Tensor, Tensor], name: str, theirs: tuple[Tensor, Tensor], data: Data) -> None:
    """Sets may differ only in items whose scores differ by less than float32 products do."""
    for row in range(data.users.shape[0]):
        odd = set(ours[1][row].tolist()) ^ set(theirs[1][row].tolist())
        exact = data.items[sorted(odd)].double() @ data.users[row].double()
        if odd and float((exact - float(ours[0][row, -1])).abs().max()) > 1e-4:
            raise SystemExit(f"{name} finds other items for user {row}: nothing was timed")


def check_ours(data: Data) -> tuple[Tensor, Tensor]:
    """The same bits for every chunk size, and for users one by one; the order of float64 products."""
    found = topk_catalogue(data.users, data.items, data.k)
    some = slice(0, 4)
    for chunk in (1000, 4096, 100_000):
        other = topk_catalogue(data.users[some], data.items, data.k, chunk_size=chunk)
        if not all(torch.equal(ours[some], theirs) for ours, theirs in zip(found, other, strict=True)):
            raise SystemExit(f"chunk_size={chunk} gives other bits: nothing was timed")
    alone = topk_catalogue(data.users[:1], data.items, data.k)
    if not all(torch.equal(ours[:1], theirs) for ours, theirs in zip(found, alone, strict=True)):
        raise SystemExit("one user alone gets other bits: nothing was timed")
    wide = torch.cat([data.users[some].double() @ part.double().T for part in data.items.split(1 << 18)], 1)
    if not torch.equal(wide.topk(data.k, dim=1).indices, found[1][some]):
        raise SystemExit("a float64 product ranks other items first: nothing was timed")
    return found


def summary(results: dict[str, Result]) -> list[str]:
    """The ratios that the package is held to; minima, since a busy neighbour only ever adds."""
    ours = results[OURS]
    lines = []
    if FAISS in results:
        lines.append(f"faiss / ours: {results[FAISS].fastest / ours.fastest:.2f} (goal: at least 7)")
    products = [result for name, result in results.items() if name.startswith(PRODUCT)]
    if products:
        best = min(products, key=lambda result: result.fastest)
        ratio = ours.fastest / best.fastest
        lines.append(f"ours / {best.name}, the best of {len(products)}: {ratio:.2f} (goal: at most 1)")
    if COSINE in results:
        lines.append(f"the search by cosine: {results[COSINE].fastest / ours.fastest:.2f} searches by product")
    if COLLECTION in results:
        ratio = results[COLLECTION].fastest / ours.fastest
        lines.append(
            f"24 metrics from embeddings / the search of their 20 best alone costs {ratio:.2f} searches of 100"
        )
    if ours.peak_bytes is not None:
        lines.append(f"extra memory: {ours.peak_bytes / 2**20:.0f} MiB (goal: below {LARGEST_EXTRA / 2**20:.0f})")
    for name, goal in ((UNCUT, 3), (ALL_PLACES, 6)):
        if name in results:
            searches = results[name].fastest / ours.fastest
            lines.append(f"{name}: {searches:.2f} searches of the best (goal: at most {goal})")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=256)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--numbers", type=int, default=64, help="of an embedding")
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--slow-rounds", type=int, default=3, help="rounds of what takes seconds")
    parser.add_argument("--others", type=int, default=1, help="0 runs topk_catalogue alone")
    parser.add_argument("--threads", type=int, help="of torch; as many as it takes by itself when not given")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    data = draw(options.users, options.items, options.numbers, options.top_k)
    print(
        f"{options.users:,} users x {options.items:,} items, {options.numbers} numbers, float32, top {options.top_k}; "
        f"the item table has {data.items.numel() * 4 / 2**20:,.0f} MiB"
    )
    print(machine())

    contestants = [Contestant(OURS, lambda: topk_catalogue(data.users, data.items, data.k))]
    if options.others:
        found = check_ours(data)
        by_cosine = functools.partial(topk_catalogue, data.users, data.items, data.k, similarity="cosine")
        contestants.append(Contestant(COSINE, by_cosine))
        for piece in PIECES:
            name = f"{PRODUCT}, {piece:,} items"
            contestants.append(Contestant(f"{name}, users first", product_users_first(data, piece)))
            contestants.append(Contestant(f"{name}, items first", product_items_first(data, piece)))
        slow = {THEN_TOPK: product_then_topk, FAISS: faiss_search}
        for name, make in slow.items():
            try:
                run = make(data)
            except ImportError as error:
                print(f"skipped: {name} ({error})")
                continue
            check_same_items(found, name, run(), data)
            contestants.append(Contestant(name, run, rounds=options.slow_rounds))
        metrics, uncut = ranking_metrics(NAMES, CUTS), RecMetricCollection([MRR()])
        contestants.append(Contestant(COLLECTION, update(data, metrics), len(metrics), options.slow_rounds))
        contestants.append(Contestant(UNCUT, update(data, uncut), 1, options.slow_rounds))
        all_places = RecMetricCollection([MRR(), MAP(None)])
        contestants.append(Contestant(ALL_PLACES, update(data, all_places), 2, options.slow_rounds))
    results = race(contestants, options.rounds, warmup=1)
    print()
    print(table(results, OURS))
    print()
    print("\n".join(summary({result.name: result for result in results})))


if __name__ == "__main__":
    main()
