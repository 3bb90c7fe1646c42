"""Feedback is input: it moves workloads and links, and the same feedback makes the same plans."""

from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.feedback import ComputeTimes, Feedback, MeasuredLinks
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.service.state.feedback import ReportedFeedback
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.reports import IterationReport, PhaseTimes, TransferCounts
from esd.services.domain.workloads import scale_workloads

BANDWIDTHS = [625e6, 625e6, 62.5e6, 62.5e6]


def measured(*bandwidths):
    return np.array(bandwidths, np.float64)


def test_noise_does_not_move_a_link_and_a_change_does():
    links = MeasuredLinks([100.0, 10.0])
    rng = np.random.default_rng(1)
    for _ in range(200):
        assert not links.update(measured(100, 10) * rng.uniform(0.85, 1.15, 2))
    assert links.in_use.tolist() == [100, 10]
    changes = sum(links.update(measured(25, 10)) for _ in range(60))
    assert links.in_use[0] == pytest.approx(25, rel=0.11)
    assert links.in_use[1] == 10
    assert changes < 20


def test_no_measurement_leaves_a_link_alone():
    links = MeasuredLinks([100.0, 10.0])
    for _ in range(50):
        links.update(measured(0, 20))
    assert links.in_use[0] == 100
    assert links.in_use[1] == pytest.approx(20, rel=0.11)


def test_compute_times_are_what_operations_leave_of_an_iteration():
    times = ComputeTimes(2)
    times.update(measured(9, 9))  # of an iteration that was never announced
    assert times.sample_seconds.tolist() == [0, 0]
    for links, samples in ((measured(1, 2), [4, 0]), (measured(3, 1), [2, 0])):
        times.plan(links, np.array(samples, np.int32))
    times.update(measured(3, 2))
    assert times.sample_seconds.tolist() == [0.5, 0]
    times.update(measured(4, 0.5))  # worker 1 was faster than its link was thought to be; it had no samples
    assert times.sample_seconds == pytest.approx([0.5, 0])
    times.plan(measured(3, 3), np.array([2, 2], np.int32))
    times.update(measured(3, 1))
    assert times.sample_seconds[1] < 0 < times.sample_seconds[0] < 0.5


def test_what_a_worker_reports_without_samples_is_no_time_of_a_sample():
    times = ComputeTimes(2)
    for t in range(5000):
        times.plan(measured(1, 1), np.array([2, 2 if t < 5 else 0], np.int32))
        times.update(measured(3, 3 if t < 5 else 1.1))
    assert times.sample_seconds == pytest.approx([1, 1])


def test_joint_dispatch_shares_samples_out_by_the_times_it_foresees(make_job, make_batches):
    """Within the limits, sums kept; short batches are not touched."""
    job = make_job(batch_size=32, mechanism="joint", workload_limits=(2, 16))
    *batches, last = make_batches(40, samples=32, fields=3, rows=300, seed=6)
    planner = Planner(job, BANDWIDTHS, [120] * 4)
    departures = 0
    for batch in batches:
        asked = planner.workloads
        decision = planner.plan(batch)
        assert np.bincount(decision.assignment, minlength=4).tolist() == decision.workloads.tolist()
        assert ((decision.workloads >= 2) & (decision.workloads <= 16)).all()
        departures += decision.workloads.tolist() != list(asked)
        planner.observe(Feedback(decision.link_seconds, np.zeros(4)))
    assert departures
    asked = planner.workloads
    short = planner.plan(last[:8])
    assert short.workloads.tolist() == list(scale_workloads(asked, 8))


def test_a_link_that_breaks_down_stays_within_the_solvers_range(make_job, make_batches):
    planner = Planner(make_job(mechanism="esd", measured_links=True), BANDWIDTHS, [60] * 4)
    for batch in make_batches(120, samples=16, fields=3, rows=80, seed=3):
        planner.plan(batch)
        planner.observe(Feedback(np.ones(4), measured(625e6, 625e6, 62.5e6, 1e-9)))
    seconds = planner.cost_model.transfer_seconds
    assert seconds[3] == pytest.approx(1e4 * seconds[0])


@pytest.mark.parametrize("ids", [3, 1_000, 65_535, 2**20])
def test_so_it_does_however_many_rows_samples_have(make_job, ids):
    """Links of odd ratios need fine integers, and long samples small ones."""
    job = make_job(mechanism="esd", measured_links=True, fields=1, longest=ids)
    planner = Planner(job, BANDWIDTHS, [60] * 4)
    for _ in range(200):
        planner.observe(Feedback(np.ones(4), measured(625e6, 457.3e6, 61.3e6, 1e-9)))
    costs = planner.cost_model.link_costs.astype(np.int64)
    assert 2 * ids * costs.max() <= 1.01 * 2**30
    assert costs[3] > 10 * costs[2] > 10 * costs[0]


def test_esd_turns_away_from_a_link_that_slows_down(make_job, make_batches):
    """Two equal links; one becomes ten times slower, and its share of the transfers shrinks."""
    job = make_job(workers=2, mechanism="esd", measured_links=True)
    batches = make_batches(150, samples=16, fields=3, rows=300, seed=3)

    def share_of_last_worker(bandwidth):
        planner = Planner(job, [1e6, 1e6], [60] * 2)
        rows = np.zeros(2)
        for batch in batches:
            rows += planner.plan(batch).operations.total
            planner.observe(Feedback(np.ones(2), measured(1e6, bandwidth)))
        return rows[1] / rows.sum()

    assert share_of_last_worker(1e5) < 0.9 * share_of_last_worker(1e6)


def test_registered_links_stay_unless_asked(make_job):
    planner = Planner(make_job(mechanism="esd"), BANDWIDTHS, [60] * 4)
    before = planner.cost_model
    for _ in range(50):
        planner.observe(Feedback(np.array([9.0, 1, 1, 1]), measured(1, 1, 1, 1)))
    assert planner.cost_model is before
    assert planner.workloads == planner.job.workloads


def test_recorded_feedback_replays_the_run(make_job, make_batches):
    job = make_job(mechanism="esd", workload_limits=(1, 12), measured_links=True)
    batches = make_batches(60, samples=16, fields=3, rows=80, seed=3)
    rng = np.random.default_rng(5)
    feedback = [Feedback(rng.random(4), rng.random(4) * 1e8) for _ in batches]

    def run():
        planner = Planner(job, BANDWIDTHS, [60] * 4)
        for batch, told in zip(batches, feedback, strict=True):
            yield planner.plan(batch)
            planner.observe(told)

    for first, second in zip(run(), run(), strict=True):
        assert (first.assignment == second.assignment).all()
        assert (first.workloads == second.workloads).all()
        assert first.cost_seconds == second.cost_seconds


def test_workload_limits_enclose_the_workloads(make_job):
    with pytest.raises(InvalidArgument, match=r"workload_limits are 5\.\.16, they must enclose"):
        make_job(workload_limits=(5, 16))


def report(iteration, **changes):
    values = {"bytes_pulled": 0, "bytes_pushed": 0, "measured_bandwidth": 0.0, "phases": PhaseTimes()} | changes
    return IterationReport(
        iteration=iteration,
        loss_sum=0.0,
        score_bins=np.zeros((0, 1), np.uint16),
        labels=np.zeros((0, 1), np.uint8),
        transfers=TransferCounts(bytes_pulled=values["bytes_pulled"], bytes_pushed=values["bytes_pushed"]),
        phases=values["phases"],
        seconds=9.0,
        epoch=0,
        measured_bandwidth=values["measured_bandwidth"],
    )


def test_a_workers_time_is_what_it_moved_and_computed_not_what_it_waited():
    feedback = ReportedFeedback(2, window=1)
    for slot in range(2):
        feedback.set_link(slot, 1000.0)
    waits = PhaseTimes(plan_wait=5, push=5, pull=5, compute=0.5, all_reduce=5, update=0.25)
    feedback.add(0, report(0, bytes_pulled=300, bytes_pushed=200, phases=waits))
    feedback.add(0, report(1, bytes_pulled=300))  # a fast worker is ahead
    feedback.add(1, report(0, bytes_pulled=300, measured_bandwidth=100.0))
    feedback.add(1, report(1, bytes_pulled=300))  # the last speed seen still holds
    first, second = feedback.take_through(1)
    assert first.seconds.tolist() == [0.5 + 0.75, 3.0]
    assert first.bandwidths.tolist() == [0, 100]
    assert second.seconds.tolist() == [0.3, 3.0]


def test_plans_are_a_workers_time_and_dense_sums_are_its_links():
    feedback = ReportedFeedback(1, window=1)
    feedback.set_link(0, 1000.0)
    plans, dense = {"link_plans_up": 20, "link_plans_down": 180}, {"link_dense_up": 500, "link_dense_down": 700}
    carried = TransferCounts(bytes_pulled=100, **plans, **dense)
    feedback.add(0, replace(report(0), transfers=carried))
    (observed,) = feedback.take_through(0)
    assert observed.seconds.tolist() == [0.3]
    assert observed.dense_seconds.tolist() == [0.7]


def test_a_checkpoint_takes_the_feedback_that_decisions_behind_it_use():
    """The feedback belongs to the checkpoint, used or not, and so do earlier measurements of a link."""

    def reported(first, last):
        feedback = ReportedFeedback(1, window=3, first=first)
        feedback.set_link(0, 1000.0)
        for t in range(first, last):
            told = report(t, bytes_pulled=100 * t, measured_bandwidth=100.0 * (t < 7))
            feedback.add(0, replace(told, transfers=told.transfers._replace(link_dense_up=t)))
        return feedback

    undisturbed = reported(0, 14)
    expected = [(each.seconds.tolist(), each.dense_seconds.tolist()) for each in undisturbed.take_through(13)]
    for used in (4, 7):
        before = reported(0, 8)
        before.take_through(used)
        saved = before.save(8)
        after = reported(8, 14)
        after.load(saved)
        taken = [feedback for t in range(5, 14) for feedback in after.take_through(t)]
        assert [(each.seconds.tolist(), each.dense_seconds.tolist()) for each in taken] == expected[5:]
