"""What the shim costs: the same program with and without it, asked in turn.

Two processes of one program differ by more than the targets, in where their memory and threads
fell. So both run on the same two cores, with addresses and hashes that do not change from process
to process, and several pairs of them are compared. BILLOW_GPU_TEST_RUNS and BILLOW_GPU_TEST_PAIRS
say how many. A pair keeps its difference for as long as it lives and the next has another, so
tiny launches and training steps also go by turns through the shim and past it in one process."""
import statistics

from bypass import interval
from rig import *

RUNS = int(os.environ.get("BILLOW_GPU_TEST_RUNS", "1"))
GROUPS = 20
PAIRS = int(os.environ.get("BILLOW_GPU_TEST_PAIRS", "4"))


def steady(arguments, env=None):
    cores = sorted(os.sched_getaffinity(0))[-2:]
    env = dict(env or os.environ, PYTHONHASHSEED="0")
    return Program(["setarch", "-R", "taskset", "-c", ",".join(map(str, cores)), *arguments], env)


def as_large(env):
    """The plain environment, as large as the shim's: the size moves the stack."""
    added = {k: v for k, v in env.items() if os.environ.get(k) != v}
    return dict(os.environ, **{"X" + k[1:]: v for k, v in added.items()})


def compare(first, second, ask, rounds):
    """Median cost of `ask` in each, asked in turn, and each as often first: a card that has just
    rested is clocked higher."""
    costs = ([], [])
    for turn in range(rounds):
        for i in (turn % 2, 1 - turn % 2):
            costs[i].append(ask((first, second)[i]))
    return statistics.median(costs[0]), statistics.median(costs[1])


def side_by_side(plain, shimmed, ask):
    """The median over short groups, each beside one of the other process: what slows the host down
    for a second slows both."""
    ratios = []
    for turn in range(GROUPS):
        pair = (plain, shimmed) if turn % 2 else (shimmed, plain)
        took = {p: float(p.ask(ask)["seconds"]) for p in pair}
        ratios.append(took[shimmed] / took[plain] - 1)
    return statistics.median(ratios)


def part_overhead():
    service = MemoryService(64 * MIB)
    name = service.job("lone", memory=8 * GIB if not SIM else 256 * MIB)
    tiny_launches(service, name)
    if not SIM:
        part_torch_overhead(service, name)
    service.stop()


def part_tiny():
    service = MemoryService(64 * MIB)
    name = service.job("lone", memory=8 * GIB if not SIM else 256 * MIB)
    tiny_launches(service, name)
    service.stop()


def tiny_launches(service, name):
    """A run makes a million launches on either side, in groups, over several pairs of processes,
    and the same within one process."""
    count = 20000 if SIM else 1000000
    for _ in range(RUNS):
        p = steady([BUILD + "/probe"], service.env(name))
        p.answer("start")
        got = p.ask(f"paired {count} 200")
        p.quit()
        Table.add(
            "overhead, 1 M tiny launches, by turns through the shim and past it",
            (
                f"{float(got['median']) * 100:+.2f} % (in sum {float(got['sum']) * 100:+.2f} %, of"
                f" 200 groups {float(got['low']) * 100:+.2f}..{float(got['high']) * 100:+.2f};"
                f" {float(got['nanoseconds']):.0f} ns a launch)"
            ),
            "<= 3 %",
            got["hooked"] == "1" and float(got["median"]) <= 0.03,
        )
    kinds = (
        ("1 M tiny launches", f"tiny {count // PAIRS // GROUPS}", 0.03),
        ("graph replay (10 empty nodes)", f"graph {max(1, count // 20 // PAIRS // GROUPS)} 10", 0.01),
    )
    env = service.env(name)
    for _ in range(RUNS):
        ratios = {what: [] for what, _, _ in kinds}
        for _ in range(PAIRS):
            plain, shimmed = (steady([BUILD + "/probe"], e) for e in (as_large(env), env))
            for p in (plain, shimmed):
                p.answer("start")
            for what, ask, _ in kinds:
                ratios[what].append(side_by_side(plain, shimmed, ask))
            plain.quit()
            shimmed.quit()
        for what, _, most in kinds:
            report(what, ratios[what], most)


def report(what, ratios, most):
    got = statistics.median(ratios)
    Table.add(
        "overhead, " + what,
        (
            f"{got * 100:+.2f} % ({len(ratios)} pairs:"
            f" {min(ratios) * 100:+.2f}..{max(ratios) * 100:+.2f})"
        ),
        f"<= {most * 100:g} %",
        got <= most,
    )


def part_torch_overhead(
    service,
    name,
    kinds=(
        ("matmul", "matmul loop"),
        ("train", "small training step"),
        ("graph", "graph replay of matmuls"),
    ),
):
    ratios = {kind: [] for kind, _ in kinds}
    for _ in range(PAIRS):
        plain, shimmed = (
            steady([sys.executable, os.path.join(HERE, "load.py")], env)
            for env in (None, service.env(name))
        )  # both start at once
        for p in (plain, shimmed):
            p.answer("start of load.py")
        for kind, _ in kinds:
            if kind == "train":
                # The best of many short groups: a program of small launches is at the mercy of its
                # host's other work, which only ever adds.
                best = ([], [])
                for turn in range(8):
                    for i in (turn % 2, 1 - turn % 2):
                        best[i].append(float((plain, shimmed)[i].ask(f"run {kind} 0.15")["best"]))
                ratios[kind].append(min(best[1]) / min(best[0]) - 1)
            else:
                # Here the card's power is the limit, and the first moments after a rest are clocked
                # a third higher: who is asked first
                # would have the best group. So the middle of equal turns.
                a, b = compare(plain, shimmed, lambda p: 1 / rate(p.ask(f"run {kind} 0.5")), 8)
                ratios[kind].append(b / a - 1)
        plain.quit()
        shimmed.quit()
    for kind, what in kinds:
        report(what, ratios[kind], 0.005 if kind == "train" else 0.01)


def paired_steps(service, name, number, seconds):
    """One process whose training steps go by turns through the shim and past it."""
    path = os.path.join(tempfile.mkdtemp(prefix="bp-"), "ratios")
    if SIM:
        program = [os.path.join(HERE, "bypass.py"), str(seconds), "2", path]
    else:
        program = [os.path.join(HERE, "load.py")]
    p = steady([sys.executable, *program], service.env(name))
    p.answer("start")
    if not SIM:
        p.ask(f"paired train {seconds} 10 {path}")
    p.quit()
    with open(path) as f:
        got = json.load(f)
    middle, low, high = interval([got["ratios"]])
    calls = got["calls"]
    print(
        (
            f"process {number}: {middle * 100:+.3f} % ({low * 100:+.3f}..{high * 100:+.3f}) of"
            f" {len(got['ratios'])} pairs; through the shim twice"
            f" {statistics.median(got['control']) * 100:+.3f} %; a step takes"
            f" {got['past_s'] * 1e6:.1f} us past it and {got['through_s'] * 1e6:.1f} through it,"
            f" with {sum(calls.values()):.1f} hooked calls:"
            f" {', '.join(f'{n} {c:.1f}' for n, c in calls.items())}; device allocations"
            f" meanwhile: {got.get('allocations', 0)}"
        ),
        flush=True,
    )
    return got


def part_steps():
    """The training step by turns within one process, several processes of them."""
    service = MemoryService(64 * MIB)
    name = service.job("lone", memory=8 * GIB if not SIM else 256 * MIB)
    seconds = float(os.environ.get("BILLOW_GPU_TEST_SECONDS", "0.5" if SIM else "25"))
    all_of_them = [paired_steps(service, name, i, seconds) for i in range(RUNS)]
    middle, low, high = interval([got["ratios"] for got in all_of_them])
    _, none_low, none_high = interval([got["control"] for got in all_of_them])
    each = [statistics.median(got["ratios"]) for got in all_of_them]
    pairs = sum(len(got["ratios"]) for got in all_of_them)
    Table.add(
        "overhead, small training step, by turns through the shim and past it",
        (
            f"{middle * 100:+.2f} % (95 %: {low * 100:+.2f}..{high * 100:+.2f}; {pairs} pairs in"
            f" {RUNS} processes, whose medians are {min(each) * 100:+.2f}..{max(each) * 100:+.2f};"
            f" through it twice: {none_low * 100:+.2f}..{none_high * 100:+.2f})"
        ),
        "<= 0.5 %",
        high <= 0.005,
    )
    service.stop()


def part_replay():
    """A training step as one graph: what the host does hardly counts, where memory lies does."""
    service = MemoryService(64 * MIB)
    name = service.job("lone", memory=8 * GIB)
    ratios = []
    for _ in range(PAIRS):
        plain, shimmed = (
            steady([sys.executable, os.path.join(HERE, "load.py"), "replay"], env)
            for env in (None, service.env(name))
        )
        for p in (plain, shimmed):
            p.answer("start of load.py")
        a, b = compare(plain, shimmed, lambda p: 1 / rate(p.ask("run replay 0.1")), 40)
        ratios.append(b / a - 1)
        plain.quit()
        shimmed.quit()
    report("training step as one graph", ratios, 0.005)
    service.stop()


def part_train():
    service = MemoryService(64 * MIB)
    part_torch_overhead(
        service, service.job("lone", memory=8 * GIB), kinds=(("train", "small training step"),)
    )
    service.stop()
