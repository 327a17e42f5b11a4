"""Messages of a market: what is refused, and what each party sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpsketch.errors import FederationError, FileError
from dpsketch.federate.boxes import Boxes
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.market import market_post as post
from dpsketch.federate.market.market_config import MarketConfig
from dpsketch.federate.market.market_parties import Office, bytes_of, run_aggregator
from dpsketch.federate.market.market_post import Desk, Inbox, session_of
from dpsketch.federate.market.market_roles import Allocation, consumer_release, owner_release
from dpsketch.federate.market.sold_rows import Rows, as_parquet, shipped_rows
from dpsketch.federate.roster import EVERYONE, Party
from dpsketch.ledger.ledger import Ledger
from dpsketch.schema.schema import Schema
from market_parties import SCHEMA, owners, records, terms, validation
from parties import parties

EVERY = parties(hub="aggregator", buyer="consumer", south="owner", west="owner")


def desk(name: str, **changes: object) -> Desk:
    return Desk(EVERY[name], session_of("may", EVERY[name]), terms(**changes))


def hub(folder: Path) -> tuple[Desk, Boxes, Inbox]:
    own = desk("hub")
    boxes = Boxes(folder / "boxes", EVERY["hub"].roster, own.session)
    return own, boxes, Inbox(own, boxes.fetch, ["hub", EVERYONE], "buyer")


def test_a_long_payload_arrives_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "_PIECE", 1000)
    own, boxes, inbox = hub(tmp_path)
    payload = np.random.default_rng(1).bytes(10_500)
    desk("south").send(boxes, post.SKETCH, "hub", payload)
    assert inbox.wait(lambda: own.letter("south", post.SKETCH) is not None, 1)
    assert own.letter("south", post.SKETCH) == payload
    assert own.letter("west", post.SKETCH) is None


def test_a_wrong_key_is_refused(tmp_path: Path) -> None:
    _, boxes, _ = hub(tmp_path)
    stranger = parties(south="owner", hub="aggregator")["south"]
    forged = Desk(Party("south", stranger.key, EVERY["hub"].roster), session_of("may", EVERY["hub"]), terms())
    with pytest.raises(FederationError, match="does not carry the signature"):
        forged.send(boxes, post.SKETCH, "hub", b"x")


def test_altered_and_replaced_messages_are_refused_and_repeated_ones_change_nothing(tmp_path: Path) -> None:
    own, boxes, inbox = hub(tmp_path)
    sent: list[bytes] = []

    class Kept:
        def post(self, data: bytes) -> None:
            sent.append(data)

    south = desk("south")
    south.send(Kept(), post.POINTS, "hub", b"rows")
    changed = bytearray(sent[0])
    changed[-70] ^= 1
    with pytest.raises(FederationError):
        boxes.post(bytes(changed))
    assert boxes.post(sent[0])
    assert not boxes.post(sent[0])
    with pytest.raises(FederationError, match="two different messages"):
        south.send(boxes, post.POINTS, "hub", b"other rows")
    inbox.wait(lambda: own.letter("south", post.POINTS) is not None, 1)
    assert own.letter("south", post.POINTS) == b"rows"
    # A message of another market, signed by the right key, is refused as well.
    earlier = Desk(EVERY["south"], session_of("april", EVERY["south"]), terms())
    with pytest.raises(FederationError, match="another session"):
        earlier.send(boxes, post.SKETCH, "hub", b"x")


def test_other_terms_are_refused_and_do_not_stop_the_market(tmp_path: Path) -> None:
    own, boxes, inbox = hub(tmp_path)
    facts = SCHEMA.to_dict()
    facts["columns"]["x"] |= {"upper": 5.0}
    desk("west", schema=Schema.from_dict(facts)).send(boxes, post.SKETCH, "hub", b"x")
    desk("south").send(boxes, post.SKETCH, "hub", b"y")
    assert inbox.wait(lambda: own.letter("south", post.SKETCH) is not None, 1)
    assert inbox.refused == {"west": "west has other terms or another schema"}
    # Nobody goes on without the party that it needs.
    desk("buyer", width=0.3).send(boxes, post.TARGET, EVERYONE, b"z")
    with pytest.raises(FederationError, match="other terms or another schema"):
        inbox.wait(lambda: own.letter("buyer", post.TARGET) is not None, 1)


def test_rows_above_the_quota_nan_and_other_columns_are_refused() -> None:
    market = terms()
    rows = Rows.read(market, owners()["south"])
    message = rows.message(np.arange(10))
    assert shipped_rows(market, message, 10, True, "it").shape == (3, 10)
    with pytest.raises(FileError, match="more than its quota of 9 rows"):
        shipped_rows(market, message, 9, True, "it")
    table = records((0, 0), 5, 1)
    for cell in (float("nan"), None):
        broken = table.set_column(0, "x", pa.array([cell, 1.0, 1.0, 1.0, 1.0], pa.float64()))
        with pytest.raises(FileError, match="missing or not numbers"):
            shipped_rows(market, as_parquet(broken), 10, True, "it")
    with pytest.raises(FileError, match="other columns"):
        shipped_rows(market, as_parquet(table.drop_columns(["kind"])), 10, True, "it")
    with pytest.raises(FileError, match="not a table"):
        shipped_rows(market, b"rows", 10, True, "it")
    # A validation set must not bring labels.
    with pytest.raises(FileError, match="other columns"):
        shipped_rows(market, as_parquet(table), 10, False, "it")


def test_owners_can_read_nothing_but_the_target_and_the_weights(tmp_path: Path) -> None:
    """The mailbox gives a box to its receiver alone, and only these letters are to everyone."""
    own, boxes, _ = hub(tmp_path)
    desk("buyer").send(boxes, post.TARGET, EVERYONE, b"release")
    desk("buyer").send(boxes, post.VALIDATION, "hub", as_parquet(validation()))
    desk("west").send(boxes, post.POINTS, "hub", b"rows")
    own.send(boxes, post.WEIGHTS, EVERYONE, b"weights")
    own.send(boxes, post.SUMMARY, "buyer", b"summary")
    seen, after = [], 0
    for box in ("south", EVERYONE):
        after = 0
        while (found := boxes.fetch(box, after))[0] is not None:
            data, after = found
            assert data is not None
            seen.append(Envelope.verify(data, EVERY["south"].roster).round)
    assert seen == [post.TARGET, post.WEIGHTS]


def test_the_report_names_owners_that_are_late_silent_or_refused(tmp_path: Path) -> None:
    """The aggregator alone, with letters that are there already."""
    every = parties(hub="aggregator", buyer="consumer", north="owner", south="owner", west="owner", east="owner")
    market = terms(over=1.0)
    config = MarketConfig("may", market, tmp_path, "http://127.0.0.1:1", patience=0.3, patience_rows=0.3)
    told: list[str] = []
    office = Office(config, every["hub"], tmp_path / "hub", told.append)
    boxes = Boxes(tmp_path / "boxes", every["hub"].roster, office.desk.session)
    tables = owners()
    # Two owners of the same records share the quota between them.
    tables["east"] = tables["south"]

    def own(name: str) -> Desk:
        return Desk(every[name], office.desk.session, market)

    for name in ("south", "east", "west"):
        released = owner_release(tables[name], market, Ledger("sqlite://"), name)
        own(name).send(boxes, post.SKETCH, "hub", bytes_of(released))
    target = consumer_release(validation(), market, Ledger("sqlite://"), "buyer")
    own("buyer").send(boxes, post.TARGET, EVERYONE, bytes_of(target))
    own("buyer").send(boxes, post.VALIDATION, "hub", as_parquet(validation()))
    with pytest.raises(FileError, match="no owner shipped rows"):
        run_aggregator(office, boxes)
    # Started again, it goes on with the weights that it has sent.
    kept = Allocation.from_bytes((tmp_path / "hub" / f"weights-{market.digest[:16]}").read_bytes(), market)
    rows = Rows.read(market, tables["south"])
    own("south").send(boxes, post.POINTS, "hub", rows.message(np.arange(kept.quotas["south"])))
    own("east").send(boxes, post.POINTS, "hub", rows.message(np.arange(kept.quotas["east"] + 1)))
    again = Office(config, every["hub"], tmp_path / "hub", told.append)
    report = run_aggregator(again, boxes)
    assert report["late"] == ["north"]
    assert report["silent"] == (["west"] if kept.quotas["west"] else [])
    assert "more than its quota" in report["refused"]["east"]
    assert report["paid"] == {"south": kept.quotas["south"]}
    assert report["points"] == kept.quotas["south"]
    assert again.desk.letter("hub", post.WEIGHTS) in (None, kept.to_bytes())
