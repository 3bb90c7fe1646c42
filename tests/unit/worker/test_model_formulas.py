"""The output of each model, against its formulas written out in plain torch: sample by sample, pair by pair.

The parameters are named, so that these functions also explain the arrays of a `dense.safetensors`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import pytest
import torch
from torch import Tensor

from esd.services.domain.errors import InvalidArgument
from esd.worker.models import MODELS
from esd.worker.models.inputs import InputFeature, Jagged, ModelInputs, SharedLists
from tests.support.graphs import SCORES

DIMENSION, DENSE, HIDDEN = 6, 3, (8, 4)
FEATURES = ("user_id", "user_city", "item_id", "item.brand", "item.price", "hour")
FIELDS = ((0, 1), (2, 3, 4), (5,))
LABELS = ("clicked", "bought")


def mlp(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Linear layers with a ReLU between them."""
    layers = sorted(int(key.split(".")[-2]) for key in state if key.startswith(f"{name}.") and key.endswith("weight"))
    for layer in layers:
        x = state[f"{name}.{layer}.weight"] @ x + state[f"{name}.{layer}.bias"]
        if layer != layers[-1]:
            x = x.clamp(min=0)
    return x


def linear(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return state[f"{name}.weight"] @ x + state[f"{name}.bias"]


def wdl(state: dict[str, Tensor], rows: Tensor, dense: Tensor) -> Tensor:
    deep = mlp(state, "deep", torch.cat((*rows[:, 1:], dense)))
    return rows[:, 0].sum() + state["wide"] @ dense + deep


def dfm(state: dict[str, Tensor], rows: Tensor, dense: Tensor) -> Tensor:
    pairs = sum(a @ b for a, b in combinations(rows[:, 1:], 2))
    deep = mlp(state, "deep", torch.cat((*rows[:, 1:], dense)))
    return rows[:, 0].sum() + state["linear"] @ dense + pairs + deep


def dcn(state: dict[str, Tensor], rows: Tensor, dense: Tensor) -> Tensor:
    first = crossed = torch.cat((*rows, dense))
    for layer in range(3):
        weight, bias = state[f"crosses.{layer}.weight"][0], state[f"crosses.{layer}.bias"]
        crossed = first * (crossed @ weight) + bias + crossed
    return linear(state, "output", torch.cat((crossed, mlp(state, "deep", first).clamp(min=0))))


def dlrm(state: dict[str, Tensor], rows: Tensor, dense: Tensor) -> Tensor:
    bottom = mlp(state, "bottom", dense).clamp(min=0)
    vectors = [bottom, *rows]
    products = [vectors[i] @ vectors[j] for i in range(len(vectors)) for j in range(i)]
    return mlp(state, "top", torch.cat((bottom, torch.stack(products))))


def ncf(state: dict[str, Tensor], rows: Tensor, dense: Tensor) -> Tensor:
    user, item = rows[0, :3], rows[1, :3]
    deep = mlp(state, "deep", torch.cat((*rows[:, 3:], dense))).clamp(min=0)
    return linear(state, "output", torch.cat((user * item, deep)))


def flen(state: dict[str, Tensor], rows: Tensor, dense: Tensor) -> Tensor:
    vectors = rows[:, 1:]
    within = [sum((vectors[i] * vectors[j] for i, j in combinations(field, 2)), torch.zeros(5)) for field in FIELDS]
    sums = [sum(vectors[i] for i in field) for field in FIELDS]
    pooled = sum(share * each for share, each in zip(state["within"][0], within, strict=True))
    pairs = [(i, j) for i in range(len(FIELDS)) for j in range(i)]
    pooled = pooled + sum(share * sums[i] * sums[j] for share, (i, j) in zip(state["between"][0], pairs, strict=True))
    deep = mlp(state, "deep", torch.cat((*vectors, dense))).clamp(min=0)
    return rows[:, 0].sum() + state["linear"] @ dense + linear(state, "output", torch.cat((pooled, deep)))


def mmoe(state: dict[str, Tensor], rows: Tensor, dense: Tensor) -> Tensor:
    x = torch.cat((*rows, dense))
    experts = [mlp(state, f"experts.{expert}", x).clamp(min=0) for expert in range(4)]
    outputs = []
    for label in range(len(LABELS)):
        gate = torch.softmax(state[f"gates.{label}.weight"] @ x, 0)
        mixed = sum(share * expert for share, expert in zip(gate, experts, strict=True))
        outputs.append(mlp(state, f"towers.{label}", mixed))
    return torch.cat(outputs)


def tbsm(state: dict[str, Tensor], rows: Tensor, dense: Tensor, histories: Sequence[Tensor]) -> Tensor:
    """Two histories: the first is compared with the first feature of its table, the second, of a table of its own, with
    the first of all."""
    vectors = [*rows]
    for at, (history, target) in enumerate(zip(histories, (2, 0), strict=True)):
        query = state[f"attention.{at}.weight"] @ rows[target]
        weights = [(query @ seen / math.sqrt(DIMENSION)).exp() for seen in history]
        parts = (weight / sum(weights) * seen for weight, seen in zip(weights, history, strict=True))
        vectors.append(sum(parts, torch.zeros(DIMENSION)))
    vectors.append(mlp(state, "bottom", dense).clamp(min=0))
    products = [vectors[i] @ vectors[j] for i in range(len(vectors)) for j in range(i)]
    return mlp(state, "top", torch.cat((*vectors, torch.stack(products))))


FORMULAS = {"wdl": wdl, "dfm": dfm, "dcn": dcn, "dlrm": dlrm, "ncf": ncf, "flen": flen, "mmoe": mmoe}


def inputs_of(features=FEATURES, dimension=DIMENSION, dense=DENSE, labels=LABELS):
    return ModelInputs(tuple(InputFeature(name, dimension) for name in features), dense, labels)


def test_every_model_has_its_formula() -> None:
    assert {*FORMULAS, "tbsm", *SCORES} == set(MODELS)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("counts", [(5,), (2, 3)], ids=["one list", "two lists"])
def test_a_model_of_graphs_scores_true_and_corrupted_triples_as_its_formula_does(
    name: str, counts: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(3)
    width = DIMENSION // 2 if name == "rotate" else DIMENSION
    entity, relation = InputFeature("head", DIMENSION), InputFeature("relation", width, table=1)
    drawn = InputFeature("negative", DIMENSION, longest=4)
    triple = (entity, relation, InputFeature("tail", DIMENSION))
    model = MODELS[name](ModelInputs(triple, 0, ("label",), drawn), HIDDEN)
    head, tail = (torch.randn(5, DIMENSION, generator=generator) for _ in range(2))
    kind = torch.randn(5, width, generator=generator)
    lists = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    negatives = SharedLists(torch.randn(len(counts), 4, DIMENSION, generator=generator), lists)
    rows = {"head": head, "relation": kind, "tail": tail, "negative": negatives}
    found = model(rows, torch.empty(5, 0))
    score = SCORES[name]
    for sample in range(5):
        h, r, t = head[sample], kind[sample], tail[sample]
        others = negatives.values[lists[sample]]
        wrong = [score(h, r, other) for other in others] + [score(other, r, t) for other in others]
        torch.testing.assert_close(found[sample], torch.stack([score(h, r, t), *wrong]), rtol=1e-4, atol=1e-4)
    assert model.scores(found).shape == (5, 1)
    torch.testing.assert_close(model({name: rows[name] for name in list(rows)[:3]}, torch.empty(5, 0)), found[:, :1])


@pytest.mark.parametrize("name", FORMULAS)
def test_it_makes_what_its_formula_says(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    model = MODELS[name](inputs_of(), HIDDEN)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    rows = torch.randn(5, len(FEATURES), DIMENSION, generator=generator)
    dense = torch.randn(5, DENSE, generator=generator)
    found = model(dict(zip(FEATURES, rows.unbind(1), strict=True)), dense)
    state = {key: values.detach() for key, values in model.named_parameters()}
    expected = torch.stack([FORMULAS[name](state, *sample) for sample in zip(rows, dense, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


SEEN = (
    InputFeature("seen_item", DIMENSION, longest=5, table=1),
    InputFeature("seen_page", DIMENSION, longest=5, table=2),
)


def test_tbsm_makes_what_its_formula_says() -> None:
    generator = torch.Generator().manual_seed(3)
    tables = (0, 0, 1, 1, 0, 0)
    singles = tuple(InputFeature(name, DIMENSION, table=table) for name, table in zip(FEATURES, tables, strict=True))
    model = MODELS["tbsm"](ModelInputs((*singles[:3], *SEEN, *singles[3:]), DENSE, LABELS), HIDDEN)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    rows, dense = torch.randn(3, 6, DIMENSION, generator=generator), torch.randn(3, DENSE, generator=generator)
    lengths = torch.tensor([[4, 0], [1, 2], [0, 3]])
    lists = [torch.randn(3, int(lengths[:, at].max()), DIMENSION, generator=generator) for at in range(2)]
    embeddings = dict(zip(FEATURES, rows.unbind(1), strict=True))
    for at, feature in enumerate(SEEN):
        jagged = Jagged(lists[at], lengths[:, at])
        embeddings[feature.name] = Jagged(lists[at] * jagged.mask.unsqueeze(2), lengths[:, at])
    found = model(embeddings, dense)
    state = {key: values.detach() for key, values in model.named_parameters()}
    for sample in range(3):
        histories = [lists[at][sample, : lengths[sample, at]] for at in range(2)]
        expected = tbsm(state, rows[sample], dense[sample], histories)
        torch.testing.assert_close(found[sample], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("labels", [("one",), LABELS])
@pytest.mark.parametrize("dense", [0, DENSE])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 4)])
@pytest.mark.parametrize("name", FORMULAS)
def test_an_output_for_every_label_and_every_parameter_learns(name, hidden, dense, labels) -> None:
    model = MODELS[name](inputs_of(dense=dense, labels=labels), hidden)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(16, len(FEATURES), DIMENSION, generator=generator)
    outputs = model(dict(zip(FEATURES, rows.unbind(1), strict=True)), torch.randn(16, dense, generator=generator))
    assert outputs.shape == (16, len(labels))
    outputs.square().sum().backward()
    assert all(p.grad is not None and (p.numel() == 0 or p.grad.abs().sum() > 0) for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("ncf", inputs_of(features=("user",)), "there are 1 features of 6 values; ncf needs at least 2 features"),
        ("ncf", inputs_of(dimension=1), "6 features of 1 values; ncf needs"),
        ("tbsm", inputs_of(), "tbsm needs a feature with pooling list, one without, .* there are 0 lists, 6 other"),
        ("flen", inputs_of(dimension=1), "dimension is 1, flen needs at least 2"),
        ("wdl", inputs_of(dimension=1), "dimension is 1, wdl needs at least 2"),
        (
            "dlrm",
            ModelInputs((InputFeature("a", 4), InputFeature("b", 8)), 0, LABELS),
            r"the embeddings have \[4, 8\] values, dlrm needs the same number in all",
        ),
    ],
)
def test_what_a_model_cannot_take_is_said(name, inputs, message) -> None:
    with pytest.raises(InvalidArgument, match=message):
        MODELS[name](inputs, HIDDEN)
