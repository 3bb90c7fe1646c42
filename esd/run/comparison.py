"""Runs beside each other, from their folders: one document, and a page that needs no server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from esd.dispatcher.service.page.saved import comparison_page
from esd.run.record import HISTORY, PAGE, RUN, RUN_FORMAT
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.whole_files import write_whole

MOST_RUNS = 24  # of one page, whose charts have a line for each


def page_of(folder: Path) -> Path:
    """Returns the page of a run. Raises InvalidArgument if the folder has none."""
    if not (folder / PAGE).is_file():
        raise InvalidArgument(f"{folder} has no {PAGE}: name a folder that `esd train --out` has written")
    return folder / PAGE


def write_comparison(folders: Sequence[Path], page: Path) -> None:
    """Writes a page that shows several runs beside each other, by figures, options and charts.

    Args:
        folders: of the runs, 2 to 24, as `esd train --out` writes them.
        page: file of the page.

    Raises:
        InvalidArgument: a folder is not one of a run, or there are too many.
    """
    if len(folders) > MOST_RUNS:
        raise InvalidArgument(f"{len(folders)} runs do not fit one page: name at most {MOST_RUNS}")
    document = json.dumps({"runs": described(folders)}, allow_nan=False)
    html = comparison_page(document, datetime.now(UTC))
    write_whole(page, lambda file: file.write(html.encode()))


def described(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Returns for each run its options, figures, samples, points of the charts, evaluations.

    Raises:
        InvalidArgument: a folder is not one of a run.
    """
    return [_run(folder) | {"name": name} for name, folder in zip(_names(folders), folders, strict=True)]


def _names(folders: Sequence[Path]) -> list[str]:
    """Returns the shortest ends of the paths by which they differ; the paths themselves, if one is given twice."""
    paths = [folder.absolute().parts for folder in folders]
    for length in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-length:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _run(folder: Path) -> dict[str, Any]:
    run = _read(folder, RUN)
    if run.get("format") != RUN_FORMAT:
        raise InvalidArgument(f"{folder / RUN} has format {run.get('format')}, this version reads {RUN_FORMAT}")
    lines = [json.loads(line) for line in _text(folder, HISTORY).splitlines()]
    labels = run["job"]["labels"]
    return {
        **run["job"],
        **{name: run[name] for name in ("data", "options", "figures")},
        "points": [line for line in lines if line["kind"] == "point"],
        # Of the first label, by which models are compared.
        "evaluations": [line for line in lines if line["kind"] == "evaluation" and line["label"] == labels[0]],
    }


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads(_text(folder, name))
    except ValueError as error:
        raise InvalidArgument(f"{folder / name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise InvalidArgument(f"{folder / name} is not the record of a run")
    return content


def _text(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text("utf-8")
    except OSError as error:
        raise InvalidArgument(
            f"{folder} is not the folder of a run: {error.strerror or error}: {name}; `esd train --out` writes it"
        ) from error
