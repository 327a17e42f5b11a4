"""`make papers-market`: every figure of the market study beside its goal and its baselines.

`python -m benchmarks.market --quick` runs one seed of small sizes. Figures are the mean (worst) over fresh seeds, each
with a fresh target, fresh frequencies and fresh noise. Every part keeps its text in a file of its own, so that one can
be run again alone: benchmarks/results/market.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.density.goals import at_least, shown
from benchmarks.market import auctions, downstream, processes
from benchmarks.market.case import OVER, Case
from dpsketch.federate.market.auction_cost import CLAIMED, as_published
from dpsketch.federate.market.guarantees import submodularity
from dpsketch.federate.market.kernel_distance import gain_kept, percent_above
from dpsketch.federate.market.market_roles import parsimony

Say = Callable[[str], None]
RESULTS = Path(__file__).resolve().parents[1] / "results" / "market"
SIZES = (1000, 2000, 4000, 8000)
GOALS = {1.0: 0.95, 1.25: 0.99}
NAMES = ("mnist", "hard", "allstate")


@dataclass(frozen=True)
class Options:
    runs: int
    seed: int
    quick: bool
    models: bool = True


def choices(name: str, size: int, options: Options, say: Say) -> None:
    """Gain kept, percent above greedy, and accuracy at one size."""
    kept: dict[str, list[float]] = defaultdict(list)
    percent: dict[str, list[float]] = defaultdict(list)
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    floors = []
    for seed in range(options.seed, options.seed + options.runs):
        case = Case.drawn(name, seed)
        chosen = {"uniform": case.codes[:, case.uniform(size)], "greedy": case.codes[:, case.greedy(size)]}
        chosen |= {f"sketch once, c = {over:g}": case.sketch_once(size, over) for over in OVER}
        distances = {how: case.distance(codes) for how, codes in chosen.items()}
        base, best = distances["uniform"], distances["greedy"]
        floors.append(gain_kept(base, case.exact_mixture(), best))
        for how, distance in distances.items():
            kept[how].append(gain_kept(base, distance, best))
            percent[how].append(percent_above(distance, best))
        for how, codes in chosen.items() if options.models else ():
            for model, score in downstream.accuracies(case, codes, seed).items():
                scores[model][how].append(100 * score)
        say(f"  seed {seed}: MMD² " + ", ".join(f"{how} {shown(each)}" for how, each in distances.items()))
    for over in OVER:
        how = f"sketch once, c = {over:g}"
        say(at_least(f"{name} p={size} gain kept, c = {over:g}:", kept[how], GOALS.get(over)))
    say(at_least(f"{name} p={size} gain kept by the whole target population's exact mean, without any noise:", floors))
    for how, values in percent.items():
        say(f"{name} p={size} percent above greedy's MMD², {how}: {np.mean(values):.0f} ({max(values):.0f})")
    for model, by in scores.items():
        say(f"{name} p={size} accuracy, {model}: " + ", ".join(f"{how} {np.mean(v):.1f}" for how, v in by.items()))
        ours, top, low = (np.array(by[how]) for how in ("sketch once, c = 1.25", "greedy", "uniform"))
        if model != "boosting" or size == 1000:
            say(at_least(f"  {model}, c = 1.25 against greedy, points:", (ours - top).tolist(), -1.0))
        if size == 1000:
            say(at_least(f"  {model}, c = 1.25 above uniform, points:", (ours - low).tolist(), 6.0))
    _keep(name, size, {"percent": percent, "accuracy": scores, "kept": kept})


def _keep(name: str, size: int, facts: dict[str, object]) -> None:
    (RESULTS / f"{name}-{size}.json").write_text(json.dumps(facts))


def by_auction(name: str, options: Options, say: Say) -> None:
    """The auction's figures, repaired and as published, with what they cost."""
    size = 200 if options.quick else 1000
    results: dict[str, list[float]] = defaultdict(list)
    for seed in range(options.seed, options.seed + options.runs):
        case = Case.drawn(name, seed, features=140)
        base = case.distance(case.codes[:, case.uniform(size)])
        best = case.greedy_distance(size)
        for how, run in (("repaired", auctions.repaired), ("as published", auctions.published)):
            outcome, rho = run(case, size)
            results[how].append(gain_kept(base, case.distance(auctions.codes_of(case, outcome)), best))
            results[f"{how}, parsimony"].append(rho)
        ours = case.sketch_once(size, 1.25)
        results["sketch once, c = 1.25"].append(gain_kept(base, case.distance(ours), best))
        accessed = round(1.25 * size)
        results["sketch once, c = 1.25, parsimony"].append(parsimony(accessed, size, len(case.validation)))
    for how, values in results.items():
        say(at_least(f"{name} p={size} d=140, {how}:", values))


def cost(options: Options, say: Say) -> None:
    """What the published auction claims, and what follows from what it does."""
    for owners in (4, 5):
        facts = as_published(1000, owners ** (-1 / 3))
        for what, (claimed, delta) in CLAIMED.items():
            own = what == "validation set"
            alone, every = facts.measurements_alone(delta, own), facts.broadcasts(delta, own)
            say(f"{owners} owners, p=1000, {what}: claimed epsilon {claimed} at delta {delta:g}")
            say(f"  by our accountant: measurements alone {alone:.2g}; with the choices by e^score {every:.0f}")
        one, many = facts.shifted_round_delta, facts.asks_delta(39)
        say(f"{owners} owners, asks: no epsilon; delta is at least {one:.2f} for one round in which ranks shift,")
        say(f"  {many:.6f} for 39 of 40, as happens with two owners")


def guarantee(options: Options, say: Say) -> None:
    for name in NAMES:
        case = Case.drawn(name, options.seed)
        say(f"{name}, width {case.terms.width:.3g}: {submodularity(case.wanted, case.kernel, case.codes.shape[1])}")


def seven(options: Options, say: Say) -> None:
    for seed in range(options.seed, options.seed + options.runs):
        processes.run(seed, say)


def figures(options: Options, say: Say) -> None:
    """Figures 1 and 2: percent above greedy, and accuracy, by size."""
    import matplotlib.pyplot as plt

    for number, (name, model) in enumerate((("allstate", "linear SVM"), ("mnist", "32 units")), 1):
        kept = {size: RESULTS / f"{name}-{size}.json" for size in SIZES}
        read = {size: json.loads(path.read_text()) for size, path in kept.items() if path.exists()}
        sizes = [size for size, each in read.items() if each["accuracy"]]
        facts = [read[size] for size in sizes]
        if not facts:
            say(f"figure {number}: run --parts {name}-1000 first")
            continue
        picture, (top, bottom) = plt.subplots(2, 1, figsize=(6, 7), sharex=True)
        for how in ("uniform", "sketch once, c = 1", "sketch once, c = 1.25"):
            top.plot(sizes, [max(np.mean(each["percent"][how]), 0.1) for each in facts], "o-", label=how)
        for how in ("uniform", "sketch once, c = 1.25", "greedy"):
            values = [each["accuracy"][model][how] for each in facts]
            bottom.errorbar(sizes, [np.mean(v) for v in values], [np.std(v) for v in values], marker="o", label=how)
        top.set(yscale="log", ylabel="MMD², percent above greedy", title=f"{name}: figure {number} of the paper")
        bottom.set(xlabel="points of the summary", ylabel=f"accuracy, {model}")
        for axes in (top, bottom):
            axes.legend()
        picture.tight_layout()
        picture.savefig(RESULTS / f"figure{number}.png", dpi=120)
        say(f"figure {number}: figure{number}.png, sizes {', '.join(map(str, sizes))}")


PARTS: dict[str, Callable[[Options, Say], None]] = {
    "cost": cost,
    "guarantee": guarantee,
    **{f"{name}-{size}": partial(choices, name, size) for size in SIZES for name in NAMES},
    **{f"auction-{name}": partial(by_auction, name) for name in NAMES},
    "processes": seven,
    "figures": figures,
}
QUICK = ("cost", "guarantee", "mnist-1000", "allstate-1000", "auction-allstate", "figures")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.market", description="The market study.")
    parser.add_argument("--quick", action="store_true", help="one seed of small sizes")
    parser.add_argument("--parts", nargs="*", choices=tuple(PARTS))
    parser.add_argument("--runs", type=int, help="seeds of every part")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--skip", nargs="*", default=[], choices=("models",))
    given = parser.parse_args()
    matplotlib.use("Agg")
    RESULTS.mkdir(parents=True, exist_ok=True)
    options = Options(given.runs or (1 if given.quick else 5), given.seed, given.quick, "models" not in given.skip)
    for name in given.parts or (QUICK if given.quick else PARTS):
        _run(name, options)


def _run(name: str, options: Options) -> None:
    start = time.process_time()
    with (RESULTS / f"{name}.txt").open("w") as file:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=file, flush=True)

        skipped = "" if options.models else " --skip models"
        asked = f"--parts {name} --runs {options.runs} --seed {options.seed}{skipped}"
        say(f"python -m benchmarks.market {asked}, {date.today()}")
        PARTS[name](options, say)
        say(f"{name} took {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
