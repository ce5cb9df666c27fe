"""Summarizes samples as blesec-bench does. Used by tools/report."""

import statistics


def ratio(name, values, less_is_better):
    """A ratio in the form of a report's ratios, from its samples' values."""
    return {"name": name, "median": statistics.median(values), "least": min(values),
            "most": max(values), "count": len(values), "less-is-better": less_is_better}
