"""More suspended memory than the node has: 160 GiB of sleepers on a node with 128 GiB of RAM, in all tiers, each woken and checked.

Two jobs hold random words (nothing to compress), two hold what a model in training holds. The disk takes what it has free; the rest of the
sleepers stays in memory."""
import shutil

from rig import *


def where(service, name):
    s = service.status(name)
    gib = {
        k: int(s.get(k, 0)) / GIB
        for k in ("arena", "memory", "memory_stored", "file", "file_stored")
    }
    return gib, int(s.get("wake_ms", 0)) / 1000


def text(gib):
    return (
        f"{gib['arena']:.1f} pinned, {gib['memory']:.1f} in memory (stored"
        f" {gib['memory_stored']:.1f}), {gib['file']:.1f} on disk (stored"
        f" {gib['file_stored']:.1f}) GiB"
    )


def sleeper(service, kind, bytes_each, seed):
    name = service.job(f"{kind}{seed}")
    if kind == "random" or SIM:
        p = probe(service.env(name))
        p.ask(f"hold {bytes_each} {seed}")
    else:
        p = Program(
            [sys.executable, os.path.join(HERE, "sleeper.py"), str(bytes_each / GIB), str(seed)],
            service.env(name),
        )
        p.answer("start")
    return name, p


def part_asleep():
    setting = os.environ.get
    each = 24 * MIB if SIM else int(setting("BILLOW_GPU_TEST_SLEEPER_GIB", "40")) * GIB
    directory = setting("BILLOW_GPU_TEST_SLEEP_DIR", tempfile.mkdtemp(prefix="bs-"))
    disk = 256 * MIB if SIM else int(shutil.disk_usage(directory).free * 0.9)
    arena = 32 * MIB if SIM else 32 * GIB
    with open("/proc/meminfo") as f:
        ram = int(f.readline().split()[1]) * 1024
    # The programs, their contexts and this test need some of it, too.
    memory = (
        48 * MIB if SIM else min(int(ram * 0.78), max(4 * each - int(disk * 0.8), arena + 8 * GIB))
    )
    service = MemoryService(
        arena,
        more=[
            "--sleep-memory",
            str(memory),
            "--sleep-dir",
            directory + "/s",
            "--sleep-disk",
            str(disk),
        ],
    )
    service.wait_arena(arena)
    print(
        (
            f"RAM {ram / GIB:.0f} GiB, arena {arena / GIB:.1f}, sleep memory {memory / GIB:.1f},"
            f" disk {disk / GIB:.1f} GiB; {service.call('status')['lines'][1]}"
        ),
        flush=True,
    )
    jobs = []
    for i, kind in enumerate(("model", "random", "model", "random")):
        begin = time.monotonic()
        name, p = sleeper(service, kind, each, i + 1)
        jobs.append((name, p))
        made = time.monotonic() - begin
        s = service.call(f"suspend name={name}", timeout=500)
        print(f"{name}: filled in {made:.1f} s; suspend {s}", flush=True)
        for other, _ in jobs:
            print(f"  {other}: {text(where(service, other)[0])}", flush=True)
    total, wrong_all, lines = 0, 0, []
    for name, _ in jobs:
        total += sum(where(service, name)[0][k] for k in ("arena", "memory", "file"))
    print(service.call("status")["lines"][1], flush=True)
    for name, p in reversed(jobs):
        gib, estimate = where(service, name)
        r = service.call(f"resume name={name}", timeout=500)
        took = float(r["seconds"])
        wrong = int(p.ask("check")["wrong"])
        wrong_all += wrong
        size = int(r["bytes"]) / GIB
        Table.add(
            f"wake {name}: {text(gib)}",
            (
                f"{took:.2f} s for {size:.1f} GiB ({size * 1.0737 / took:.1f} GB/s), estimated"
                f" {estimate:.2f} s, {wrong} words wrong"
            ),
            "0 wrong",
            wrong == 0,
        )
        p.quit()
        service.call("remove name=" + name)
    print(service.call("status")["lines"][:2], flush=True)
    Table.add(
        f"{4 * each / GIB:.0f} GiB of sleepers on a node with {ram / GIB:.0f} GiB of RAM",
        f"{total:.1f} GiB without zeros, all woken, {wrong_all} words wrong",
        "0 wrong",
        wrong_all == 0,
    )
    service.stop()
