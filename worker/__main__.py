"""`python -m esd.worker`: one worker, configured by ESD_WORKER_* (see worker/service/settings.py)."""

from __future__ import annotations

from esd.services.runtime.process import run
from esd.worker.service.app import serve_worker

if __name__ == "__main__":
    run(serve_worker)
