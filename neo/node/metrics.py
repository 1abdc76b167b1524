"""Figures in the text format of Prometheus. Needs the package prometheus-client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from neo.node.figures import Figure, Kind, Sample
from neo.node.meter import BOUNDS, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Ends the name of a figure that is always 1, and whose labels tell something.
_INFO = "_info"


def exposition(samples: Iterable[Sample], others: Iterable[Metric] = ()) -> bytes:
    """Return all samples, ``others``, and figures of the process: memory, processor, files."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([*others, *_families(samples)]))
    ProcessCollector(registry=registry)
    text: bytes = generate_latest(registry)
    return text


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _families(samples: Iterable[Sample]) -> Iterator[Metric]:
    by_figure: dict[Figure, list[Sample]] = {}
    for sample in samples:
        by_figure.setdefault(sample.figure, []).append(sample)
    for figure, found in by_figure.items():
        yield _family(figure, found)


def _family(figure: Figure, samples: list[Sample]) -> Metric:
    if figure.kind is Kind.HISTOGRAM:
        histograms = HistogramMetricFamily(figure.name, figure.help, labels=figure.labels)
        for sample in samples:
            assert isinstance(sample.value, Histogram)
            buckets, total = _buckets(sample.value)
            histograms.add_metric(sample.labels, buckets, total)
        return histograms
    if figure.name.endswith(_INFO):
        info = InfoMetricFamily(figure.name.removesuffix(_INFO), figure.help, labels=figure.labels)
        for sample in samples:
            info.add_metric(sample.labels, {})
        return info
    family: CounterMetricFamily | GaugeMetricFamily
    if figure.kind is Kind.COUNTER:
        family = CounterMetricFamily(figure.name, figure.help, labels=figure.labels)
    else:
        family = GaugeMetricFamily(figure.name, figure.help, labels=figure.labels)
    for sample in samples:
        assert not isinstance(sample.value, Histogram)
        family.add_metric(sample.labels, float(sample.value))
    return family


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Return cumulative buckets by their upper bounds, and the sum of all seconds."""
    total, buckets = 0, []
    for bound, count in zip((*BOUNDS, inf), histogram.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == inf else str(bound), float(total)))
    return buckets, histogram.sum
