"""`python -m esd.worker.host FD`: forks a machine's workers, as the socket FD asks it to (esd/run/worker_host.py).

torch takes a second or two of processor time to import. The host has done so once when it forks, so the start of four
workers costs little more than the start of one.
"""

from __future__ import annotations

import socket
import sys

from esd.protos.dispatcher_pb2 import JobSpec
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.forks import serve_forks
from esd.services.runtime.process import run
from esd.services.runtime.users_code import place_of
from esd.services.wire.jobs import decode_job
from esd.worker.models import build_model
from esd.worker.service.app import serve_worker
from esd.worker.training.device import prepare_device

WORKER = "worker"
TRIAL = "trial"


def try_model() -> None:
    """Builds and tries the model of the job on standard input. Prints why it is refused, and nothing otherwise."""
    prepare_device("cpu", threads=1)
    job = decode_job(JobSpec.FromString(sys.stdin.buffer.read()))
    try:
        build_model(job)
    except InvalidArgument as error:
        sys.stdout.write(str(error))
    except KeyboardInterrupt as error:  # of the model's code: no Ctrl-C reaches this process
        sys.stdout.write(f"model {job.model.name!r} raises KeyboardInterrupt{place_of(error)}")


def main() -> None:
    """Forks a child for each request until the socket closes; in a child, carries out the request."""
    request = serve_forks(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    if request.role == TRIAL:
        try_model()
    else:
        run(serve_worker)


if __name__ == "__main__":
    main()
