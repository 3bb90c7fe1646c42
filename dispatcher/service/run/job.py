"""One training job: its state, its workers, and the change from one epoch to the next.

Everything in this module runs in one event loop and awaits nothing: each method takes the job from one consistent state
to the next, so no locks are needed. The modules next to it hold the functions that wait, each with a Job as argument:
the workers' streams (attend.py), the messages to workers (plans.py), the reports from workers (reports.py), the
planning
loop (planning.py), checkpoints (checkpointing.py), and recovery (recovery.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from esd.dispatcher.core.decision import Decision
from esd.dispatcher.service.checkpoint.checkpoints import Checkpoints, RestoredCheckpoint
from esd.dispatcher.service.run.shadow import Shadows
from esd.dispatcher.service.run.submit import Submission
from esd.dispatcher.service.settings import DispatcherSettings
from esd.dispatcher.service.state import job_metrics
from esd.dispatcher.service.state.epoch import Epoch, PlanLog, PublishedPlan
from esd.dispatcher.service.state.evaluations import Evaluations
from esd.dispatcher.service.state.feedback import ReportedFeedback
from esd.dispatcher.service.state.held_back import HeldBack
from esd.dispatcher.service.state.leases import Workers
from esd.dispatcher.service.state.lifecycle import Lifecycle
from esd.dispatcher.service.state.manifest import Manifest
from esd.dispatcher.service.state.plan_history import KeptPlans, PlanHistory
from esd.dispatcher.service.state.samples import SampleQueue
from esd.dispatcher.service.state.standstill import Standstill
from esd.dispatcher.service.state.stragglers import Stragglers
from esd.dispatcher.service.state.totals import JobTotals
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.auto_sum import with_chosen_sum
from esd.services.domain.claimants import new_claimant
from esd.services.domain.errors import FailedPrecondition, NotFound
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import Lease, Registration
from esd.services.domain.state import JobPhase, Recovery
from esd.services.domain.stream_parts import StreamPlace
from esd.services.domain.watched import PlanStage
from esd.services.domain.worker_set import WorkerSet

_KNOWN_RECOVERIES = 100
_EPOCHS_WITHOUT_PROGRESS = 5  # in a row, after which the job fails: another attempt would hardly help

_log = logging.getLogger(__name__)


class Job:
    """A job from its creation to its end.

    Attributes:
        asked: the specification of the job, as its client gave it.
        spec: the same, with the way to sum dense gradients that is in force, once the first epoch has begun.
        settings: the settings of the dispatcher.
        checkpoints: its checkpoints; None if it takes none, and so cannot recover.
        claimant: identifies the job to the parameter servers if it takes no checkpoints, and so begins no epoch there;
            else empty.
        resumed_from: the iteration of the checkpoint from which this dispatcher started the job; 0 for a new job.
        lifecycle: its phase, and the wait for changes of its state.
        workers: the worker slots and the leases on them.
        samples: the samples that are not planned yet.
        submission: the intake of samples from clients.
        totals: the sums over decisions and reports.
        feedback: the workers' measurements, for the planner.
        held_back: the workers whose small caches limit their workloads.
        stragglers: the workers that hold iterations up.
        standstill: how long the job has made no progress although samples wait.
        shadows: the cost of the same stream under other mechanisms.
        plan_history: the latest plans, for observers.
        epoch: the present epoch, or the last one; None before the first.
        recoveries: the latest epochs that began after an early end, at most 100.
        evaluations: the drivers' results on held-out samples.
    """

    def __init__(self, spec: JobSpec, settings: DispatcherSettings, checkpoints: Checkpoints | None = None) -> None:
        start = checkpoints.latest if checkpoints is not None else Manifest({})
        self.asked = spec
        self.spec = spec if checkpoints is None else checkpoints.job
        self.settings = settings
        self.checkpoints = checkpoints
        self.claimant = new_claimant() if checkpoints is None else b""
        self.resumed_from = start.iteration
        self.lifecycle = Lifecycle(spec.name)
        self.workers = Workers(
            spec.workers,
            settings.lease_seconds,
            self._lease_expired,
            replaceable=checkpoints is not None,
            names=[worker.name for worker in start.workers_of(spec.workers)],
            sites=spec.sites,
        )
        self.samples = SampleQueue(
            spec.batch_size,
            settings.queued_batches * spec.batch_size,
            settings.queued_bytes,
            start.place or StreamPlace.beginning(spec.shares),
            keep=checkpoints is not None,
        )
        self.submission = Submission(spec, self.lifecycle, self.samples, checkpoints, self.end_epoch)
        self.totals = JobTotals(spec)
        self.feedback = ReportedFeedback(spec.workers, spec.window)
        self.held_back = HeldBack()
        self.stragglers = Stragglers(settings.straggler_factor, settings.variable("straggler_factor"))
        self.standstill = Standstill()
        self.shadows = Shadows(settings.shadow_mechanisms, settings.shadow_bytes)
        self.plan_history = PlanHistory(settings.plan_history_bytes, settings.variable("plan_history_bytes"))
        self.epoch: Epoch | None = None
        self.recoveries: deque[Recovery] = deque(maxlen=_KNOWN_RECOVERIES)
        self._farthest = start.iteration  # the first iteration that no epoch has trained
        self._epochs_without_progress: list[str] = []  # one cause per epoch; cleared by an epoch with progress
        job_metrics.show_job(
            spec.labels,
            self.lifecycle,
            self.totals,
            self.samples,
            self._logged_samples,
            self._unconfirmed_iterations,
            lambda: self.standstill.seconds,
            lambda: self.plan_history.size,
            settings.lease_seconds,
        )
        for part, feed in enumerate(self.submission.feeds if spec.submitters > 1 else ()):
            job_metrics.show_part(part, partial(self.submission.awaited, part), partial(getattr, feed, "waiting_bytes"))
        self.evaluations = Evaluations(spec.labels, start.evaluations)

    # --- workers -------------------------------------------------------------------------------------------------

    def register(self, registration: Registration) -> Lease:
        """Gives a slot to a worker. A worker that was restarted ends the epoch in which it trained.

        Raises:
            NotFound: the job is over.
            ResourceExhausted: all slots are taken.
            FailedPrecondition: the name belongs to another worker of the running job.
            PermissionDenied: another caller holds a lease under this name.
        """
        if self.lifecycle.over:
            raise NotFound(f"no job takes workers: {self.lifecycle}")
        lease, restarted = self.workers.register(registration)
        if restarted is not None:
            self.end_epoch(f"{restarted} has been restarted")
        self.lifecycle.notify()
        return lease

    def caller(self, lease_id: str) -> WorkerRecord:
        """Returns the worker that makes a call, and renews its lease, since the call proves that it is alive.

        Raises:
            NotFound: the lease is unknown or has expired.
            FailedPrecondition: the job has failed.
            PermissionDenied: the call comes from another caller than the holder of the lease.
            Unavailable: the dispatcher is stopping.
        """
        self.lifecycle.raise_if_failed()
        worker = self.workers.holder(lease_id)
        self.workers.renew(worker)
        return worker

    @property
    def training_workers(self) -> list[WorkerRecord]:
        """The workers that train in the present epoch."""
        members = self.epoch.members if self.epoch is not None else WorkerSet()
        return [worker for worker in self.workers if worker.slot in members]

    def is_training(self, worker: WorkerRecord) -> bool:
        """Returns whether the worker trains in the present epoch, and that epoch has not ended."""
        return self.epoch is not None and not self.epoch.over and worker.slot in self.epoch.members

    @property
    def confirmed(self) -> int:
        """The number of iterations of the stream that every worker of the epoch has confirmed, in any epoch.

        Iterations before the last checkpoint count as confirmed even if a worker was lost since, or has restarted and
        confirmed nothing itself.
        """
        checkpointed = self.checkpoints.latest.iteration if self.checkpoints is not None else 0
        return max(checkpointed, min((worker.confirmed for worker in self.training_workers), default=0))

    def choose_dense_sum(self) -> None:
        """Chooses the way to sum dense gradients by the links of the workers, unless it is chosen. It stays."""
        present = [worker.registration for worker in self.workers]
        chosen = with_chosen_sum(self.spec, [each.bandwidth for each in present], [each.lan for each in present])
        if chosen == self.spec:
            return
        self.spec = chosen
        if self.checkpoints is not None:
            self.checkpoints.job = chosen
        links = ", ".join(f"{8e-6 * each.bandwidth:g}" for each in present)
        _log.info(
            "dense gradients are summed by %s, chosen for links of %s Mbit/s%s",
            chosen.dense_sum,
            links,
            " and a second network" if any(each.lan for each in present) else "",
        )

    def _lease_expired(self, worker: WorkerRecord) -> None:
        """Frees the slot of a worker that is silent; if it was training, its epoch is over."""
        silence = f"{worker} sent no heartbeat for {self.settings.lease_seconds:g} s"
        if not self.is_training(worker):
            _log.warning("%s; its slot is free again", silence)
            self.workers.remove(worker)
            self.lifecycle.notify()
            return
        self.end_epoch(f"{silence} (the limit is {self.settings.variable('lease_seconds')})")
        if self.checkpoints is not None:
            self.workers.remove(worker)

    def fail(self, cause: str) -> None:
        """Ends the job. Every waiting call fails with the cause and the checkpoint from which the job can resume."""
        resume = f"; the last checkpoint is {self.checkpoints.latest.iteration}" if self.checkpoints is not None else ""
        self.lifecycle.fail(cause + resume)

    # --- epochs --------------------------------------------------------------------------------------------------

    def current_epoch(self) -> Epoch:
        """Returns the present epoch. Raises FailedPrecondition before the first."""
        if self.epoch is None:
            raise FailedPrecondition(f"{self.lifecycle}: no iteration is planned")
        return self.epoch

    def begin_epoch(self, epoch: Epoch) -> None:
        """Makes an epoch the present one: the waiting workers receive its plans from now on."""
        self.epoch = epoch
        names = {worker.slot: worker.registration.name for worker in self.training_workers}
        epoch.names = [names.get(slot, "") for slot in range(self.spec.workers)]
        self.workers.stop_waiting()
        self.held_back.begin_epoch()
        self.stragglers.begin_epoch(epoch.first)
        self.feedback = ReportedFeedback(self.spec.workers, self.spec.window, epoch.first)
        for worker in self.training_workers:
            self.feedback.set_link(worker.slot, worker.registration.bandwidth)
            job_metrics.show_worker(self.lifecycle, self.totals, worker)
        if self.checkpoints is not None:
            self.checkpoints.begin_epoch(epoch.first)
        if epoch.reloads:
            self.show_plans(PlanStage.RELOAD, epoch.first, epoch.reloads)
        self.lifecycle.advance(JobPhase.RUNNING)

    def end_epoch(self, cause: str) -> None:
        """Ends the present epoch early, so that the next one begins with other workers.

        This is the only way out of an epoch before the end of the stream. Its six causes are a failure that a worker
        reports, an expired lease, a worker that comes back as another process, a new worker that joins after a
        checkpoint, and a parameter server in another epoch, which refuses a call of the dispatcher or is found while
        the stream pauses (idle_servers.py). Every
        wait in the epoch ends with StaleEpoch. A job without checkpoints cannot recover, and fails.
        """
        if self.checkpoints is None:
            self.lifecycle.fail(cause)
        elif not self.lifecycle.over and self.epoch is not None and not self.epoch.over:
            _log.warning("epoch %d is over: %s", self.epoch.number, cause)
            self.epoch.end(cause, idle=self.waits_for_samples(self.epoch))
            self.lifecycle.advance(JobPhase.RECOVERING)

    def waits_for_samples(self, epoch: Epoch) -> bool:
        """Returns whether the workers have done everything in the present epoch, and the stream pauses."""
        if self.samples.ready or self.samples.exhausted or epoch.unconfirmed:
            return False
        return self.checkpoints is None or self.checkpoints.idle

    def rewind_to(self, checkpoint: RestoredCheckpoint, epoch: Epoch) -> None:
        """Resets the job to a checkpoint that the parameter servers have restored, and begins an epoch there.

        Raises:
            FailedPrecondition: five epochs in a row ended without progress; or this dispatcher does not hold the
                samples
                that follow the checkpoint.
        """
        manifest = checkpoint.manifest
        self.samples.rewind_to(manifest.samples)
        self.totals.rewind_to(manifest.planned or {}, checkpoint.progress, len(epoch.members))
        self.workers.rewind_to(manifest.iteration, manifest.workers_of(self.spec.workers))
        if self.epoch is not None:
            self._count_recovery(self.epoch, epoch)
        self.begin_epoch(epoch)

    def resume_finished(self, done: Manifest, progress: bytes | None) -> None:
        """Shows a job that an earlier dispatcher has finished, with the progress that it saved, if any."""
        self.workers.fill_with(done.iteration, done.workers)
        self.totals.show_finished(done.planned or {}, progress, len(done.workers))
        everyone = WorkerSet.all_of(len(done.workers))
        self.epoch = Epoch(0, done.iteration, everyone, PlanLog(everyone, done.iteration))
        self.lifecycle.advance(JobPhase.FINISHED)

    def _count_recovery(self, before: Epoch, epoch: Epoch) -> None:
        """Records a recovery, and fails after several epochs in a row without progress.

        An epoch made progress if it committed a checkpoint or trained an iteration that no epoch had trained before. A
        job that dies at the same sample each time makes none, and must not repeat for ever. An epoch that ended while
        it waited for samples does not count: processes may restart any number of times while the stream pauses.

        Raises:
            FailedPrecondition: five epochs in a row made no progress.
        """
        self.recoveries.append(
            Recovery(
                cause=before.cause,
                epoch=epoch.number,
                iterations_redone=max(0, before.trained - epoch.first),
                seconds=time.monotonic() - before.ended,
            )
        )
        if before.trained > self._farthest or epoch.first > before.first:
            self._farthest = max(self._farthest, before.trained)
            self._epochs_without_progress.clear()
        elif not before.idle:
            self._epochs_without_progress.append(f"epoch {before.number} at iteration {before.trained}: {before.cause}")
        ended = self._epochs_without_progress
        if len(ended) >= _EPOCHS_WITHOUT_PROGRESS:
            raise FailedPrecondition(
                f"{len(ended)} epochs in a row brought neither a new checkpoint nor an iteration that was not trained"
                f" before; {'; '.join(ended)}"
            )
        _log.info(
            "epoch %d begins at iteration %d after %.2f s, %d iterations are trained again",
            epoch.number, epoch.first, self.recoveries[-1].seconds, self.recoveries[-1].iterations_redone,
        )  # fmt: skip

    # --- plans ---------------------------------------------------------------------------------------------------

    def publish(self, decision: Decision, plans: Sequence[PublishedPlan]) -> None:
        """Publishes the plans of the next iteration, one per slot."""
        published = self.current_epoch().plans
        self.totals.add_decision(decision)
        self.held_back.report(self.workers, decision.held_back)
        self.stragglers.planned(published.planned, asyncio.get_running_loop().time())
        self.show_plans(PlanStage.ITERATION, published.planned, [plan.message for plan in plans])
        published.publish(plans)
        self.lifecycle.notify()

    def show_plans(self, stage: PlanStage, iteration: int, messages: Sequence[bytes]) -> None:
        """Keeps plans of the present epoch for observers.

        Args:
            stage: the kind of the plans.
            iteration: the iteration of the plans; of a flush, the number of iterations before it.
            messages: the encoded plans, by slot.
        """
        epoch = self.current_epoch()
        self.plan_history.add(KeptPlans(epoch.number, iteration, stage, epoch.names, messages))

    def _unconfirmed_iterations(self) -> int:
        """Returns the number of planned iterations of the present epoch that some worker has not confirmed."""
        return self.epoch.unconfirmed if self.epoch is not None else 0

    def _logged_samples(self) -> int:
        """Returns the number of acknowledged samples that no checkpoint covers."""
        return self.samples.taken - self.checkpoints.latest.samples if self.checkpoints is not None else 0
