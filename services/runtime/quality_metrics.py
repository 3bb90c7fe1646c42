"""The metrics of a model's quality while it is trained; metrics.py has the rules."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Gauge

from esd.services.runtime.registry import REGISTRY

FigureGauges = Mapping[str, Gauge]  # by the names of the fields of `Quality`; each has the job's label as its label


def _figure_gauges(prefix: str, helps: Mapping[str, str]) -> FigureGauges:
    """Makes a gauge by label for each figure of `Quality`."""
    return {figure: Gauge(prefix + figure, text, ("label",), registry=REGISTRY) for figure, text in helps.items()}


# Figures of the model on samples that are scored before they are trained, all and the latest; by `Quality`'s names.
_TRAINED_HELP = {
    "loss": "Mean loss of the job's samples, each scored before it is trained, by label. NaN or rising: lower the "
    "learning rate, check the labels.",
    "auc": "Area under the ROC curve of the job's samples, each scored before it is trained, by label. Near 0.5 after "
    "thousands of iterations: the model learns nothing; check features and learning rate.",
    "normalised_entropy": "Loss of the job's samples, divided by the loss of always predicting the mean label, by "
    "label. 1 or above: the model has learnt nothing; check features, labels and learning rate.",
    "calibration": "Mean prediction of the job's samples, divided by their mean label, by label; 1 is right. Far "
    "from it: esd_recent_calibration shows whether it still is.",
    "gauc": "AUC within each group of samples, such as a user's, averaged over the groups, by label. Well below "
    "esd_auc: the model ranks the groups, but not the samples within them; NaN: the data name no group, or none has "
    "both labels.",
}
TRAINED = _figure_gauges("esd_", _TRAINED_HELP)
_RECENT_HELP = {
    "loss": "As esd_loss, over the latest iterations, which hold the last 32,768 samples. Rising while esd_loss "
    "does not: the stream has changed.",
    "auc": "As esd_auc, over the latest iterations. Falling: the stream has changed, or training diverges.",
    "normalised_entropy": "As esd_normalised_entropy, over the latest iterations. Unlike the loss it can be compared "
    "where the share of positive labels changes.",
    "calibration": "As esd_calibration, over the latest iterations. Far from 1: predictions are too high or too low "
    "for the present samples; the stream has changed, or the learning rate is too high.",
    "gauc": "As esd_gauc, over the latest iterations. Falling: the ranking within groups gets worse; the stream has "
    "changed.",
}
RECENT = _figure_gauges("esd_recent_", _RECENT_HELP)

# Of held-out samples, at the latest evaluation that the job's driver has recorded; by the names of `Quality`.
_HELD_OUT_HELP = {
    "loss": "Mean loss of held-out samples at the latest evaluation, by label. Rising while esd_recent_loss falls: the "
    "model learns its samples by heart; stop earlier (--early-stop), or give it more samples or fewer parameters.",
    "auc": "Area under the ROC curve of held-out samples at the latest evaluation, by label. Far below esd_recent_auc: "
    "the held-out samples are of another kind, or the model learns its samples by heart.",
    "normalised_entropy": "Loss of held-out samples at the latest evaluation, divided by the loss of always predicting "
    "their mean label, by label. 1 or above: the model knows no more than the mean.",
    "calibration": "Mean prediction of held-out samples at the latest evaluation, divided by their mean label, by "
    "label; 1 is right. Far from it: predictions for samples of this kind are too high or too low.",
    "gauc": "AUC within each group of held-out samples at the latest evaluation, averaged over the groups, by label. "
    "NaN: the data name no group, or none has both labels.",
}
HELD_OUT = _figure_gauges("esd_held_out_", _HELD_OUT_HELP)
HELD_OUT_ITERATION = Gauge(
    "esd_held_out_iteration",
    "Iteration at which held-out samples were evaluated last; 0: they were not. Flat while the job runs: evaluations "
    "take longer than --evaluate-every, or their driver is away.",
    registry=REGISTRY,
)
