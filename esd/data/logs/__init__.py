"""Logs as sources of samples: streams of Redis and Valkey, whose messages have positions. Needs pyarrow."""

from esd.data.logs.dataset import LogDataset

__all__ = ["LogDataset"]
