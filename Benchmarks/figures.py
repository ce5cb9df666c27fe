"""What this project sets itself, with limits, and how a run compares: for tools/report."""

from fnmatch import fnmatch

import profiles
import samples

NOISE = "Noise_XX_25519_ChaChaPoly_SHA256"
CIPHERS = {"ChaCha20-Poly1305": NOISE, "AES-GCM": "Noise_XX_25519_AESGCM_SHA256"}
SIZES = {"64 B": (64, 1.25), "1 KiB": (1024, 1.05), "4 KiB": (4096, 1.05), "16 KiB": (16384, 1.05),
         "65,519 B": (65519, 1.05)}


# What was found behind a figure that may fall short, with callgrind and with perf's sampling of threads, on
# the machine that docs/performance.md names. Whoever changes that code measures again.
REASONS = {
    "engine/Noise_*_AESGCM_*/1024/*": (
        "Two calls of the cipher for 1 KiB take some 725 ns, a twentieth of which is 36 ns; the 880 instructions "
        "around them, for nonces, lengths, types and checks, and the copy into the record take about 65 ns"),
    "engine/TLS1.3/*": (
        "Of 13,600 instructions for a record of 64 B 12,500 are OpenSSL's, as many as in its own loop. Of the "
        "1,140 around them 206 look whether its queue of errors is empty before a read, without which a peer's "
        "alert was not recognised, 80 count references, and the rest frames and checks"),
    "peer/noiseprotocol/65519": (
        "Both spend all but a few percent of that time in the same function of the same OpenSSL: a ratio of "
        "1.05 would take records within 0.5 % of the raw primitive, and they are within 2 %"),
    "link/unix-seqpacket/*/round-trip-to-c": (
        "Of each thread's time 40 % is the kernel's, which is called three times a message, to wait, to receive "
        "and to send, and by a thread in C twice; 18 % is the cipher's; 15 % this project's own; 7 % goes into the "
        "Swift runtime's tasks, 5 % into its checks of exclusive access, 3 % into counts of references, 3 % into "
        "mutexes, 3 % into copies. Weak references cost 2 % at most: without them nothing changed"),
    "link/unix-seqpacket/*/goodput-to-c": (
        "The receiving thread bounds the stream: 43 % of its time is the cipher's, 35 % the kernel's, 3 % "
        "copying, as in C; 7 % is this project's own, 3 % the Swift runtime's tasks, 2 % counts of references, "
        "1 % each exclusive access, mutexes and the messages' memory"),
}


def table():
    """Figures: what they say, the ratio's name, the limit, and why it may be missing.

    The laboratory itself says why it lacks one.
    """
    for cipher, protocol in CIPHERS.items():
        for size, (count, limit) in SIZES.items():
            yield (f"a record of {size}, {cipher}: times the raw primitive",
                   f"engine/{protocol}/{count}/NoiseEngine", limit, "not measured")
    for name in ("flynn/noise", "noiseprotocol"):
        yield (f"ChaChaPoly at 16 KiB: {name}'s time over ours", f"peer/{name}/16384", 1.2, "not measured")
        yield (f"ChaChaPoly at 65,519 B: {name}'s time over ours", f"peer/{name}/65519", 1.05, "not measured")
    yield "a TLS record: times OpenSSL's own BIO pair", "engine/TLS1.3/*/TLSEngine", 1.10, "not measured"
    yield "a Noise XX handshake: times the sum of its primitives", f"handshake/{NOISE}", 1.10, "not measured"
    yield "a mutual TLS handshake: times OpenSSL's own two ends", "handshake/TLS1.3", 1.10, "not measured"
    yield ("1 KiB there and back over a SEQPACKET pair: times two blocking threads in C",
           f"link/unix-seqpacket/{NOISE}/1024/round-trip-to-c", 1.5, "not measured")
    yield ("16 KiB messages one way over a SEQPACKET pair: goodput over that of two blocking threads in C",
           f"link/unix-seqpacket/{NOISE}/16384/goodput-to-c", round(1 / 1.15, 2), "not measured")
    yield ("L2CAP, bulk: bytes of messages over bytes of SDUs", "lab/share/65536", 0.998, None)
    yield "L2CAP: packets over those computed", "lab/packets", 1.0, None
    yield "L2CAP: goodput with Noise over the plain link's (emulated)", "lab/Noise to plain", 0.90, None
    yield "L2CAP: the plain link's goodput over l2test's (emulated)", "lab/plain to l2test", 0.90, None
    yield "L2CAP: goodput with TLS over the plain link's (emulated)", "lab/TLS to plain", 0.90, None
    yield ("memory of an idle channel of 1,000, beyond the sockets: over 16 KiB with Noise, 64 KiB with TLS",
           "many/*/1000/idle-memory", 1.0, "nothing in this run holds many channels")
    yield "threads beyond the loop's own, however many channels: their number", "many/threads", 0, "not measured"
    yield ("maps of 10,000 sessions: over the kernel's usual limit of 65,530", "many/maps", 1.0, "not measured")
    yield ("locked memory of 10,000 sessions: over the usual limit of 8 MiB", "many/locked", 1.0, "not measured")
    yield ("radio model, 2M PHY: bulk goodput with Noise over the bare channel's",
           f"radio/2M/*/{NOISE}/goodput", 0.985, "nothing in this run models the radio")
    yield ("radio model: packets of a message of 100 bytes, over those it needs",
           f"radio/2M/*/{NOISE}/short-message", 1.0, "nothing in this run models the radio")


def of_many(rows):
    """What many channels take of what the kernel limits, of the rows with the most of them."""
    most = max(row["channels"] for row in rows)
    costs = [row[state] for row in rows if row["channels"] == most for state in ("idle", "busy")]
    limits = {"threads": ("threads", 1), "maps": ("maps", 65530), "locked": ("locked-bytes", 8 << 20)}
    return [samples.ratio(f"many/{name}", [max(cost[member] for cost in costs) / limit], less=True)
            for name, (member, limit) in limits.items()]


def judge(ratio, limit):
    less = ratio["less-is-better"]
    good = ratio["median"] <= limit if less else ratio["median"] >= limit
    return good, "at most" if less else "at least"


def why(name, ratio, profile):
    """What was measured beside a figure that falls short."""
    words = f"measured once, {ratio['median']:.3f}"
    if ratio["count"] > 1:
        words = f"between {ratio['least']:.3f} and {ratio['most']:.3f} in {ratio['count']} samples"
    if name in profile:
        own = 1 - sum(share for whose, share in profiles.shares(profile[name]).items()
                      if whose in ("libsodium", "OpenSSL"))
        words += (f"; {100 * own:.1f} % of the instructions are outside of libsodium and OpenSSL"
                  " (below, by function)")
    elif name.startswith(("link/", "lab/")):
        words += "; time that passes, in which other programs and the scheduler have their part"
    found = next((reason for pattern, reason in REASONS.items() if fnmatch(name, pattern)), None)
    return f"{words}. {found}" if found else words


def text(found, profile, laboratory_lacks):
    """The table, then what falls short or is missing."""
    rows = ["| figure | ratio | limit | |", "|---|---:|---:|---|"]
    short, missing = [], []
    for words, pattern, limit, absent in table():
        names = [name for name in found if fnmatch(name, pattern)]
        if not names:
            rows.append(f"| {words} | | {limit} | not measured |")
            missing.append(f"- {words}: {absent or laboratory_lacks}.")
        for name in names:
            good, bound = judge(found[name], limit)
            label = words if len(names) == 1 else f"{words} (`{name}`)"
            rows.append(f"| {label} | {found[name]['median']:.3f} | {bound} {limit} "
                        f"| {'holds' if good else '**falls short**'} |")
            if not good:
                short.append(f"- {label}: {why(name, found[name], profile)}.")
    parts = ["## Figures and their limits\n", "\n".join(rows) + "\n"]
    for title, lines in (("### What falls short", short), ("### What this run did not measure", missing)):
        parts.append(f"{title}\n")
        parts.append(("\n".join(lines) if lines else "Nothing.") + "\n")
    return "\n".join(parts)
