"""Large buffers between two processes of one user on one machine: through memory that both see.

A caller and a worker that run on the same machine need not send arrays through the gateway. The
sender writes them to a file of the machine's shared memory that only its user can open, and the
receiver maps it. Both sides say with each request and answer which shared memory they see
(`identity`); only if it is the same one, and the user too, it is used.

A file has one owner. The receiver takes it over by a new name and locks it; when nothing refers to
the mapped memory any more, it keeps the file for a while for what it sends itself: new pages cost
more than the copy. Files that nobody has locked are leftovers of killed processes and are removed
by the next process that begins.
"""

from __future__ import annotations

import atexit
import fcntl
import mmap
import os
import secrets
import stat
import threading
import time
import weakref
from typing import List, NamedTuple, Optional, Sequence, Set

ROOT = "/dev/shm"
BYTES_MIN = 1 << 20  # below this, the gateway is as fast
LEFT_S = 60.0  # after this time an unlocked file is a leftover
SPARE_S = 30.0  # how long an unused file is kept for the next message
SPARES_MAX = 2
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
    limit = time.time() - LEFT_S
    for entry in os.scandir(path):
        try:
            if entry.stat(follow_symlinks=False).st_mtime > limit:
                continue
            fd = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(entry.path)
        except OSError:
            pass  # somebody uses it
        finally:
            os.close(fd)


class _Spare(NamedTuple):
    fd: int  # locked
    name: str
    size: int
    since: float


class _Spares:
    """Files of this process that are mapped nowhere."""

    def __init__(self) -> None:
        self._all: List[_Spare] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._timer: Optional[threading.Timer] = None

    def take(self, size: int) -> Optional[_Spare]:
        with self._lock:
            if self._pid != os.getpid():
                self._all.clear()  # they are the parent's
                return None
            for spare in self._all:
                if size <= spare.size <= 4 * size:
                    self._all.remove(spare)
                    return spare
        return None

    def add(self, pid: int, spare: _Spare) -> None:
        """Called when the last reference to mapped memory is gone."""
        if pid != os.getpid():
            return
        # A finalizer may run inside `take` of the same thread: then the file is given up.
        if not self._lock.acquire(blocking=False):
            _forget(spare)
            return
        try:
            self._pid = pid
            self._all.append(spare)
            over = self._all[:-SPARES_MAX]
            del self._all[:-SPARES_MAX]
            if self._timer is None:
                self._timer = threading.Timer(SPARE_S, self._expire)
                self._timer.daemon = True
                self._timer.start()
        finally:
            self._lock.release()
        for each in over:
            _forget(each)

    def _expire(self) -> None:
        limit = time.monotonic() - SPARE_S + 1
        with self._lock:
            old = [each for each in self._all if each.since < limit]
            self._all = [each for each in self._all if each.since >= limit]
            self._timer = None
            if self._all:
                self._timer = threading.Timer(SPARE_S, self._expire)
                self._timer.daemon = True
                self._timer.start()
        for each in old:
            _forget(each)

    def clear(self) -> None:
        with self._lock:
            spares, self._all = self._all, []
        for each in spares:
            _forget(each)


def _forget(spare: _Spare) -> None:
    _owned.discard(spare.name)
    drop(spare.name)
    os.close(spare.fd)


_spares = _Spares()
_owned: Set[str] = set()  # files that this process has taken over, mapped or spare


def _leave() -> None:
    for name in list(_owned):
        drop(name)


atexit.register(_leave)
os.register_at_fork(after_in_child=_owned.clear)


def put(buffers: Sequence[memoryview]) -> str:
    """Writes buffers to a file and returns its name; empty if there is no space."""
    size = max(sum(_padded(each.nbytes) for each in buffers), PAGE)
    name = secrets.token_hex(16)
    spare = _spares.take(size)
    if spare is not None:
        fd = spare.fd
        os.rename(_path(spare.name), _path(name))
        _owned.discard(spare.name)
    else:
        space = os.statvfs(ROOT)
        if size > space.f_bavail * space.f_frsize // FREE_SHARE:
            return ""
        try:
            fd = os.open(_path(name), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except OSError:
            return ""
    try:
        at = 0
        for buffer in buffers:
            done = 0
            while done < buffer.nbytes:
                done += os.pwrite(fd, buffer[done : done + (256 << 20)], at + done)
            at += _padded(buffer.nbytes)
        if spare is None:
            os.ftruncate(fd, size)
    except OSError:
        drop(name)
        return ""
    finally:
        os.close(fd)
    return name


def take(name: str, sizes: Sequence[int]) -> List[memoryview]:
    """The buffers of a file, mapped: their pages are copied only where they are changed."""
    own = secrets.token_hex(16)
    try:
        fd = os.open(_path(name), os.O_RDWR | os.O_NOFOLLOW)
    except OSError as problem:
        raise LaneLost(f"shared memory is not where it was said to be: {problem}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.rename(_path(name), _path(own))
        size = max(sum(_padded(each) for each in sizes), PAGE)
        length = os.fstat(fd).st_size
        if length < size:
            raise LaneLost("shared memory is shorter than it was said to be")
        whole = mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError as problem:
        drop(own)
        os.close(fd)
        raise LaneLost(f"shared memory cannot be taken over: {problem}") from None
    _owned.add(own)
    spare = _Spare(fd, own, length, time.monotonic())
    weakref.finalize(whole, _spares.add, os.getpid(), spare).atexit = False
    view = memoryview(whole)
    out, at = [], 0
    for each in sizes:
        out.append(view[at : at + each])
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
