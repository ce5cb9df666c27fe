"""Summarizes samples as blesec-bench does. Used by tools/report."""

import statistics


def ratio(name, found, less):
    """A ratio in the form of a report's ratios, from its samples; `less` is true if a smaller ratio is better."""
    return {"name": name, "median": statistics.median(found), "least": min(found),
            "most": max(found), "count": len(found), "less-is-better": less}
