"""Suspend and resume of 20 and of 50 GiB, beside copies of pinned memory and the driver's own
checkpoint in the same run. BILLOW_GPU_TEST_GIB says which sizes; with BILLOW_GPU_TEST_NO_STOCK the
driver's checkpoint is left out."""
import statistics

from rig import *


def part_sizes(stock_checkpoint):
    sizes = os.environ.get("BILLOW_GPU_TEST_GIB", "20,50").split(",")
    sizes = [16 * MIB, 32 * MIB] if SIM else [int(s) * GIB for s in sizes]
    arena = max(sizes) + (16 * MIB if SIM else 2 * GIB)
    service = MemoryService(arena)
    service.wait_arena(arena)
    plain = probe()
    plain.ask(f"span {max(sizes)}")  # its memory is pinned now
    warm = {size: suspend_and_resume(service, plain, size) for size in sizes}
    plain.quit()
    service.stop()
    for size in () if SIM or os.environ.get("BILLOW_GPU_TEST_NO_STOCK") else sizes:
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


ATTEMPTS = int(os.environ.get("BILLOW_GPU_TEST_ATTEMPTS", "5"))


def suspend_and_resume(service, plain, size):
    """Several times, all memory rewritten between. The link is measured before and after each move,
    by plain copies of as much memory: it changes from second to second."""
    name = service.job(f"s{size // MIB}", reserve=size)
    p = probe(service.env(name))
    p.ask(f"hold {size} 1")
    times, parts, links, copies = ([], []), ([], []), [], []
    links.append(plain.ask(f"span {size}"))
    for attempt in range(ATTEMPTS):
        p.ask(f"touch 100 {7 + attempt * size}")
        for i, (verb, way) in enumerate((("suspend", "out"), ("resume", "in"))):
            got = service.call(f"{verb} name={name}")
            links.append(plain.ask(f"span {size}"))
            around = statistics.mean(float(link[way]) for link in links[-2:])
            times[i].append(float(got["seconds"]))
            parts[i].append(float(got["bytes"]) / times[i][-1] / 1e9 / around)
            copies.append(int(got["copies"]))
        if p.ask("check")["wrong"] != "0":
            raise RuntimeError("memory differs after a resume")
    for i, (verb, way) in enumerate((("suspend", "out"), ("resume", "in"))):
        got, took = statistics.median(parts[i]), statistics.median(times[i])
        rates = [float(link[way]) for link in links]
        Table.add(
            f"{verb} of {size / GIB:.0f} GiB, random words",
            (
                f"{took:.2f} s, {size / took / 1e9:.1f} GB/s, {got * 100:.1f} % of the link (of"
                f" {ATTEMPTS}: {min(parts[i]) * 100:.1f}..{max(parts[i]) * 100:.1f}; the link"
                f" {min(rates):.1f}..{max(rates):.1f} GB/s; {max(copies[i::2])} copies)"
            ),
            ">= 97 %",
            got >= 0.97,
        )
    again = float(service.call("suspend name=" + name)["seconds"])
    service.call("resume name=" + name)
    Table.add(f"suspend of {size / GIB:.0f} GiB unchanged", f"{again:.2f} s", "shown")
    p.quit()
    service.call("remove name=" + name)
    return [statistics.median(t) for t in times]
