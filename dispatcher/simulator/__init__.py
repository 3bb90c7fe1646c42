"""Dispatch without a cluster: plans of whole streams, other ways to synchronise, SCARS' theory, and replays."""
