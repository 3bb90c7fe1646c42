"""Dispatch without a cluster: simulations, other systems' traffic, cost models and replays."""
