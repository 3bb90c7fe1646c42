"""One training job: its workers, its sample stream, its published plans, its figures.

Everything here runs in one event loop, so the state between two awaits is consistent without locks; only the
planning itself (dispatcher/service/run/planning.py) runs in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator

from dispatcher.core.decision_log import DecisionLog
from dispatcher.service.checkpoint.checkpoints import Checkpoints
from dispatcher.service.run.shadow import Shadows
from dispatcher.service.run.submit import SampleStream
from dispatcher.service.settings import DispatcherSettings
from dispatcher.service.state import metrics as telemetry
from dispatcher.service.state.epoch import Epoch
from dispatcher.service.state.feedback import Observations
from dispatcher.service.state.manifest import Manifest
from dispatcher.service.state.phase import Lifecycle
from dispatcher.service.state.plan_log import PlanLog
from dispatcher.service.state.samples import Intake
from dispatcher.service.state.stragglers import Stragglers
from dispatcher.service.state.totals import Figures
from dispatcher.service.state.workers import Member, Roster
from protos import dispatcher_pb2 as pb
from services.domain.errors import FailedPrecondition, InvalidArgument, NotFound
from services.domain.jobs import JobSpec
from services.domain.plans import EndOfStream, Membership
from services.domain.reports import FlushReport, IterationReport, Lease, Registration, Report, Trouble, WorkerPhase
from services.domain.state import JobPhase, Recovery
from services.domain.worker_set import WorkerSet
from services.wire.plans import encode_plan_message

_KNOWN_RECOVERIES = 100
_FAILED_CHECKPOINTS = 3  # in a row, after which samples and pre-images have piled up for long enough

_log = logging.getLogger(__name__)


class Job:
    """A job from its creation to its end.

    Attributes:
        spec: what is trained, and how it is dispatched.
        life: its phase, and how to wait for it.
        roster: its workers.
        stream: its samples.
        intake: those that are not planned yet.
        figures: its totals.
        observations: what its workers measured, for the planner.
        shadows: what other mechanisms would cost.
        stragglers: who holds iterations up.
        lease_seconds: after so much silence a worker is given up.
        settings: of the dispatcher.
        decision_log: what its plans depend on besides its samples; None: it is not recorded.
        checkpoints: its checkpoints; None: it takes none, and cannot recover.
        epoch: the present one, or the last; None before the first.
        recoveries: the latest epochs that ended early.
        fruitless: how many of the latest did so before an iteration was trained.
    """

    def __init__(
        self,
        spec: JobSpec,
        settings: DispatcherSettings,
        checkpoints: Checkpoints | None = None,
        decision_log: DecisionLog | None = None,
    ) -> None:
        self.spec = spec
        self.decision_log = decision_log
        self.life = Lifecycle(spec.name)
        self.settings = settings
        self.checkpoints = checkpoints
        self.epoch: Epoch | None = None
        self.recoveries: deque[Recovery] = deque(maxlen=_KNOWN_RECOVERIES)
        self.fruitless = 0
        latest = checkpoints.latest if checkpoints is not None else Manifest({})
        self.roster = Roster(
            spec.workers,
            settings.lease_seconds,
            self._lease_expired,
            self._worker_replaced if checkpoints is not None else None,
            [worker.name for worker in latest.crew(spec.workers)],
        )
        limit = settings.queued_batches * spec.batch_size
        self.intake = Intake(spec.batch_size, limit, start=latest.samples, keep=checkpoints is not None)
        self.stream = SampleStream(spec, self.life, self.intake, checkpoints)
        self.figures = Figures(spec)
        self.observations = Observations(spec.workers)
        self.stragglers = Stragglers(settings.straggler_factor)
        self.lease_seconds = settings.lease_seconds
        self.shadows = Shadows(settings.shadow_mechanisms)
        self._join_timer = asyncio.get_running_loop().call_later(settings.join_seconds, self._workers_missing)
        telemetry.job_created(self.life, self.figures, settings.lease_seconds)

    # --- workers -----------------------------------------------------------------------------------------------

    def register(self, registration: Registration) -> Lease:
        """Takes a worker in; the n-th one starts the job.

        Raises:
            NotFound: the job is over.
            ResourceExhausted: all slots are taken.
            FailedPrecondition: the name belongs to another worker of the running job.
        """
        if self.life.over:
            raise NotFound(f"no job takes workers: {self.life}")
        lease = self.roster.register(registration)
        waiting = self.life.phase is JobPhase.WAITING_FOR_WORKERS
        if self.checkpoints is None and waiting and self.roster.complete:
            self.roster.seat()
            everyone = WorkerSet.all_of(self.spec.workers)
            self.begin_epoch(Epoch(0, 0, everyone, PlanLog(self.spec.workers)))
        self.life.notify()
        return lease

    def heartbeat(self, lease_id: str, trouble: Trouble | None = None, phase: WorkerPhase = WorkerPhase.IDLE) -> None:
        """Keeps a lease alive; a worker in trouble ends its epoch, or fails the job.

        Raises:
            NotFound: the lease has expired.
            FailedPrecondition: the job has failed.
        """
        member = self._member(lease_id)
        member.phase = phase
        self._report_stragglers()
        if trouble is not None and self.epoch is not None and trouble.epoch == self.epoch.number:
            cause = f"{member} cannot go on: {trouble.cause}"
            if trouble.fatal:
                self.life.fail(cause)
            else:
                self.end_epoch(cause)

    def _report_stragglers(self) -> None:
        """Names the workers that an iteration has waited for too long, once per iteration."""
        stragglers = self.stragglers
        for member in stragglers.late(self.crew, asyncio.get_running_loop().time()):
            if member.late_in < stragglers.iteration:
                member.late_in = stragglers.iteration
                member.late += 1
                telemetry.late(member.slot)
                _log.warning(
                    "%s holds up iteration %d in phase %s: it takes longer than %.1f s (the limit is %s)",
                    member, stragglers.iteration, member.phase.value, stragglers.deadline,
                    self.settings.variable("straggler_factor"),
                )  # fmt: skip

    def report(self, lease_id: str, report: Report) -> None:
        """Confirms an iteration or the flush. What was confirmed before is ignored, so a report may be repeated.

        Raises:
            NotFound: no such lease.
            FailedPrecondition: the iteration is not the worker's next one, or is not planned yet; the job failed.
            InvalidArgument: the number of samples is not that of the plan.
        """
        member = self._member(lease_id)
        epoch = self.current_epoch()
        epoch.check(report.epoch)
        if isinstance(report, IterationReport):
            self._confirm_iteration(member, epoch.plans, report)
        elif report.iteration in epoch.plans.cuts:
            self._confirm_cut(member, epoch, report)
        elif report.iteration > member.cut or self.life.phase is JobPhase.FLUSHING:  # else it was counted before
            self._confirm_flush(member, epoch.plans, report)

    async def watch(self, lease_id: str, from_iteration: int, epoch_number: int = 0) -> AsyncGenerator[pb.PlanMessage]:
        """Membership, plans from `from_iteration` on, flush plan, end: everything one worker has yet to do.

        `from_iteration` counts only while `epoch_number` is the present epoch.

        Raises:
            NotFound: no such lease, or it expired while workers were missing.
            FailedPrecondition: `from_iteration` is confirmed or beyond the next plan; the job failed.
            StaleEpoch: the epoch ended while its plans were sent.
        """
        member = await self._joined(lease_id)
        epoch = self.current_epoch()
        plans = epoch.plans
        yield encode_plan_message(self._membership(member.slot, epoch))
        if epoch_number != epoch.number:
            from_iteration = epoch.first
        if epoch.reloads and from_iteration == epoch.first:
            yield epoch.reloads[member.slot]

        if not member.confirmed <= from_iteration <= plans.iterations:
            raise FailedPrecondition(
                f"{member} asks for plans from iteration {from_iteration} on; it has confirmed {member.confirmed} and"
                f" {plans.iterations} are planned, so it can start from any between these two"
            )
        iteration, cut_sent = from_iteration, member.cut
        while True:
            await self._something_for(epoch, iteration, cut_sent)
            if iteration in plans.cuts and cut_sent < iteration:
                yield plans.cuts[iteration][member.slot]
                cut_sent = iteration
                continue
            if iteration == plans.iterations:
                break
            if iteration < member.confirmed:
                raise FailedPrecondition(f"{member} confirmed iteration {iteration}, which this stream did not bring")
            yield plans.get(member.slot, iteration).message
            iteration += 1

        if not member.flushed:
            yield plans.flush[member.slot]
        # The job may finish in an epoch that a restarted worker has just ended.
        await self.life.until(lambda: self.life.phase is JobPhase.FINISHED or not epoch.check())
        yield encode_plan_message(EndOfStream(plans.iterations))

    def _member(self, lease_id: str) -> Member:
        """The worker behind a call, which is also a sign of its life."""
        self.life.check()
        member = self.roster.member(lease_id)
        self.roster.renew(member)
        return member

    async def _joined(self, lease_id: str) -> Member:
        """Waits with a worker for an epoch that it is a member of."""
        while True:
            await self.life.until(lambda: self._takes_part(lease_id))
            member = self.roster.member(lease_id)
            if member.slot in self.current_epoch().members:
                return member

    def _takes_part(self, lease_id: str) -> bool:
        """Whether the worker is a member of the present epoch; else it is noted that it waits for one."""
        member = self.roster.member(lease_id)
        if self.epoch is not None and not self.epoch.over and member.slot in self.epoch.members:
            return True
        if self.life.over:
            raise NotFound(f"no job takes workers: {self.life}")
        if not member.waiting:
            member.waiting = True
            self.life.notify()
        return False

    def _membership(self, slot: int, epoch: Epoch) -> Membership:
        host = self.crew[0].registration
        return Membership(epoch.number, slot, host.rendezvous, self.spec, epoch.members, epoch.first)

    async def _something_for(self, epoch: Epoch, iteration: int, cut_sent: int) -> None:
        """Waits for a flush plan before an iteration, its plan, or the end of the stream before it."""
        plans = epoch.plans
        no_more = (JobPhase.FLUSHING, JobPhase.FINISHED)
        await self.life.until(
            lambda: (
                epoch.check()
                and (
                    iteration < plans.iterations
                    or (iteration in plans.cuts and cut_sent < iteration)
                    or self.life.phase in no_more
                )
            )
        )

    def _confirm_iteration(self, member: Member, plans: PlanLog, report: IterationReport) -> None:
        if report.iteration < member.confirmed:
            return
        if report.iteration > member.confirmed or report.iteration >= plans.iterations:
            raise FailedPrecondition(
                f"{member} reports iteration {report.iteration}; the next one it has to report is {member.confirmed},"
                f" and {plans.iterations} are planned"
            )
        expected = plans.get(member.slot, report.iteration).samples
        if len(report.labels) != expected:
            raise InvalidArgument(
                f"{member} reports {len(report.labels)} samples of iteration {report.iteration}, its plan has"
                f" {expected}"
            )
        plans.confirm(member.slot, report.iteration)
        member.confirm(report)
        telemetry.reported(member.slot, report)
        self.observations.add(member.slot, report)
        if self.figures.confirmed(member.slot, report):
            self.current_epoch().trained = report.iteration + 1
            self.stragglers.confirmed(report.iteration + 1, plans.iterations, asyncio.get_running_loop().time())
            telemetry.iteration_confirmed(plans.iterations - self.confirmed)
            self.life.notify()  # nobody waits for a single worker's confirmation

    def _confirm_cut(self, member: Member, epoch: Epoch, report: FlushReport) -> None:
        checkpoints = self.checkpoints
        if checkpoints is None or report.iteration <= member.cut:
            return
        member.confirm_cut(report)
        telemetry.moved(member.slot, report.transfers)
        if checkpoints.flushed(report, member, len(self.crew)):
            checkpoints.commit(epoch, self.figures.progress.save(), lambda latest: self._checkpoint_done(epoch, latest))

    def _confirm_flush(self, member: Member, plans: PlanLog, report: FlushReport) -> None:
        if member.flushed:
            return
        if self.life.phase is not JobPhase.FLUSHING or report.iteration != plans.iterations:
            raise FailedPrecondition(
                f"{member} reports the flush of iteration {report.iteration}; {self.life} with"
                f" {plans.iterations} iterations planned"
            )
        member.confirm_flush(report)
        telemetry.moved(member.slot, report.transfers)
        self.life.notify()

    @property
    def crew(self) -> list[Member]:
        """The workers that train in the present epoch."""
        epoch = self.epoch
        return [m for m in self.roster.members if epoch is not None and m.slot in epoch.members]

    @property
    def confirmed(self) -> int:
        """Iterations of the stream that every worker of the epoch has confirmed."""
        return min((member.confirmed for member in self.crew), default=0)

    # --- epochs ------------------------------------------------------------------------------------------------

    def current_epoch(self) -> Epoch:
        """The present epoch. Raises FailedPrecondition before the first."""
        if self.epoch is None:
            raise FailedPrecondition(f"{self.life}: no iteration is planned")
        return self.epoch

    def finish_as(self, done: Manifest, progress: bytes | None) -> None:
        """Takes up a job that another dispatcher has brought to its end, with the progress that it saved."""
        self.roster.take_up(done.iteration, done.workers)
        self.figures.load(done.planned or {}, progress, self.spec.workers)
        everyone = WorkerSet.all_of(len(done.workers))
        self.epoch = Epoch(0, done.iteration, everyone, PlanLog(self.spec.workers, done.iteration))
        self.life.advance(JobPhase.FINISHED)

    def begin_epoch(self, epoch: Epoch) -> None:
        """From now on workers get the plans of this epoch."""
        if self.epoch is None and epoch.first == 0:
            self.shadows.start(self.spec, [member.registration for member in self.roster.members])
        self.epoch = epoch
        self.stragglers.begin(epoch.first)
        self._join_timer.cancel()
        self.observations = Observations(self.spec.workers)
        for member in self.crew:
            telemetry.seated(self.life, member)
            self.observations.seated(member.slot, member.registration.bandwidth)
        self.life.advance(JobPhase.RUNNING)

    def end_epoch(self, cause: str) -> None:
        """Ends the epoch early; without checkpoints, that fails the job."""
        if self.checkpoints is None:
            self.life.fail(cause)
        elif not self.life.over and self.epoch is not None and not self.epoch.over:
            _log.warning("epoch %d is over: %s", self.epoch.number, cause)
            self.epoch.end(cause)
            self.life.advance(JobPhase.RECOVERING)

    def _checkpoint_done(self, epoch: Epoch, latest: Manifest) -> None:
        for cut in [cut for cut in epoch.plans.cuts if cut <= latest.iteration]:
            del epoch.plans.cuts[cut]
        self.intake.release(latest.samples)
        self.stream.changed()
        if self.checkpoints is not None and self.checkpoints.failures >= _FAILED_CHECKPOINTS:
            self.life.fail(
                f"{self.checkpoints.failures} checkpoints in a row could not be committed, the dispatcher's log says"
                f" why; the last checkpoint is {latest.iteration}"
            )
        newcomers = [str(member) for member in self.roster.members if member not in self.crew]
        if newcomers and not epoch.over and epoch is self.epoch:
            self.end_epoch(f"{', '.join(newcomers)} joins")
        self.life.notify()

    def _worker_replaced(self, member: Member) -> None:
        self.end_epoch(f"{member} has been restarted")

    # --- time limits: they do nothing to a job that is over ------------------------------------------------------

    def _lease_expired(self, member: Member) -> None:
        silence = f"{member} sent no heartbeat for {self.settings.lease_seconds:g} s"
        needed = self.epoch is not None and not self.epoch.over and member.slot in self.epoch.members
        if self.life.phase is JobPhase.WAITING_FOR_WORKERS or not needed:  # nothing is lost
            _log.warning("%s; its slot is free again", silence)
            self.roster.remove(member)
            self.life.notify()
        else:
            self.end_epoch(f"{silence} (the limit is {self.settings.variable('lease_seconds')})")
            if self.checkpoints is not None:
                self.roster.remove(member)

    def _workers_missing(self) -> None:
        self.life.fail(
            f"only {len(self.roster.members)} of {self.spec.workers} workers registered within"
            f" {self.settings.join_seconds:g} s (the limit is {self.settings.variable('join_seconds')})"
        )
