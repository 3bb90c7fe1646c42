"""The options that say how often and how fast a run learns."""

from __future__ import annotations

from typing import Annotated

import typer

from esd.cli.limits import within

_PANEL = "What is trained"
_JUDGED = "How the model is judged"

LearningRate = Annotated[
    float, typer.Option("--lr", help="Learning rate of the rows, and of the dense parameters.", rich_help_panel=_PANEL)
]
DenseLearningRate = Annotated[
    float | None,
    typer.Option(
        "--dense-lr", help="Learning rate of the dense parameters.", show_default="--lr", rich_help_panel=_PANEL
    ),
]
LearningRateSchedule = Annotated[
    str,
    typer.Option(
        "--lr-schedule",
        help="How learning rates change: constant, cosine[:N[:SHARE]] down to SHARE (0) of the rate at iteration N "
        "(the last), step:N:SHARE to that share at every N iterations; warm-up:N, before it.",
        rich_help_panel=_PANEL,
    ),
]
DenseLearningRateSchedule = Annotated[
    str | None,
    typer.Option(
        "--dense-lr-schedule",
        help="The same of the dense parameters only.",
        show_default="--lr-schedule",
        rich_help_panel=_PANEL,
    ),
]
WeightDecay = Annotated[
    float,
    typer.Option(
        **within("weight_decay"), help="Times the dense parameters, added to their gradients.", rich_help_panel=_PANEL
    ),
]
Clip = Annotated[
    float,
    typer.Option(
        **within("clip"),
        help="Longest gradient of all dense parameters together; 0: any length.",
        rich_help_panel=_PANEL,
    ),
]

Submitters = Annotated[
    int,
    typer.Option(
        **within("submitters"),
        help="Parts of the stream: --data are part 0, and `esd submit` feeds each other part, as from another site. "
        "Each gives an equal share of every global batch, whoever is faster.",
        rich_help_panel=_PANEL,
    ),
]
EpochsOption = Annotated[
    int, typer.Option("--epochs", **within("epochs"), help="How often the data are trained.", rich_help_panel=_PANEL)
]
Shuffle = Annotated[
    int,
    typer.Option(
        **within("shuffle"),
        help="Samples of the buffer through which each epoch is shuffled, by --seed; 0: they come as they are.",
        rich_help_panel=_PANEL,
    ),
]
HotBatchesOption = Annotated[
    int,
    typer.Option(
        "--hot-batches",
        **within("hot_batches"),
        help="With --sync replicated:R: trains samples that need replicated rows alone in mini-batches of their own "
        "(SCARS), for which a sample waits so many iterations at most. This changes the batches, and so the model. "
        "0: batches are as samples come.",
        rich_help_panel=_PANEL,
    ),
]

ContinueFrom = Annotated[
    str | None,
    typer.Option(
        metavar="TABLE",
        help="Table of an earlier run, whose model is trained on: with these data, rates and schedules.",
        rich_help_panel=_PANEL,
    ),
]
ContinueStream = Annotated[
    bool,
    typer.Option(
        "--continue-stream",
        help="With --continue-from: --data, a log, are read on where that run ended, and not from their beginning.",
        rich_help_panel=_PANEL,
    ),
]
Evaluate = Annotated[
    str | None,
    typer.Option(help="Data that the model is judged by and not trained with, as --data.", rich_help_panel=_JUDGED),
]
Holdout = Annotated[
    str,
    typer.Option(
        help="The last part of the data, which is judged by instead of trained: a share such as 0.1, or with `time` in"
        " the schema a time such as 1d.",
        rich_help_panel=_JUDGED,
    ),
]
EvaluateEvery = Annotated[
    int,
    typer.Option(
        **within("evaluate_every"),
        help="Iterations between evaluations, each at a checkpoint; 0: one at the end.",
        rich_help_panel=_JUDGED,
    ),
]
EarlyStopOption = Annotated[
    str | None,
    typer.Option(
        "--early-stop",
        help="METRIC:N ends the run when N evaluations in a row are no better: auc:3, loss:5, mrr:3 of a graph.",
        rich_help_panel=_JUDGED,
    ),
]
