"""The metrics page of a service: the metrics that it feeds, in the text format of Prometheus, or in OpenMetrics."""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from esd.services.runtime.http import Resource
from esd.services.runtime.metrics import BY_SERVICE, EVERY_SERVICE
from esd.services.runtime.settings import Settings


def metrics_page(settings: Settings) -> Resource:
    """Returns the metrics page of one service, in the text format of Prometheus.

    Clients that accept it, such as Prometheus itself, get OpenMetrics, which alone has exemplars. A thread writes the
    page: metrics with many labels are computed on request, and take milliseconds each.
    """
    shown = _shown(settings)
    richer = Resource(openmetrics.CONTENT_TYPE_LATEST, lambda: asyncio.to_thread(openmetrics.generate_latest, shown))
    return Resource(CONTENT_TYPE_LATEST, lambda: asyncio.to_thread(generate_latest, shown), richer)


def _shown(settings: Settings) -> CollectorRegistry:
    """Returns the metrics of one service."""
    registry = CollectorRegistry()
    for collector in (*EVERY_SERVICE, *BY_SERVICE.get(settings.section(), ())):
        registry.register(collector)
    return registry
