"""`python -m esd.dispatcher`: serves until SIGTERM. Settings: ESD_DISPATCHER_<NAME> or the file of ESD_CONFIG."""

from esd.dispatcher.service.app import run_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.services.runtime.process import run
from esd.services.runtime.settings import load

if __name__ == "__main__":
    run(lambda stop: run_dispatcher(load(DispatcherSettings), stop))
