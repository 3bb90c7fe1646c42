"""The workers of one epoch that sum at a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from esd.ps_server.core.dense_sums import DenseSums, Sum
from esd.ps_server.core.sum_log import LoggedSum, SumLog
from esd.ps_server.service.sum_streams import SumMemory, SumStream
from esd.services.domain.errors import DeadlineExceeded, EsdError, FailedPrecondition, Unavailable
from esd.services.domain.sum_pieces import SumMember, SumPiece
from esd.services.wire.sums import encode_sum


class SumGroup:
    """The members of one epoch. It fails as a whole: when a member leaves that a sum lacks, is refused, or is late.

    A member whose stream breaks may continue on another one. Until then it counts as a member that sends nothing.

    Args:
        member: the first member, which names the group.
        sums: of the group.
        memory: of the server.
        ended: called when the group is over: all members have left, or it has failed and all streams have ended.

    Attributes:
        sums: as above.
        streams: of the members that are here, by slot.
    """

    def __init__(self, member: SumMember, sums: DenseSums, memory: SumMemory, ended: Callable[[], None]) -> None:
        self.sums = sums
        self.streams: dict[int, SumStream] = {}
        self._log = SumLog(member.members)
        self._members = member.members
        self._epoch = member.epoch
        self._memory = memory
        self._ended = ended
        self._instances: dict[int, int] = {}  # by slot, of the members that have come
        self._left: set[int] = set()
        self._joined = False
        self._over = False
        self._failure: EsdError | None = None
        self._loop = asyncio.get_running_loop()
        self._last_sign = self._loop.time()
        self._patience = float("inf")
        self._watch: asyncio.TimerHandle | None = None

    @property
    def held(self) -> int:
        """The bytes of values that wait to be added, and of sums."""
        return self.sums.held + self._log.bytes

    def drop_sent_sum(self) -> int:
        """Drops the first sum if all members that are here have been sent it; returns its bytes, or 0."""
        sent = min((stream.next for stream in self.streams.values()), default=self._log.end)
        return self._log.drop_first() if self._log.first < sent else 0

    def join(self, member: SumMember, patience: float) -> SumStream:
        """Takes a member in, which is welcomed when all have come, or takes its next stream in the place of the last.

        Args:
            member: the member.
            patience: seconds that this member waits for the others.

        Raises:
            FailedPrecondition: it names other members than the first one; another process has its slot; it has left; or
                a sum that it lacks is dropped.
            InvalidArgument: it reports sums that it cannot have.
            EsdError: the group has failed.
        """
        slot = member.slot
        self._check(member)
        self._log.check_kept(slot, member.sums)
        self._log.confirm(slot, member.sums, self._log.end)
        if (former := self.streams.get(slot)) is not None:
            former.fail(FailedPrecondition(f"worker slot {slot} sums on a later stream"))
        stream = SumStream(slot, self._log, member.sums, self._account)
        self.streams[slot] = stream
        self._instances[slot] = member.instance
        self._patience = min(self._patience, patience)
        if self._joined:
            stream.welcome(self.sums.pieces_of(slot))
        else:
            self._last_sign = self._loop.time()
            self._welcome_all_if_here()
        self._set_watch()
        self._account()
        return stream

    def add(self, stream: SumStream, pieces: Sequence[SumPiece], received: int) -> None:
        """Takes pieces of a member, and gives each sum to all members when it is complete.

        Args:
            stream: of the member.
            pieces: the next ones of the member.
            received: the number of sums that the member has.

        Raises:
            InvalidArgument: a piece is not the member's next one, or is damaged; or the number is wrong.
        """
        if self._failure is not None or not self._is_present(stream):
            return
        self._log.confirm(stream.slot, received, stream.reached)
        for piece in pieces:
            total = self.sums.add(stream.slot, piece)
            if total is not None:
                logged = LoggedSum(encode_sum(total.piece), _name_of(total), total.unwanted)
                self._log.append(logged)
                for each in self.streams.values():
                    each.extend(len(logged.message(each.slot)))
        self._last_sign = self._loop.time()
        self._account()
        self._fail_if_left()

    def leave(self, stream: SumStream) -> None:
        """Records that a member sums no more."""
        if not self._is_present(stream):
            return
        if self._joined:
            self._left.add(stream.slot)
            self._log.forget(stream.slot)
        self.lose(stream)
        self._fail_if_left()

    def lose(self, stream: SumStream) -> None:
        """Records that a stream has ended. Its member may come back on another one."""
        if not self._is_present(stream):
            return
        del self.streams[stream.slot]
        if not self._joined:
            del self._instances[stream.slot]
        if not self.streams and self.sums.missing() is None:
            self._last_sign = self._loop.time()
        self._account()
        self._end_if_over()

    def refuse(self, stream: SumStream, reason: EsdError) -> None:
        """Ends the stream of a member with an error of its own, and the other streams with the member's name."""
        stream.fail(reason)
        if self._is_present(stream):
            self.fail(Unavailable(f"the parameter server has refused worker slot {stream.slot}: {reason}"))

    def fail(self, reason: EsdError) -> None:
        """Ends the streams of all members, unless the group has failed before."""
        if self._failure is None:
            self._failure = reason
            for stream in self.streams.values():
                stream.fail(reason)
            self._end_if_over()

    def _check(self, member: SumMember) -> None:
        if self._failure is not None:
            if member.resumes:
                raise FailedPrecondition(f"the sums of epoch {self._epoch} have failed: {self._failure}")
            raise type(self._failure)(str(self._failure))
        if member.members != self._members:
            raise FailedPrecondition(
                f"worker slot {member.slot} names the members {member.members}, and another one has named "
                f"{self._members} for epoch {self._epoch}"
            )
        known = self._instances.get(member.slot, member.instance)
        if member.slot in self._left or known != member.instance:
            raise FailedPrecondition(f"worker slot {member.slot} sums in epoch {self._epoch} on another stream already")

    def _account(self) -> None:
        if not self._over:  # otherwise the last message of a stream is sent
            self._memory.update(self)

    def _is_present(self, stream: SumStream) -> bool:
        return self.streams.get(stream.slot) is stream

    def _welcome_all_if_here(self) -> None:
        if len(self.streams) == len(self._members):
            self._joined = True
            for slot, stream in self.streams.items():
                stream.welcome(self.sums.pieces_of(slot))

    def _fail_if_left(self) -> None:
        if self._left and (missing := self.sums.missing()) is not None:
            name, slots = missing
            if gone := self._left.intersection(slots):
                self.fail(
                    Unavailable(f"{_slots(gone)} left the sums of epoch {self._epoch}, and {name} are not summed")
                )

    def _end_if_over(self) -> None:
        done = self._failure is not None or not self._joined or len(self._left) == len(self._members)
        if done and not self.streams and not self._over:
            self._over = True
            if self._watch is not None:
                self._watch.cancel()
            self._memory.remove(self)
            self._ended()

    def _set_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(self._last_sign + self._patience, self._notice_silence)

    def _notice_silence(self) -> None:
        silent = self._loop.time() - self._last_sign
        late: Iterable[int] = ()
        task = "come"
        deaf = {slot: each.deaf_for() for slot, each in self.streams.items() if each.deaf_for() >= self._patience}
        if deaf:
            silent, task, late = max(deaf.values()), "taken the sums", deaf
        elif not self._joined:
            late = [slot for slot in self._members if slot not in self.streams]
        elif (missing := self.sums.missing()) is not None:
            task, late = f"sent {missing[0]}", missing[1]
        elif not self.streams:
            task, late = "come back", [slot for slot in self._members if slot not in self._left]
        if not late:
            self._last_sign = self._loop.time()
        elif silent >= self._patience:
            self.fail(
                DeadlineExceeded(
                    f"{_slots(late)} not {task} for {silent:.0f} s, and the others wait no longer "
                    "(ESD_WORKER_PEER_TIMEOUT, ESD_PS_PULL_WAIT_SECONDS)"
                )
            )
            return
        self._set_watch()


def _name_of(total: Sum) -> bytes:
    """Returns the message of a sum to the members that do not want it; empty if all do."""
    return encode_sum(replace(total.piece, values=None, wanted=False)) if total.unwanted else b""


def _slots(slots: Iterable[int]) -> str:
    numbers = sorted(slots)
    named = ", ".join(map(str, numbers))
    return f"worker slots {named} have" if len(numbers) > 1 else f"worker slot {named} has"
