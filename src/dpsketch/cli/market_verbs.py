"""`dpsketch market …`: plan a private market, run its parties, and judge a summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsketch.cli.console import HELP, AsJson, Force, err, out, print_json

if TYPE_CHECKING:
    from dpsketch.federate.market.market_config import MarketConfig
    from dpsketch.federate.market.market_parties import Office

market_app = typer.Typer(
    help="Buy rows that match a validation set, without showing either to the other owners.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=HELP,
)
Config = Annotated[Path, typer.Option("--config", help="The market's public terms, the same for all parties.")]
Key = Annotated[Path, typer.Option("--key", help="This party's private key, of dpsketch keygen.")]
State = Annotated[Path, typer.Option("--state", help="Folder of this party, for its eyes alone.")]
Table = Annotated[Path, typer.Option("--table", help="Parquet file with this party's records.")]
LedgerFile = Annotated[str, typer.Option("--ledger", envvar="DPSKETCH_LEDGER", help="This party's own ledger.")]
Dataset = Annotated[str, typer.Option("--dataset", help="Name of these records in the ledger.")]


@market_app.command("plan")
def market_plan_verb(config: Config, as_json: AsJson = False) -> None:
    """Say before anything is sent whether features, noise and sizes are enough. Nothing is read or spent."""
    from dpsketch.federate.market.market_config import MarketConfig
    from dpsketch.federate.market.market_plan import market_plan

    plan = market_plan(MarketConfig.load(config).terms)
    if as_json:
        print_json({"enough": plan.enough, "lines": plan.lines()})
        return
    for line in plan.lines():
        out.print(line)


@market_app.command("aggregator")
def market_aggregator(
    config: Config,
    key: Key,
    state: State,
    certificate: Annotated[Path | None, typer.Option(help="PEM certificate: the mailbox then speaks HTTPS.")] = None,
    certificate_key: Annotated[Path | None, typer.Option(help="PEM file with the certificate's key.")] = None,
    as_json: AsJson = False,
) -> None:
    """Keep the mailbox, weigh the owners' strata, and assemble the summary."""
    from urllib.parse import urlsplit

    from dpsketch.federate.boxes import Boxes
    from dpsketch.federate.mailbox import Mailbox
    from dpsketch.federate.market.market_parties import finish, run_aggregator

    settings, office = _office(config, key, state)
    address = urlsplit(settings.address)
    boxes = Boxes(state / "boxes", office.party.roster, office.desk.session)
    with Mailbox(boxes, address.hostname or "127.0.0.1", address.port or 0, certificate, certificate_key):
        report = run_aggregator(office, boxes)
        for line in _told(report):
            err.print(line)
        finish(office, boxes)
    if as_json:
        print_json(report)


@market_app.command("owner")
def market_owner(
    config: Config,
    key: Key,
    state: State,
    table: Table,
    ledger: LedgerFile,
    dataset: Dataset,
    release: Annotated[
        Path | None, typer.Option(help="An earlier release for this market's columns: reuse it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Release the records once, then sell a quota of rows to the aggregator."""
    from dpsketch.federate.market.market_parties import read_rows_file, run_owner
    from dpsketch.ledger.ledger import Ledger

    _, office = _office(config, key, state)
    run_owner(office, read_rows_file(table), Ledger(ledger), dataset, release)
    if as_json:
        print_json({"owner": office.party.name, "sent": True})


@market_app.command("consumer")
def market_consumer(
    config: Config,
    key: Key,
    state: State,
    table: Table,
    ledger: LedgerFile,
    dataset: Dataset,
    output: Annotated[Path, typer.Option("-o", "--output", help="Parquet file to write the summary to.")],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release the validation set, and receive the summary."""
    from dpsketch.federate.market.market_parties import read_rows_file, run_consumer
    from dpsketch.files.outputs import check_free
    from dpsketch.ledger.ledger import Ledger

    check_free(output, force)
    _, office = _office(config, key, state)
    run_consumer(office, read_rows_file(table), Ledger(ledger), dataset, output)
    if as_json:
        print_json({"output": str(output)})


@market_app.command("evaluate")
def market_evaluate(
    config: Config,
    summary: Annotated[Path, typer.Option(help="The summary that was received.")],
    table: Table,
    as_json: AsJson = False,
) -> None:
    """Measure how close a summary is to a table, such as the validation set. Exact: for its owner's eyes alone."""
    from dpsketch.federate.market.kernel_distance import GaussianKernel, mmd2, objective
    from dpsketch.federate.market.market_config import MarketConfig
    from dpsketch.federate.market.market_parties import read_rows_file
    from dpsketch.federate.market.sold_rows import Rows

    terms = MarketConfig.load(config).terms
    kernel = GaussianKernel(terms.width)
    codes = (Rows.read(terms, read_rows_file(path), labelled=False).points for path in (summary, table))
    chosen, wanted = codes
    facts = {
        "mmd2": mmd2(chosen, wanted, kernel),
        "mmd2_by_features": mmd2(chosen, wanted, terms.hashed),
        "objective": objective(wanted, chosen, kernel),
        "points": len(chosen),
    }
    if as_json:
        print_json(facts)
        return
    out.print(
        f"MMD² {facts['mmd2']:.3g} exactly, {facts['mmd2_by_features']:.3g} by features; J {facts['objective']:.4f}"
    )


def _office(config: Path, key: Path, state: Path) -> tuple[MarketConfig, Office]:
    from dpsketch.federate.market.market_config import MarketConfig
    from dpsketch.federate.market.market_parties import Office
    from dpsketch.federate.roster import Party, Roster

    settings = MarketConfig.load(config)
    party = Party.load(key, Roster.load(settings.roster))
    return settings, Office(settings, party, state, err.print)


def _told(report: dict[str, object]) -> list[str]:
    """The aggregator's report as text. It is for the aggregator alone."""
    lines = [
        f"summary of {report['points']} points, {report['accessed']} accessed: parsimony {report['parsimony']:.2f}"
    ]
    for key, text in (("late", "sent no release in time"), ("silent", "sent no rows in time")):
        lines += [f"owner {name} {text}" for name in report[key]]  # type: ignore[attr-defined]
    lines += [f"rows of owner {name} were refused: {why}" for name, why in report["refused"].items()]  # type: ignore[attr-defined]
    lines += [f"value of owner {name}: {value:.4f}" for name, value in report["value"].items()]  # type: ignore[attr-defined]
    return lines
