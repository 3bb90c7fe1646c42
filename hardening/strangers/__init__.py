"""What peers without credentials can do to a job and to the memory of its services."""
