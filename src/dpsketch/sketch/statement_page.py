"""The privacy statement as one self-contained HTML page that prints well, without scripts, fonts or images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dpsketch.sketch.privacy_statement import Lines, not_private, statement_sections

_STYLE = """
@page { size: A4; margin: 20mm 18mm; }
body { font: 15px/1.45 Georgia, "Times New Roman", serif; color: #1a1a1a; background: #fff;
       max-width: 46em; margin: 2.5em auto; padding: 0 1.2em; }
h1 { font-size: 1.7em; margin: 0 0 0.2em; }
h2 { font-size: 1.1em; margin: 2em 0 0.5em; border-bottom: 1.5px solid #1a1a1a; padding-bottom: 0.2em;
     break-after: avoid; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 0.35em 0.8em 0.35em 0; border-bottom: 1px solid #ddd;
         overflow-wrap: anywhere; }
th { font-weight: 600; }
.facts th { width: 9.5em; white-space: nowrap; }
tr { break-inside: avoid; }
.columns, .small { font-size: 0.85em; }
.warning { border: 3px solid #b00020; color: #b00020; padding: 1em; font-weight: 600; }
.signature td { border-bottom: 1px solid #1a1a1a; height: 2.6em; }
.signature { break-inside: avoid; }
@media print { body { margin: 0; max-width: none; font-size: 10.5pt; padding: 0; } }
"""
_SIGNATURES = 2  # lines to sign on: four eyes


def statement_page(facts: Mapping[str, Any], columns: Sequence[Mapping[str, str]] = ()) -> str:
    """A page with the facts of `statement_facts`, the columns of the release, and lines to sign on."""
    name = facts.get("about", {}).get("name")
    title = "Privacy statement" if name is None else f"Privacy statement: {name}"
    if not facts["private"]:
        body = f'<p class="warning">{"<br>".join(map(escape, not_private(dict(facts))))}</p>'
    else:
        sections = statement_sections(dict(facts))
        body = "\n".join(_section(heading, lines, index) for index, (heading, lines) in enumerate(sections))
        body += _columns(columns) + _to_sign()
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f'<p class="small">Made on {escape(str(facts["created"]))} with dpsketch {escape(str(facts["library"]))}.</p>\n'
        f"{body}\n</body>\n</html>\n"
    )


def _section(heading: str, lines: Lines, index: int) -> str:
    shown = "What is promised" if index == 0 else heading.capitalize()
    rows = "\n".join(
        f"<tr><th>{escape(label)}</th><td>{escape(text).replace(chr(10), '<br>')}</td></tr>" for label, text in lines
    )
    kind = "facts" if index == 0 else "facts small"
    return f'<h2>{escape(shown)}</h2>\n<table class="{kind}">\n{rows}\n</table>\n'


def _columns(columns: Sequence[Mapping[str, str]]) -> str:
    if not columns:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns[0])
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in column.values()) + "</tr>" for column in columns
    )
    return f'<h2>Columns</h2>\n<table class="columns">\n<tr>{head}</tr>\n{rows}\n</table>\n'


def _to_sign() -> str:
    blank = "<tr><td></td><td></td><td></td></tr>\n" * _SIGNATURES
    head = "<tr><th>Name</th><th>Date</th><th>Signature</th></tr>"
    return f'<div class="signature"><h2>Signed</h2>\n<table>\n{head}\n{blank}</table></div>'
