"""Malformed requests to every public RPC, and running jobs with hostile peers: no crash, no hang, no internal text."""
