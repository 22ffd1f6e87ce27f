"""Reading what Prometheus would."""

from __future__ import annotations

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

Labels = dict[str, str]


class Page:
    """A page of metrics."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = [sample for family in self.families.values() for sample in family.samples]

    def labels(self) -> dict[str, set[tuple[str, ...]]]:
        """Of each name as it is read (of histograms without _bucket and the like), the sets of labels that it has."""
        found: dict[str, set[tuple[str, ...]]] = {}
        for family in self.families.values():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            for sample in family.samples:
                found.setdefault(name, set()).add(tuple(sorted(set(sample.labels) - {"le"})))
        return found

    def value(self, name: str, **labels: str) -> float:
        """Of the one sample that has this name and these labels (and maybe more)."""
        (found,) = [one for one in self._samples if one.name == name and labels.items() <= one.labels.items()]
        return float(found.value)

    def namespaces(self) -> set[str]:
        return {sample.labels["namespace"] for sample in self._samples if "namespace" in sample.labels}


async def read(url: str, **headers: str) -> Page:
    async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{url}/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return Page(await response.text())
