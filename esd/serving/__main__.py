"""`python -m esd.serving`: serves a model until SIGTERM. Settings: ESD_MODEL_<NAME> or the file of ESD_CONFIG."""

from esd.services.runtime.process import run
from esd.services.runtime.settings import load
from esd.serving.app import run_model
from esd.serving.settings import ModelSettings

if __name__ == "__main__":
    run(lambda stop: run_model(load(ModelSettings), stop))
