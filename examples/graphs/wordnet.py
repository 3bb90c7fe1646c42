"""Makes a knowledge graph of WordNet 3.0: the synsets are entities, and 18 of its pointers are relations, as in WN18.

    apt-get install wordnet-base
    python examples/graphs/wordnet.py wordnet/ --synsets 6000
    esd train --data 'graph:wordnet/?negatives=100' --model complex --loss own --lr 0.2 --epochs 30 --shuffle 1000000

It reads the files of Debian's package wordnet-base, and writes train.txt, valid.txt and test.txt. A relation and its
inverse are both in the graph, as in WN18, so the inverse of most held-out triples is trained.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

WORDNET = Path("/usr/share/wordnet")
RELATIONS = {
    "@": "_hypernym",
    "~": "_hyponym",
    "@i": "_instance_hypernym",
    "~i": "_instance_hyponym",
    "#m": "_member_holonym",
    "%m": "_member_meronym",
    "#p": "_part_of",
    "%p": "_has_part",
    "+": "_derivationally_related_form",
    "^": "_also_see",
    "$": "_verb_group",
    "&": "_similar_to",
    ";c": "_synset_domain_topic_of",
    "-c": "_member_of_domain_topic",
    ";r": "_synset_domain_region_of",
    "-r": "_member_of_domain_region",
    ";u": "_synset_domain_usage_of",
    "-u": "_member_of_domain_usage",
}
_PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
_HELD_OUT = 30  # one in 30 triples is in valid.txt, and one in test.txt

Triple = tuple[str, str, str]


def triples(folder: Path) -> Iterator[Triple]:
    """Yields the triples of WordNet's data files (wndb(5WN)): a synset is a letter and the offset of its line."""
    for name, letter in _PARTS.items():
        for line in (folder / f"data.{name}").read_text("latin-1").splitlines():
            if line.startswith("  "):
                continue  # the licence
            fields = line.partition(" | ")[0].split(" ")
            first = 4 + 2 * int(fields[3], 16)  # after the words
            for at in range(first + 1, first + 1 + 4 * int(fields[first]), 4):
                symbol, offset, part, _ = fields[at : at + 4]
                if symbol in RELATIONS:
                    yield letter + fields[0], RELATIONS[symbol], part.replace("s", "a") + offset


def most_connected(all_triples: set[Triple], synsets: int) -> list[Triple]:
    """Returns the triples between the synsets that are in most of them, sorted; 0 stands for all synsets."""
    if not synsets:
        return sorted(all_triples)
    degrees = Counter(entity for head, _, tail in all_triples for entity in (head, tail))
    kept = set(sorted(degrees, key=lambda entity: (-degrees[entity], entity))[:synsets])
    return sorted(each for each in all_triples if each[0] in kept and each[2] in kept)


def write(folder: Path, chosen: list[Triple], seed: int = 0) -> dict[str, int]:
    """Writes the parts, in an order that the seed decides. Every entity and relation is in train.txt.

    Returns:
        The number of triples of each part.
    """
    order = np.random.default_rng(seed).permutation(len(chosen)).tolist()
    seen: set[str] = set()
    parts: dict[str, list[Triple]] = {"train": [], "valid": [], "test": []}
    for place, at in enumerate(order):
        triple = chosen[at]
        new = not seen.issuperset(triple)
        part = "train" if new or place % _HELD_OUT > 1 else ("valid", "test")[place % _HELD_OUT]
        parts[part].append(triple)
        seen.update(triple)
    folder.mkdir(parents=True, exist_ok=True)
    for part, of_part in parts.items():
        (folder / f"{part}.txt").write_text("".join("\t".join(triple) + "\n" for triple in of_part))
    return {part: len(of_part) for part, of_part in parts.items()}


def main() -> None:
    """Writes the graph, and prints the number of triples of each part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the files that are written")
    parser.add_argument("--synsets", type=int, default=0, help="keep the most connected ones; 0, the default: all")
    parser.add_argument("--wordnet", type=Path, default=WORDNET, help="folder of WordNet's data files")
    chosen = parser.parse_args()
    print(write(chosen.folder, most_connected(set(triples(chosen.wordnet)), chosen.synsets)))


if __name__ == "__main__":
    main()
