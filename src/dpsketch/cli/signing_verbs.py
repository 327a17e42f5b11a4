"""`dpsketch keygen`, `sign` and `verify`: who signs for a release, and whether enough people did."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from dpsketch.cli.console import AsJson, Force, check_free, err, out, print_json
from dpsketch.errors import FileError

PASSPHRASE_VARIABLE = "DPSKETCH_PASSPHRASE"
SignaturePaths = Annotated[
    list[Path] | None, typer.Option("--signatures", help="Signature file; repeatable. Default: FILE.sig.")
]


def keygen(
    key: Annotated[Path, typer.Argument(help="File for the private key; only its owner may read it.")],
    name: Annotated[str, typer.Option(help="Who signs with it, as verifiers will read it.")],
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help=f"Encrypt the key; asks, or reads {PASSPHRASE_VARIABLE}.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make an Ed25519 key to sign releases with, and print its line for the verifiers' list of signers."""
    from dpsketch.files.signatures import make_key

    check_free(key, force)
    line = make_key(key, name, _passphrase("Passphrase", confirm=True) if passphrase else None, force)
    err.print(f"{key}: a private key. Keep it secret; give verifiers this line for their list of signers:")
    if as_json:
        print_json({"key": str(key), "signer": line})
        return
    out.print(line)


def sign(
    file: Annotated[Path, typer.Argument(help="A released sketch, or a model.")],
    key: Annotated[Path, typer.Option(help="Your private key, from dpsketch keygen.")],
    signatures: Annotated[Path | None, typer.Option(help="Signature file to add to. Default: FILE.sig.")] = None,
    as_json: AsJson = False,
) -> None:
    """Sign a release: header, statement and sums. Other people's signatures in the same file stay."""
    from dpsketch.files.signatures import load_key
    from dpsketch.files.signatures import sign as sign_file

    promise = _promise(file)
    secret = asked_passphrase(key)
    place = signatures or _beside(file)
    digest = sign_file(file, load_key(key, secret), place)
    err.print(f"{place}: signed {file} ({promise}), SHA-256 {digest}.")
    if as_json:
        print_json({"output": str(place), "file": str(file), "sha256": digest})


def verify(
    file: Path,
    signers: Annotated[Path, typer.Option(help="List of trusted signers: a line with key and name for each.")],
    at_least: Annotated[int, typer.Option(help="Number of different people who must have signed.", min=1)] = 1,
    signatures: SignaturePaths = None,
    as_json: AsJson = False,
) -> None:
    """Check that enough trusted people signed exactly this file. Exits with 1 if not."""
    from dpsketch.files.signatures import verify as verify_file

    found = verify_file(file, signatures or [_beside(file)], signers)
    if len(found.signers) < at_least:
        named = f": {', '.join(found.signers)}" if found.signers else ""
        raise FileError(
            f"{len(found.signers)} of at least {at_least} trusted signers signed {file}{named}",
            "ask for more signatures: dpsketch sign FILE --key KEY"
            + (f"; {found.unknown} by keys that the list does not name do not count" if found.unknown else ""),
        )
    if as_json:
        facts = {"file": str(file), "sha256": found.digest, "signers": dict(found.signers), "unknown": found.unknown}
        print_json(facts | {"verified": True})
        return
    for name, made in found.signers.items():
        out.print(f"{name} signed {file} on {made}.")


def _beside(file: Path) -> Path:
    return file.with_name(file.name + ".sig")


def _promise(file: Path) -> str:
    """What is signed for, in a few words. Files that protect nobody are refused."""
    from dpsketch.sketch.released import ReleasedSketch

    try:
        released = ReleasedSketch.load(file)
    except FileError:
        from dpsketch.learn.saved import is_model, load_model

        if not is_model(file):
            raise
        model = load_model(file)
        private, promise = model.statement_["private"], f"a {type(model).__name__}"
    else:
        private, promise = released.private, released.promise
    if not private:
        raise FileError(f"{file} is not private: there is nothing to sign for", "sign a private release")
    return promise


def asked_passphrase(key: Path) -> str | None:
    """The passphrase of a key file that needs one."""
    from dpsketch.files.signatures import needs_passphrase

    return _passphrase(f"Passphrase of {key}") if needs_passphrase(key) else None


def _passphrase(question: str, confirm: bool = False) -> str:
    """The passphrase from the environment, or from a person at a terminal."""
    known = os.environ.get(PASSPHRASE_VARIABLE)
    if known is not None:
        return known
    if not sys.stdin.isatty():
        raise FileError("a passphrase is needed, and there is nobody to ask", f"set {PASSPHRASE_VARIABLE}")
    return str(typer.prompt(question, hide_input=True, confirmation_prompt=confirm, err=True))
