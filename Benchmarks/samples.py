"""Samples summed up as blesec-bench does: for tools/report."""

import statistics


def ratio(name, found, less):
    """A ratio like those of a report, of the samples found."""
    return {"name": name, "median": statistics.median(found), "least": min(found),
            "most": max(found), "count": len(found), "less-is-better": less}
