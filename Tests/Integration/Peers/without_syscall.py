"""Runs a command in which one system call fails, as on a kernel that lacks the call.

    without_syscall.py NUMBER COMMAND [ARGUMENT ...]

The call fails with ENOSYS. Needs x86-64 or AArch64; NUMBER is the call's number there.
"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
SECCOMP_RET_ALLOW = 0x7FFF0000
SECCOMP_RET_ERRNO = 0x00050000
# Classic BPF: load a word, jump if equal, return.
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06


def main():
    number, command = int(sys.argv[1]), sys.argv[2:]
    instructions = [
        (LOAD, 0, 0, 0),  # seccomp_data.nr
        (JUMP_IF_EQUAL, 0, 1, number),
        (RETURN, 0, 0, SECCOMP_RET_ERRNO | errno.ENOSYS),
        (RETURN, 0, 0, SECCOMP_RET_ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *i) for i in instructions))
    program = struct.pack("@HP", len(instructions), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in [
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(program), 0, 0),
    ]:
        if libc.prctl(*arguments) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    os.execv(command[0], command)


main()
