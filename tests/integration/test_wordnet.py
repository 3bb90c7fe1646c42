"""The example that makes a graph of WordNet, on files in WordNet's format: its triples, and their training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from esd.run.options import RunOptions
from esd.services.domain.losses import Loss
from tests.support import training

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "graphs" / "wordnet.py"
SYNSETS = 120
LICENCE = "  1 This software and database is being provided to you, the LICENSEE.\n"


def synset(offset: int, kind: str, words: int, pointers: list[tuple[str, int, str]], frames: str = "") -> str:
    """A line of a data file, as wndb(5WN) describes it."""
    named = " ".join(f"word{number} 0" for number in range(words))
    pointed = "".join(f"{symbol} {to:08d} {part} 0000 " for symbol, to, part in pointers)
    return f'{offset:08d} 03 {kind} {words:02x} {named} {len(pointers):03d} {pointed}{frames}| a gloss; "@ 1 n 0000"\n'


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    """A tree of nouns, verbs without triples but of a group, and adjectives with satellites."""
    folder = tmp_path / "wordnet"
    folder.mkdir()
    nouns = []
    for at in range(SYNSETS):
        below = [each for each in (3 * at + 1, 3 * at + 2, 3 * at + 3) if each < SYNSETS]
        above = [("@", (at - 1) // 3, "n")] if at else []
        nouns.append(synset(at, "n", 1 + at % 17, [*above, *(("~", each, "n") for each in below)]))
    (folder / "data.noun").write_text(LICENCE + "".join(nouns))
    (folder / "data.verb").write_text(
        synset(7, "v", 2, [("$", 9, "v"), ("!", 9, "v")], "01 + 02 00 ") + synset(9, "v", 1, [])
    )
    (folder / "data.adj").write_text(synset(5, "a", 1, [("&", 6, "s")]) + synset(6, "s", 1, [("&", 5, "a")]))
    (folder / "data.adv").write_text(LICENCE)
    return folder


def made(wordnet: Path, graph: Path, *options: str) -> set[tuple[str, ...]]:
    """The triples of all parts that the example writes."""
    command = [sys.executable, str(SCRIPT), str(graph), "--wordnet", str(wordnet), *options]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    lines = [line for part in ("train", "valid", "test") for line in (graph / f"{part}.txt").read_text().splitlines()]
    assert len(lines) == len(set(lines))
    return {tuple(line.split("\t")) for line in lines}


def test_synsets_are_entities_and_pointers_are_triples(wordnet: Path, tmp_path: Path) -> None:
    triples = made(wordnet, tmp_path / "graph")
    down = {(f"n{(at - 1) // 3:08d}", "_hyponym", f"n{at:08d}") for at in range(1, SYNSETS)}
    up = {(tail, "_hypernym", head) for head, _, tail in down}
    similar = {("a00000005", "_similar_to", "a00000006"), ("a00000006", "_similar_to", "a00000005")}
    assert triples == down | up | similar | {("v00000007", "_verb_group", "v00000009")}
    few = made(wordnet, tmp_path / "few", "--synsets", "30")
    assert few < triples
    assert len({entity for head, _, tail in few for entity in (head, tail)}) <= 30


def test_the_graph_trains_and_ranks_its_held_out_triples(wordnet: Path, tmp_path: Path) -> None:
    graph = tmp_path / "graph"
    made(wordnet, graph)
    trained = [line.split("\t") for line in (graph / "train.txt").read_text().splitlines()]
    held_out = [line.split("\t") for line in (graph / "test.txt").read_text().splitlines()]
    assert len(held_out) > 3
    assert {name for triple in held_out for name in triple} <= {name for triple in trained for name in triple}
    options = RunOptions(
        data=f"graph:{graph}?negatives=20",
        evaluate=f"graph:{graph}?part=test",
        model="complex",
        loss=Loss.OWN,
        workers=2,
        batch=32,
        dim=16,
        links="1g",
        learning_rate=0.2,
        epochs=40,
        shuffle=1000,
    )
    held_out_figures = training.run(options, store="memory")["held_out"]
    assert held_out_figures["mrr"] > 0.5  # by chance 0.045
