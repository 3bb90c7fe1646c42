"""`python -m dispatcher`: serves until SIGTERM. Settings: ESD_DISPATCHER_<NAME> or the file of ESD_CONFIG."""

from dispatcher.service.app import run_dispatcher
from dispatcher.service.settings import DispatcherSettings
from services.runtime.process import run
from services.runtime.settings import load

if __name__ == "__main__":
    run(lambda stop: run_dispatcher(load(DispatcherSettings), stop))
