"""Suspend and resume of 20 and of 50 GiB, beside copies of pinned memory and the driver's own checkpoint in the same run.
BILLOW_GPU_TEST_GIB says which sizes."""
import statistics

from rig import *


def part_sizes(stock_checkpoint):
    sizes = os.environ.get("BILLOW_GPU_TEST_GIB", "20,50").split(",")
    sizes = [16 * MIB, 32 * MIB] if SIM else [int(s) * GIB for s in sizes]
    arena = max(sizes) + (16 * MIB if SIM else 2 * GIB)
    service = MemoryService(arena)
    service.wait_arena(arena)
    warm = {size: suspend_and_resume(service, size) for size in sizes}
    service.stop()
    for size in () if SIM else sizes:
        p = probe()
        p.ask(f"hold {size} 5")
        out, back = stock_checkpoint(p.pid)
        wrong = p.ask("check")["wrong"]
        times = warm[size]
        Table.add(
            f"{size / GIB:.0f} GiB by the stock driver",
            (
                f"{out:.1f} s out, {back:.1f} s in, {wrong} words wrong: {out / times[0]:.0f} and"
                f" {back / times[1]:.0f} times as long"
            ),
            "shown",
        )
        p.quit()


def suspend_and_resume(service, size):
    """Three times, the link's rate measured before each; all memory is rewritten between."""
    name = service.job(f"s{size // MIB}", reserve=size)
    p, plain = probe(service.env(name)), probe()
    p.ask(f"hold {size} 1")
    times, parts = ([], []), ([], [])
    for attempt in range(3):
        link = plain.ask(f"link {MIB if SIM else 2 * GIB}")
        p.ask(f"touch 100 {7 + attempt * size}")
        for i, (verb, way) in enumerate((("suspend", "out"), ("resume", "in"))):
            got = service.call(f"{verb} name={name}")
            took = float(got["seconds"])
            times[i].append(took)
            parts[i].append(float(got["bytes"]) / took / 1e9 / float(link[way]))
        if p.ask("check")["wrong"] != "0":
            raise RuntimeError("memory differs after a resume")
    for i, verb in enumerate(("suspend", "resume")):
        got, took = statistics.median(parts[i]), statistics.median(times[i])
        Table.add(
            f"{verb} of {size / GIB:.0f} GiB, random words",
            (
                f"{took:.2f} s, {size / took / 1e9:.1f} GB/s, {got * 100:.1f} % of the link (of 3:"
                f" {min(parts[i]) * 100:.1f}..{max(parts[i]) * 100:.1f})"
            ),
            ">= 97 %",
            got >= 0.97,
        )
    again = float(service.call("suspend name=" + name)["seconds"])
    service.call("resume name=" + name)
    Table.add(f"suspend of {size / GIB:.0f} GiB unchanged", f"{again:.2f} s", "shown")
    p.quit()
    plain.quit()
    service.call("remove name=" + name)
    return [statistics.median(t) for t in times]
