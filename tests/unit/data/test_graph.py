"""Files of triples: every published form gives the same graph, whose numbers follow from its names."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from esd.data.opening import open_data
from esd.data.readers.graph import GraphDataset
from esd.data.schema import job_tables
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.negatives import Negatives
from esd.services.domain.tables import OptimizerSpec, TableSpec

TRAIN = [("/m/paris", "/capital of", "/m/france"), ("/m/rome", "/capital of", "/m/italy"),
         ("/m/france", "/borders", "/m/italy")]  # fmt: skip
TEST = [("/m/italy", "/borders", "/m/austria")]


def opened(folder: Path, uri: str, **options: int) -> GraphDataset:
    dataset = open_data(f"graph:{uri}", 2, seed=0, data_dir=folder, **options)
    assert isinstance(dataset, GraphDataset)
    return dataset


def names(dataset: GraphDataset) -> list[tuple[str, str, str]]:
    entities = {dataset.triples.entity(name): name for triple in [*TRAIN, *TEST] for name in triple[::2]}
    relations = {dataset.triples.relation(name): name for _, name, _ in [*TRAIN, *TEST]}
    ids = np.concatenate([batch.by_field for batch in dataset])
    assert (ids >> np.uint64(56) == [0, 1, 0]).all()  # the tables of entities and of relations
    return [(entities[h], relations[r % 2**56], entities[t]) for h, r, t in ids.tolist()]


def tabs(triples: list[tuple[str, str, str]], end: str = "") -> bytes:
    return "".join("\t".join(triple) + f"{end}\n" for triple in triples).encode()


def counted(triples: list[tuple[str, str, str]]) -> bytes:
    lines = [f"{h} {t} {r}" for h, r, t in triples]
    return "\n".join([str(len(triples)), *lines]).encode()


WITHOUT_SPACES = [tuple(name.replace(" ", "_") for name in triple) for triple in TRAIN]


@pytest.mark.parametrize(
    ("train", "test", "content"),
    [
        ("train.txt", "test.txt", tabs),
        ("freebase_mtr100_mte100-train.txt", "freebase_mtr100_mte100-test.txt", tabs),
        ("train.tsv.gz", "test.tsv.gz", lambda triples: gzip.compress(tabs(triples))),
        ("dump-train.nt", "dump-test.nt", lambda triples: tabs(triples, "\t.")),
    ],
    ids=["WN18", "FB15k", "gzip", "Freebase dump"],
)
def test_every_form_gives_the_same_triples(tmp_path: Path, train: str, test: str, content) -> None:
    (tmp_path / train).write_bytes(content(TRAIN))
    (tmp_path / test).write_bytes(content(TEST))
    dataset = opened(tmp_path, ".")
    assert names(dataset) == TRAIN
    assert names(opened(tmp_path, ".?part=test")) == TEST
    assert dataset.samples == 3
    assert len(dataset.known) == 4
    assert all((batch.labels == 1).all() for batch in dataset)


def test_a_first_line_with_the_number_of_triples_tells_that_the_relation_is_last(tmp_path: Path) -> None:
    (tmp_path / "train2id.txt").write_bytes(counted(WITHOUT_SPACES))
    (tmp_path / "plain.txt").write_bytes(tabs(WITHOUT_SPACES))
    first, second = (opened(tmp_path, file) for file in ("train2id.txt", "plain.txt"))
    assert [b.ids.tolist() for b in first] == [b.ids.tolist() for b in second]
    assert first.fingerprint != second.fingerprint  # as the files differ


def test_numbers_are_dense_and_depend_on_the_names_alone(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(tabs(TRAIN[::-1]))
    (tmp_path / "test.txt").write_bytes(tabs(TEST))
    (tmp_path / "all.txt").write_bytes(tabs(TRAIN + TEST))
    parts, whole = opened(tmp_path, "train.txt,test.txt"), opened(tmp_path, "all.txt")
    assert sorted({*parts.known[:, ::2].flat}) == list(range(5))
    assert {tuple(each) for each in parts.known.tolist()} == {tuple(each) for each in whole.known.tolist()}
    with pytest.raises(InvalidArgument, match="no entity 'atlantis'"):
        whole.triples.entity("atlantis")


def test_options_ask_for_negatives_of_all_entities_and_for_the_size_of_relations(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(tabs(TRAIN))
    assert opened(tmp_path, "train.txt").negatives == Negatives("negative", ids=4, count=200)
    dataset = opened(tmp_path, "train.txt?negatives=7&chunk=3&relation-dim=8&entity-norm=1.5")
    assert dataset.negatives == Negatives("negative", ids=4, count=7, chunk=3)
    first = TableSpec("t", 16, OptimizerSpec(), seed=1, init_scale=0.25)
    entities, relations = job_tables(None, dataset.features, first, dataset.table_options)
    assert (entities.dimension, entities.optimizer.max_norm) == (16, 1.5)
    assert (relations.dimension, relations.optimizer.max_norm) == (8, 0)
    assert opened(tmp_path, "train.txt?negatives=0").negatives is None


@pytest.mark.parametrize(
    ("content", "uri", "message"),
    [
        (b"a\tb\n", "train.txt", r"train.txt:1: .*expected"),
        (b"a\tb\tc\nd\te\n", "train.txt", r"train.txt:2: "),
        (b"2\na b c\nd e\n", "train.txt", r"train.txt:3: "),
        (b"3\na b c\n", "train.txt", "counts 3 triples, there are 1"),
        (b"", "train.txt", "no line is a triple"),
        (b"a\tb\tc\n", "train.txt?part=valid", "no part 'valid': it has train"),
        (b"a\tb\tc\n", "train.txt?negative=3", "no option 'negative'"),
        (b"a\tb\tc\n", "train.txt?chunk=-1", "option chunk of graph is '-1'"),
        (b"a\tb\tc\n", "train.txt?entity-norm=-1", "option entity-norm of graph is '-1'"),
        (b"a\tb\tc\n", "train.txt?entity-norm=inf", "option entity-norm of graph is 'inf'"),
        (b"a\tb\tc\n", "", "names no file"),
    ],
)
def test_what_is_no_graph_is_refused(tmp_path: Path, content: bytes, uri: str, message: str) -> None:
    (tmp_path / "train.txt").write_bytes(content)
    with pytest.raises(InvalidArgument, match=message):
        opened(tmp_path, uri)


def test_skipped_lines_are_counted_over_all_parts(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(b"a\tb\tc\nd\te\n")
    (tmp_path / "test.txt").write_bytes(b"x\na\tb\tc\n"[2:] + b"y\tz\n")
    assert opened(tmp_path, ".", skip_bad=2).skipped == 2
    with pytest.raises(InvalidArgument, match="--skip-bad"):
        opened(tmp_path, ".", skip_bad=1)
