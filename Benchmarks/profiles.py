"""Counts the instructions of a record and of a handshake with callgrind. Used by tools/report."""

import re
import subprocess

PROTOCOL = "Noise_XX_25519_ChaChaPoly_SHA256"
# The mangled names of functions of the bench.
RECORD = "$s12blesec_bench16NoiseEngineLayerC11sealAndOpen_11repetitionsySi_SitKF"
TLS_RECORD = "$s12blesec_bench14TLSEngineLayerC11sealAndOpen_11repetitionsySi_SitKF"
HANDSHAKE = "$s12blesec_bench15NoiseHandshakesC3runyAA15HandshakeSampleVSiKF"
AESGCM = "Noise_XX_25519_AESGCM_SHA256"


def record_arguments(size, protocol):
    return ["engine", "--size", str(size), "--quick", "--protocol", protocol]


# The subjects that are profiled. The key is the name of the bench's ratio for the subject; the value has a title, the
# function of the bench whose instructions are counted, and the bench's arguments.
SUBJECTS = {
    f"engine/{PROTOCOL}/64/NoiseEngine": ("Records of 64 B", RECORD, record_arguments(64, PROTOCOL)),
    f"engine/{PROTOCOL}/1024/NoiseEngine": (
        "Records of 1 KiB", RECORD, record_arguments(1024, PROTOCOL)),
    f"engine/{AESGCM}/1024/NoiseEngine": (
        "Records of 1 KiB with AES-GCM", RECORD, record_arguments(1024, AESGCM)),
    f"engine/{PROTOCOL}/16384/NoiseEngine": (
        "Records of 16 KiB", RECORD, record_arguments(16384, PROTOCOL)),
    "engine/TLS1.3/64/TLSEngine": (
        "Records of 64 B over TLS", TLS_RECORD, record_arguments(64, "TLS1.3")),
    f"handshake/{PROTOCOL}": (
        "A handshake", HANDSHAKE, ["handshake", "--quick", "--rounds", "1", "--protocol", PROTOCOL]),
}
# A line that callgrind_annotate prints: instructions, source file, function and object file.
LINE = re.compile(r"\s*([\d,]+) \([ \d.]+%\)\s+(\S*):(.*?) \[(.*)\]")
ROWS_PER_TABLE = 12
UNNAMED = "functions without a name"
# The owner of a function, by a part of the name of the object file that contains the function.
OWNERS = {"libsodium": "libsodium", "libcrypto": "OpenSSL", "libssl": "OpenSSL",
          "libc.so": "the C library", "blesec-bench": "blesec"}


def owner(object_file):
    return next((name for part, name in OWNERS.items() if part in object_file), "other libraries")


def run(program, folder, name, function, arguments):
    """The instructions executed while `function` runs, as [(count, function, owner)], the largest count first."""
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
            key = (UNNAMED if match[3].startswith("0x") else match[3], owner(match[4]))
            found[key] = found.get(key, 0) + int(match[1].replace(",", ""))
    if not found:
        raise RuntimeError(f"callgrind counted no instruction of {function}")
    return sorted(((count, name, owner) for (name, owner), count in found.items()), reverse=True)


def measure(bench, folder):
    """The instructions of each subject, by its key in `SUBJECTS`, as `run` returns them."""
    # The symbols are in blesec-bench.debug. Valgrind cannot read the debugging information in that file, so
    # the copy `names` has only the symbols, which are enough for the functions' names.
    program, names = folder / "blesec-bench", folder / "blesec-bench.names"
    for words in (
            ["--strip-debug", f"{bench}.debug", names],
            ["--remove-section=.gnu_debuglink", bench, program],
            [f"--add-gnu-debuglink={names}", program]):
        subprocess.run(["objcopy", *words], check=True, timeout=60)
    return {name: run(program, folder, name, function, arguments)
            for name, (_, function, arguments) in SUBJECTS.items()}


def shares(found):
    """The share of the instructions that each owner's functions execute."""
    total = sum(count for count, _, _ in found)
    by_owner = {}
    for count, _, owner in found:
        by_owner[owner] = by_owner.get(owner, 0) + count / total
    return by_owner


def readable(name):
    """A function's name for a table, demangled and without parameters."""
    if name.startswith("$s"):
        name = subprocess.run(
            ["swift", "demangle", "-compact", "-simplified", name], capture_output=True, text=True,
            timeout=30).stdout.strip() or name
        name = re.sub(r"^.* of ", "", name)
    return name if name == UNNAMED else f"`{name.split('(')[0]}`"


def text(profile):
    parts = [
        "## Where the instructions go\n",
        "Instructions that callgrind counts while an engine seals and opens records, framing included, and\n"
        f"while both sides shake hands, with `{PROTOCOL}` unless a heading\nsays otherwise. Valgrind emulates a processor "
        "without the newest instructions, so the ciphers execute more\ninstructions there than on the machine itself; "
        "other code executes\nthe same number. Valgrind counts a copy by `rep movsb` as one instruction for each byte.\n",
    ]
    for name, found in profile.items():
        total = sum(count for count, _, _ in found)
        by_owner = sorted(shares(found).items(), key=lambda item: -item[1])
        parts.append(f"### {SUBJECTS[name][0]}\n")
        parts.append(", ".join(f"{owner} {100 * share:.1f} %" for owner, share in by_owner) + ".\n")
        rows = ["| share of the instructions, % | function | program or library |", "|---:|---|---|"]
        for count, function, owner in found[:ROWS_PER_TABLE]:
            rows.append(f"| {100 * count / total:.1f} | {readable(function)} | {owner} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)
