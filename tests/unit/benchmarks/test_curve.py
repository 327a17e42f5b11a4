"""The study of errors against ε: points of an earlier run are read back as they were printed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.truth.curve import WITH, WITHOUT, Point, kept, lines


def test_points_of_the_last_run_are_kept_unless_they_are_measured_again(tmp_path: Path) -> None:
    points = [
        Point("flights", 0.3, WITHOUT, False, 0.001473, 0.000612),
        Point("flights", 10.0, WITHOUT, False, 0.000368, 0.00008),
        Point("flights", 10.0, WITH, True, 0.000172, 0.000107),
        Point("occupancy", 100.0, WITH, True, 0.00012, 0.0001),
    ]
    file = tmp_path / "curve.txt"
    file.write_text("\n".join(["a command line", *lines(points)]) + "\n")
    assert kept(file, []) == points
    assert kept(file, [Point("flights", 10.0, WITH, True, 0.5, 0.1)]) == [points[0], points[1], points[3]]


def test_recipes_without_tables_of_three_columns_are_not_kept_twice(tmp_path: Path) -> None:
    file = tmp_path / "curve.txt"
    file.write_text(f"adult      ε=10    0.001078 noise 0.000739  1.46  {WITH} \n")
    assert kept(file, []) == []
