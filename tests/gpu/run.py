"""The GPU tests: `run.py --part N`. Each part prints a table; see tools/dev/gpu-test.sh."""
import argparse
import importlib
import random
import statistics
import sys

from overhead import (
    part_overhead,
    part_replay,
    part_steps,
    part_tiny,
    part_torch_overhead,
    part_train,
)
from rig import *

PATHS = (
    "alloc",
    "pitch",
    "managed",
    "async",
    "pool",
    "create",
    "array",
    "array3d",
    "mipmap",
    "graph",
)


def torch_program(script, *arguments, env=None):
    p = Program([sys.executable, os.path.join(HERE, script), *map(str, arguments)], env)
    p.answer("start of " + script)
    return p


def part_memory():
    service, nvml = MemoryService(64 * MIB), Nvml()
    limit = 192 * MIB if SIM else 4 * GIB
    piece = 16 * MIB if SIM else 128 * MIB
    plain = probe()
    time.sleep(0.2)
    context = nvml.processes().get(plain.pid, 0)
    plain.quit()
    print(f"a context without the shim: {context >> 20} MiB", flush=True)
    worst = None
    for path in PATHS + ("small",):
        name = service.job("m-" + path, memory=limit)
        p = probe(service.env(name))
        peak = Peak(nvml, [p.pid])
        peak.start()
        answer = p.ask(
            f"exhaust alloc {192 << 10}" if path == "small" else f"exhaust {path} {piece}"
        )
        time.sleep(0.15)
        peak.stop()
        over = peak.processes - context - limit
        worst = over if worst is None else max(worst, over)
        info = p.ask("info")
        used = int(service.status(name)["used"])
        print(
            (
                f"{path}: made {answer['made']}, refused with {answer['last']}, charged"
                f" {used >> 20} MiB, NVML {peak.processes >> 20} MiB, over {over / MIB:.1f} MiB,"
                f" shows {int(info['total']) >> 20} MiB total"
            ),
            flush=True,
        )
        if int(info["total"]) != limit or answer["last"] != "2" or used > limit:
            raise RuntimeError("the slice is not what was asked for: " + path)
        p.quit()
        service.call("remove name=" + name)
    Table.add(
        "memory overrun, each allocation path alone",
        f"{worst / MIB:.1f} MiB beyond limit + context",
        "<= 64 MiB",
        worst <= 64 * MIB,
    )
    limit = 2 * limit
    name = service.job("race", memory=limit)
    programs = [probe(service.env(name)) for _ in range(8)]
    peak = Peak(nvml, [p.pid for p in programs])
    peak.start()
    for i, p in enumerate(programs):
        p.start(
            f"exhaust {('alloc', 'create', 'async', 'pitch')[i % 4]} {(4 if i % 2 else 18) * MIB}"
        )
    made = [p.answer("race") for p in programs]
    time.sleep(0.3)
    peak.stop()
    used = int(service.status(name)["used"])
    over = peak.processes - 8 * context - limit
    print(
        (
            f"race: made {[m['made'] for m in made]}, charged {used >> 20} of {limit >> 20} MiB,"
            f" NVML {peak.processes >> 20} MiB in {peak.samples} samples"
        ),
        flush=True,
    )
    Table.add(
        "memory overrun, 8 processes racing",
        f"{over / MIB:.1f} MiB beyond limit + 8 contexts",
        "<= 64 MiB",
        over <= 64 * MIB and used <= limit,
    )
    for p in programs:
        p.quit()
    service.stop()


def shares_of(service, kinds, asked, seconds):
    """Two jobs at once; each one's part of the work both did, measured in its own rate alone."""
    names = [service.job(f"s{secrets.token_hex(3)}", share=s) for s in asked]
    programs = [torch_program("load.py", env=service.env(n)) for n in names]
    results = {}
    for kind in kinds:
        alone = []
        for p in programs:
            alone.append(rate(p.ask(f"run {kind} 1")))
        for p in programs:
            p.start(f"run {kind} {seconds}")
        together = [rate(p.answer()) for p in programs]
        parts = [t / a for t, a in zip(together, alone)]
        results[kind] = (parts[0] / sum(parts), sum(parts))
    for p in programs:
        p.quit()
    for n in names:
        service.call("remove name=" + n)
    return results


def part_shares():
    service = MemoryService(64 * MIB)
    for asked in ((500, 500), (250, 750), (100, 900)):
        for kind, (share, total) in shares_of(service, ("matmul", "graph"), asked, 6).items():
            error = share * 1000 / asked[0] - 1
            Table.add(
                f"share {asked[0] // 10}/{asked[1] // 10}, {kind}",
                (
                    f"{share * 100:.2f} % ({error * 100:+.1f} %), together {total * 100:.1f} % of"
                    " alone"
                ),
                "within 5 %",
                abs(error) <= 0.05,
            )
    part_strict(service)
    service.stop()


class Clock(threading.Thread):
    """The SM clock while something runs, sampled every 10 ms; its median."""

    def __init__(self, nvml):
        super().__init__(daemon=True)
        self.nvml, self.stopped, self.samples = nvml, False, []

    def run(self):
        value = ctypes.c_uint()
        while not self.stopped:
            if (
                self.nvml.lib
                and self.nvml.lib.nvmlDeviceGetClockInfo(self.nvml.device, 1, ctypes.byref(value))
                == 0
            ):
                self.samples.append(value.value)
            time.sleep(0.01)

    def median(self):
        self.stopped = True
        self.join()
        return statistics.median(self.samples) if self.samples else 0


def watched(nvml, work):
    """What `work` gives, the median clock and the percentage of time the GPU was busy meanwhile."""
    clock, busy = Clock(nvml), Busy(nvml)
    clock.start()
    return work(), clock.median(), busy.percent()


def part_strict(service=None):
    """A hard cap alone on the card: the share of its time, which is what is capped. It is taken with a kernel that spins for a number of
    cycles on one multiprocessor, and for PyTorch from outside by the card's own counters. The work done in that time is shown
    beside it: under full load the card lowers its clock to stay within its power, and a job that rests is clocked higher.
    """
    own = service is None
    service = service or MemoryService(64 * MIB)
    nvml = Nvml()

    def spun(p, seconds=0.5 if SIM else 3.0):
        begin, done = time.monotonic(), 0
        while time.monotonic() - begin < seconds:
            p.ask(
                "spin 200 20"
            )  # 4 ms at a time, then at rest: as frameworks do that look at a result
            done += 20
        return done / (time.monotonic() - begin)

    plain = probe(service.env(service.job("spin-free")))
    spin_alone = spun(plain)
    plain.quit()
    p = torch_program("load.py", env=service.env(service.job("free"))) if not SIM else None
    alone = {
        kind: watched(nvml, lambda: rate(p.ask(f"run {kind} 3")))
        for kind in (("matmul", "graph") if p else ())
    }
    if p:
        p.quit()
    for share in (500, 250, 100):
        name = service.job(f"strict{share}", share=share, strict=1)
        q = probe(service.env(name))
        got = spun(q) / spin_alone
        q.quit()
        error = got * 1000 / share - 1
        Table.add(
            f"strict {share // 10} % alone, time on the GPU",
            f"{got * 100:.2f} % ({error * 100:+.1f} %)",
            "within 5 %",
            abs(error) <= 0.05,
        )
        p = torch_program("load.py", env=service.env(name)) if alone else None
        for kind, (full, full_clock, full_busy) in alone.items():
            done, clock, busy = watched(nvml, lambda: rate(p.ask(f"run {kind} 8")))
            work = (
                f"{done / full * 100:.1f} % of the work at {clock:.0f} MHz against {full_clock:.0f}"
            )
            if busy is None:
                Table.add(f"strict {share // 10} % alone, {kind}", work, "within 5 %")
                continue
            error = busy / full_busy * 1000 / share - 1
            Table.add(
                f"strict {share // 10} % alone, {kind}, time on the GPU",
                f"{busy:.2f} of {full_busy:.2f} % ({error * 100:+.1f} %); {work}",
                "within 5 %",
                abs(error) <= 0.05,
            )
        if p:
            p.quit()
        service.call("remove name=" + name)
    if own:
        service.stop()


def stock_checkpoint(pid):
    """The driver's own checkpoint of a process without the shim: seconds to suspend and to resume."""
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuInit(0)
    zero = (ctypes.c_uint64 * 16)()
    begin = time.monotonic()
    results = [
        cuda.cuCheckpointProcessLock(pid, zero),
        cuda.cuCheckpointProcessCheckpoint(pid, zero),
    ]
    middle = time.monotonic()
    results += [
        cuda.cuCheckpointProcessRestore(pid, zero),
        cuda.cuCheckpointProcessUnlock(pid, zero),
    ]
    if any(results):
        raise RuntimeError(f"stock checkpoint: {results}")
    return middle - begin, time.monotonic() - middle


def part_suspend():
    nvml = Nvml()
    size, arena = (48 * MIB, 256 * MIB) if SIM else (40 * GIB, 66 * GIB)
    begin = time.monotonic()
    service = MemoryService(arena)
    service.wait_arena(arena)
    print(
        (
            f"arena of {arena / GIB:.0f} GiB faulted and registered in"
            f" {time.monotonic() - begin:.1f} s"
        ),
        flush=True,
    )
    plain = probe()
    link = plain.ask(f"link {MIB if SIM else 2 * GIB}")
    out_rate, in_rate = float(link["out"]), float(link["in"])
    print("pinned copies, GB/s:", link, flush=True)
    plain.quit()
    service.job("a", reserve=size)
    p = probe(service.env("a"))
    p.ask(f"hold {size} 1")
    best = {"out": [], "in": []}
    for attempt in range(3):
        p.ask(f"touch 100 {7 + attempt * size}")
        s = service.call("suspend name=a")
        r = service.call("resume name=a")
        if p.ask("check")["wrong"] != "0":
            raise RuntimeError("memory differs after a warm resume")
        print("suspend", s, "\nresume", r, flush=True)
        best["out"].append(float(s["bytes"]) / float(s["seconds"]) / 1e9)
        best["in"].append(float(r["bytes"]) / float(r["seconds"]) / 1e9)
    warm = size / statistics.median(best["out"]) / 1e9
    for what, rates, raw in (
        ("warm suspend", best["out"], out_rate),
        ("warm resume", best["in"], in_rate),
    ):
        got = statistics.median(rates)
        Table.add(
            f"{what}, {size / GIB:.0f} GiB random",
            (
                f"{got:.1f} GB/s, {got / raw * 100:.0f} % of {raw:.1f} (of 3:"
                f" {min(rates):.1f}..{max(rates):.1f})"
            ),
            ">= 90 %",
            got >= 0.9 * raw,
        )
    p.ask("touch 10 999")
    s = service.call("suspend name=a")
    fraction = float(s["seconds"]) / warm
    Table.add(
        "suspend again, 90 % unchanged",
        f"{float(s['seconds']):.3f} s, {fraction * 100:.0f} % of the first",
        "<= 25 %",
        fraction <= 0.25,
    )
    r = service.call("resume name=a")
    if p.ask("check")["wrong"] != "0":
        raise RuntimeError("memory differs after the second resume")
    p.ask("touch 100 123456")
    s = service.call("suspend name=a mode=cold")
    time.sleep(0.1)
    left = nvml.processes().get(p.pid, 0)
    extra = float(s["seconds"]) - warm
    Table.add(
        "cold suspend of the same",
        f"warm + {extra:.2f} s, the job holds {left >> 20} MiB",
        "warm + 0.6 s, 0 MiB",
        extra <= 0.6 and left == 0 and s["cold"] == "1",
    )
    r = service.call("resume name=a")
    wrong = p.ask("check")["wrong"]
    Table.add(
        "cold resume",
        (
            f"{float(r['seconds']):.2f} s ({float(r['residue_s']):.2f} s of it the driver's),"
            f" {wrong} words wrong"
        ),
        "right",
        wrong == "0",
    )
    p.quit()
    service.call("remove name=a")
    part_swap(service)
    service.stop()
    if not SIM:
        p = probe()
        p.ask(f"hold {size} 5")
        out, back = stock_checkpoint(p.pid)
        wrong = p.ask("check")["wrong"]
        Table.add(
            "stock cuCheckpoint of the same",
            f"{out:.1f} s out, {back:.1f} s in, {wrong} wrong; warm is {out / warm:.0f} x faster",
            ">= 15 x",
            out / warm >= 15,
        )
        p.quit()


def part_swap(service):
    size = 32 * MIB if SIM else 30 * GIB
    programs = {}
    for name in ("x", "y"):
        service.job(name)
        programs[name] = probe(service.env(name))
        programs[name].ask(f"hold {size} {ord(name)}")
        if name == "x":
            service.call("suspend name=x")
    rates = []
    inside, outside = "y", "x"
    for i in range(3):
        programs[inside].ask(f"touch 100 {i * size + 3}")
        begin = time.monotonic()
        s = service.call(f"swap out={inside} in={outside}")
        seconds = time.monotonic() - begin
        rates.append((float(s["out_bytes"]) + float(s["in_bytes"])) / seconds / 1e9)
        print("swap", s, flush=True)
        inside, outside = outside, inside
        if programs[inside].ask("check")["wrong"] != "0":
            raise RuntimeError("memory differs after a swap")
    got = statistics.median(rates)
    Table.add(
        f"swap {size / GIB:.0f} <-> {size / GIB:.0f} GiB",
        f"{got:.1f} GB/s both ways (of 3: {min(rates):.1f}..{max(rates):.1f})",
        ">= 85 GB/s",
        got >= 85,
    )
    service.call("resume name=" + outside)
    for p in programs.values():
        p.quit()
    for name in programs:
        service.call("remove name=" + name)


def part_cycles(cycles=200):
    service = MemoryService(4 * GIB)
    service.wait_arena(4 * GIB)
    name = service.job("train")
    base = tempfile.mkdtemp(prefix="bt-") + "/losses"
    p = torch_program("train_loop.py", base, 10000000, env=service.env(name))
    chance = random.Random(4)
    begin, cold, times = time.monotonic(), 0, []
    for i in range(cycles):
        time.sleep(chance.uniform(0.01, 0.12))
        mode = "cold" if i % 10 == 9 else "warm"
        s = service.call(f"suspend name=train mode={mode}")
        cold += s["cold"] == "1"
        time.sleep(chance.uniform(0, 0.05))
        r = service.call("resume name=train")
        times.append((float(s["seconds"]), float(r["seconds"])))
    status = service.status(name)
    open(base + ".stop", "w").close()
    p.process.wait(120)
    steps, total = open(base + ".done").read().split()
    print(
        (
            f"{cycles} cycles ({cold} cold) in {time.monotonic() - begin:.0f} s, {steps} steps,"
            f" residue {int(status['residue']) >> 20} MiB, median suspend"
            f" {statistics.median(t[0] for t in times):.3f} s, resume"
            f" {statistics.median(t[1] for t in times):.3f} s"
        ),
        flush=True,
    )
    service.stop()
    reference = base + ".reference"
    q = torch_program("train_loop.py", reference, steps)
    q.process.wait(300)
    mine, theirs = open(base).read().split(), open(reference).read().split()
    same = sum(a == b for a, b in zip(mine, theirs))
    good = (
        len(mine) == len(theirs) == int(steps) == same
        and open(reference + ".done").read().split()[1] == total
    )
    Table.add(
        f"{cycles} suspend/resume cycles ({cold} cold) of a training loop",
        f"{same} of {len(theirs)} losses bit-identical",
        "all, none lost",
        good,
    )


def part_turns(minutes=5.0, gib=50, allowance=80, arena=88, dirty=1.0):
    service = MemoryService(arena * GIB)
    service.wait_arena(arena * GIB)
    part_swap(service)
    programs, alone = {}, {}
    for name in ("p", "q"):
        service.job(name)
        programs[name] = torch_program("turns.py", gib, dirty, env=service.env(name))
        programs[name].ask("start 100000")
        time.sleep(1)
        before = programs[name].ask("count")
        time.sleep(6)
        after = programs[name].ask("count")
        alone[name] = (int(after["done"]) - int(before["done"])) / (
            float(after["at"]) - float(before["at"])
        )
        if name == "p":
            service.call("suspend name=p")
    print("alone, steps per second:", alone, flush=True)
    start = {n: None for n in programs}
    begin = time.monotonic()
    counts = {n: int(programs[n].ask("count")["done"]) for n in programs}
    inside, outside, swaps = "q", "p", []
    while time.monotonic() - begin < minutes * 60:
        time.sleep(max(0.0, begin + 20 * (len(swaps) + 1) - time.monotonic()))
        t = time.monotonic()
        s = service.call(f"swap out={inside} in={outside} allowance={allowance * GIB}")
        swaps.append(time.monotonic() - t)
        print(
            (
                f"swap {len(swaps)}: {swaps[-1]:.2f} s, copied {int(s['out_copied']) >> 30} GiB out"
                f" {int(s['in_copied']) >> 30} in, out {float(s['out_seconds']):.2f} in"
                f" {float(s['in_seconds']):.2f}"
            ),
            flush=True,
        )
        inside, outside = outside, inside
    elapsed = time.monotonic() - begin
    after = {n: int(programs[n].ask("count")["done"]) for n in programs}
    ideal = elapsed * statistics.mean(alone.values())
    goodput = sum((after[n] - counts[n]) for n in programs) / ideal
    wrong = 0
    for n in (inside, outside):
        if n == outside:
            service.call(f"swap out={inside} in={outside} allowance={allowance * GIB}")
        programs[n].ask("stop")
        wrong += int(programs[n].ask("verify")["wrong"])
        if n == inside:
            continue
    Table.add(
        (
            f"two jobs of {gib} GiB on {allowance} GiB, swapped every 20 s for"
            f" {elapsed / 60:.1f} min, {dirty * 100:.0f} % rewritten"
        ),
        (
            f"goodput {goodput * 100:.1f} %, {len(swaps)} swaps of"
            f" {statistics.median(swaps):.2f} s, {wrong} words wrong"
        ),
        ">= 92 %, right results",
        goodput >= 0.92 and wrong == 0,
    )
    for p in programs.values():
        p.process.kill()
    service.stop()


def part_rest():
    """What fell short of its bar before, and the product: one run of about four minutes."""
    from product import part_product

    for part in (part_product, part_strict, part_steps, part_swaps):
        try:
            part()
        except Exception as error:
            Table.add(part.__name__, f"{type(error).__name__}: {error}", "runs", False)


def later(module, part, *arguments):
    """A part whose module is loaded when it runs."""
    return lambda: getattr(importlib.import_module(module), part)(*arguments)


def part_swaps():
    size = 64 * MIB if SIM else 66 * GIB
    begin = time.monotonic()
    service = MemoryService(size)
    service.wait_arena(size)
    print(f"the arena was ready {time.monotonic() - begin:.0f} s after its start", flush=True)
    part_swap(service)
    service.stop()


PARTS = {
    "1": part_memory,
    "2": part_shares,
    "3": part_overhead,
    "4": part_suspend,
    "5": part_cycles,
    "6": part_turns,
    "7": part_rest,
    "8": later("product", "part_idle"),
    "9": later("record", "part_record"),
}
ALONE = {
    "strict": part_strict,
    "train": part_train,
    "steps": part_steps,
    "replay": part_replay,
    "tiny": part_tiny,
    "swap": part_swaps,
    "sizes": later("sizes", "part_sizes", stock_checkpoint),
    "wake": later("wake", "part_wake"),
    "exits": later("exits", "part_exits"),
    "ipc": later("ipc", "part_ipc"),
    "mixed": later("mixed", "part_mixed"),
    "asleep": later("asleep", "part_asleep"),
    "programs": later("programs", "part_programs"),
    "nccl": later("nccl", "part_nccl"),
    "preempt": later("preempt", "part_preempt"),
    "wall": later("wall", "part_wall"),
}  # pieces of the above, by name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default="all")
    chosen = parser.parse_args().part
    needs_torch = "2 5 6 8 train replay mixed programs nccl preempt wall".split()
    for number, part in {**PARTS, **ALONE}.items():
        if number not in chosen.split(",") and not (chosen == "all" and number in PARTS):
            continue
        if SIM and number in needs_torch:
            print(
                f"part {number} needs PyTorch on a real GPU: skipped on the simulated driver",
                flush=True,
            )
            continue
        begin = time.monotonic()
        try:
            part()
        except Exception as error:
            Table.add(f"part {number}", f"{type(error).__name__}: {error}", "runs", False)
        print(f"part {number}: {time.monotonic() - begin:.0f} s", flush=True)
    sys.exit(0 if not Table.rows or Table.show() else 1)


if __name__ == "__main__":
    main()
