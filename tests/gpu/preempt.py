"""Whether the GPU still switches away from a running kernel of a process after the driver's own checkpoint and restore. A kernel that waits
for another process's kernel on the same card (NCCL) depends on it. As a program, `preempt.py work` answers `spin MS` and `small`."""
import sys
import time

SPIN_MS = 1500  # less than the driver waits before it ends both processes


def work():
    import torch

    x = torch.zeros(1, device="cuda")
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    clock_khz = 1_900_000
    print("ok ready=1", flush=True)
    for line in sys.stdin:
        words = line.split()
        begin = time.monotonic()
        if words[0] == "spin":
            torch.cuda._sleep(int(words[1]) * clock_khz)
        elif words[0] == "small":
            x.add_(1)
            torch.cuda.synchronize()
        elif words[0] == "rest":
            torch.cuda.synchronize()
        else:
            return
        print(f"ok ms={(time.monotonic() - begin) * 1e3:.1f}", flush=True)


def part_preempt():
    import os

    from rig import HERE, MIB, MemoryService, Program, Table

    service = MemoryService(64 * MIB)
    script = os.path.join(HERE, "preempt.py")
    long, short = (Program([sys.executable, script, "work"]) for _ in range(2))
    for p in (long, short):
        p.answer("start")

    def waited():
        long.ask(f"spin {SPIN_MS}")
        time.sleep(0.05)
        ms = max(float(short.ask("small")["ms"]) for _ in range(3))
        long.ask("rest")
        return ms

    before = waited()
    service.call(f"checkpoint pids={long.pid}")
    service.call(f"restore pids={long.pid}")
    after = waited()
    for p in (long, short):
        p.quit()
    service.stop()
    Table.add(
        "a small kernel beside another process's kernel of 1.5 s, before and after the driver's"
        " own checkpoint of that process (no shim)",
        f"{before:.1f} ms, {after:.1f} ms",
        "shown",
    )


if __name__ == "__main__":
    work()
