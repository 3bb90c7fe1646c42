"""`esd cluster` runs ESD on several machines, each with a container engine that is reached over SSH."""
