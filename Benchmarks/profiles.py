"""Where the instructions of a record and of a handshake are spent, by callgrind: for tools/report."""

import re
import subprocess

PROTOCOL = "Noise_XX_25519_ChaChaPoly_SHA256"
RECORD = "$s12blesec_bench16NoiseEngineLayerC11sealAndOpen_11repetitionsySi_SitKF"
TLS_RECORD = "$s12blesec_bench14TLSEngineLayerC11sealAndOpen_11repetitionsySi_SitKF"
HANDSHAKE = "$s12blesec_bench15NoiseHandshakesC3runyAA15HandshakeSampleVSiKF"
AESGCM = "Noise_XX_25519_AESGCM_SHA256"


def records(size, protocol):
    return ["engine", "--size", str(size), "--quick", "--protocol", protocol]


# Functions, and arguments of the bench to run them with, by the ratio's name.
SUBJECTS = {
    f"engine/{PROTOCOL}/64/NoiseEngine": ("Records of 64 B", RECORD, records(64, PROTOCOL)),
    f"engine/{PROTOCOL}/1024/NoiseEngine": ("Records of 1 KiB", RECORD, records(1024, PROTOCOL)),
    f"engine/{AESGCM}/1024/NoiseEngine": (
        "Records of 1 KiB with AES-GCM", RECORD, records(1024, AESGCM)),
    f"engine/{PROTOCOL}/16384/NoiseEngine": ("Records of 16 KiB", RECORD, records(16384, PROTOCOL)),
    "engine/TLS1.3/64/TLSEngine": ("Records of 64 B over TLS", TLS_RECORD, records(64, "TLS1.3")),
    f"handshake/{PROTOCOL}": (
        "A handshake", HANDSHAKE, ["handshake", "--quick", "--rounds", "1", "--protocol", PROTOCOL]),
}
LINE = re.compile(r"\s*([\d,]+) \([ \d.]+%\)\s+(\S*):(.*?) \[(.*)\]")
FUNCTIONS = 12
UNNAMED = "functions that the library does not name"
KINDS = {"libsodium": "libsodium", "libcrypto": "OpenSSL", "libssl": "OpenSSL",
         "libc.so": "the C library", "blesec-bench": "blesec"}


def kind(image):
    return next((name for part, name in KINDS.items() if part in image), "other libraries")


def run(program, folder, name, function, arguments):
    """Instructions by function while `function` runs: [(count, function, whose)]."""
    out = folder / f"callgrind.{name.replace('/', '-')}"
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}",
         f"--toggle-collect={function}", program, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"callgrind: {done.stderr[-2000:]}")
    annotated = subprocess.run(
        ["callgrind_annotate", "--threshold=100", "--auto=no", out], capture_output=True, text=True,
        timeout=60).stdout
    found = {}
    for match in map(LINE.match, annotated.splitlines()):
        if match:
            key = (UNNAMED if match[3].startswith("0x") else match[3], kind(match[4]))
            found[key] = found.get(key, 0) + int(match[1].replace(",", ""))
    if not found:
        raise RuntimeError(f"callgrind saw nothing of {function}")
    return sorted(((count, name, whose) for (name, whose), count in found.items()), reverse=True)


def measure(bench, folder):
    """For each subject, its functions with the most instructions first."""
    # The functions' names are in the file beside the bench. Valgrind does not read the toolchain's
    # debugging information in that file; the names suffice.
    program, names = folder / "blesec-bench", folder / "blesec-bench.names"
    for words in (
            ["--strip-debug", f"{bench}.debug", names],
            ["--remove-section=.gnu_debuglink", bench, program],
            [f"--add-gnu-debuglink={names}", program]):
        subprocess.run(["objcopy", *words], check=True, timeout=60)
    return {name: run(program, folder, name, function, arguments)
            for name, (_, function, arguments) in SUBJECTS.items()}


def shares(found):
    """Of all instructions, whose how many are."""
    total = sum(count for count, _, _ in found)
    by_kind = {}
    for count, _, whose in found:
        by_kind[whose] = by_kind.get(whose, 0) + count / total
    return by_kind


def readable(name):
    """A function's name without its parameters, in a table."""
    if name.startswith("$s"):
        name = subprocess.run(
            ["swift", "demangle", "-compact", "-simplified", name], capture_output=True, text=True,
            timeout=30).stdout.strip() or name
        name = re.sub(r"^.* of ", "", name)
    return name if name == UNNAMED else f"`{name.split('(')[0]}`"


def text(profile):
    parts = [
        "## Where the time goes\n",
        "Instructions that callgrind counts while an engine seals and opens records, framing included, and\n"
        f"while both sides shake hands, with `{PROTOCOL}` where nothing\nelse is said. Valgrind's processor "
        "lacks the newest instructions, so that the ciphers run more of them there\nthan on the machine "
        "itself; what is around them is the same. A copy by `rep movsb` counts as one\ninstruction a "
        "byte there.\n",
    ]
    for name, found in profile.items():
        total = sum(count for count, _, _ in found)
        whose = ", ".join(f"{who} {100 * share:.1f} %" for who, share in
                          sorted(shares(found).items(), key=lambda item: -item[1]))
        parts.append(f"### {SUBJECTS[name][0]}\n")
        parts.append(f"{whose}.\n")
        rows = ["| instructions, % | function | of |", "|---:|---|---|"]
        for count, function, whose in found[:FUNCTIONS]:
            rows.append(f"| {100 * count / total:.1f} | {readable(function)} | {whose} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)
