"""Malformed requests to every public RPC: no crash, no hang, no internal text."""
