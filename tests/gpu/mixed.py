"""Shares of mixed work: pairs of different loads, each one's progress against its own rate alone,
beside the same pair without Billow.

The promise is a part of the progress alone: with 30/70 the first job makes at least 30 % of the
progress that it makes alone, the second at least 70 %. What running together gains comes on top.
`best` is the most that both can do together if the promise is kept: parts of the time alone, the
rest as the unmanaged pair. Two processes of one program differ by up to a fifth for as long as they
live, so each is compared with itself: a job with its own rate while the other job rests, the
unmanaged pair with the same two processes one by one."""
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
ROUNDS = 2  # of references


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
    """Two jobs with a memory service to themselves, so that those of other ratios do not share
    their GPU's time."""

    def __init__(self, shares, program=None):
        self.shares = shares
        self.called = "" if program is None else " (the other program)"
        self.service = MemoryService(0, program=program)
        self.names = [self.service.job(f"m{i}", share=s * 10) for i, s in enumerate(shares)]
        self.programs = [launch(i, self.service.env(n)) for i, n in enumerate(self.names)]

    def counts(self):
        return [self.service.status(n) for n in self.names]

    def stop(self):
        for p in self.programs:
            p.quit()
        self.service.stop()


def launch(place, env=None):
    """The first job of a pair always runs on the same cores, and so does the second: those of a
    shared host differ in speed."""
    cores = sorted(os.sched_getaffinity(0))
    chosen = cores[2 + 4 * place : 6 + 4 * place] if len(cores) >= 12 else cores
    return Program(
        [
            "taskset",
            "-c",
            ",".join(map(str, chosen)),
            sys.executable,
            os.path.join(HERE, "load.py"),
            "mixed",
        ],
        env,
    )


class Schedule:
    """Windows of time, one after the other. Programs are told them all in advance and read the same
    clock, so that a pair begins and ends at the same moment."""

    def __init__(self):
        self.at, self.asked = time.monotonic() + 0.3, []

    def window(self, programs, kinds, before, counted):
        since = self.at + before
        until = since + counted
        end = until + 0.03  # nobody has the GPU to itself before the time that counts is over
        for p, kind in zip(programs, kinds):
            p.start(f"at {kind} {self.at:.6f} {since:.6f} {until:.6f} {end:.6f}")
        self.asked.append(programs)
        self.at = end + 0.05  # the last groups end

    def rates(self):
        """Of each window, and how late the latest program was."""
        out, late = [], 0.0
        for programs in self.asked:
            answers = [p.answer("a window") for p in programs]
            out.append([rate(a) for a in answers])
            late = max([late] + [float(a["late"]) for a in answers])
        return out, late


def reference(programs, pair, together):
    """Rounds of short windows: the first alone, the second alone and, if asked for, both."""
    schedule = Schedule()
    places = ((0, 1), (1, 2), (0, 2))[: 3 if together else 2]
    for _ in range(ROUNDS):
        for i, j in places:
            # A card that has rested is clocked higher for a while.
            schedule.window(programs[i:j], pair[i:j], 0.12, 0.25)
    rates, _ = schedule.rates()
    n = len(places)
    return [sum(rates[i : i + n], []) for i in range(0, len(rates), n)]


def run_managed(tenants, pair, seconds):
    """The rates of both jobs from their start, and what the service counted. They are not
    interrupted for references: a job that rests loses its claim on what it is owed."""
    before = tenants.counts()
    schedule = Schedule()
    schedule.window(tenants.programs, pair, 0, seconds)
    rates, late = schedule.rates()
    after = tenants.counts()
    service = {
        "counted": [
            (int(a["gpu_ns"]) - int(b["gpu_ns"])) / 1e9 / seconds for a, b in zip(after, before)
        ],
        "turns": [int(a["turns"]) - int(b["turns"]) for a, b in zip(after, before)],
        "together": [int(a["together_milli"]) / 1000 for a in after],
        "late": late,
    }
    return rates[0], service


def judge(tenants, pair, managed, service, references, plain):
    """A shared host changes its speed within seconds: the reference is the median of the rounds
    right before and right after."""
    shares = tenants.shares
    alone = [statistics.median(r) for r in zip(*references)]
    middle = [statistics.median(r) for r in zip(*plain)]
    parts = [r / x for r, x in zip(managed, alone)]
    free = [r / x for r, x in zip(middle[2:], middle)]
    others = [a / x for a, x in zip(alone, middle)]
    shorts = [max(0.0, 1 - p * 100 / s) for p, s in zip(parts, shares)]
    kept = sum(parts) / sum(free)
    ratio = abs(parts[0] / sum(parts) * 100 / shares[0] - 1)
    bound = max(best(free, shares), 1e-9)
    moved = [max(r) / min(r) - 1 for r in list(zip(*references)) + list(zip(*plain))]

    def both(values):
        return " + ".join(f"{v * 100:.1f}" for v in values)

    print(
        (
            f"{pair[0]} {shares[0]} / {pair[1]} {shares[1]}{tenants.called}: {both(parts)} % (short"
            f" {both(shorts)} %); unmanaged"
            f" {both(free)} %, the service thinks {both(service['together'])} %; kept"
            f" {kept * 100:.0f} %, the best that keeps the promise {bound / sum(free) * 100:.0f} %;"
            f" counted {both(service['counted'])}, turns {service['turns']}, alone"
            f" {both(others)} % of the other processes, references moved by {both(moved)} %, late by"
            f" {service['late'] * 1000:.0f} ms"
        ),
        flush=True,
    )
    return max(shorts), ratio, kept, sum(parts) / bound, bound / sum(free)


def part_mixed():
    """BILLOW_GPU_TEST_SHARES and BILLOW_GPU_TEST_MIX choose ratios and pairs; BILLOW_GPU_TEST_OTHER
    is another build of billow-gpumem that every combination is also measured with."""
    setting = os.environ.get
    seconds = float(setting("BILLOW_GPU_TEST_SECONDS", "10"))
    asked = [
        tuple(map(int, s.split("/")))
        for s in setting("BILLOW_GPU_TEST_SHARES", "30/70,50/50,10/90").split(",")
    ]
    chosen = setting("BILLOW_GPU_TEST_MIX", "")
    pairs = [p for p in PAIRS if not chosen or "/".join(p) in chosen.split(",")]
    other = setting("BILLOW_GPU_TEST_OTHER")
    free = [launch(0), launch(1)]
    all_tenants = [
        Tenants(shares, program) for shares in asked for program in [None] + [other] * bool(other)
    ]
    for p in free + [p for t in all_tenants for p in t.programs]:
        p.answer("start of load.py")
    results = {tenants: [] for tenants in all_tenants}
    for pair in pairs:
        plain = reference(free, pair, True)
        runs = []
        for tenants in all_tenants:
            before = reference(tenants.programs, pair, False)
            got = run_managed(tenants, pair, seconds)
            runs.append((tenants, got, before + reference(tenants.programs, pair, False)))
        plain += reference(free, pair, True)
        for tenants, got, alone in runs:
            results[tenants].append(judge(tenants, pair, *got, alone, plain))
    for p in free:
        p.quit()
    for tenants in all_tenants:
        tenants.stop()
    for tenants, judged in results.items():
        report(*tenants.shares, tenants.called, *zip(*judged))


def report(a, b, called, shorts, ratios, kept, bounds, possible):
    Table.add(
        f"{a}/{b}, {len(shorts)} mixed pairs: progress below the promise{called}",
        f"mean {statistics.mean(shorts) * 100:.1f} %, worst {max(shorts) * 100:.1f} %",
        "3 %",
        max(shorts) <= 0.03,
    )
    Table.add(
        f"{a}/{b}: both together, of the unmanaged pair{called}",
        (
            f"mean {statistics.mean(kept) * 100:.0f} %, worst {min(kept) * 100:.0f} %; what keeps"
            f" the promise could at best: mean {statistics.mean(possible) * 100:.0f} %, worst"
            f" {min(possible) * 100:.0f} %; of that best: mean {statistics.mean(bounds) * 100:.0f}"
            f" %, worst {min(bounds) * 100:.0f} %"
        ),
        "95 %",
        min(kept) >= 0.95,
    )
    Table.add(
        f"{a}/{b}: ratio of progress, off what was asked{called}",
        f"mean {statistics.mean(ratios) * 100:.1f} %, worst {max(ratios) * 100:.1f} %",
        "shown",
    )
