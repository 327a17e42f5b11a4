"""`dpsketch federate …`: several holders release the sum of their sketches, and nobody sees one holder's sums."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.console import (
    HELP,
    AsJson,
    Delta,
    Epsilon,
    Force,
    Mechanism,
    OutputPath,
    RecipePath,
    Rho,
    Rows,
    SchemaPath,
    check_free,
    err,
    out,
    print_json,
    progress_bar,
    warnings_told,
)
from dpsketch.cli.process import ignore_signals
from dpsketch.cli.recipe_choice import Columns, Frequencies, Important, Purpose, chosen_recipe
from dpsketch.cli.spending import AcceptDelta, CreateLedger, Dataset, LedgerPath, check_delta, dataset_name, spending
from dpsketch.errors import FederationError
from dpsketch.files.outputs import Output, written
from dpsketch.privacy.budget import Budget

if TYPE_CHECKING:
    from dpsketch.federate.roster import Party, Roster
    from dpsketch.privacy.noise_shares import Consortium
    from dpsketch.sketch.released import ReleasedSketch

federate_app = typer.Typer(
    help="Secure sums: several holders, one release, and nobody who sees the sums of one of them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=HELP,
)
STILL_WAITING = 75  # exit code: not an error, run it again once messages have been imported

KeyPath = Annotated[Path, typer.Option("--key", help="Your private key, from dpsketch federate keygen.")]
RosterPath = Annotated[Path, typer.Option("--roster", help="The roster that all parties have.")]
Folder = Annotated[Path, typer.Option("--folder", help="This session's own folder. The same one resumes it.")]
FolderArgument = Annotated[Path, typer.Argument(help="The session's folder.")]
Colluders = Annotated[int, typer.Option(help="Number of holders that may pool what they see with the coordinator.")]
Least = Annotated[int | None, typer.Option(help="Holders that must stay to the end. Default: the threshold.")]
Threshold = Annotated[int | None, typer.Option(help="Holders that can unmask. Default: the fewest that are safe.")]
DisjointUnits = Annotated[
    bool, typer.Option("--disjoint-units", help="No unit has rows at two holders. Needed if the schema has units.")
]
Patience = Annotated[float, typer.Option(help="Seconds to wait for the next message.")]


@federate_app.command(short_help="Make a party's key and its line for the roster.")
def keygen(
    key: Annotated[Path, typer.Argument(help="File for the private key; only its owner may read it.")],
    name: Annotated[str, typer.Option(help="The party's name: lower-case letters, digits and hyphens.")],
    role: Annotated[str, typer.Option(help="holder or coordinator.")] = "holder",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make an Ed25519 key, and print the party's line for the roster."""
    from dpsketch.federate.roster import Member, Roster
    from dpsketch.files.signatures import load_key, make_key

    check_free(key, force)
    Roster.of([Member(name, role, bytes(32))])  # the name is one
    make_key(key, name, None, force)
    line = Member(name, role, load_key(key).public_key().public_bytes_raw()).line()
    err.print(f"{key}: a private key. Keep it secret; the roster gets this line:")
    if as_json:
        print_json({"key": str(key), "member": line})
        return
    out.print(line)


@federate_app.command(short_help="Put a roster together, or check one.")
def roster(
    lines: Annotated[list[Path], typer.Argument(help="Files with the lines that keygen printed, or a roster.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Roster file to write.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Put the lines of all parties together, and print the roster's digest: all parties compare it, by telephone."""
    members = _read_roster(lines)
    if output is not None:
        check_free(output, force, *lines)
        with written(output, force) as file:
            file.write(members.text().encode())
    if as_json:
        roles = {name: member.role for name, member in members.members.items()}
        print_json({"digest": members.digest.hex(), "members": roles})
        return
    for name, member in members.members.items():
        out.print(f"{name}  {member.role}")
    out.print(f"digest {members.digest.hex()}")


@federate_app.command(short_help="Serve the mailbox, collect masked sums, write the release.")
def coordinator(
    schema: SchemaPath,
    key: KeyPath,
    roster: RosterPath,
    folder: Folder,
    output: OutputPath,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve the mailbox here. Without it, messages go by hand.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="PEM file: the mailbox speaks HTTPS.")] = None,
    certificate_key: Annotated[Path | None, typer.Option(help="PEM file with the certificate's key.")] = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    mechanism: Mechanism = "auto",
    recipe: RecipePath = None,
    rows: Rows = None,
    frequencies: Frequencies = None,
    purpose: Purpose = None,
    columns: Columns = None,
    important: Important = None,
    colluders: Colluders = 1,
    least: Least = None,
    threshold: Threshold = None,
    disjoint_units: DisjointUnits = False,
    without: Annotated[list[str] | None, typer.Option(help="A holder to go on without; repeatable.")] = None,
    patience: Patience = 600,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Coordinate a session: serve the mailbox, add masked sums up, and write the release. Nothing is spent here."""
    from contextlib import ExitStack

    from dpsketch.federate.coordinator_exchange import CoordinatorExchange
    from dpsketch.federate.mailbox import Mailbox
    from dpsketch.federate.session_report import keep_roster
    from dpsketch.schema.schema import Schema
    from dpsketch.sketch.joint_release import joint_release

    check_free(output, force, schema, recipe, key, roster)
    budget, facts, party = Budget(epsilon, delta, rho), Schema.load(schema), _party(key, roster)
    chosen = chosen_recipe(
        facts, budget, recipe, rows, frequencies, None, None, None, purpose, None, columns, important
    )
    group = _consortium(party.roster, colluders, least, threshold)
    keep_roster(folder, party.roster)
    with Output(output, force) as claimed, progress_bar("adding up") as report, ExitStack() as stack:
        names, by_hand = without or (), listen is None
        exchange = CoordinatorExchange(party, folder, patience, by_hand, names, tell=err.print, progress=report)
        if listen is not None:
            host, port = _address(listen)
            mailbox = stack.enter_context(Mailbox(exchange.boxes, host, port, certificate, certificate_key))
            err.print(f"The mailbox is at {mailbox.address}. Roster digest {party.roster.digest.hex()[:16]}.")
        _keep(
            claimed, _waited(lambda: joint_release(facts, chosen, budget, group, exchange, mechanism, disjoint_units))
        )
        late = exchange.finish()
    if late:
        err.print(f"Have not said that the totals arrived: {', '.join(late)}. Run this again, or export to them.")
    _tell(output, as_json, {"late": late})


@federate_app.command(short_help="Add your masked sums, and get the release of all.")
def holder(
    raw: Annotated[Path, typer.Argument(help="Your raw sketch, of the schema and recipe that all parties have.")],
    key: KeyPath,
    roster: RosterPath,
    folder: Folder,
    output: OutputPath,
    mailbox: Annotated[
        str | None, typer.Option(metavar="URL", help="The coordinator's mailbox. Without it, messages go by hand.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", help="PEM file of certificates that an https mailbox may have.")
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    mechanism: Mechanism = "auto",
    ledger: LedgerPath = None,
    create_ledger: CreateLedger = False,
    dataset: Dataset = None,
    accept_delta: AcceptDelta = False,
    colluders: Colluders = 1,
    least: Least = None,
    threshold: Threshold = None,
    disjoint_units: DisjointUnits = False,
    patience: Patience = 3600,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Take part in a session: agree on its terms, spend from your own ledger, add your masked sums with your share of
    the noise, and write the release of all holders together.
    """
    from dpsketch.federate.holder_exchange import HolderExchange
    from dpsketch.federate.mail_client import MailClient
    from dpsketch.federate.session_report import keep_roster
    from dpsketch.sketch.joint_release import release_jointly
    from dpsketch.sketch.raw import RawSketch

    check_free(output, force, raw, key, roster, ledger, ca)
    budget, party = Budget(epsilon, delta, rho), _party(key, roster)
    sketch = RawSketch.load(raw)
    name, book = dataset_name(sketch.schema, dataset, budget), spending(budget, ledger, False, create_ledger)
    assert book is not None  # a private release has a ledger
    check_delta(sketch.schema, sketch.recipe, budget, accept_delta)
    group = _consortium(party.roster, colluders, least, threshold)
    keep_roster(folder, party.roster)
    client = None if mailbox is None else MailClient(party, mailbox, patience, ca, err.print)
    with Output(output, force) as claimed, progress_bar("sending") as report, warnings_told():
        exchange = HolderExchange(party, folder, client, patience, err.print, report)
        terms = (budget, group, exchange, book, name, mechanism, disjoint_units)
        _keep(claimed, _waited(lambda: release_jointly(sketch, *terms, *_spend_of(folder))))
    sent, received = exchange.traffic
    if client is not None:
        err.print(f"Sent {sent:,} bytes, received {received:,}.")
    _tell(output, as_json, {"sent": sent, "received": received})


@federate_app.command(short_help="How far a session is.")
def status(folder: FolderArgument, as_json: AsJson = False) -> None:
    """Print which messages of a session are there, which stages are finished, and why it ended if it failed."""
    from dpsketch.federate.session_report import session_report

    report = session_report(folder)
    if as_json:
        rounds = [{"stage": s + 1, "round": r, "senders": list(names)} for (s, r), names in report.messages.items()]
        finished = [{"holders": list(each.survivors), "digest": each.result.digest.hex()} for each in report.finished]
        print_json({"messages": rounds, "bytes": report.size, "finished": finished, "failure": report.failure})
        return
    for (stage, round_), names in report.messages.items():
        out.print(f"stage {stage + 1}  {round_:<10}  {', '.join(names)}")
    for number, each in enumerate(report.finished, 1):
        out.print(f"stage {number} is finished: the sum of {', '.join(each.survivors)}")
    out.print(f"{report.size:,} bytes of messages" + (f"; ended: {report.failure}" if report.failure else ""))


@federate_app.command(short_help="Write new messages to a file, to carry them by hand.")
def export(
    folder: FolderArgument,
    output: OutputPath,
    again: Annotated[bool, typer.Option("--again", help="Also messages that were exported before.")] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the messages that have to leave this folder to one file, for e-mail or a memory stick."""
    from dpsketch.federate.bundles import write_bundle
    from dpsketch.federate.session_report import folder_boxes

    boxes, box = folder_boxes(folder)
    check_free(output, force, folder)
    count, size = write_bundle(boxes, box, output, again, force)
    err.print(f"{output}: {count} messages to {box}, {size:,} bytes, signed and safe to carry.")
    if as_json:
        print_json({"output": str(output), "to": box, "messages": count, "bytes": size})


@federate_app.command("import", short_help="Read messages that were carried by hand.")
def import_(
    folder: FolderArgument,
    file: Annotated[Path, typer.Argument(help="A file that export wrote.")],
    as_json: AsJson = False,
) -> None:
    """Check the signatures of another party's messages and keep them. Then run your own command again."""
    from dpsketch.federate.bundles import read_bundle
    from dpsketch.federate.session_report import folder_boxes

    count, size = read_bundle(folder_boxes(folder)[0], file)
    err.print(f"{count} new messages, {size:,} bytes. Now run your own command again.")
    if as_json:
        print_json({"messages": count, "bytes": size})


def _read_roster(lines: list[Path]) -> Roster:
    from dpsketch.federate.roster import Roster

    rosters = [Roster.load(path, whole=False) for path in lines]
    return Roster.of(member for each in rosters for member in each.members.values())


def _party(key: Path, roster: Path) -> Party:
    from dpsketch.cli.signing_verbs import asked_passphrase
    from dpsketch.federate.roster import Party, Roster

    return Party.load(key, Roster.load(roster), asked_passphrase(key))


def _consortium(roster: Roster, colluders: int, least: int | None, threshold: int | None) -> Consortium:
    from dpsketch.federate.sum_messages import HOLDER
    from dpsketch.privacy.noise_shares import Consortium

    holders = len(roster.with_role(HOLDER))
    if threshold is None:
        return Consortium.of(holders, colluders, least)
    return Consortium(holders, threshold if least is None else least, colluders, threshold)


def _address(listen: str) -> tuple[str, int]:
    host, separator, port = listen.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit():
        raise FederationError("--listen needs a host and a port", "write --listen 0.0.0.0:8765")
    return host.strip("[]"), int(port)


def _waited(release: Any) -> ReleasedSketch:
    """The release; where a message must be carried first, the command ends and says which."""
    from dpsketch.federate.correspondence import Waiting

    try:
        released: ReleasedSketch = release()
    except Waiting as waiting:
        err.quiet = False
        err.print(str(waiting))
        raise typer.Exit(STILL_WAITING) from None
    return released


def _spend_of(folder: Path) -> tuple[str | None, Callable[[str], None]]:
    """The id of this session's spend, if there is one, and what keeps it before anything leaves."""
    path = folder / "spend"

    def keep(spend: str) -> None:
        partial = path.with_suffix(".partial")
        with partial.open("w") as file:
            file.write(spend)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    return path.read_text() if path.exists() else None, keep


def _keep(claimed: Output, released: ReleasedSketch) -> None:
    released.write(claimed.file)
    ignore_signals()
    claimed.keep()


def _tell(output: Path, as_json: bool, facts: dict[str, Any]) -> None:
    err.print(f"{output}: the release of all holders together. Next: dpsketch show {output}")
    if as_json:
        print_json({"output": str(output), "kind": "released", "private": True} | facts)
