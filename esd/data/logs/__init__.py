"""Logs as sources of samples: streams of Redis, Valkey and NATS, topics of Kafka. Needs pyarrow."""

from esd.data.logs.dataset import LogDataset

__all__ = ["LogDataset"]
