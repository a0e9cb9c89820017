"""Compiles a container's seccomp profile (JSON) into the program that bubblewrap loads, for this machine's processor.

    seccomp_filter.py PROFILE OUTPUT

libseccomp does the work. The profile is the one that podman uses; what Docker's profile allows with capabilities alone
is refused as well, since a sandbox has none.
"""

import ctypes
import ctypes.util
import errno
import json
import platform
import sys
from typing import Any

# These constants are from seccomp.h.
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
COMPARE = {"SCMP_CMP_NE": 1, "SCMP_CMP_LT": 2, "SCMP_CMP_LE": 3, "SCMP_CMP_EQ": 4, "SCMP_CMP_GE": 5, "SCMP_CMP_GT": 6}
MASKED_EQ = 7
ATTRIBUTE_BAD_ARCH = 2
UNKNOWN_CALL = -1

NATIVE = {"x86_64": "amd64", "aarch64": "arm64"}
# New namespaces would give a sandbox capabilities inside them, and so more of the kernel to attack.
CLONE_NEW_NAMESPACES = 0x7E020000
REFUSED = {
    *(
        "mount",
        "mount_setattr",
        "move_mount",
        "open_tree",
        "fsconfig",
        "fsmount",
        "fsopen",
        "fspick",
        "umount",
        "umount2",
    ),
    *("unshare", "setns", "pivot_root", "sethostname", "setdomainname", "quotactl", "quotactl_fd", "syslog", "reboot"),
    *("keyctl", "add_key", "request_key", "name_to_handle_at", "userfaultfd", "memfd_secret"),
}
# A filter cannot read the flags of this call, which are behind a pointer. C libraries use clone if it is missing.
UNKNOWN_TO_SANDBOXES = {"clone3"}
# Many versions of libseccomp lack these calls, which are as harmless as their older forms. The numbers are universal.
NEWER = {
    "futex_waitv": 449,
    "cachestat": 451,
    "fchmodat2": 452,
    "futex_wake": 454,
    "futex_wait": 455,
    "futex_requeue": 456,
}


class Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def main(profile_path: str, output_path: str) -> None:
    with open(profile_path, encoding="utf-8") as file:
        profile = json.load(file)
    library = load_libseccomp()
    filter_ = library.seccomp_init(action_of(profile["defaultAction"], profile.get("defaultErrnoRet")))
    # Calls in another processor mode, such as 32 bits, are refused instead of killing the process.
    must(library.seccomp_attr_set(filter_, ATTRIBUTE_BAD_ARCH, ERRNO | errno.ENOSYS))

    def add(name: str, action: int, comparisons: list[Comparison]) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        number = NEWER.get(name, number) if number == UNKNOWN_CALL else number
        # A negative number means a call of another architecture.
        if number < 0:
            return
        array = (Comparison * len(comparisons))(*comparisons)
        must(library.seccomp_rule_add_array(filter_, action, number, len(comparisons), array))

    handled = REFUSED | UNKNOWN_TO_SANDBOXES | {"clone"}
    for rule in profile["syscalls"]:
        if not applies(rule):
            continue
        action = action_of(rule["action"], rule.get("errnoRet"))
        comparisons = [
            Comparison(each["index"], COMPARE[each["op"]], each["value"], each["valueTwo"])
            for each in rule["args"] or []
        ]
        for name in rule["names"]:
            if name not in handled and action != action_of(profile["defaultAction"], profile.get("defaultErrnoRet")):
                add(name, action, comparisons)
    for name in REFUSED:
        add(name, ERRNO | errno.EPERM, [])
    for name in NEWER:
        add(name, ALLOW, [])
    add("clone", ALLOW, [Comparison(0, MASKED_EQ, CLONE_NEW_NAMESPACES, 0)])

    with open(output_path, "wb") as file:
        must(library.seccomp_export_bpf(filter_, file.fileno()))


def load_libseccomp() -> ctypes.CDLL:
    library = ctypes.CDLL(ctypes.util.find_library("seccomp") or "libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_attr_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint),
        ctypes.POINTER(Comparison),
    ]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library


def applies(rule: dict[str, Any]) -> bool:
    """Returns whether a rule applies on this processor to a process without capabilities."""
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    native = NATIVE[platform.machine()]
    if includes.get("caps") or native not in includes.get("arches", [native]):
        return False
    return native not in excludes.get("arches", [])


def action_of(name: str, error: int | None) -> int:
    if name == "SCMP_ACT_ALLOW":
        return ALLOW
    if name != "SCMP_ACT_ERRNO":
        raise ValueError(f"the profile has an action that is not known here: {name}")
    return ERRNO | (errno.EPERM if error is None else error)


def must(result: int) -> None:
    if result < 0:
        raise OSError(-result, "libseccomp")


if __name__ == "__main__":
    main(*sys.argv[1:])
