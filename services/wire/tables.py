"""Tables and optimizers, between esd.services.domain.tables and the contract."""

from __future__ import annotations

from esd.protos import common_pb2
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.services.wire.enums import EnumCodec

_KINDS = EnumCodec(OptimizerKind, common_pb2.Optimizer.Kind, "KIND_", "optimizer.kind")


def encode_optimizer(spec: OptimizerSpec) -> common_pb2.Optimizer:
    """Returns the message of an optimizer."""
    return common_pb2.Optimizer(
        kind=_KINDS.encode(spec.kind),
        learning_rate=spec.learning_rate,
        epsilon=spec.epsilon,
        beta1=spec.beta1,
        beta2=spec.beta2,
        max_norm=spec.max_norm,
    )


def decode_optimizer(message: common_pb2.Optimizer) -> OptimizerSpec:
    """Returns the optimizer of a message. A message for SGD may omit epsilon, which SGD does not use."""
    kind = _KINDS.decode(message.kind)
    return OptimizerSpec(
        kind=kind,
        learning_rate=message.learning_rate,
        epsilon=message.epsilon or (OptimizerSpec().epsilon if kind is OptimizerKind.SGD else 0.0),
        beta1=message.beta1,
        beta2=message.beta2,
        max_norm=message.max_norm,
    )


def encode_table(spec: TableSpec) -> common_pb2.TableSpec:
    """Returns the message of a table."""
    return common_pb2.TableSpec(
        name=spec.name,
        dimension=spec.dimension,
        optimizer=encode_optimizer(spec.optimizer),
        seed=spec.seed,
        init_scale=spec.init_scale,
    )


def decode_table(message: common_pb2.TableSpec) -> TableSpec:
    """Returns the table of a message."""
    return TableSpec(
        name=message.name,
        dimension=message.dimension,
        optimizer=decode_optimizer(message.optimizer),
        seed=message.seed,
        init_scale=message.init_scale,
    )
