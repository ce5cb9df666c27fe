#!/usr/bin/python3
"""lab/boot.py: starts the virtual machine, passes on what the guest writes, and stops the machine.

    boot.py --kernel F --ramdisk F --out FOLDER --controllers N --bluetoothd yes|no
            --timeout S --console yes|no -- COMMAND ARG...

lab/run checks the arguments, and then runs this program. The program keeps nothing on disk: the job
goes to the guest through a file in memory, and the output comes back through pipes.
"""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time

KERNEL_ARGUMENTS = (
    "console=ttyS0 loglevel=7 panic=-1 oops=panic rdinit=/init cryptomgr.notests nokaslr "
    "tsc=reliable no_timer_check random.trust_cpu=on mitigations=off"
)
# The caller's environment variables that the command gets.
PASSED_ON = (b"PATH", b"HOME", b"USER", b"LOGNAME", b"SHELL", b"LANG", b"TZ", b"TERM")
PASSED_ON_PREFIXES = (b"SWIFT", b"BLESEC_", b"LAB_", b"LC_")
GUEST_FAILED = 124
# About one boot in a hundred fails on a busy machine: the kernel prints nothing more, or reports stuck
# tasks again and again, or the guest has no controllers. The job has not begun then, so another machine
# is started.
SILENCE = 30  # seconds without output from the kernel; on a busy machine a few seconds are normal
START = 120  # seconds until the job must have begun; a busy machine takes 30
BOOTS = 3  # the most machines that are started


class Ended(Exception):
    """A reason to stop: the exit status, a line for standard error, and how many of the kernel's last lines to show."""

    def __init__(self, status, line=None, kernel_lines=0):
        self.status, self.line, self.kernel_lines = status, line, kernel_lines


def emulator_command(options, write_ends, job):
    """The command line of the emulator, which is killed when this process ends for any reason.

    `write_ends` has the write ends of the pipes, by name; `job` is the descriptor of the job file.
    """

    def character_device(name):
        """The options that make a pipe the character device `name`."""
        pipe = write_ends[name]
        return ["-add-fd", f"fd={pipe},set={pipe}", "-chardev", f"file,id={name},path=/dev/fdset/{pipe},append=on"]

    kernel_arguments = KERNEL_ARGUMENTS + (" lab.bluetoothd" if options["bluetoothd"] == "yes" else "")
    out = options["out"].replace(",", ",,")
    return [
        *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-vga", "none", "-no-reboot"),
        *("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "Westmere-v1", "-smp", "2", "-m", "2048"),
        *("-kernel", options["kernel"], "-initrd", options["ramdisk"], "-append", kernel_arguments),
        *("-fw_cfg", f"name=opt/lab/job,file=/proc/self/fd/{job}"),
        *("-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"),
        *("-device", "virtio-9p-pci,fsdev=root,mount_tag=root"),
        *("-fsdev", f"local,id=out,path={out},security_model=none,multidevs=remap"),
        *("-device", "virtio-9p-pci,fsdev=out,mount_tag=out"),
        *("-device", "virtio-rng-pci", "-device", "virtio-serial-pci"),
        *(*character_device("out"), "-device", "virtserialport,chardev=out,nr=1"),
        *(*character_device("err"), "-device", "virtserialport,chardev=err,nr=2"),
        *(*character_device("console"), "-serial", "chardev:console"),
    ]


def job_file(mark, options, command):
    """The job for guest-main, as a file in memory; returns its descriptor, which the emulator inherits."""
    environment = {
        name: value
        for name, value in os.environb.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }
    environment[b"LAB_OUT"] = os.fsencode(options["out"])
    fields = [mark, os.getcwdb(), os.fsencode(options["out"]), options["controllers"].encode(), options["bluetoothd"].encode()]
    fields += [str(len(environment)).encode(), *(name + b"=" + value for name, value in environment.items())]
    fields += map(os.fsencode, command)
    descriptor = os.memfd_create("job", 0)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(b"".join(field + b"\0" for field in fields))
    return descriptor


class NotReady(Exception):
    """The guest hung or gave up before the job began, so another machine may be tried."""


class Stream(threading.Thread):
    """Passes bytes from the guest on as they arrive.

    Before the first byte, the guest sends the mark: random bytes that it has from the job. At the end it sends
    the mark again and a trailer: the exit status, or `again`, a request for another machine.
    """

    def __init__(self, source, target, mark, stream_ended):
        super().__init__(daemon=True)
        self.source, self.target, self.mark, self.stream_ended = source, target, mark, stream_ended
        self.begun = False  # whether the first mark has arrived
        self.trailer = None  # the bytes after the second mark; with them the stream is complete
        self.reader_gone = False  # whether the reader of `target` has closed it
        self.ended = False  # whether this thread has ended, with or without a trailer
        self.start()

    def run(self):
        pending = b""
        try:
            while data := os.read(self.source, 65536):
                pending += data
                if not self.begun:
                    if len(pending) < len(self.mark):
                        continue
                    pending = pending[len(self.mark) :]
                    self.begun = True
                body, marked, rest = pending.partition(self.mark)
                if marked:
                    self.write(body)
                    while not rest.endswith(b"\n") and (data := os.read(self.source, 64)):
                        rest += data
                    self.trailer = rest
                    break
                # The last bytes may be the beginning of the mark. They wait for the next read.
                kept = next((n for n in range(min(len(pending), len(self.mark) - 1), 0, -1) if pending.endswith(self.mark[:n])), 0)
                self.write(pending[: len(pending) - kept])
                pending = pending[len(pending) - kept :]
            else:
                self.write(pending)
        except BrokenPipeError:
            self.reader_gone = True
        self.ended = True
        self.stream_ended.set()

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(self.target, view) :]


class Console(threading.Thread):
    """Keeps the last part of the kernel's output, and with --console shows the output at once."""

    def __init__(self, source, show):
        super().__init__(daemon=True)
        self.source, self.show, self.recent = source, show, b""
        self.start_time = self.output_time = time.monotonic()
        self.start()

    def run(self):
        while data := os.read(self.source, 65536):
            self.recent, self.output_time = (self.recent + data)[-4096:], time.monotonic()
            if self.show:
                os.write(2, data)

    def tail(self, count):
        """The last `count` lines, once the emulator has ended."""
        self.join(1)
        lines = self.recent.decode(errors="replace").replace("\r", "").splitlines()[-count:]
        return "".join(f"lab: kernel: {line}\n" for line in lines if line.strip())


def parse(arguments):
    """The options by name, and the command after "--"."""
    split = arguments.index("--")
    return dict(zip((name[2:] for name in arguments[0:split:2]), arguments[1:split:2])), arguments[split + 1 :]


def wait(out, err, stream_ended, console):
    """Waits until both streams are complete, and returns the command's exit status."""
    while True:
        if out.trailer is not None and err.trailer is not None:
            if out.trailer == b"again\n":
                raise NotReady("gave up while it started")
            return int(out.trailer)
        if out.reader_gone or err.reader_gone:
            raise Ended(128 + signal.SIGPIPE)
        if out.ended and err.ended:
            raise Ended(GUEST_FAILED, "the guest died before the command ended", 40)
        now = time.monotonic()
        if not out.begun and (now - console.output_time > SILENCE or now - console.start_time > START):
            raise NotReady("hung while it started")
        stream_ended.wait(None if out.begun else 1)
        stream_ended.clear()


def handle_signals(timeout):
    """From now on, a signal or the end of the time limit raises `Ended` with the reason."""

    def raising(*reason):
        def handler(number, frame):
            raise Ended(*reason)

        return handler

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, raising(128 + number))
    signal.signal(signal.SIGALRM, raising(GUEST_FAILED, f"the time is up ({timeout} s)", 40))
    signal.setitimer(signal.ITIMER_REAL, float(timeout))


def ignore_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def run_once(options, command):
    """Boots a machine, runs the command, and returns an `Ended` with the result; raises `NotReady`."""
    mark = b"\x1elab-" + secrets.token_hex(16).encode() + b":"
    job = job_file(mark, options, command)
    read_ends, write_ends = {}, {}
    for name in ("out", "err", "console"):
        read_ends[name], write_ends[name] = os.pipe()
    emulator = console = None
    streams = []
    try:
        emulator = subprocess.Popen(
            emulator_command(options, write_ends, job),
            stdin=subprocess.DEVNULL,
            pass_fds=(job, *write_ends.values()),
            start_new_session=True,
        )
        for descriptor in (job, *write_ends.values()):
            os.close(descriptor)
        stream_ended = threading.Event()
        console = Console(read_ends["console"], options["console"] == "yes")
        streams = [Stream(read_ends["out"], 1, mark, stream_ended), Stream(read_ends["err"], 2, mark, stream_ended)]
        ended = Ended(wait(*streams, stream_ended, console))
    except Ended as reason:
        ended = reason
    finally:
        if emulator:
            emulator.kill()
            emulator.wait()
    for stream in streams:
        # Bytes may still be in the pipe. The wait is limited, since whoever reads this process's
        # output may have stopped reading.
        stream.join(1)
    if ended.kernel_lines and console:
        ended.line += "\n" + console.tail(ended.kernel_lines)
    return ended


def main():
    options, command = parse(sys.argv[1:])
    try:
        handle_signals(options["timeout"])
        for _ in range(BOOTS):
            try:
                ended = run_once(options, command)
                break
            except NotReady as reason:
                sys.stderr.write(f"lab: the guest {reason}\n")
        else:
            ended = Ended(GUEST_FAILED, f"the guest did not start in {BOOTS} attempts")
    except Ended as reason:
        ended = reason
    ignore_signals()
    if ended.line:
        sys.stderr.write(f"lab: {ended.line.rstrip()}\n")
    sys.stderr.flush()
    os._exit(ended.status)  # not sys.exit: a thread may be blocked because nobody reads its output


if __name__ == "__main__":
    main()
