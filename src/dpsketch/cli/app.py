"""The command line: verbs, global options, and how a command ends. Verbs import what they need: each starts fast."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from inspect import Parameter, signature
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer

from dpsketch.cli import (
    agents,
    answers,
    label_verbs,
    plan,
    raw_verbs,
    release_verbs,
    row_verbs,
    schema_verbs,
    signing_verbs,
)
from dpsketch.cli.console import HELP, AsJson, Quiet, err, out, print_json, unprintable
from dpsketch.cli.federate_verbs import federate_app
from dpsketch.cli.fit import fit_app
from dpsketch.cli.ledger_verbs import ledger_app
from dpsketch.cli.market_verbs import market_app
from dpsketch.cli.process import Stopped, prepare_streams, stop_on_signals
from dpsketch.errors import DpsketchError, PublicNote

app = typer.Typer(
    help="One private pass over a table, one release, unlimited questions afterwards.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
)


def demo(
    folder: Annotated[Path, typer.Argument(help="Where to write the demo's files.")] = Path("demo"),
    as_json: AsJson = False,
) -> None:
    """Simulate a table of 100,000 rows, release it at epsilon 1, and compare answers with the truth."""
    from dpsketch.cli.demo import run_demo

    facts = run_demo(folder, err if as_json else out)
    if as_json:
        print_json(facts)


# In the order of `dpsketch --help`, with help texts that fit 80 columns.
VERBS = (
    (schema_verbs.init, "Print a schema to fill in, from column names and types."),
    (plan.plan, "Predict errors of answers before anything is spent."),
    (release_verbs.release, "Sketch a table, add noise once, write the release."),
    (answers.show, "Print a sketch's privacy statement and columns."),
    (answers.ask, "Answer a question, with standard errors."),
    (agents.mcp, "Serve sketches to a language model."),
    (row_verbs.sample, "Write synthetic rows."),
    (row_verbs.score, "Apply a fitted model to the rows of a table."),
    (raw_verbs.accumulate, "Read a table into a raw sketch: exact and secret."),
    (raw_verbs.merge, "Add up raw or released sketches of several sites."),
    (release_verbs.graph, "Release the neighbour sets of a graph."),
    (schema_verbs.tighten, "Write a schema with tighter bounds."),
    (label_verbs.labels, "Write a schema with labels found in the table."),
    (signing_verbs.sign, "Sign a release."),
    (signing_verbs.verify, "Check who signed a release."),
    (signing_verbs.keygen, "Make a key to sign with."),
    (plan.audit, "Attack a recipe's own releases."),
    (demo, "Release a simulated table and compare with the truth."),
)
for verb, short in VERBS:
    app.command(short_help=short, context_settings=HELP)(verb)
app.add_typer(fit_app, name="fit", short_help="Fit a model to a released sketch.")
app.add_typer(ledger_app, name="ledger", short_help="Caps and spends of each dataset.")
app.add_typer(federate_app, name="federate", short_help="Release the sum of several holders.")
app.add_typer(market_app, name="market", short_help="Buy rows that match a validation set.")


def _with_quiet(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb, with an option --quiet of its own: it may also come after the verb's name."""

    @wraps(verb)
    def run(*words: Any, quiet: bool, **options: Any) -> Any:
        err.quiet = err.quiet or quiet
        return verb(*words, **options)

    facts = signature(verb, eval_str=True)
    option = Parameter("quiet", Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)
    run.__signature__ = facts.replace(parameters=[*facts.parameters.values(), option])  # type: ignore[attr-defined]
    run.__annotations__ = verb.__annotations__ | {"quiet": Quiet}
    return run


for _family in (app, fit_app, ledger_app, federate_app, market_app):
    for _verb in _family.registered_commands:
        assert _verb.callback is not None
        _verb.callback = _with_quiet(_verb.callback)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"dpsketch {version('dpsketch')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    quiet: Quiet = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks of unexpected errors; they may hold records.")
    ] = False,
) -> None:
    err.quiet = quiet


def main() -> None:
    """Run a command. Errors are printed without tracebacks, which could show records, unless --debug is given."""
    if "--debug" in takewhile(lambda word: word.startswith("-"), sys.argv[1:]):
        app()
        return
    try:
        sys.exit(app(standalone_mode=False))
    except DpsketchError as error:
        err.quiet = False
        err.print("\n".join([f"{type(error).__name__}: {error}", *_notes(error)]))
        sys.exit(1)
    except Stopped as stopped:
        err.quiet = False
        err.print("\n".join(["Interrupted.", *(_notes(stopped) or ["Nothing was written, nothing was spent."])]))
        sys.exit(stopped.exit_code)
    except BrokenPipeError:  # the reader of our output stopped reading
        sys.exit(1)
    except Exception as raised:
        # Typer treats an EOFError as the end of a prompt; there are no prompts here.
        failure = raised.__cause__ if isinstance(raised, typer.Abort) and raised.__cause__ else raised
        if hasattr(failure, "show") and hasattr(failure, "exit_code"):  # wrong usage, reported by Typer
            if hasattr(failure, "message"):
                failure.message = re.sub(r"://\S*@", "://…@", failure.message)  # an address may hold a password
            failure.show()
            sys.exit(failure.exit_code)
        # A bug. Its message may hold cells.
        err.quiet = False
        hint = "Hint: run dpsketch --debug … for a traceback"
        err.print("\n".join([f"{type(failure).__name__}: unexpected error.", *_notes(failure), hint]))
        sys.exit(70)


def _notes(error: BaseException) -> list[str]:
    """The notes that our own code added to an exception, such as whether a spend stands."""
    return [note for note in getattr(error, "__notes__", []) if isinstance(note, PublicNote)]


def run() -> None:
    """The installed command: `main` in a process of its own.

    Garbage collection would take a tenth of the start, and unloading the modules a quarter of a second.
    """
    gc.disable()
    prepare_streams()
    stop_on_signals()
    try:
        main()
        code: object = 0
    except SystemExit as stopped:
        code = stopped.code
    except Stopped as stopped:  # while an error was being printed
        code = stopped.exit_code
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output stopped reading
        pass
    except OSError as error:
        err.print(f"FileError: {unprintable(error)}")
        code = code or 1
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
