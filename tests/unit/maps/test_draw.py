"""Byte for byte: the vectors of docs/formats/draw.md."""

from __future__ import annotations

import hashlib

import numpy as np
import scipy.stats

from dpsketch.maps.draw import PublicStream
from dpsketch.maps.fourier.fourier import Fourier, draw_frequencies
from dpsketch.maps.moments.quadratic import draw_bases, draw_gaussians

ALPHA = 1e-6
VECTOR_WORD = 18077823340858408294
VECTOR_UNIFORMS = [0.9800007669983923, 0.41017712127725775]
VECTOR_NORMALS = [0.30207417284277216, -0.056527350908628614, -0.1491278668611832]
VECTOR_FREQUENCIES = [[-32781, -10718], [-42779, 72224], [-165238, 92957]]
VECTOR_GAUSSIANS = [[-2400, -1290], [1857, -609]]
VECTOR_BASIS = [[1, -1], [1, 1]]


def test_words_follow_the_specification() -> None:
    digest = hashlib.shake_256(b"dpsketch-draw-1\0example\0" + (7).to_bytes(8, "little")).digest(24)
    expected = [int.from_bytes(digest[i : i + 8], "little") for i in (0, 8, 16)]
    stream = PublicStream("example", 7)
    assert [*stream.words(2).tolist(), *stream.words(1).tolist()] == expected
    assert expected[0] == VECTOR_WORD


def test_vectors() -> None:
    assert PublicStream("example", 7).uniforms(2).tolist() == VECTOR_UNIFORMS
    assert PublicStream("example", 7).normals(3).tolist() == VECTOR_NORMALS
    frequencies = draw_frequencies(Fourier(size=3, seed=7), 2)
    assert frequencies.tolist() == VECTOR_FREQUENCIES
    assert draw_gaussians(7, 2, 2, 32767).tolist() == VECTOR_GAUSSIANS
    assert draw_bases(7, 2, 2).tolist() == VECTOR_BASIS


def test_normals_are_normal() -> None:
    normals = PublicStream("example", 1).normals(100_000)
    assert scipy.stats.kstest(normals, "norm").pvalue > ALPHA
    assert scipy.stats.kstest(normals * 1.05, "norm").pvalue < ALPHA


def test_frequencies_have_the_declared_radii() -> None:
    frequencies = draw_frequencies(Fourier(size=1000, seed=1, radii=(2, 30)), 5)
    radii = np.linalg.norm(frequencies, axis=1) * (2 * np.pi * 65534 / 2**32)
    shares = np.log(radii / 2) / np.log(15)
    assert np.all(np.abs(shares * 1000 - np.arange(1000) - 0.5) < 0.51)
