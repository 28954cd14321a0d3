"""Processes of a machine or container that a test ends as a whole."""
import os
import signal


def family(belongs):
    """The processes for which belongs(pid) holds, and all that they started."""
    parents, ours = {}, set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                parents[pid] = int(f.read().rsplit(")", 1)[1].split()[1])
            if belongs(pid):
                ours.add(pid)
        except OSError:
            pass
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return ours


def kill_at_once(belongs):
    """First all are stopped, until none is new: nothing may start a process or see another one
    end."""
    stopped = set()
    while new := family(belongs) - stopped:
        _send(signal.SIGSTOP, new)
        stopped |= new
    _send(signal.SIGKILL, stopped)


def contents(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as f:
        return f.read()


def _send(what, pids):
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            pass
