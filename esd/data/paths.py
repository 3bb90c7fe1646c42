"""Which files a data set is read from, and in which order.

The text of `--data` is one file; a folder, of which all files are read except hidden ones, whose names or folders begin
with a dot or an underscore; a pattern such as `day_*.gz` or `events/day=*/*.parquet`, without hidden
files unless its last part begins so, too; or several of these, separated by
commas, in the order in which they are written. Each may be an address in an object store instead, such as
`s3://bucket/day=*/*.parquet` (esd/data/remote.py). Files of a folder or pattern follow each other by name, and numbers
in names by value: day_2 comes before day_10. Links are followed; a folder that is reached twice is read once.
"""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath
from urllib.parse import unquote

from esd.data.remote import DataFile, RemoteFile, is_remote, remote_files
from esd.services.domain.errors import InvalidArgument

_log = logging.getLogger(__name__)

_NUMBER = re.compile(r"([0-9]+)")
_HIDDEN = (".", "_")  # as of Spark's _SUCCESS, and of incomplete copies
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_SHOWN = 5  # names of files in a message


def find_files(
    patterns: str, start: Path, endings: tuple[str, ...] = (), recognised: Callable[[DataFile], bool] | None = None
) -> tuple[DataFile, ...]:
    """Returns the files of a text, at least one, each once.

    Args:
        patterns: the user's text. A file whose name has a comma in it takes precedence over several files.
        start: where relative paths start.
        endings: the endings of readable files; empty: any. Other files of a folder are left out, and a warning names
            them.
        recognised: decides by its content whether a file with another ending is readable, too.

    Raises:
        InvalidArgument: there is no such file; a file has another ending, is no regular file, is a link without a
            target, has a name that is not UTF-8 or is named twice; a folder or a store cannot be read; an address is
            of no store that is read.
    """
    search = _Search(endings, recognised or (lambda _: False))
    try:
        whole = os.path.lexists(start / Path(patterns).expanduser())
        each_one = [patterns] if whole else [part.strip() for part in patterns.split(",")]
        if "" in each_one:
            raise InvalidArgument(f"data files {patterns!r} have an empty name before or after a comma")
        found = [
            file
            for each in each_one
            for file in (search.remote(each) if is_remote(each) else search.files(start / Path(each).expanduser()))
        ]
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"data files {_written(patterns)!r} cannot be found: {error}") from error
    seen: set[DataFile] = set()
    for file in found:
        if _written(str(file)) != str(file):
            raise InvalidArgument(f"data file {_written(str(file))} has a name that is not UTF-8: rename it")
        if not search.reads(file):
            raise InvalidArgument(f"data file {file} must end in one of {', '.join(endings)}")
        if file in seen:
            raise InvalidArgument(f"data file {file} is named more than once by {patterns!r}")
        seen.add(file)
    return tuple(found)


def folder_values(file: DataFile) -> dict[str, str | None]:
    """Returns the values that the names of a file's folders state, by column: `day=2026-11-20` (Hive's layout).

    None stands for an absent value. Of two folders with one column, the inner one counts.
    """
    named = [part.partition("=") for part in file.parent.parts if "=" in part]
    return {unquote(name): None if value == _NO_VALUE else unquote(value) for name, _, value in named if name}


class _Search:
    """Finds files of these endings, or with a content that is recognised."""

    def __init__(self, endings: tuple[str, ...], recognised: Callable[[DataFile], bool]) -> None:
        self._endings = endings
        self._recognised = recognised

    def reads(self, file: DataFile) -> bool:
        return file.name.lower().endswith(self._endings or "") or self._recognised(file)

    def remote(self, address: str) -> list[DataFile]:
        named: list[DataFile] = []  # and not their folders
        inside: dict[DataFile, str] = {}
        wanted = PurePath(PurePosixPath(address).name)
        for file, below in remote_files(address):
            matched = PurePath(*file.path.parts[: len(file.path.parts) - len(below.parts)][-1:])
            if _is_hidden(below) or (_is_hidden(matched) and not _is_hidden(wanted)):
                continue
            if below.parts:
                inside[file] = str(below)
            else:
                named.append(file)
        if not named and not inside:
            raise InvalidArgument(f"data file {_written(address)} does not exist")
        return sorted([*named, *(self._readable(inside, address) if inside else ())], key=_by_name)

    def files(self, path: Path) -> list[DataFile]:
        if path.is_dir():
            return self._of_folder(path)
        if os.path.lexists(path):
            _check_link(path)
            if not path.is_file():
                raise InvalidArgument(f"data file {path} is not a file, a folder or a pattern of files")
            return [path]
        found = self._of_pattern(path)
        if not found:
            raise InvalidArgument(f"data file {_written(path)} does not exist")
        return sorted(found, key=_by_name)

    def _of_folder(self, path: Path) -> list[DataFile]:
        found = {file: str(file.relative_to(path)) for file in _walk(path)}
        return self._readable({file: name for file, name in found.items() if not _is_hidden(Path(name))}, path)

    def _readable(self, found: Mapping[DataFile, str], folder: Path | str) -> list[DataFile]:
        """Returns the files of a folder that are read, in their order, and warns of others. `found` has their names."""
        read = [file for file in found if (isinstance(file, RemoteFile) or file.is_file()) and self.reads(file)]
        left_out = sorted(found[file] for file in found.keys() - set(read))
        if not read:
            endings = f" that ends in {', '.join(self._endings)}" if self._endings else ""
            raise InvalidArgument(f"folder {_written(folder)} has no file{endings}")
        if left_out:
            names = ", ".join(map(_written, left_out[:_SHOWN])) + (", ..." if len(left_out) > _SHOWN else "")
            _log.warning(
                "%d files of folder %s are left out, since they are no regular files or of an unknown format: %s",
                len(left_out), _written(folder), names,
            )  # fmt: skip
        return sorted(read, key=_by_name)

    def _of_pattern(self, path: Path) -> list[DataFile]:
        found: dict[Path, DataFile] = {}  # by the real path: `**` reaches a file again through links
        for name in glob.iglob(str(path), recursive=True, include_hidden=True):  # noqa: PTH207 - follows links
            each = Path(name)
            if _is_hidden(Path(each.name)) and not _is_hidden(Path(path.name)):
                continue
            _check_link(each)
            if each.is_dir():
                if not _is_hidden(Path(each.name)) and "**" not in path.parts:
                    for file in self._of_folder(each):
                        found.setdefault(Path(str(file)).resolve(), file)
            else:
                found.setdefault(each.resolve() if "**" in path.parts else each, each)
        return list(found.values())


def _walk(folder: Path) -> Iterator[Path]:
    """Yields all files below a folder, through links, each real folder once."""

    def refuse(error: OSError) -> None:
        raise InvalidArgument(f"folder {_written(error.filename)} cannot be read: {error.strerror}")

    seen: set[tuple[int, int]] = set()
    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        stat = Path(place).stat()
        if (stat.st_dev, stat.st_ino) in seen:
            folders.clear()
            continue
        seen.add((stat.st_dev, stat.st_ino))
        for name in names:
            _check_link(Path(place, name))
            yield Path(place, name)


def _check_link(path: Path) -> None:
    if path.is_symlink() and not path.exists():
        raise InvalidArgument(
            f"data file {_written(path)} is a link to {_written(path.readlink())}, which does not exist"
        )


def _is_hidden(path: PurePath) -> bool:
    return any(part.startswith(_HIDDEN) and "=" not in part for part in path.parts)  # `_day=3` has the rows of a day


def _written(path: PurePath | str) -> str:
    """Returns a path as UTF-8 can write it."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _by_name(file: DataFile) -> list[tuple[list[str | int], str]]:
    """Returns the key that orders files by name: the texts of each part of the path, and their numbers by value."""
    return [
        ([int(piece) if piece.isdecimal() else piece for piece in _NUMBER.split(part)], part) for part in file.parts
    ]
