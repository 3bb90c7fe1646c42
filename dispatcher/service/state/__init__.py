"""The state of a running job. The modules of `run` read and change it; no module here starts a task."""
