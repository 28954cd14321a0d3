"""Shares of mixed work: pairs of different loads, each one's progress against its own rate alone, and both together against the same pair
without Billow."""
from rig import *

PAIRS = (
    ("train", "long"),
    ("step", "long"),
    ("step", "matmul"),
    ("memory", "long"),
    ("memory", "matmul"),
    ("tiny", "long"),
    ("tiny", "memory"),
    ("graph", "train"),
    ("step", "memory"),
    ("step", "train"),
)


def rate(answer):
    return float(answer["iterations"]) / float(answer["seconds"])


def load(env=None):
    p = Program([sys.executable, os.path.join(HERE, "load.py"), "mixed"], env)
    p.answer("start of load.py")
    return p


def at_once(programs, kinds, seconds):
    for p, kind in zip(programs, kinds):
        p.start(f"run {kind} {seconds}")
    return [rate(p.answer()) for p in programs]


def part_mixed(seconds=4):
    asked = [
        tuple(map(int, s.split("/")))
        for s in os.environ.get("BILLOW_GPU_TEST_SHARES", "30/70,50/50").split(",")
    ]
    service = MemoryService(64 * MIB)
    free = [load(), load()]
    alone, unmanaged = {}, {}
    for kind in sorted({k for pair in PAIRS for k in pair}):
        alone[kind] = rate(free[0].ask(f"run {kind} 1"))
    for pair in PAIRS:
        got = at_once(free, pair, 2)
        unmanaged[pair] = sum(g / alone[k] for g, k in zip(got, pair))
    for p in free:
        p.quit()
    worst, least = 0.0, 10.0
    for shares in asked:
        names = [
            service.job(f"m{s}{i}{secrets.token_hex(2)}", share=s * 10)
            for i, s in enumerate(shares)
        ]
        programs = [load(service.env(n)) for n in names]
        for pair in PAIRS:
            parts = [g / alone[k] for g, k in zip(at_once(programs, pair, seconds), pair)]
            error = parts[0] / sum(parts) * 100 / shares[0] - 1
            kept = sum(parts) / unmanaged[pair]
            worst, least = max(worst, abs(error)), min(least, kept)
            print(
                (
                    f"{pair[0]} {shares[0]} / {pair[1]} {shares[1]}:"
                    f" {parts[0] / sum(parts) * 100:.1f} % of the progress ({error * 100:+.1f} %),"
                    f" together {sum(parts) * 100:.0f} % of alone, {kept * 100:.0f} % of the"
                    " unmanaged pair"
                ),
                flush=True,
            )
        for p in programs:
            p.quit()
        for n in names:
            service.call("remove name=" + n)
    Table.add(
        f"share of progress, ten mixed pairs, {len(asked)} ratios",
        (
            f"worst error {worst * 100:.1f} %, together at least {least * 100:.0f} % of the"
            " unmanaged pair"
        ),
        "3 %, 95 %",
        worst <= 0.03 and least >= 0.95,
    )
    service.stop()
