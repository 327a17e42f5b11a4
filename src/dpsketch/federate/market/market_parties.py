"""The processes of a market: aggregator, owner and consumer, over a mailbox, each able to go on after it was killed.

Whatever a party has sent is kept in its folder and sent again as it is: nothing is drawn or spent twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dpsketch.errors import DpsketchError, FederationError
from dpsketch.federate.boxes import Boxes
from dpsketch.federate.mail_client import MailClient
from dpsketch.federate.market import market_post as post
from dpsketch.federate.market.market_config import MarketConfig
from dpsketch.federate.market.market_post import Desk, Inbox, Poster, session_of
from dpsketch.federate.market.market_roles import (
    Allocation,
    Summary,
    allocate,
    assemble,
    attribution,
    choose_rows,
    consumer_release,
    owner_release,
    parsimony,
)
from dpsketch.federate.market.sold_rows import Rows, as_parquet, rows_table, shipped_rows
from dpsketch.federate.market.stratum_sums import noisy_means
from dpsketch.federate.market.terms import Terms
from dpsketch.federate.roster import EVERYONE, Party, check_secret_folder
from dpsketch.files.outputs import written
from dpsketch.ledger.ledger import Ledger
from dpsketch.numerics.arrays import Codes
from dpsketch.sketch.released import ReleasedSketch

AGGREGATOR, OWNER, CONSUMER = "aggregator", "owner", "consumer"
Tell = Callable[[str], None]
MOST_VALIDATION = 10**6


@dataclass
class Office:
    """A party at work: its terms, its folder and where its letters go."""

    config: MarketConfig
    party: Party
    folder: Path
    tell: Tell

    def __post_init__(self) -> None:
        check_secret_folder(self.folder)
        self.desk = Desk(self.party, session_of(self.config.name, self.party), self.config.terms)

    @property
    def terms(self) -> Terms:
        return self.config.terms

    def kept(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Bytes that are made once: a party that starts again finds them in its folder."""
        path = self.folder / f"{name}-{self.terms.digest[:16]}"
        if not path.exists():
            with written(path, secret=True) as file:
                file.write(make())
        return path.read_bytes()

    def posted(self, poster: Poster, kind: str, receiver: str, make: Callable[[], bytes]) -> None:
        self.desk.send(poster, kind, receiver, self.kept(kind, make))

    def client(self) -> MailClient:
        return MailClient(self.party, self.config.address, self.config.patience, self.config.authorities)


def run_owner(office: Office, table: Any, ledger: Ledger, dataset: str, reuse: Path | None = None) -> None:
    """An owner: release once (or reuse an earlier release), wait for weights, ship the quota."""
    terms, aggregator, client = office.terms, office.party.roster.the(AGGREGATOR), office.client()

    def released() -> bytes:
        if reuse is not None:
            earlier = ReleasedSketch.load(reuse)
            noisy_means(earlier, terms.hashed, len(terms.strata))
            return reuse.read_bytes()
        return bytes_of(owner_release(table, terms, ledger, dataset))

    office.posted(client, post.SKETCH, aggregator, released)
    office.tell("sent the release; waiting for weights")
    inbox = Inbox(office.desk, client.fetch, [EVERYONE], aggregator)
    if not inbox.wait(lambda: office.desk.letter(aggregator, post.WEIGHTS) is not None, 2 * office.config.patience):
        raise FederationError(
            "no weights arrived in time", "ask the aggregator, and start again: nothing is spent twice"
        )
    message = office.desk.letter(aggregator, post.WEIGHTS)
    assert message is not None
    allocation = Allocation.from_bytes(message, terms)
    if office.party.name not in allocation.quotas:
        raise FederationError("this owner's release came too late for this market", "its release stays usable")

    def points() -> bytes:
        rows = Rows.read(terms, table)
        return rows.message(choose_rows(rows, office.party.name, allocation))

    office.posted(client, post.POINTS, aggregator, points)
    office.tell("sent the quota of rows")
    client.close()


def run_consumer(office: Office, table: Any, ledger: Ledger, dataset: str, output: Path) -> None:
    """A consumer: release the validation set to all, send it to the aggregator, receive the summary."""
    terms, aggregator, client = office.terms, office.party.roster.the(AGGREGATOR), office.client()
    office.posted(client, post.TARGET, EVERYONE, lambda: bytes_of(consumer_release(table, terms, ledger, dataset)))

    def validation() -> bytes:
        rows = Rows.read(terms, table, labelled=False)
        return as_parquet(rows_table(terms, rows.codes))

    office.posted(client, post.VALIDATION, aggregator, validation)
    office.tell("sent the target; waiting for the summary")
    inbox = Inbox(office.desk, client.fetch, [office.party.name], aggregator)
    if not inbox.wait(lambda: office.desk.letter(aggregator, post.SUMMARY) is not None, office.config.longest):
        raise FederationError(
            "no summary arrived in time", "ask the aggregator, and start again: nothing is spent twice"
        )
    message = office.desk.letter(aggregator, post.SUMMARY)
    assert message is not None
    with written(output, force=True) as file:
        file.write(message)
    office.posted(client, post.DONE, aggregator, lambda: b"received")
    office.tell(f"wrote {output}")
    client.close()


def run_aggregator(office: Office, boxes: Boxes) -> dict[str, Any]:
    """The aggregator, beside the mailbox that holds `boxes`. Returns its report: who took part, values, parsimony.

    Owners that are silent for the market's patience are left out, and the report names them.
    """
    terms, desk, roster = office.terms, office.desk, office.party.roster
    consumer, owners = roster.the(CONSUMER), roster.with_role(OWNER)
    inbox = Inbox(desk, boxes.fetch, [office.party.name, EVERYONE], consumer)
    patience = office.config.patience
    needed = [(consumer, post.TARGET), (consumer, post.VALIDATION)]
    if not inbox.wait(lambda: all(desk.letter(*each) is not None for each in needed), patience):
        raise FederationError("the consumer's target did not arrive in time", "start again once the consumer is ready")
    office.tell("the target is here; waiting for owners")
    inbox.wait(lambda: all(desk.letter(name, post.SKETCH) is not None for name in owners), patience)
    report: dict[str, Any] = {"late": [], "silent": []}
    allocation = Allocation.from_bytes(office.kept(post.WEIGHTS, lambda: _weights(office, owners, consumer)), terms)
    office.posted(boxes, post.WEIGHTS, EVERYONE, lambda: b"")
    taking_part = sorted(allocation.quotas)
    report["late"] = [name for name in owners if name not in taking_part]
    office.tell(f"sent weights to {len(taking_part)} of {len(owners)} owners; waiting for rows")
    selling = [name for name in taking_part if allocation.quotas[name]]
    inbox.wait(lambda: all(desk.letter(name, post.POINTS) is not None for name in selling), office.config.patience_rows)
    validation = _codes(office, consumer, post.VALIDATION, MOST_VALIDATION, labelled=False)
    wanted = Rows.of_codes(terms, validation).features
    shipped: dict[str, Codes] = {}
    report["refused"] = dict(inbox.refused)
    for name in selling:
        if desk.letter(name, post.POINTS) is None:
            report["silent"].append(name)
            continue
        try:
            shipped[name] = _codes(office, name, post.POINTS, allocation.quotas[name])
        except DpsketchError as error:
            report["refused"][name] = error.fact
    summary = assemble(terms, shipped, wanted)
    office.posted(boxes, post.SUMMARY, consumer, lambda: as_parquet(summary.table))
    report |= _facts(summary, shipped, allocation, wanted.shape[0])
    report["value"] = attribution(summary, wanted)
    (office.folder / "report.json").write_text(json.dumps(report, indent=2))
    return report


def finish(office: Office, boxes: Boxes) -> None:
    """Keep the mailbox up until the consumer has read the summary, or the market's patience is over."""
    consumer = office.party.roster.the(CONSUMER)
    inbox = Inbox(office.desk, boxes.fetch, [office.party.name], consumer)
    inbox.wait(lambda: office.desk.letter(consumer, post.DONE) is not None, office.config.patience_rows)


def _facts(summary: Summary, shipped: Mapping[str, Codes], allocation: Allocation, validation: int) -> dict[str, Any]:
    return {
        "points": summary.table.num_rows,
        "accessed": summary.pool,
        "parsimony": parsimony(summary.pool, summary.table.num_rows, validation),
        "paid": {name: int(codes.shape[1]) for name, codes in shipped.items()},
        "quotas": dict(allocation.quotas),
    }


def _weights(office: Office, owners: tuple[str, ...], consumer: str) -> bytes:
    """The weights of the owners whose releases are here and fit."""
    target = _release_in(office, consumer, post.TARGET)
    releases = {}
    for name in owners:
        if office.desk.letter(name, post.SKETCH) is None:
            continue
        try:
            released = _release_in(office, name, post.SKETCH)
            noisy_means(released, office.terms.hashed, len(office.terms.strata))
        except DpsketchError as error:
            office.tell(f"the release of owner {name} is refused: {error.fact}")
            continue
        releases[name] = released
    if not releases:
        raise FederationError("no owner sent a release in time", "start again once owners are ready")
    return allocate(office.terms, releases, target).to_bytes()


def _release_in(office: Office, sender: str, kind: str) -> ReleasedSketch:
    """The released sketch in a letter, under the budget and the columns of the terms."""
    message = office.desk.letter(sender, kind)
    assert message is not None
    path = office.folder / f"{kind}-from-{sender}.dps"
    path.write_bytes(message)
    released = ReleasedSketch.load(path)
    if not released.private:
        raise FederationError(f"the release of {sender} is not private", "release with the budget of the terms")
    return released


def _codes(office: Office, sender: str, kind: str, most: int, labelled: bool = True) -> Codes:
    message = office.desk.letter(sender, kind)
    assert message is not None
    return shipped_rows(office.terms, message, most, labelled, f"what {sender} sent")


def bytes_of(released: ReleasedSketch) -> bytes:
    target = BytesIO()
    released.write(target)
    return target.getvalue()


def read_rows_file(path: Path) -> Any:
    """A Parquet table with an owner's or a consumer's records."""
    try:
        return pq.read_table(path)
    except (OSError, ValueError) as error:
        raise FederationError(f"{path} is not a Parquet table: {type(error).__name__}", "check the path") from None
