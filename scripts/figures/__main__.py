"""`python -m scripts.figures [--check] [--measured] [WORD]`: writes the figures into the pages, or compares."""

from __future__ import annotations

import argparse
import sys

from scripts.figures.compare import stale
from scripts.figures.entries import ROOT, read_list
from scripts.figures.passage import rewritten


def main() -> None:
    """Tells every figure that is not as the page says; the exit code is 1 if only comparing, and there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--measured", action="store_true", help="those that depend on the machine or take long")
    parser.add_argument("word", nargs="?", default="", help="only entries that have it in page, text or command")
    chosen = parser.parse_args()
    outdated = 0
    for figure in read_list():
        if figure.exact == chosen.measured or chosen.word not in f"{figure}{figure.text}{figure.command}":
            continue
        _tell(str(figure))
        page = ROOT / figure.page
        changes = stale(figure, page.read_text())
        if figure.by_hand:
            _tell(f"    by hand: {figure.command}")
        for place, text in changes:
            _tell(f"    {place.expression}: the page says {place.shown}, it is {text}")
        outdated += len(changes)
        if changes and not chosen.check:
            text = page.read_text()  # an editor may have changed it meanwhile; nothing is measured again
            page.write_text(rewritten(text, stale(figure, text)))
    sys.exit(1 if outdated and chosen.check else 0)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
