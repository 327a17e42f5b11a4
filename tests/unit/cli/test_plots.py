"""`--plot` of ask, show and fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import called

PINNED = Path(__file__).parents[2] / "pinned"
SKETCH, CLUSTERS = str(PINNED / "mixed-general-delta.sketch"), str(PINNED / "two-clusters-pure.sketch")
GROUPS = "select sex, count(*) as n from sketch group by sex"


def test_answers_and_columns_are_drawn(tmp_path: Path) -> None:
    done = called(tmp_path, "ask", SKETCH, GROUPS, "--plot", "answers.svg")
    assert done.returncode == 0, done.stderr
    assert "answers.svg: answers with 95 % intervals" in done.stderr
    assert ">n by sex</text>" in (tmp_path / "answers.svg").read_text()
    assert "n: " in done.stdout
    done = called(tmp_path, "show", SKETCH, "--plot", "columns.png", "--json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "columns.png").read_bytes().startswith(b"\x89PNG")


def test_models_are_drawn_as_svg(tmp_path: Path) -> None:
    done = called(tmp_path, "fit", "kmeans", CLUSTERS, "--k", "2", "--plot", "centres.svg")
    assert done.returncode == 0, done.stderr
    assert "<svg" in (tmp_path / "centres.svg").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ask", SKETCH, "select count(*) from sketch", "--plot", "a.svg"), "there is no picture of this table"),
        (("ask", SKETCH, GROUPS, "--plot", "a.pdf"), "a.pdf does not end in .svg or .png"),
        (("show", SKETCH, "--plot", "a.pdf"), "a.pdf does not end in .svg or .png"),
        (("show", SKETCH, "--plot", "there.svg"), "there.svg exists already"),
        (("show", str(PINNED.parent / "golden" / "PCA.model"), "--plot", "a.svg"), "only the columns of a sketch are"),
    ],
)
def test_refusals(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "there.svg").write_text("")
    done = called(tmp_path, *words)
    assert done.returncode == 1
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there.svg"]
