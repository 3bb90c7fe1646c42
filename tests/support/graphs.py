"""A small knowledge graph, and its training in one process with nothing but torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import JobSpec
from tests.support.reference import initial_rows

ENTITIES, RELATIONS = 90, 5
Score = Callable[[Tensor, Tensor, Tensor], Tensor]


def write_graph(folder: Path, triples: int = 900, seed: int = 0) -> Path:
    """Writes train.txt, valid.txt and test.txt of a graph whose relations are steps around a circle of entities."""
    rng = np.random.default_rng(seed)
    heads = rng.integers(0, ENTITIES, 4 * triples)
    relations = rng.integers(0, RELATIONS, 4 * triples)
    all_triples = np.unique(np.column_stack((heads, relations, (heads + relations * 7 + 1) % ENTITIES)), axis=0)
    extra = rng.integers(0, ENTITIES, (triples, 3)) % np.array([ENTITIES, RELATIONS, ENTITIES])
    chosen = rng.permutation(np.unique(np.concatenate((all_triples, extra)), axis=0))[:triples]
    folder.mkdir(parents=True, exist_ok=True)
    ends = [0, triples - 200, triples - 100, triples]
    for part, first, end in zip(("train", "valid", "test"), ends, ends[1:], strict=False):
        lines = [f"e{head}\tr{relation}\te{tail}\n" for head, relation, tail in chosen[first:end].tolist()]
        (folder / f"{part}.txt").write_text("".join(lines))
    return folder


def write_sparse_graph(folder: Path) -> Path:
    """Writes a graph of 600 entities of which train.txt has 40, so that most negatives are entities of no sample."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    trained = np.column_stack((rng.integers(0, 40, 1200), rng.integers(0, 3, 1200), rng.integers(0, 40, 1200)))
    rest = np.column_stack((np.arange(600), np.zeros(600, np.int64), (np.arange(600) * 7 + 1) % 600))
    for part, triples in (("train", trained), ("valid", rest)):
        lines = [f"e{head}\tr{relation}\te{tail}\n" for head, relation, tail in triples.tolist()]
        (folder / f"{part}.txt").write_text("".join(lines))
    return folder


def _complex(values: Tensor) -> Tensor:
    return torch.complex(*values.chunk(2, dim=-1))


def _simple(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    (h1, h2), (r1, r2), (t1, t2) = (each.chunk(2, dim=-1) for each in (head, relation, tail))
    return ((h1 * r1 * t2).sum(-1) + (t1 * r2 * h2).sum(-1)) / 2


# The scores of triples as their papers write them, of rows [..., D].
SCORES: dict[str, Score] = {
    "transe": lambda h, r, t: 12 - (h + r - t).abs().sum(-1),
    "distmult": lambda h, r, t: (h * r * t).sum(-1),
    "complex": lambda h, r, t: (_complex(h) * _complex(r) * _complex(t).conj()).real.sum(-1),
    "simple": _simple,
    "rotate": lambda h, r, t: 12 - (_complex(h) * torch.exp(1j * r) - _complex(t)).abs().sum(-1),
}


def train_graph(job: JobSpec, batches: Iterable[SampleBatch]) -> Mapping[str, NDArray[np.float32]]:
    """Trains whole tables by SGD, sample by sample of each batch, and returns their rows by name of the table.

    Rows that are longer than the table allows are scaled down after their step.

    Args:
        job: names the score, and has the negatives.
        batches: the global batches.
    """
    assert job.negatives is not None
    score, drawn, stream = SCORES[job.model.name], job.negatives, list(batches)
    counts = (drawn.ids, 1 + max(int(batch.by_field[:, 1].max()) % 2**56 for batch in stream))
    tables = []
    for number, (spec, count) in enumerate(zip(job.tables, counts, strict=True)):
        ids = np.arange(count, dtype=np.uint64) + np.uint64(number << 56)
        tables.append(torch.tensor(initial_rows(spec, ids), requires_grad=True))
    for iteration, batch in enumerate(stream):
        triples = torch.from_numpy((batch.by_field % np.uint64(2**56)).astype(np.int64))
        lists = torch.from_numpy(drawn.drawn(job.seed, iteration, drawn.chunks(len(batch))).astype(np.int64))
        losses = []
        for position, (head, relation, tail) in enumerate(triples.tolist()):
            h, r, t = tables[0][head], tables[1][relation], tables[0][tail]
            others = tables[0][lists[position // drawn.chunk if drawn.chunk else 0]]
            wrong = torch.cat((score(h.expand_as(others), r, others), score(others, r, t.expand_as(others))))
            losses.append((functional.softplus(-score(h, r, t)) + functional.softplus(wrong).mean()) / 2)
        torch.autograd.backward(torch.stack(losses).mean())
        for spec, table in zip(job.tables, tables, strict=True):
            assert table.grad is not None
            with torch.no_grad():
                touched = table.grad.any(dim=1)
                table.sub_(spec.optimizer.learning_rate * table.grad)
                if spec.optimizer.max_norm:
                    table[touched] = torch.renorm(table[touched], 2, 0, spec.optimizer.max_norm)
            table.grad = None
    return {spec.name: table.detach().numpy() for spec, table in zip(job.tables, tables, strict=True)}
