"""Part 9: writes down what a node's sampler sees of each shape in shapes.py, for the idle verdict's test to play back.

The same figures at the same rate as the agent's: NVML with GPM, /proc of the shape's process tree, the kernel's socket tables, every
two seconds. A shape is recorded phase by phase (training, waiting for the store, …), a few samples each, because ten minutes of
twenty shapes are hours of a GPU; its `script` says how long each phase lasts when played, and the samples of a phase are repeated.
Shapes that leave the card alone are recorded side by side, all others one after the other, with the card to themselves.

Writes one file, $OUT/<card>.signals (or --out); tests/unit/agent/idle_test.cpp plays every such file in data/idle_traces/recorded.
"""
import glob
import select
import shutil
import signal
import statistics
import struct

from rig import *

STEP = 0.5 if SIM else 2.0
COLUMNS = (
    "sm dram tensor util memutil power pcie_kib_s mem_mib cpu_ms io_kib rx_bytes tx_bytes faults"
    " rss_mib out_bytes input_age_s procs conns traced stopped zombies blocked"
).split()

# name, expected verdict, {phase: seconds recorded}, how it is played: phases with seconds, over and
# over
ALONE = [
    ("data_loading", "active", {"train": 8, "load": 10}, "load 380 train 40"),
    ("compile_phase", "active", {"compile": 14}, "compile 780 data_loading/train 1920"),
    (
        "evaluation_between_epochs",
        "active",
        {"evaluate": 10, "metrics": 10},
        "data_loading/train 600 evaluate 240 metrics 300",
    ),
    (
        "notebook_thinking",
        "active",
        {"cell": 8, "think": 10},
        "cell 30 think 520 cell 6 think 200 cell 10 think 400",
    ),
    (
        "low_rate_inference",
        "active",
        {"serve": 8, "wait": 10},
        "serve 2 wait 60 serve 2 wait 140 serve 2 wait 30",
    ),
    ("checkpoint_writing", "active", {"save": 14}, "data_loading/train 600 save 360"),
    (
        "slow_object_store",
        "active",
        {"download": 10, "stall": 10},
        "download 100 stall 240 download 200 stall 60",
    ),
    ("cpu_preprocessing", "active", {"tokenise": 10}, "data_loading/train 240 tokenise 1260"),
    ("distributed_barrier_wait", "active", {"wait": 10}, "data_loading/train 480 wait 300"),
    (
        "warm_up",
        "active",
        {"load": 10, "capture": 8, "serve": 8},
        "load 420 capture 180 serve 2100",
    ),
    ("burst_every_10_min", "active", {"burst": 8, "rest": 10}, "burst 36 rest 564"),
    ("deadlocked_nccl", "hung", {"wait": 14}, "wait 1200"),
    ("hung_kernel", "hung", {"wait": 14}, "wait 1200"),
]
TOGETHER = [
    (name, "idle", {"rest": 40}, "rest 1200")
    for name in (
        "debugger_stopped",
        "finished_not_exited",
        "crashed_data_loader",
        "open_ssh_nobody",
        "zombie_children",
        "leaked_memory",
        "sleep_loop",
        "spin_loop_no_kernels",
    )
]
LEAD_IN = "data_loading/train 600"  # what an idle or hung shape did before


class MemoryV2(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Card:
    """The first card, by NVML; what it does not tell is None."""

    def __init__(self):
        path = "libnvidia-ml.so.1"
        if SIM:
            os.environ.setdefault("BILLOW_SIM", "1xH200")
            root = os.path.dirname(os.path.dirname(HERE))
            found = glob.glob(root + "/build*/lib/libbillow-nvml-sim.so") + glob.glob(
                root + "/dist/*/lib/libbillow-nvml-sim.so"
            )
            path = os.environ.get("BILLOW_NVML") or (found[0] if found else None)
            if not path:
                raise RuntimeError(
                    "no simulated NVML: build libbillow-nvml-sim.so first, or name it with"
                    " BILLOW_NVML"
                )
        self.lib = ctypes.CDLL(path)
        if self.lib.nvmlInit_v2() != 0:
            raise RuntimeError("NVML does not start")
        self.device = ctypes.c_void_p()
        self.lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))
        self.samples = [ctypes.c_void_p(), ctypes.c_void_p()]
        self.gpm = (
            all(self.lib.nvmlGpmSampleAlloc(ctypes.byref(s)) == 0 for s in self.samples)
            and self.lib.nvmlGpmSampleGet(self.device, self.samples[0]) == 0
        )

    def text(self, call):
        value = ctypes.create_string_buffer(96)
        return (
            value.value.decode()
            if getattr(self.lib, call)(*((self.device,) if "Device" in call else ()), value, 96)
            == 0
            else "unknown"
        )

    def number(self, call, kind=ctypes.c_uint):
        value = kind()
        return (
            value.value
            if hasattr(self.lib, call)
            and getattr(self.lib, call)(self.device, ctypes.byref(value)) == 0
            else None
        )

    def activity(self):
        """SM, DRAM, tensor in percent and PCIe in KiB/s since the last look."""
        if not self.gpm or self.lib.nvmlGpmSampleGet(self.device, self.samples[1]) != 0:
            return [None] * 5
        get = GpmGet(version=1, count=5, first=self.samples[0], second=self.samples[1])
        for slot, metric in enumerate((2, 10, 5, 20, 21)):
            get.metrics[slot].id = metric
        self.samples.reverse()
        if self.lib.nvmlGpmMetricsGet(ctypes.byref(get)) != 0:
            return [None] * 5
        return [m.value if m.result == 0 and m.value >= 0 else None for m in get.metrics[:5]]

    def look(self):
        sm, dram, tensor, sent, received = self.activity()
        rates = (ctypes.c_uint * 2)()
        known = self.lib.nvmlDeviceGetUtilizationRates(self.device, rates) == 0
        memory = MemoryV2(version=ctypes.sizeof(MemoryV2) | 2 << 24)
        used = (
            memory.used
            if self.lib.nvmlDeviceGetMemoryInfo_v2(self.device, ctypes.byref(memory)) == 0
            else None
        )
        power = self.number("nvmlDeviceGetPowerUsage")
        return {
            "sm": sm,
            "dram": dram,
            "tensor": tensor,
            "util": rates[0] if known else None,
            "memutil": rates[1] if known else None,
            "power": power / 1000 if power is not None else None,
            "pcie_kib_s": (
                (sent + received) * 1024 if sent is not None and received is not None else None
            ),
            "mem_mib": memory.used >> 20 if used is not None else None,
        }


def sockets():
    """inode -> (received, sent, established) of TCP sockets, from the kernel's accounts."""
    out = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 4) as s:  # NETLINK_SOCK_DIAG
        for family in (socket.AF_INET, socket.AF_INET6):
            request = struct.pack(
                "=BBBBI", family, socket.IPPROTO_TCP, 1 << 1, 0, 0xFFFFFFFF
            ) + bytes(48)
            s.send(struct.pack("=IHHII", 16 + len(request), 20, 0x301, 0, 0) + request)
            done = False
            while not done:
                data = s.recv(1 << 17)
                while len(data) >= 16:
                    length, kind = struct.unpack_from("=IH", data)
                    if kind in (2, 3):
                        done = True
                        break
                    state, inode = data[17], struct.unpack_from("=I", data, 16 + 68)[0]
                    at, use = 16 + 72, (0, 0)
                    while at + 4 <= length:
                        size, attribute = struct.unpack_from("=HH", data, at)
                        if size < 4:
                            break
                        if (
                            attribute == 2 and size >= 4 + 136
                        ):  # INET_DIAG_INFO: tcpi_bytes_acked and _received
                            acked, received = struct.unpack_from("=QQ", data, at + 4 + 120)
                            use = (received, acked)
                        at += (size + 3) & ~3
                    out[inode] = (*use, state == 1)
                    data = data[(length + 3) & ~3 :]
    return out


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def tree(root):
    """The processes of a shape: itself and all it started."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := read(f"/proc/{entry}/stat")):
            parents.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def host(root, output, known_sockets):
    """Totals of a process tree, as the agent's host_signals adds them up."""
    total = dict.fromkeys(
        (
            "cpu",
            "io",
            "faults",
            "rss",
            "rx",
            "tx",
            "conns",
            "procs",
            "traced",
            "stopped",
            "zombies",
            "blocked",
        ),
        0,
    )
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGESIZE")
    for pid in tree(root):
        stat = read(f"/proc/{pid}/stat")
        if not stat:
            continue
        fields = stat.rsplit(")", 1)[1].split()
        total["procs"] += 1
        state = {"t": "traced", "T": "stopped", "Z": "zombies", "D": "blocked"}.get(fields[0])
        if state:
            total[state] += 1
        total["faults"] += sum(map(int, fields[7:11]))
        total["cpu"] += sum(map(int, fields[11:15])) / tick
        total["rss"] += int(fields[21]) * page
        io = dict(line.split(": ") for line in read(f"/proc/{pid}/io").splitlines())
        total["io"] += int(io.get("rchar", 0)) + int(io.get("wchar", 0))
        try:
            names = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        except OSError:
            continue
        for name in names:
            if name.startswith("socket:[") and int(name[8:-1]) in known_sockets:
                received, sent, established = known_sockets[int(name[8:-1])]
                total["rx"] += received
                total["tx"] += sent
                total["conns"] += established
    total["out"] = os.path.getsize(output) if os.path.exists(output) else 0
    return total


class Recorded:
    """A shape's process, and what was seen of it."""

    def __init__(self, shape):
        self.name, self.expect, self.phases, self.script = shape
        self.folder = tempfile.mkdtemp(prefix=f"bs-{self.name}-")
        self.rows = {}
        self.process = subprocess.Popen(
            [sys.executable, HERE + "/shapes.py", self.name, self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        atexit.register(self.end)

    def expect_line(self, wanted, seconds):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline().strip() if ready else "nothing"
        if line != wanted:
            raise RuntimeError(f"{self.name} said {line!r} instead of {wanted!r}")

    def enter(self, phase):
        self.process.stdin.write(f"phase {phase}\n")
        self.expect_line("in " + phase, 90)
        self.rows[phase], self.before = [], None

    def take(self, phase, card, known):
        now = host(self.process.pid, self.folder + "/out.log", known)
        before, self.before = self.before, now
        if before is None:
            return  # the first look's figures reach back into what was before
        grown = {k: max(0, now[k] - before[k]) for k in ("cpu", "io", "rx", "tx", "faults", "out")}
        self.rows[phase].append(
            {
                **card,
                "cpu_ms": grown["cpu"] * 1000,
                "io_kib": grown["io"] / 1024,
                "rx_bytes": grown["rx"],
                "tx_bytes": grown["tx"],
                "faults": grown["faults"],
                "rss_mib": now["rss"] >> 20,
                "out_bytes": grown["out"],
                "input_age_s": None,
                **{
                    k: now[k] for k in ("procs", "conns", "traced", "stopped", "zombies", "blocked")
                },
            }
        )

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, f):
        f.write(
            f"shape {self.name}\nexpect {self.expect}\n"
            + ("" if self.expect == "active" else f"before {LEAD_IN}\n")
            + f"script {self.script}\n"
        )
        for phase, rows in self.rows.items():
            f.write(f"phase {phase}\n")
            for row in rows:
                f.write(
                    " ".join(
                        (
                            "-"
                            if row[c] is None
                            else (
                                f"{row[c]:.1f}"
                                if c in ("sm", "dram", "tensor")
                                else str(int(round(row[c])))
                            )
                        )
                        for c in COLUMNS
                    )
                    + "\n"
                )


def watch(card, shapes, seconds):
    """All `shapes`, each in its phase, for a while: (shape, phase) pairs."""
    for shape, phase in shapes:
        shape.enter(phase)
    until = time.monotonic() + seconds + STEP
    at = time.monotonic()
    while at < until:
        look, known = card.look(), sockets()
        for shape, phase in shapes:
            shape.take(phase, look, known)
        at += STEP
        time.sleep(max(0.0, at - time.monotonic()))


def summary(shape):
    def mean(rows, column):
        values = [r[column] for r in rows if r[column] is not None]
        return statistics.mean(values) if values else float("nan")

    return "; ".join(
        f"{phase}: SM {mean(rows, 'sm'):.1f} %, util {mean(rows, 'util'):.0f} %,"
        f" {mean(rows, 'power'):.0f} W, CPU {mean(rows, 'cpu_ms') / STEP / 10:.0f} %"
        for phase, rows in shape.rows.items()
    )


def part_record():
    card = Card()
    idle = []
    for _ in range(4):
        idle.append(card.look())
        time.sleep(STEP)
    power = [row["power"] for row in idle if row["power"] is not None]
    limit = card.number("nvmlDeviceGetEnforcedPowerLimit") or card.number(
        "nvmlDeviceGetPowerManagementLimit"
    )
    begin = time.monotonic()
    shapes = {shape[0]: Recorded(shape) for shape in ALONE + TOGETHER}
    failed = []

    def try_it(names, work):
        try:
            work()
        except Exception as error:
            failed.extend(names)
            Table.add(
                "recording " + ", ".join(names),
                f"{type(error).__name__}: {error}",
                "recorded",
                False,
            )

    for name, shape in list(shapes.items()):
        try_it([name], lambda shape=shape: shape.expect_line("ready", 120))
    print(
        f"{len(shapes) - len(failed)} shapes ready after {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    quick = lambda seconds: 2 * STEP if SIM else seconds
    resting = [(shapes[s[0]], "rest") for s in TOGETHER if s[0] not in failed]
    try_it(
        [s.name for s, _ in resting], lambda: watch(card, resting, quick(TOGETHER[0][2]["rest"]))
    )
    for shape, _ in resting:
        shape.end()
    for name, _, phases, _ in ALONE:
        if name not in failed:
            try_it(
                [name],
                lambda: [
                    watch(card, [(shapes[name], phase)], quick(seconds))
                    for phase, seconds in phases.items()
                ],
            )
        shapes[name].end()
        time.sleep(0 if SIM else 1)
    folder = os.environ.get("OUT") or tempfile.mkdtemp(prefix="billow-signals-")
    model = card.text("nvmlDeviceGetName").split()[-1]
    path = f"{folder}/{model.lower()}.signals"
    with open(path, "w", encoding="utf-8") as f:
        f.write(
            f"card {model}\ndriver {card.text('nvmlSystemGetDriverVersion')}\nrecorded"
            f" {time.strftime('%Y-%m-%d', time.gmtime())}{' simulated' if SIM else ''}\n"
        )
        f.write(
            f"idle_w {statistics.median(power) if power else 0:.0f}\nlimit_w"
            f" {(limit or 0) / 1000:.0f}\nstep_ms {int(STEP * 1000)}\ncolumns {' '.join(COLUMNS)}\n"
        )
        for name, shape in shapes.items():
            if name not in failed:
                shape.write(f)
                Table.add(
                    "recorded " + name,
                    summary(shape),
                    shape.expect,
                    all(shape.rows[p] for p in shape.phases),
                )
    for shape in shapes.values():
        shape.end()
    print(f"signals of {len(shapes) - len(failed)} shapes: {path}", flush=True)
