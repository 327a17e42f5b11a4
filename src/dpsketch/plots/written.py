"""Pictures as files: SVG by itself, PNG by CairoSVG."""

from __future__ import annotations

from pathlib import Path

from dpsketch.errors import FileError, MissingExtraError
from dpsketch.extras import extra
from dpsketch.files.outputs import written

ENDINGS = (".svg", ".png")


def write_picture(path: str | Path, drawn: str, force: bool = True) -> None:
    """Write a picture under a name that ends in .svg or .png."""
    ending = Path(path).suffix
    if ending not in ENDINGS:
        raise FileError(f"{path} does not end in .svg or .png", "choose one of these endings")
    content = drawn.encode() if ending == ".svg" else _png(drawn)
    with written(path, force) as file:
        file.write(content)


def _png(drawn: str) -> bytes:
    with extra():
        try:
            import cairosvg
        except OSError:  # the package is there, but not the program library that it calls
            raise MissingExtraError(
                "drawing a PNG needs the Cairo library", "choose a name that ends in .svg"
            ) from None
    found: bytes = cairosvg.svg2png(bytestring=drawn.encode(), scale=2)
    return found
