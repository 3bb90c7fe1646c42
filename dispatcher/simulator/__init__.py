"""Dispatch without a cluster: whole streams planned offline, other ways to synchronise, SCARS' theory, and replays."""
