"""Knowledge graphs: files of triples of head, relation and tail, as FB15k, WN18 and Freebase are published.

A folder has a file for each part, whose name contains `train`, `valid` and `test`; a file alone is all of the graph. A
line is a triple, its values separated by tabs, or by spaces if it has no tab:

- head, relation, tail (FB15k, WN18 and their successors; any TSV), perhaps with a `.` after them (Freebase's own dump);
- head, tail, relation after a first line with the number of triples (OpenKE, and Freebase as DGL-KE has it).

Entities and relations are numbered by the order of their names' hashes over all parts, so the numbers follow from the
names alone. Entities are the ids 0 to E - 1 of table 0, of which negatives can be drawn; relations are of table 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from esd.data.dataset import columns_of
from esd.data.hashing import READER_VERSION, field_key, hash_bytes
from esd.data.known_files import KnownFiles
from esd.data.lines import first_lines, read_line_blocks
from esd.data.paths import find_files
from esd.data.reader import ReadRequest
from esd.data.records import Column, Kind, RecordReader, TextFormat
from esd.data.remote import DataFile
from esd.data.schema import TableOptions
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature
from esd.services.domain.ids import distinct_values, in_table
from esd.services.domain.negatives import Negatives

_PARTS = ("train", "valid", "test")
_ENTITY, _RELATION = range(2)  # the numbers of their tables
_COLUMNS = {"h": Column("entity", Kind.ID), "r": Column("relation", Kind.ID), "t": Column("entity", Kind.ID)}
_OPTIONS = ("part", "negatives", "chunk", "relation-dim", "entity-norm")
_NEGATIVES = 200  # of a chunk (FRUGAL §4.1, after DGL-KE)


@dataclass(frozen=True, slots=True)
class Triples:
    """All triples of a graph.

    Attributes:
        parts: by the name of the part, uint64 [n, 3]: the numbers of head, relation and tail.
        entities: uint64 [E], the hash of each entity's name, ascending.
        relations: uint64 [R], the same of the relations.
    """

    parts: dict[str, NDArray[np.uint64]]
    entities: NDArray[np.uint64]
    relations: NDArray[np.uint64]

    def entity(self, name: str) -> int:
        """Returns the number of an entity, which is its id in table 0. Raises InvalidArgument if it has none."""
        return _number_of(name, "entity", self.entities)

    def relation(self, name: str) -> int:
        """Returns the number of a relation. Raises InvalidArgument if it has none."""
        return _number_of(name, "relation", self.relations)

    @property
    def known(self) -> NDArray[np.uint64]:
        """The triples of all parts, uint64 [n, 3]."""
        return np.concatenate(list(self.parts.values()))


class GraphDataset:
    """A `Dataset` of the triples of one part of a graph, in the order of its file. All parts are read on opening.

    The argument of the request is a folder or a file, then perhaps `?` and options: `part` (train, valid or test),
    `negatives`, the number of entities that a chunk of samples shares as negatives, `chunk`, its samples (0: all of a
    global batch), `relation-dim`, the values of a relation's row (0: as many as an entity's), and `entity-norm`, the
    largest Euclidean norm of an entity's row after each training (0: any).

    Attributes:
        triples: of all parts.
        negatives: by the options; None: none.
        table_options: by the options, of the entities and of the relations.

    Raises:
        InvalidArgument: a file does not exist or is malformed, a part is missing, or an option is wrong.
    """

    name = "graph"
    features = (Feature("head", _ENTITY), Feature("relation", _RELATION), Feature("tail", _ENTITY))
    labels = ("label",)
    dense_features = ()
    endless = False

    def __init__(self, request: ReadRequest) -> None:
        place, _, options = request.argument.partition("?")
        given = _options(options)
        self._part = given.get("part", "train")
        if not place:
            raise InvalidArgument("data 'graph' names no file, write graph:FOLDER or graph:FILE")
        files = _files_of_parts(find_files(place, request.folder))
        if self._part not in files:
            raise InvalidArgument(f"graph {place} has no part {self._part!r}: it has {', '.join(files)}")
        self._known = KnownFiles(tuple(files.values()))
        self._batch_size = request.batch_size
        self.triples, self.skipped = _read(files, request.skip_bad)
        self.samples: int | None = len(self.triples.parts[self._part])
        count, chunk = (_number(given, name, default) for name, default in (("negatives", _NEGATIVES), ("chunk", 0)))
        dim = _number(given, "relation-dim", 0)
        self.table_options = {
            "": TableOptions(max_norm=_norm(given)),
            "relation": TableOptions(dim=dim or None),
        }
        self.negatives = Negatives("negative", len(self.triples.entities), count, _ENTITY, chunk) if count else None

    @property
    def fingerprint(self) -> str:
        """Names the reader, the content of the files, on which the numbers depend, and the part."""
        return f"{self.name} ({self._known.content}, reader {READER_VERSION}); {self._part}"

    @property
    def known(self) -> NDArray[np.uint64]:
        """The triples of all parts, uint64 [n, 3]: ids of head, relation and tail, as in a sample."""
        return in_table(self.triples.known, np.array([_ENTITY, _RELATION, _ENTITY], np.uint64))

    def __iter__(self) -> Iterator[SampleBatch]:
        columns = columns_of(self)
        triples = in_table(self.triples.parts[self._part], np.array([_ENTITY, _RELATION, _ENTITY], np.uint64))
        for start in range(0, len(triples), self._batch_size):
            part = triples[start : start + self._batch_size]
            yield SampleBatch.of_fields(
                part, np.empty((len(part), 0), np.float32), np.ones(len(part), np.float32)
            ).named(columns)


def _number_of(name: str, what: str, hashes: NDArray[np.uint64]) -> int:
    wanted = hash_bytes(field_key(what), name.encode())
    at = int(np.searchsorted(hashes, np.uint64(wanted)))
    if at == len(hashes) or int(hashes[at]) != wanted:
        raise InvalidArgument(f"the graph has no {what} {name!r}")
    return at


def _options(text: str) -> dict[str, str]:
    options = dict(parse_qsl(text, keep_blank_values=True))
    if unknown := options.keys() - set(_OPTIONS):
        raise InvalidArgument(f"graph has no option {min(unknown)!r}; there are {', '.join(_OPTIONS)}")
    return options


def _number(options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal():
        raise InvalidArgument(f"option {name} of graph is {text!r}, it must be a whole number from 0 on")
    return int(text)


def _norm(options: dict[str, str]) -> float:
    text = options.get("entity-norm", "0")
    try:
        norm = float(text)
    except ValueError:
        norm = math.nan
    if not 0 <= norm < math.inf:
        raise InvalidArgument(f"option entity-norm of graph is {text!r}, it must be a number from 0 on")
    return norm


def _files_of_parts(files: tuple[DataFile, ...]) -> dict[str, DataFile]:
    """Returns the file of each part, in the order of `_PARTS`; a file alone is the part `train`."""
    if len(files) == 1:
        return {"train": files[0]}
    found: dict[str, DataFile] = {}
    for part in _PARTS:
        named = [file for file in files if part in file.name.lower()]
        if len(named) > 1:
            raise InvalidArgument(f"{named[0]} and {named[1]} are both named {part}: a part of a graph is one file")
        if named:
            found[part] = named[0]
    if "train" not in found:
        raise InvalidArgument(f"of {', '.join(file.name for file in files)} none is named train")
    return found


def _read(files: dict[str, DataFile], skip_bad: int) -> tuple[Triples, int]:
    """Returns the numbered triples of all parts, and how many malformed lines were skipped."""
    hashed, skipped = {}, 0
    for part, file in files.items():
        hashed[part], of_file = _hashes(file, skip_bad - skipped)
        skipped += of_file
    entities = distinct_values(np.concatenate([triples[:, ::2].reshape(-1) for triples in hashed.values()]))
    relations = distinct_values(np.concatenate([triples[:, 1] for triples in hashed.values()]))
    numbered = {}
    for part, triples in hashed.items():
        head, relation, tail = (
            np.searchsorted(known, triples[:, column]) for column, known in enumerate((entities, relations, entities))
        )
        numbered[part] = np.column_stack((head, relation, tail)).astype(np.uint64)
    return Triples(numbered, entities, relations), skipped


def _hashes(file: DataFile, skip_bad: int) -> tuple[NDArray[np.uint64], int]:
    """Returns the hashes of head, relation and tail of each triple of a file, uint64 [n, 3], and the lines skipped."""
    first, _, rest = first_lines(file).partition(b"\n")
    counted = first.strip().isdigit()
    line = rest.partition(b"\n")[0] if counted else first
    delimiter = "\t" if b"\t" in line else " "
    order = "htr" if counted else "hrt"
    columns = [_COLUMNS[each] for each in order]
    if line.rstrip().endswith(delimiter.encode() + b"."):
        columns.append(Column(".", Kind.SKIP))
    reader = RecordReader(TextFormat(tuple(columns), delimiter), skip_bad)
    blocks = read_line_blocks(file)
    read = reader.read(str(file), _without_first_line(blocks) if counted else blocks, lines=int(counted))
    found = [records.ids for records in read]
    if not found:
        raise InvalidArgument(f"{file}: no line is a triple of {', '.join(each.name for each in columns)}")
    triples = np.concatenate(found)[:, [order.index(each) for each in "hrt"]]
    if counted and len(triples) + reader.skipped != int(first):
        raise InvalidArgument(f"{file}: the first line counts {int(first)} triples, there are {len(triples)}")
    return triples, reader.skipped


def _without_first_line(blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield next(blocks).partition(b"\n")[2]
    yield from blocks
