"""The frame of a service process: logs, signals, the ready line, exit codes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn

from esd.services.domain.errors import EsdError, InvalidArgument
from esd.services.runtime import logs
from esd.services.runtime.memory import keep_freed_memory
from esd.services.runtime.threads import named_threads

EXIT_FAILURE = 1
EXIT_CONFIGURATION = 2

# An argument of every service: it also stops when its standard input ends, which happens when the process at the other
# end of the pipe dies. So a launcher that is killed leaves no services running.
STOP_WITH_STDIN = "--stop-with-stdin"
ORPHAN_SECONDS = 15  # a service without a launcher is killed if it has not stopped by then

_FILES = 65_536
_ASIDE = "esd-aside"  # threads for occasional work that would block the event loop (asyncio.to_thread)
_THREADS_ASIDE = 4

_LAST_CALLS_SECONDS = 5.0
_CALL = "rpc_task"  # gRPC's name for the task of a call

StopEvent = asyncio.Event

_log = logging.getLogger(__name__)


def run(main: Callable[[StopEvent], Awaitable[None]]) -> NoReturn:
    """Runs a service until it returns, and exits with 0, 1 (failure) or 2 (wrong configuration).

    `main` gets an event that SIGTERM and SIGINT set; it should then return. A second signal ends the process at once.
    With the argument STOP_WITH_STDIN the end of standard input sets the event, too. Logs start at level info; `main`
    calls `logs.configure` when it knows its settings. An error ends the process with a line on standard error, after
    the logs. Threads are not joined: one may wait in an all-reduce for a peer that hangs.
    """
    logs.configure("info")
    _allow_files()
    keep_freed_memory()
    try:
        asyncio.run(_until_stopped(main))
    except KeyboardInterrupt:  # the second signal
        _leave(128 + signal.SIGINT)
    except InvalidArgument as error:
        _exit(EXIT_CONFIGURATION, str(error))
    except EsdError as error:
        _exit(EXIT_FAILURE, str(error))
    # The boundary of the process: a defect gets a traceback and an exit code. grpc.aio cancels a call when the iterator
    # of its requests raises, so a CancelledError is a defect, too.
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
        _log.exception("defect")
        _exit(EXIT_FAILURE, f"defect: {error!r}")
    _leave(0)


async def _until_stopped(main: Callable[[StopEvent], Awaitable[None]]) -> None:
    stop = StopEvent()
    loop = asyncio.get_running_loop()
    aside = named_threads(_ASIDE, _THREADS_ASIDE)
    loop.set_default_executor(aside)

    def request_stop(cause: str) -> None:
        _log.info("stopping on %s", cause)
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
        stop.set()

    def read_stdin() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin)
            signal.alarm(ORPHAN_SECONDS)  # its default action ends the process
            request_stop("the end of standard input")

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, request_stop, number.name)
    if STOP_WITH_STDIN in sys.argv[1:]:
        loop.add_reader(sys.stdin, read_stdin)
    try:
        await main(stop)
    finally:
        await _end_calls()
        # asyncio joins its loop's default executor at the end, so it gets one without threads.
        aside.shutdown(wait=False, cancel_futures=True)
        loop.set_default_executor(named_threads(_ASIDE))


async def _end_calls() -> None:
    """Waits for the calls that a stopped server has ended.

    gRPC answers their peers first and ends their tasks afterwards. It would log an error and a traceback for each task
    that asyncio cancels meanwhile, because the loop ends.
    """
    calls = [task for task in asyncio.all_tasks() if task.get_name() == _CALL]
    if calls:
        await asyncio.wait(calls, timeout=_LAST_CALLS_SECONDS)


def announce(service: str, address: str, metrics_address: str | None, **others: str | None) -> None:
    """Prints the ready line, which launchers and tests wait for: the last line on standard output.

    Args:
        service: name of the service.
        address: `host:port` of its gRPC service.
        metrics_address: `host:port` of its metrics page; None if it is off.
        others: the `host:port` of further pages, by name; None if off.
    """
    _print({"event": "ready", "service": service, "address": address, "metrics": metrics_address, **others})


def announce_progress(service: str, progress: str) -> None:
    """Prints how far a service is that takes long to get ready, so that its launcher has patience with it.

    Args:
        service: name of the service.
        progress: other words than before if it has got on.
    """
    _print({"event": "loading", "service": service, "progress": progress})


def _print(line: Mapping[str, str | None]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _allow_files() -> None:
    """Raises the limit of open files, which many systems set to 1,024.

    Every connection is an open file, and strangers can open connections, too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _exit(code: int, message: str) -> NoReturn:
    sys.stderr.write(f"error: {message}\n")
    _leave(code)


def _leave(code: int) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
