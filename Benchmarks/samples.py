"""Summarizes samples as blesec-bench does. Used by tools/report."""

import statistics


def ratio(name, values, less):
    """A ratio in the form of a report's ratios, from its samples' values; `less` is true if less is better."""
    return {"name": name, "median": statistics.median(values), "least": min(values),
            "most": max(values), "count": len(values), "less-is-better": less}
