"""Shares of mixed work: pairs of different loads, each one's progress against its own rate alone, beside the same pair without Billow.

The promise is a part of the progress alone: with 30/70 the first job makes at least 30 % of the progress that it makes alone, the second at
least 70 %. What running together gains comes on top. `best` is the most that both can do together if the promise is kept: parts of
the time alone, the rest as the unmanaged pair."""
import statistics

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


def at_once(programs, kinds, seconds):
    for p, kind in zip(programs, kinds):
        p.start(f"run {kind} {seconds}")
    return [rate(p.answer()) for p in programs]


def best(free, shares):
    """The largest sum of both jobs' progress that keeps the promise."""
    most = 0.0
    for i in range(201):
        for j in range(201 - i):
            x, y = i / 200, j / 200
            got = [x + free[0] * (1 - x - y), y + free[1] * (1 - x - y)]
            if all(g >= s / 100 - 0.005 for g, s in zip(got, shares)):
                most = max(most, sum(got))
    return most


class Tenants:
    """Two jobs with a memory service to themselves, so that those of other ratios do not share their GPU's time."""

    def __init__(self, shares):
        self.shares = shares
        self.service = MemoryService(0)
        self.names = [self.service.job(f"m{i}", share=s * 10) for i, s in enumerate(shares)]
        self.programs = [launch(self.service.env(n)) for n in self.names]

    def counts(self):
        return [self.service.status(n) for n in self.names]

    def stop(self):
        for p in self.programs:
            p.quit()
        self.service.stop()


def launch(env=None):
    return Program([sys.executable, os.path.join(HERE, "load.py"), "mixed"], env)


def reference(free, pair):
    """The rates of each kind alone, and of the unmanaged pair."""
    alone = [rate(p.ask(f"run {kind} 1")) for p, kind in zip(free, pair)]
    return alone, at_once(free, pair, 2)


def run_managed(tenants, pair, seconds):
    """The rates of both jobs, and what the service counted."""
    before = tenants.counts()
    rates = at_once(tenants.programs, pair, seconds)
    after = tenants.counts()
    counted = [(int(a["gpu_ns"]) - int(b["gpu_ns"])) / 1e9 / seconds for a, b in zip(after, before)]
    turns = [int(a["turns"]) - int(b["turns"]) for a, b in zip(after, before)]
    return rates, counted, turns


def judge(shares, pair, got, before, after):
    """A shared host changes its speed within minutes: what is compared is the mean of the
    references right before and right after."""
    rates, counted, turns = got
    alone = [statistics.mean(both) for both in zip(before[0], after[0])]
    pair_rates = [statistics.mean(both) for both in zip(before[1], after[1])]
    parts = [r / a for r, a in zip(rates, alone)]
    free = [r / a for r, a in zip(pair_rates, alone)]
    short = max(max(0.0, 1 - p * 100 / s) for p, s in zip(parts, shares))
    ratio = abs(parts[0] / sum(parts) * 100 / shares[0] - 1)
    bound = max(best(free, shares), 1e-9)
    moved = max(abs(a / b - 1) for a, b in zip(before[0] + before[1], after[0] + after[1]))
    print(
        (
            f"{pair[0]} {shares[0]} / {pair[1]} {shares[1]}:"
            f" {parts[0] * 100:.1f} + {parts[1] * 100:.1f} % (short {short * 100:.1f} %, ratio off"
            f" {ratio * 100:.1f} %); unmanaged {free[0] * 100:.0f} + {free[1] * 100:.0f} %; kept"
            f" {sum(parts) / sum(free) * 100:.0f} %, of the best {sum(parts) / bound * 100:.0f} %;"
            f" counted {counted[0] * 100:.1f} + {counted[1] * 100:.1f}, turns {turns[0]}"
            f" {turns[1]}, references moved by up to {moved * 100:.0f} %"
        ),
        flush=True,
    )
    return short, ratio, sum(parts) / sum(free), sum(parts) / bound


def part_mixed():
    setting = os.environ.get
    seconds = float(setting("BILLOW_GPU_TEST_SECONDS", "10"))
    asked = [
        tuple(map(int, s.split("/")))
        for s in setting("BILLOW_GPU_TEST_SHARES", "30/70,50/50,10/90").split(",")
    ]
    free = [launch(), launch()]
    all_tenants = [Tenants(shares) for shares in asked]
    for p in free + [p for t in all_tenants for p in t.programs]:
        p.answer("start of load.py")
    results = {tenants.shares: [] for tenants in all_tenants}
    for pair in PAIRS:
        before = reference(free, pair)
        for tenants in all_tenants:
            got = run_managed(tenants, pair, seconds)
            after = reference(free, pair)
            results[tenants.shares].append(judge(tenants.shares, pair, got, before, after))
            before = after
    for p in free:
        p.quit()
    for tenants in all_tenants:
        tenants.stop()
    for shares, judged in results.items():
        report(*shares, *zip(*judged))


def report(a, b, shorts, ratios, kept, bounds):
    Table.add(
        f"{a}/{b}, ten mixed pairs: progress below the promise",
        f"mean {statistics.mean(shorts) * 100:.1f} %, worst {max(shorts) * 100:.1f} %",
        "3 %",
        max(shorts) <= 0.03,
    )
    Table.add(
        f"{a}/{b}: both together, of the unmanaged pair",
        (
            f"mean {statistics.mean(kept) * 100:.0f} %, worst {min(kept) * 100:.0f} %; of the"
            f" best that keeps the promise: mean {statistics.mean(bounds) * 100:.0f} %, worst"
            f" {min(bounds) * 100:.0f} %"
        ),
        "95 %",
        min(kept) >= 0.95,
    )
    Table.add(
        f"{a}/{b}: ratio of progress, off what was asked",
        f"mean {statistics.mean(ratios) * 100:.1f} %, worst {max(ratios) * 100:.1f} %",
        "shown",
    )
