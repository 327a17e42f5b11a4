"""Samples per second on one core of every noise, and of discrete Laplace compared with OpenDP's vector mechanism."""

from __future__ import annotations

import time
from fractions import Fraction

import opendp.prelude as dp

from benchmarks.timing import best_together, line
from dpsketch.noise.bodies import disc_noise
from dpsketch.noise.gaussian import rounded_gaussian
from dpsketch.noise.keystream import Keystream
from dpsketch.noise.laplace import discrete_laplace

SAMPLES, SCALE, PAIRS = 2_000_000, 1000, 100_000


def main() -> None:
    stream = Keystream()
    (ours,) = best_together(lambda: discrete_laplace(SAMPLES, Fraction(SCALE), stream))
    line(f"discrete Laplace, scale {SCALE}", SAMPLES / ours / 1e6, "M/s", 30)
    rounded_gaussian(1000, float(SCALE), stream)
    (gaussian,) = best_together(lambda: rounded_gaussian(SAMPLES, float(SCALE), stream))
    line(f"rounded Gaussian, deviation {SCALE}", SAMPLES / gaussian / 1e6, "M/s", 12)
    (disc,) = best_together(lambda: disc_noise(PAIRS, Fraction(SCALE), stream))
    line(f"disc noise, {PAIRS} pairs, scale {SCALE}", 2 * PAIRS / disc / 1e6, "M/s", 1)
    dp.enable_features("contrib")
    size = 20_000
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    mechanism = dp.m.make_laplace(*space, scale=float(SCALE))
    start = time.process_time()
    mechanism([0] * size)
    theirs = (time.process_time() - start) / size
    line(f"discrete Laplace, scale {SCALE}: against OpenDP", theirs / (ours / SAMPLES), "x", 300)
