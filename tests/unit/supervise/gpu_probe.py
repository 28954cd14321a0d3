#!/usr/bin/env python3
"""What billow-supervise does on a machine with a real NVIDIA GPU, cgroup v2 and root: a check to run by hand.

    gpu_probe.py PATH/billow-supervise [PYTHON_WITH_TORCH]

It writes specs by itself (supervise/protocol.h), so that it needs nothing but Python: a second reading of the format.
Each line says what was tried and what came of it; the exit status is the number of checks that failed.
"""
import os, struct, subprocess, sys, tempfile, time

SUPERVISE = os.path.abspath(sys.argv[1])
PYTHON = sys.argv[2] if len(sys.argv) > 2 else sys.executable
TAG = dict(
    argv=1,
    env=2,
    cwd=3,
    uid=4,
    gid=5,
    groups=6,
    time_limit_ns=12,
    stop_grace_ns=14,
    leftover_grace_ns=15,
    cgroup_v2=16,
    cgroup_memory=18,
    hide_device=20,
    user_namespace=21,
    no_new_privs=26,
)
ROOT = tempfile.mkdtemp(prefix="billow-probe-")
os.chmod(ROOT, 0o755)
failed = 0
count = 0


def entry(tag, data):
    return struct.pack("<HHI", TAG[tag], 0, len(data)) + data


def text(tag, s):
    return entry(tag, s.encode() + b"\0")


def run(argv, extra=b"", as_user=None):
    """Runs one task; its exit record, output and errors."""
    global count
    count += 1
    path = f"{ROOT}/{count}"
    os.mkdir(path, 0o700)
    body = b"".join(text("argv", a) for a in argv)
    body += (
        b"".join(
            text("env", f"{k}={v}") for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"
        )
        + extra
    )
    with open(path + "/spec", "wb") as f:
        f.write(struct.pack("<4sIII", b"BLWS", 1, 16 + len(body), 0) + body)
    prepare = None
    if as_user is not None:
        for p in (path, path + "/spec"):
            os.chown(p, as_user, as_user)
        prepare = lambda: (
            os.setgroups([]),
            os.setresgid(as_user, as_user, as_user),
            os.setresuid(as_user, as_user, as_user),
        )
    subprocess.run([SUPERVISE, path], preexec_fn=prepare, timeout=120)
    record = open(path + "/exit", "rb").read()
    fields = struct.unpack_from("<IIIiiIII", record, 0)
    streams = {1: b"", 2: b""}
    try:
        log = open(path + "/out.log", "rb").read()[16:]
    except FileNotFoundError:
        log = b""
    while log:
        size, stream = struct.unpack_from("<IB", log, 0)
        streams[stream] += log[16 : 16 + size]
        log = log[16 + size :]
    return dict(
        kind=fields[2],
        code=fields[3],
        signal=fields[4],
        flags=fields[7],
        detail=record[112:368].split(b"\0")[0].decode(),
        out=streams[1].decode(errors="replace"),
        err=streams[2].decode(errors="replace"),
    )


def check(what, good, seen):
    global failed
    failed += not good
    print(("ok    " if good else "WRONG ") + what + ": " + str(seen).replace("\n", " | ")[:300])


CUDA = """
import torch
try:
    x = torch.ones(2048, 2048, device='cuda'); print('sum', int((x @ x).sum().item()))
except Exception as e:
    print('no cuda:', type(e).__name__, str(e).splitlines()[0])
"""
WORKS = f"sum {2048 ** 3}"
r = run([PYTHON, "-c", CUDA])
check("CUDA without isolation", WORKS in r["out"], r["out"] + r["detail"])
r = run([PYTHON, "-c", CUDA], text("hide_device", "nvidia7"))
check("CUDA in a private /dev that keeps its GPU", WORKS in r["out"], r["out"] + r["detail"])
r = run([PYTHON, "-c", CUDA], text("hide_device", "nvidia0"))
check("no CUDA where the GPU is hidden", "no cuda" in r["out"], r["out"] + r["detail"])
r = run(
    ["/bin/sh", "-c", "ls /dev | grep nvidia; ls /dev/null /dev/pts/ptmx /dev/shm -d"],
    text("hide_device", "nvidia0"),
)
check(
    "the hidden node is not there",
    "nvidia0" not in r["out"] and "nvidiactl" in r["out"],
    r["out"] + r["err"] + r["detail"],
)
nobody = (
    entry("uid", struct.pack("<I", 65534))
    + entry("gid", struct.pack("<I", 65534))
    + entry("groups", b"")
    + entry("no_new_privs", b"")
)
r = run([PYTHON, "-c", CUDA], nobody + text("hide_device", "nvidia7"))
check("CUDA as nobody in a private /dev", WORKS in r["out"], r["out"] + r["detail"])
r = run(
    [PYTHON, "-c", CUDA],
    text("hide_device", "nvidia7") + entry("user_namespace", b""),
    as_user=65534,
)
check("CUDA in a user namespace, without root", WORKS in r["out"], r["out"] + r["detail"])
r = run(
    [PYTHON, "-c", CUDA],
    text("hide_device", "nvidia0") + entry("user_namespace", b""),
    as_user=65534,
)
check(
    "no CUDA in a user namespace where the GPU is hidden",
    "no cuda" in r["out"],
    r["out"] + r["detail"],
)

# Control group v2: born inside, limited, ended whole.
base = "/sys/fs/cgroup/billow-probe"
try:
    with open(
        "/sys/fs/cgroup/cgroup.subtree_control", "r+"
    ) as control:  # not there without cgroup v2
        control.write("+memory +cpu")
    os.makedirs(base + "/task", exist_ok=True)
    open(base + "/cgroup.subtree_control", "w").write("+memory +cpu")
    open(base + "/task/memory.max", "w").write(str(64 << 20))
    if os.path.exists(base + "/task/memory.swap.max"):
        open(base + "/task/memory.swap.max", "w").write("0")
    group = text("cgroup_v2", base + "/task") + text("cgroup_memory", base + "/task")
    r = run(["/bin/sh", "-c", "cat /proc/self/cgroup"], group)
    check("born in its cgroup", "billow-probe/task" in r["out"], r["out"] + r["detail"])
    r = run([PYTHON, "-c", "x = bytearray(300 << 20); print('survived')"], group)
    check("out of memory is flagged", r["flags"] & 1 == 1 and "survived" not in r["out"], r)
    short = group + entry("leftover_grace_ns", struct.pack("<q", 50_000_000))
    r = run(["/bin/sh", "-c", "setsid sh -c 'trap \"\" TERM; sleep 300' & exit 4"], short)
    left = open(base + "/task/cgroup.procs").read().split()
    check("a daemon is ended with its cgroup", r["code"] == 4 and not left, (r["code"], left))
except OSError as e:
    print("skip  cgroup v2:", e)
for d in (base + "/task", base):
    try:
        os.rmdir(d)
    except OSError:
        pass
started = time.monotonic()
for _ in range(200):
    run(["/bin/true"])
print(
    f"note  200 tasks one after another through Python: {200 / (time.monotonic() - started):.0f}/s"
)
sys.exit(failed)
