"""`python -m esd.lanes`: serves an end of lanes until SIGTERM. Settings: ESD_LANES_<NAME> or the file of ESD_CONFIG."""

from esd.lanes.app import run_lanes
from esd.lanes.settings import LanesSettings
from esd.services.runtime.process import run
from esd.services.runtime.settings import load

if __name__ == "__main__":
    run(lambda stop: run_lanes(load(LanesSettings), stop))
