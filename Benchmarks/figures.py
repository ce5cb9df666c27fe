"""The figures that have limits, and the comparison of a run with these limits. Used by tools/report."""

from fnmatch import fnmatch

import profiles
import samples

NOISE = "Noise_XX_25519_ChaChaPoly_SHA256"
# Each cipher with a protocol that uses it; each message size with the limit of the ratio for a record.
CIPHERS = {"ChaCha20-Poly1305": NOISE, "AES-GCM": "Noise_XX_25519_AESGCM_SHA256"}
SIZES = {"64 B": (64, 1.25), "1 KiB": (1024, 1.05), "4 KiB": (4096, 1.05), "16 KiB": (16384, 1.05),
         "65,519 B": (65519, 1.05)}


# The reasons why figures miss their limits; the keys are patterns of ratios' names. Callgrind, and
# perf's samples of threads, showed these reasons on the machine that docs/performance.md names. When the
# code that a reason describes changes, measure again.
REASONS = {
    "engine/Noise_*_AESGCM_*/1024/*": (
        "Two calls of the cipher for 1 KiB take some 725 ns, so the limit leaves 36 ns for everything else. The "
        "880 other instructions, for nonces, lengths, types and checks, and the copy into the record take about "
        "65 ns"),
    "engine/TLS1.3/*": (
        "A record of 64 B takes 13,600 instructions. 12,500 of them are OpenSSL's, as many as without blesec. Of "
        "the 1,140 others, 206 check before each read that OpenSSL's error queue is empty, since otherwise a "
        "peer's alert is not recognised; 80 count references; the rest frame and check records"),
    "library/noiseprotocol/65519": (
        "Both libraries spend nearly all of their time in the same function of OpenSSL. For a ratio of 1.05, "
        "blesec's records would have to take at most 0.5 % longer than the raw primitive; they take 2 % longer"),
    "link/unix-seqpacket/*/round-trip-to-c": (
        "Each thread spends 40 % of its time in the kernel, with three calls a message, to wait, to receive and "
        "to send; a thread in C makes two. 18 % is the cipher, 15 % blesec's code, 7 % the Swift runtime's tasks, "
        "5 % its checks of exclusive access, 3 % reference counts, 3 % mutexes and 3 % copies. In a build "
        "without weak references, no figure differed by more than 2 %"),
    "link/unix-seqpacket/*/goodput-to-c": (
        "The receiving thread is the bottleneck. As in C, it spends 43 % of its time in the cipher, 35 % in the "
        "kernel and 3 % on copies. 7 % is blesec's code, 3 % the Swift runtime's tasks, 2 % reference counts; "
        "checks of exclusive access, mutexes, and memory for messages take 1 % each"),
}


def table():
    """Yields for each figure its description, the pattern of its ratio's name, its limit, and the text to print
    if the figure was not measured.

    This text is None for a figure of the laboratory, because laboratory.py then returns the reason.
    """
    for cipher, protocol in CIPHERS.items():
        for size, (count, limit) in SIZES.items():
            yield (f"a record of {size}, {cipher}: time divided by the raw primitive's",
                   f"engine/{protocol}/{count}/NoiseEngine", limit, "not measured")
    for name in ("flynn/noise", "noiseprotocol"):
        yield (f"ChaChaPoly at 16 KiB: {name}'s time divided by blesec's", f"library/{name}/16384", 1.2, "not measured")
        yield (f"ChaChaPoly at 65,519 B: {name}'s time divided by blesec's", f"library/{name}/65519", 1.05, "not measured")
    yield "a TLS record: time divided by that of two ends of OpenSSL alone", "engine/TLS1.3/*/TLSEngine", 1.10, "not measured"
    yield "a Noise XX handshake: time divided by that of its primitives", f"handshake/{NOISE}", 1.10, "not measured"
    yield "a mutual TLS handshake: time divided by that of two ends of OpenSSL alone", "handshake/TLS1.3", 1.10, "not measured"
    yield ("1 KiB there and back over a SEQPACKET pair: time divided by that of two blocking threads in C",
           f"link/unix-seqpacket/{NOISE}/1024/round-trip-to-c", 1.5, "not measured")
    yield ("16 KiB messages one way over a SEQPACKET pair: goodput divided by that of two blocking threads in C",
           f"link/unix-seqpacket/{NOISE}/16384/goodput-to-c", round(1 / 1.15, 2), "not measured")
    yield ("L2CAP, bulk: bytes of messages divided by bytes of SDUs", "lab/share/65536", 0.998, None)
    yield "L2CAP: packets divided by the computed number", "lab/packets", 1.0, None
    yield "L2CAP: goodput with Noise divided by the plain link's (emulated)", "lab/Noise to plain", 0.90, None
    yield "L2CAP: the plain link's goodput divided by l2test's (emulated)", "lab/plain to l2test", 0.90, None
    yield "L2CAP: goodput with TLS divided by the plain link's (emulated)", "lab/TLS to plain", 0.90, None
    yield ("resident memory of one end of an idle channel, with 1,000 channels: divided by 16 KiB with Noise, "
           "64 KiB with TLS",
           "many/*/1000/idle-memory", 1.0, "no scenario of this run had 1,000 channels")
    yield "number of threads that the channels add (not a ratio)", "many/threads", 0, "not measured"
    yield ("memory mappings with the most channels of the run: divided by the kernel's default limit of 65,530", "many/maps", 1.0, "not measured")
    yield ("locked memory with the most channels of the run: divided by the default limit of 8 MiB", "many/locked", 1.0, "not measured")
    yield ("64 bytes there and back on an urgent stream beside a bulk one, over a Unix socket: time divided by that "
           "without the bulk stream",
           "link/unix/streams/urgent", 3.0, "not measured")
    yield ("the same with 5 ms between the urgent messages", "link/unix/streams/urgent-paced", 3.0, "not measured")
    yield ("a bulk stream beside urgent messages 5 ms apart, over a Unix socket: goodput divided by that of the "
           "bulk stream alone",
           "link/unix/streams/bulk-paced", 0.85, "not measured")
    yield ("radio model: the longest time that 64 bytes on an urgent stream beside a bulk stream need, divided by the sum of "
           "two connection intervals and the time of 16 KiB of bulk data", "radio/*/streams/urgent", 1.0, "this run had no model of radio")
    yield ("radio model: a bulk stream beside urgent messages: goodput divided by that of the bulk stream alone",
           "radio/*/streams/bulk", 0.85, "this run had no model of radio")
    yield ("radio model, 2M PHY: bulk goodput with Noise divided by the bare L2CAP channel's",
           f"radio/2M/*/{NOISE}/goodput", 0.985, "this run had no model of radio")
    yield ("radio model: packets of a message of 100 bytes divided by the number that it needs",
           f"radio/2M/*/{NOISE}/short-message", 1.0, "this run had no model of radio")


def ratios_with_most_channels(rows):
    """The ratios for the rows with the largest number of channels of the run: the number of threads, and the
    memory mappings and the locked memory divided by their limits."""
    most = max(row["channels"] for row in rows)
    costs = [row[state] for row in rows if row["channels"] == most for state in ("idle", "busy")]
    limits = {"threads": ("threads", 1), "maps": ("maps", 65530), "locked": ("locked-bytes", 8 << 20)}
    return [samples.ratio(f"many/{name}", [max(cost[member] for cost in costs) / limit], less_is_better=True)
            for name, (member, limit) in limits.items()]


def judge(ratio, limit):
    """Whether a ratio meets its limit, and the words that precede the limit."""
    less_is_better = ratio["less-is-better"]
    is_met = ratio["median"] <= limit if less_is_better else ratio["median"] >= limit
    return is_met, "at most" if less_is_better else "at least"


def explanation(name, ratio, profile):
    """What the run measured for a figure that misses its limit, and the known reason."""
    words = f"measured once, {ratio['median']:.3f}"
    if ratio["count"] > 1:
        words = f"between {ratio['least']:.3f} and {ratio['most']:.3f} in {ratio['count']} samples"
    if name in profile:
        own = 1 - sum(share for owner, share in profiles.shares(profile[name]).items()
                      if owner in ("libsodium", "OpenSSL"))
        words += (f"; {100 * own:.1f} % of the instructions are outside of libsodium and OpenSSL"
                  " (below, by function)")
    elif name.startswith(("link/", "lab/")):
        words += "; elapsed time, which other programs and the scheduler affect"
    found = next((reason for pattern, reason in REASONS.items() if fnmatch(name, pattern)), None)
    return f"{words}. {found}" if found else words


def text(ratios, profile, why_no_laboratory):
    """The table of figures, the limits that are missed, and the figures that were not measured."""
    rows = ["| figure | ratio | limit | |", "|---|---:|---:|---|"]
    missed, missing = [], []
    for description, pattern, limit, not_measured in table():
        names = [name for name in ratios if fnmatch(name, pattern)]
        if not names:
            rows.append(f"| {description} | | {limit} | not measured |")
            missing.append(f"- {description}: {not_measured or why_no_laboratory}.")
        for name in names:
            is_met, bound = judge(ratios[name], limit)
            label = description if len(names) == 1 else f"{description} (`{name}`)"
            rows.append(f"| {label} | {ratios[name]['median']:.3f} | {bound} {limit} "
                        f"| {'met' if is_met else '**missed**'} |")
            if not is_met:
                missed.append(f"- {label}: {explanation(name, ratios[name], profile)}.")
    parts = ["## Figures and their limits\n", "\n".join(rows) + "\n"]
    for title, lines in (("### Limits that are missed", missed), ("### Figures that were not measured", missing)):
        parts.append(f"{title}\n")
        parts.append(("\n".join(lines) if lines else "Nothing.") + "\n")
    return "\n".join(parts)
