"""A coordinator and its holders as processes on loopback, some of which are killed."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dpsketch.privacy.noise_shares import Consortium
from federation_processes import Federation, same

FIVE, SEVEN = Consortium(5, 4, 1, 4), Consortium(7, 5, 1, 5)


def messages(folder: Path, round_: str) -> int:
    """Number of messages of a round that the coordinator has."""
    from dpsketch.federate.envelope import Envelope

    boxes = folder / "hub" / "session" / "boxes" / "hub"
    stored = [path.read_bytes() for path in boxes.iterdir() if path.name != "log"]
    return sum(Envelope.read(data).round == round_ for data in stored if data)


def test_one_killed_before_sending_and_it_stays_out(tmp_path: Path) -> None:
    run = Federation(tmp_path, FIVE)
    address = run.start_all({"h2": "before vector"})
    run.killed("h2")
    stay = ["h1", "h3", "h4", "h5"]
    for name in stay:
        ((totals, holders),), (sent, received) = run.end(name)
        assert holders == 4
        assert same(totals, run.expected(stay))
        assert sent > 1000 < received
    ((totals, _),), (lineage, late) = run.end("hub")
    assert same(totals, run.expected(stay))
    assert lineage == [f"id {name}" for name in run.names]
    assert late == []
    run.start("h2", address=address)  # nothing is masked twice, even offline
    assert "so it has dropped out of this session" in run.end("h2")
    assert not any((tmp_path / "h2" / "session" / "secrets").read_bytes()[-128:])


def test_one_killed_after_sending_is_in_the_sum(tmp_path: Path) -> None:
    run = Federation(tmp_path, FIVE, stages=(((5, 8),), ((2, 4),)))
    run.start_all({"h5": "after masked"})
    run.killed("h5")
    said = [run.end(name) for name in ("h1", "h2", "h3", "h4", "hub")]
    # The second stage needs all members of the first, so the session ends there: with its first totals.
    assert all("4 of at least 5 holders, so this session ends and reveals nothing" in each for each in said), said
    assert messages(tmp_path, "unmask") == 4
    (total,) = run.expected(run.names)
    written = (tmp_path / "h1" / "session" / "totals-0").read_bytes()
    assert written[: total.nbytes] == total.tobytes()


def test_two_killed_end_the_session_and_nothing_is_revealed(tmp_path: Path) -> None:
    run = Federation(tmp_path, FIVE)
    run.start_all({"h1": "before masked", "h4": "before vector"})
    run.killed("h1", "h4")
    for name in ("h2", "h3", "h5", "hub"):
        assert "round masked has 3 of at least 4 holders, so this session ends and reveals nothing" in run.end(name)
    assert messages(tmp_path, "masked") == 3
    assert messages(tmp_path, "agree") == messages(tmp_path, "unmask") == 0
    assert not (tmp_path / "h2" / "session" / "secrets").exists()


def test_seven_of_whom_two_are_killed_at_different_rounds(tmp_path: Path) -> None:
    run = Federation(tmp_path, SEVEN)
    run.start_all({"h3": "after shares", "h7": "before agree"})
    run.killed("h3", "h7")
    summed = [name for name in run.names if name != "h3"]
    for name in ("h1", "h2", "h4", "h5", "h6", "hub"):
        ((totals, holders),), _ = run.end(name)
        assert holders == 6
        assert same(totals, run.expected(summed))


def test_killed_and_started_again_in_two_stages(tmp_path: Path) -> None:
    """A holder killed after its vector left, another between the stages, and the coordinator between them, too."""
    run = Federation(tmp_path, FIVE, stages=(((5, 8), (0, 4)), ((2, 4),)))
    address = run.start_all({"h2": "after masked", "h3": "after done", "hub": "before stage 1"})
    run.killed("h2", gone=False)
    run.start("h2", address=address)
    run.killed("hub", gone=False)
    run.start("hub", port=urlsplit(address).port)
    assert run.running["hub"][1].recv() == address
    run.killed("h3", gone=False)
    run.start("h3", address=address)
    for name in (*run.names, "hub"):
        totals, _ = run.end(name)
        assert [holders for _, holders in totals] == [5, 5]
        assert all(same(found, run.expected(run.names, stage)) for stage, (found, _) in enumerate(totals))


@pytest.mark.parametrize(
    ("lie", "fact"),
    [
        ("lie about holders", "totals are of another list of survivors"),
        ("lie about totals", "not those that the coordinator signed for"),
    ],
)
def test_totals_that_do_not_fit_are_refused(tmp_path: Path, lie: str, fact: str) -> None:
    run = Federation(tmp_path, Consortium(3, 3, 1, 3))
    run.start_all({"hub": lie})
    for name in run.names:
        assert fact in run.end(name)
        run.running["hub"][1].send(name)
    run.end("hub")


@pytest.mark.parametrize("terms", ['{"recipe":1}'])
def test_another_recipe_at_one_holder_ends_there(tmp_path: Path, terms: str) -> None:
    run = Federation(tmp_path, FIVE)
    run.start("hub", terms='{"recipe":2}')
    address = str(run.running["hub"][1].recv())
    for name in run.names:
        run.start(name, address=address, terms=terms if name == "h5" else '{"recipe":2}')
    assert "the coordinator's terms differ in recipe" in run.end("h5")
    run.running["hub"][1].send("h5")
    stay = run.names[:4]
    for name in (*stay, "hub"):
        ((totals, holders),), _ = run.end(name)
        assert holders == 4
        assert same(totals, run.expected(stay))
