#!/usr/bin/env python3
"""Writes the signal traces the idle verdict is tested on: twenty shapes of work and of its absence, as a node's sampler sees them.

Each shape is a small model of what its processes do, second by second (GPU engines, CPU, bytes, faults, terminal), put through
the same card model and the same background noise: monitoring that touches the GPU, scrapes, keep-alives, log lines, jitter of
power and memory. Nothing in here knows the verdict's thresholds. Card figures: an H200 was measured idle at 78 W, busy at 635 W,
and with one spinning thread at 100 % utilisation, 0.8 % SM active, 122 W; the others follow their data sheets.

  make_traces.py --out data/idle_traces                    the committed set: seed 1, each shape on one card
  make_traces.py --out DIR --seeds 2-41 --cards all        further seeds, every shape on every card

Format, one file per trace: header lines "key value…", then "columns …", then one line per sample with the values in that
order; "." repeats the value above, "-" is unknown, and a line "*N" repeats the whole sample N times. Counters are per step.
"""
import argparse
import math
import os
import random

CARDS = {  # idle W, limit W, GPM, memory MiB
    "H200": (78, 700, True, 143771),
    "A100": (55, 400, False, 81920),
    "L4": (16, 72, False, 23034),
}
COLUMNS = (
    "sm dram tensor util memutil power pcie_kib_s mem_mib cpu_ms io_kib rx_bytes tx_bytes faults"
    " rss_mib out_bytes input_age_s procs conns traced stopped zombies blocked"
).split()
STEP = 5


class Host:
    """What a step of the model may set; the rest stays at the quiet level."""

    def __init__(self):
        self.sm = self.dram = self.tensor = 0.0  # percent of the step
        self.util = None  # None: follows sm
        self.range = None  # power above idle as a part of the range; None: follows sm
        self.pcie = 0.0  # KiB/s
        self.mem = None  # MiB held; None: as before
        self.cpu = 0.001  # cores
        self.io = self.rx = self.tx = 0.0  # bytes/s
        self.faults = 0.0  # per second
        self.rss = None
        self.out = 0.0  # bytes in the step
        self.input = False
        self.procs, self.conns = 1, 0
        self.traced = self.stopped = self.zombies = self.blocked = 0


def train(r, h, mem=60000):
    """An ordinary training step loop."""
    h.sm, h.dram, h.tensor = r.gauss(82, 6), r.gauss(45, 6), r.gauss(30, 5)
    h.pcie, h.mem = r.gauss(300e3, 50e3), mem
    h.cpu, h.io, h.faults, h.rss, h.procs = (
        r.gauss(4, 0.5),
        r.gauss(60e6, 2e7),
        r.gauss(8000, 900),
        9000 + r.randint(-40, 40),
        9,
    )
    h.out = 80 if r.random() < 0.3 else 0


def spell(t, period, on, phase=0):
    return (t + phase) % period < on


# ---- work
# ------------------------------------------------------------------------------------------------------------
def data_loading(r, t, h, s):
    # Reads shards for minutes before each short burst of GPU work; decoding on a few cores.
    if spell(t, 420, 40):
        train(r, h)
    else:
        h.mem, h.cpu, h.io, h.faults = (
            60000,
            r.gauss(3, 0.6),
            r.gauss(40e6, 2e7),
            r.gauss(4000, 800),
        )
        h.rss, h.procs = 9000 + r.randint(-60, 60), 9


def compile_phase(r, t, h, s):
    # torch.compile / nvcc: compilers come and go, the GPU is cold for 13 minutes, then it trains.
    if t < 780:
        h.mem, h.cpu, h.faults, h.io = (
            1800,
            r.gauss(1.6, 0.5),
            r.gauss(3000, 1200),
            r.gauss(600e3, 3e5),
        )
        h.rss, h.procs = 2500 + r.randint(-200, 200), 4 + r.randint(0, 4)
    else:
        train(r, h)


def evaluation(r, t, h, s):
    # Training epochs with evaluation between: on the GPU at low load, then 5 minutes of metrics on
    # one core.
    p = t % 1200
    if p < 600:
        train(r, h)
    elif p < 840:
        h.sm, h.dram, h.tensor, h.mem, h.cpu, h.faults = (
            r.gauss(18, 6),
            r.gauss(9, 3),
            3,
            60000,
            1.1,
            900,
        )
    else:
        h.mem, h.cpu, h.faults, h.rss = (
            60000,
            r.gauss(1, 0.05),
            r.gauss(150, 60),
            12000 + r.randint(-20, 20),
        )


def notebook(r, t, h, s):
    # Cells of seconds to a minute, thinking times of one to nine minutes between. The browser
    # polls.
    h.mem, h.conns, h.procs, h.cpu, h.rss = 14000, 5, 3, abs(r.gauss(0.01, 0.004)), 2100
    h.rx, h.tx = abs(r.gauss(300, 80)), abs(r.gauss(900, 200))
    if t >= s.setdefault("next", 60):
        s["until"] = t + r.choice([5, 10, 30, 60])
        s["next"] = s["until"] + r.uniform(60, 540)
    if t < s.get("until", 0):
        h.sm, h.dram, h.cpu, h.faults, h.out = r.uniform(5, 70), r.uniform(3, 40), 1, 2000, 200


def low_rate_inference(r, t, h, s):
    # About one request every 70 seconds; each keeps the GPU busy for a second or two.
    h.mem, h.conns, h.cpu, h.procs, h.rss = 40000, 3, 0.02, 2, 8000
    h.rx, h.tx = 40, 900
    if r.random() < STEP / 70:
        d = r.uniform(0.8, 2.5) / STEP
        h.sm, h.dram, h.cpu, h.rx, h.tx, h.out, h.pcie = 60 * d, 70 * d, 0.3, 800, 2500, 120, 4000


def checkpoint_writing(r, t, h, s):
    # Ten minutes of training, then a large checkpoint to a slow disk for six.
    if t % 960 < 600:
        train(r, h)
    else:
        h.mem, h.cpu, h.io, h.faults = 60000, r.gauss(0.3, 0.05), abs(r.gauss(180e6, 9e7)), 50
        h.rss, h.blocked = 20000, 1 if r.random() < 0.7 else 0
        h.pcie = 200e3 if t % 960 < 660 else 0


def slow_object_store(r, t, h, s):
    # Downloads at some ten to hundred KB/s, with stalls of up to four minutes; no GPU for most of
    # it.
    h.mem, h.conns, h.procs, h.rss = 1200, 4, 3, 1500
    if t >= s.setdefault("flip", 0):
        s["on"] = not s.get("on", False)
        s["flip"] = t + (r.uniform(30, 200) if s["on"] else r.uniform(20, 240))
    if s["on"]:
        h.rx, h.tx, h.cpu, h.faults, h.io = (
            abs(r.gauss(60e3, 3e4)),
            2e3,
            0.02,
            15,
            abs(r.gauss(50e3, 2e4)),
        )
    if t % 1800 > 1560:
        train(r, h)


def cpu_preprocessing(r, t, h, s):
    # Twenty minutes of tokenising on many cores between short GPU phases.
    if t % 1500 < 240:
        train(r, h)
    else:
        h.mem, h.cpu, h.faults, h.io = (
            8000,
            r.gauss(6, 0.8),
            r.gauss(1200, 400),
            abs(r.gauss(3e6, 1e6)),
        )
        h.rss, h.procs = 15000 + int(t) % 300 * 4, 9


def barrier_wait(r, t, h, s):
    # This rank trains, then waits up to five minutes in a collective for another that evaluates.
    if t % 780 < 480:
        train(r, h)
    else:
        h.sm, h.util, h.range, h.mem, h.cpu, h.rss, h.procs, h.conns = (
            r.gauss(12, 0.3),
            100,
            0.09,
            60000,
            1.0,
            9000,
            9,
            3,
        )
        h.rx, h.tx = 60, 60


def warm_up(r, t, h, s):
    # Loads weights for minutes, captures graphs, then serves.
    if t < 420:
        h.mem, h.cpu, h.io, h.faults = 600 + int(t * 120), 0.9, abs(r.gauss(150e6, 5e7)), 2500
        h.rss = 3000 + int(t * 10)
        h.pcie = abs(r.gauss(150e3, 4e4))
    elif t < 600:
        h.mem, h.cpu, h.faults, h.rss = 52000 + int(t - 420) * 20, 1.05, 400, 8000 + int(t) % 60
        h.sm = r.uniform(0, 20)
    else:
        h.sm, h.dram, h.mem, h.cpu, h.conns, h.rx, h.tx = (
            r.gauss(30, 8),
            r.gauss(40, 9),
            55600,
            0.8,
            12,
            9e3,
            60e3,
        )


def burst_every_10_min(r, t, h, s):
    # Wakes every ten minutes by a timer and works for 35 seconds.
    h.mem, h.cpu, h.rss, h.procs = 22000, 0.001, 3000, 2
    if t % 600 < 35:
        h.sm, h.dram, h.cpu, h.io, h.faults, h.out = (
            r.uniform(30, 80),
            r.uniform(20, 50),
            1.2,
            4e6,
            900,
            90,
        )


# ---- its absence: the first ten minutes train, then …
# ---------------------------------------------------------------
def debugger_stopped(r, t, h, s):
    h.mem, h.cpu, h.rss, h.procs, h.traced = 60000, 0.0005, 9000, 9, 8
    h.input = t < 630  # a few commands at first


def finished_not_exited(r, t, h, s):
    # A forgotten non-daemon thread; a metrics client that still reports every half minute.
    h.mem, h.cpu, h.rss, h.procs, h.conns = 60000, abs(r.gauss(0.012, 0.004)), 9000, 3, 1
    if t % 30 < STEP:
        h.tx, h.rx, h.io = 700, 250, 900


def deadlocked_nccl(r, t, h, s):
    # The collective's kernel polls; the host thread spins in a synchronise.
    h.sm, h.util, h.range = r.gauss(12, 0.2), 100, r.gauss(0.085, 0.004)
    h.mem, h.cpu, h.rss, h.procs, h.conns, h.rx, h.tx = (
        60000,
        r.gauss(1.0, 0.01),
        9000,
        9,
        4,
        60,
        60,
    )


def crashed_data_loader(r, t, h, s):
    # The main process waits in a queue's get with a time-out; its workers are gone.
    h.mem, h.cpu, h.rss, h.procs, h.zombies = 60000, abs(r.gauss(0.006, 0.002)), 9000, 2, 6
    h.faults = abs(r.gauss(1, 1))


def open_ssh(r, t, h, s):
    # A shell at its prompt inside the job, a Python left with a model in memory, keep-alives on the
    # connection.
    h.mem, h.cpu, h.rss, h.procs, h.conns = 30000, abs(r.gauss(0.002, 0.001)), 2500, 4, 1
    if t % 30 < STEP:
        h.rx, h.tx = 20, 20


def zombie_children(r, t, h, s):
    h.mem, h.cpu, h.rss, h.procs, h.zombies = 4000, 0.0008, 300, 5, 4


def leaked_memory(r, t, h, s):
    h.mem, h.cpu, h.rss, h.procs = 71000, abs(r.gauss(0.001, 0.0005)), 12000, 1


def sleep_loop(r, t, h, s):
    # while true; do sleep 1; done, with a line of output each minute.
    h.mem, h.cpu, h.rss, h.procs = 500, abs(r.gauss(0.004, 0.001)), 20, 2
    h.faults, h.io, h.out = r.gauss(120, 10), abs(r.gauss(1700, 200)), 29 if t % 60 < STEP else 0


def spin_loop(r, t, h, s):
    # while True: pass, with a model still in memory.
    h.mem, h.cpu, h.rss, h.procs, h.faults = (
        18000,
        r.gauss(1.0, 0.003),
        1500,
        1,
        abs(r.gauss(0.3, 0.4)),
    )


SHAPES = [  # name, expectation, model, card of the committed set
    ("data_loading", "active", data_loading, "H200"),
    ("compile_phase", "active", compile_phase, "A100"),
    ("evaluation_between_epochs", "active", evaluation, "H200"),
    ("notebook_thinking", "active", notebook, "L4"),
    ("low_rate_inference", "active", low_rate_inference, "H200"),
    ("checkpoint_writing", "active", checkpoint_writing, "A100"),
    ("slow_object_store", "active", slow_object_store, "H200"),
    ("cpu_preprocessing", "active", cpu_preprocessing, "L4"),
    ("distributed_barrier_wait", "active", barrier_wait, "H200"),
    ("warm_up", "active", warm_up, "A100"),
    ("burst_every_10_min", "active", burst_every_10_min, "H200"),
    ("debugger_stopped", "idle", debugger_stopped, "H200"),
    ("finished_not_exited", "idle", finished_not_exited, "A100"),
    ("deadlocked_nccl", "hung", deadlocked_nccl, "H200"),
    ("crashed_data_loader", "idle", crashed_data_loader, "A100"),
    ("open_ssh_nobody", "idle", open_ssh, "L4"),
    ("zombie_children", "idle", zombie_children, "H200"),
    ("leaked_memory", "idle", leaked_memory, "A100"),
    ("sleep_loop", "idle", sleep_loop, "L4"),
    ("spin_loop_no_kernels", "idle", spin_loop, "H200"),
]
ONSET = 600


def sample(r, h, card, s):
    idle, limit, gpm, memory = CARDS[card]
    clip = lambda x, top=100: max(0.0, min(top, x))
    sm, dram, tensor = clip(h.sm), clip(h.dram), clip(h.tensor)
    util = (
        h.util if h.util is not None else (0 if sm < 0.2 else clip(100 * (1 - math.exp(-sm / 12))))
    )
    if util == 0 and r.random() < 0.01:
        util = r.randint(1, 3)  # somebody's monitoring
    part = h.range if h.range is not None else 0.05 * (util > 50) + 0.82 * sm / 100
    # A context keeps some cards' clocks up: their idle draw is a fifth higher while one lives.
    target = idle * (1.2 if s.get("context_warm") else 1.0) + part * (limit - idle)
    s["power"] = target if "power" not in s else s["power"] * 0.3 + target * 0.7
    if h.mem is not None:
        s["mem"] = min(h.mem, int(memory * 0.97))
    if h.rss is not None:
        s["rss"] = h.rss
    s["age"] = r.uniform(0, STEP) if h.input else s.get("age", 9999) + STEP
    noise = lambda x: max(0, int(round(x)))
    return {
        "sm": f"{sm:.1f}" if gpm else "-",
        "dram": f"{dram:.1f}" if gpm else "-",
        "tensor": f"{tensor:.1f}" if gpm else "-",
        "util": noise(util),
        "memutil": noise(dram * 0.9),
        "power": noise(s["power"] + r.gauss(0, 0.6 + idle / 150)),
        "pcie_kib_s": noise(abs(h.pcie) + abs(r.gauss(60, 80)) + (900 if r.random() < 0.02 else 0)),
        "mem_mib": s.get("mem", 0),
        "cpu_ms": noise(max(0, h.cpu) * STEP * 1000),
        "io_kib": noise(abs(h.io) * STEP / 1024),
        "rx_bytes": noise(abs(h.rx) * STEP),
        "tx_bytes": noise(abs(h.tx) * STEP),
        "faults": noise(abs(h.faults) * STEP),
        "rss_mib": s.get("rss", 0),
        "out_bytes": noise(h.out),
        "input_age_s": noise(s["age"]) if s["age"] < 9000 else "-",
        "procs": h.procs,
        "conns": h.conns,
        "traced": h.traced,
        "stopped": h.stopped,
        "zombies": h.zombies,
        "blocked": h.blocked,
    }


def write(path, name, expect, model, card, seed):
    r = random.Random(f"{name} {card} {seed}")
    idle, limit, _, _ = CARDS[card]
    state = {"context_warm": r.random() < 0.4}
    length = 2700 if expect == "active" else 1800
    shift = r.uniform(0, 400) if expect == "active" and seed != 1 else 0
    with open(path, "w") as f:
        f.write(
            f"shape {name}\nexpect {expect}\n"
            + (f"onset_s {ONSET}\n" if expect != "active" else "")
        )
        f.write(
            f"card {card}\nidle_w {idle}\nlimit_w {limit}\nstep_s {STEP}\nseed {seed}\ncolumns"
            f" {' '.join(COLUMNS)}\n"
        )
        before, repeated = None, 0
        for i in range(length // STEP):
            t, h = i * STEP, Host()
            if expect != "active" and t < ONSET:
                train(r, h)
            else:
                model(r, t + shift, h, state)
            row = sample(r, h, card, state)
            if row == before:
                repeated += 1
                continue
            if repeated:
                f.write(f"*{repeated}\n")
                repeated = 0
            f.write(
                " ".join("." if before and before[c] == row[c] else str(row[c]) for c in COLUMNS)
                + "\n"
            )
            before = row
        if repeated:
            f.write(f"*{repeated}\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True)
    p.add_argument("--seeds", default="1")
    p.add_argument("--cards", default="one", choices=["one", "all"])
    a = p.parse_args()
    first, _, last = a.seeds.partition("-")
    os.makedirs(a.out, exist_ok=True)
    for seed in range(int(first), int(last or first) + 1):
        for name, expect, model, card in SHAPES:
            for c in CARDS if a.cards == "all" else [card]:
                suffix = "" if a.cards == "one" and a.seeds == "1" else f".{c}.{seed}"
                write(os.path.join(a.out, f"{name}{suffix}.trace"), name, expect, model, c, seed)


main()
