"""Summarizes samples as blesec-bench does. Used by tools/report."""

import statistics


def ratio(name, found, less):
    """A ratio like those of a report, from its samples; `less` says whether less is better."""
    return {"name": name, "median": statistics.median(found), "least": min(found),
            "most": max(found), "count": len(found), "less-is-better": less}
