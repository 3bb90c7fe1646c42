"""Which files a data set is read from, and in which order.

One file; all files of a folder, but those that are hidden: their names, or those of folders they are in, begin with a
dot or an underscore; those of a pattern such as `day_*.gz` or `events/day=*/*.parquet`; or several of these, separated
by commas, one behind the other. Files of a folder or pattern follow each other by name, and numbers in names by value:
day_2 comes before day_10.
"""

from __future__ import annotations

import re
from pathlib import Path

from esd.services.domain.errors import InvalidArgument, NotFound

_NUMBER = re.compile(r"([0-9]+)")
_HIDDEN = (".", "_")  # as of Spark's _SUCCESS, and of copies that are not complete


def find_files(patterns: str, start: Path, endings: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """Returns the files that somebody's text stands for, at least one, each once.

    Args:
        patterns: what the user wrote. A file whose name has a comma in it is meant before several files are.
        start: where relative paths start.
        endings: that files must have; those of a folder that have another are left out. None are given: any.

    Raises:
        NotFound: there is no file.
        InvalidArgument: a file has another ending, is no regular file or is meant twice; a folder cannot be read.
    """
    try:
        whole = (start / Path(patterns).expanduser()).exists()
        each_one = [patterns] if whole else [part.strip() for part in patterns.split(",")]
        if "" in each_one:
            raise InvalidArgument(f"data files {patterns!r} name nothing before or behind a comma")
        found = [file for each in each_one for file in _found(start / Path(each).expanduser(), endings)]
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"data files {patterns!r} cannot be found: {error}") from error
    seen: set[Path] = set()
    for file in found:
        if not file.name.endswith(endings or ""):
            raise InvalidArgument(f"data file {file} must end in one of {', '.join(endings)}")
        if file in seen:
            raise InvalidArgument(f"data file {file} is meant more than once by {patterns!r}")
        seen.add(file)
    return tuple(found)


def _found(path: Path, endings: tuple[str, ...]) -> list[Path]:
    if path.is_dir():
        found = [
            file
            for file in path.rglob("*")
            if file.is_file() and file.name.endswith(endings or "") and not _is_hidden(file.relative_to(path))
        ]
        nothing = f"folder {path} has no file" + (f" that ends in {', '.join(endings)}" if endings else "")
    elif path.exists():
        if not path.is_file():
            raise InvalidArgument(f"data file {path} is not a file, a folder or a pattern of files")
        return [path]
    else:
        root = Path(path.anchor)
        found = [file for file in root.glob(str(path.relative_to(root))) if file.is_file()]
        nothing = f"data file {path} does not exist"
    if not found:
        raise NotFound(nothing)
    return sorted(found, key=_by_name)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(_HIDDEN) and "=" not in part for part in path.parts)  # `_day=3` has the rows of a day


def _by_name(file: Path) -> list[tuple[list[str | int], str]]:
    """Returns what orders files by name: of each part of the path its texts, and between them its numbers."""
    return [
        ([int(piece) if piece.isdecimal() else piece for piece in _NUMBER.split(part)], part) for part in file.parts
    ]
