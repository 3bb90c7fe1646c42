"""The metrics page of a service: the metrics that it feeds, in the text format of Prometheus."""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from esd.services.runtime.http import Resource
from esd.services.runtime.metrics import BY_SERVICE, EVERY_SERVICE
from esd.services.runtime.settings import ServerSettings


def metrics_page(settings: ServerSettings) -> Resource:
    """Returns the metrics page of one service, in the text format of Prometheus.

    A thread writes it: metrics with many labels are computed on request, and take milliseconds each.
    """
    shown = _shown(settings)
    return Resource(CONTENT_TYPE_LATEST, lambda: asyncio.to_thread(generate_latest, shown))


def _shown(settings: ServerSettings) -> CollectorRegistry:
    """Returns the metrics of one service."""
    registry = CollectorRegistry()
    for collector in (*EVERY_SERVICE, *BY_SERVICE.get(settings.section(), ())):
        registry.register(collector)
    return registry
