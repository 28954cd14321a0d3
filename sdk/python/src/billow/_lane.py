"""Large buffers between two processes of one user on one machine: through memory that both see.

A caller and a worker that run on the same machine need not send arrays through the gateway. The
sender writes them to a file of the machine's shared memory that only its user can open, the
receiver maps it and removes its name. Both sides say with each request and answer which shared
memory they see (`identity`); only if it is the same one, and the user too, it is used.
"""

from __future__ import annotations

import mmap
import os
import secrets
import stat
import time
from typing import List, Optional, Sequence

ROOT = "/dev/shm"
BYTES_MIN = 1 << 20  # below this, the gateway is as fast
KEPT_S = 3600.0  # what a killed process left behind is removed after this time
PAGE = mmap.ALLOCATIONGRANULARITY
FREE_SHARE = 2  # at most this part of the free shared memory is used by one message


class LaneLost(OSError):
    """The file is not there: the receiver runs elsewhere after all."""


_identity: Optional[str] = None


def identity() -> str:
    """Which shared memory this process sees, and as whom; empty: none that can be used."""
    global _identity
    if _identity is None:
        _identity = _find_identity()
    return _identity


def _find_identity() -> str:
    if os.environ.get("BILLOW_LANE") == "off":
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        status = os.stat(ROOT)
        if not _directory():
            return ""
    except OSError:
        return ""
    return f"{boot}/{status.st_dev}/{status.st_ino}/{os.geteuid()}"


def _directory() -> str:
    """The user's own directory in shared memory; empty if somebody else has taken the name."""
    path = f"{ROOT}/billow-lane-{os.geteuid()}"
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    status = os.lstat(path)
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not own or stat.S_IMODE(status.st_mode) & 0o077:
        return ""
    _remove_old(path)
    return path


def _remove_old(path: str) -> None:
    limit = time.time() - KEPT_S
    for entry in os.scandir(path):
        try:
            if entry.stat(follow_symlinks=False).st_mtime < limit:
                os.unlink(entry.path)
        except OSError:
            continue


def put(buffers: Sequence[memoryview]) -> str:
    """Writes buffers to a new file and returns its name; empty if there is no space."""
    size = sum(_padded(each.nbytes) for each in buffers)
    space = os.statvfs(ROOT)
    if size > space.f_bavail * space.f_frsize // FREE_SHARE:
        return ""
    name = secrets.token_hex(16)
    path = _path(name)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError:
        return ""
    try:
        at = 0
        for buffer in buffers:
            done = 0
            while done < buffer.nbytes:
                done += os.pwrite(fd, buffer[done : done + (256 << 20)], at + done)
            at += _padded(buffer.nbytes)
        os.ftruncate(fd, max(at, PAGE))
    except OSError:
        os.unlink(path)
        return ""
    finally:
        os.close(fd)
    return name


def take(name: str, sizes: Sequence[int]) -> List[memoryview]:
    """The buffers of a file, mapped: their pages are copied only where they are changed."""
    try:
        fd = os.open(_path(name), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as problem:
        raise LaneLost(f"shared memory is not where it was said to be: {problem}") from None
    try:
        os.unlink(_path(name))
        size = sum(_padded(each) for each in sizes)
        if os.fstat(fd).st_size < size:
            raise LaneLost("shared memory is shorter than it was said to be")
        if size == 0:
            return [memoryview(b"") for _ in sizes]
        whole = memoryview(mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))
    finally:
        os.close(fd)
    out, at = [], 0
    for each in sizes:
        out.append(whole[at : at + each])
        at += _padded(each)
    return out


def drop(name: str) -> None:
    """Removes a file that nobody will take."""
    try:
        os.unlink(_path(name))
    except OSError:
        pass


def _path(name: str) -> str:
    if len(name) != 32 or not all(each in "0123456789abcdef" for each in name):
        raise LaneLost("a name in shared memory is 32 hexadecimal digits")
    return f"{ROOT}/billow-lane-{os.geteuid()}/{name}"


def _padded(size: int) -> int:
    return -(-size // PAGE) * PAGE
