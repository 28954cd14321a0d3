"""Runs a step by turns through the shim and past it, within one process (bypass.cpp switches), so
that memory, threads and the host's state are the same on both sides. As a program, on any driver,
`bypass.py SECONDS STEPS FILE` does it with a step of small memsets."""
import ctypes
import gc
import json
import os
import random
import statistics
import sys
import time

THROUGH, PAST, COUNTED = 0, 1, 2
CONTROL_EVERY = 4  # every fourth pair is through the shim twice: what chance alone shows


class Bypass:
    def __init__(self):
        shim = next(p for p in os.environ["LD_PRELOAD"].split(":") if "libbillow-cuda" in p)
        self.lib = ctypes.CDLL(os.path.join(os.path.dirname(shim), "libbypass.so"))
        self.lib.bypass_name.restype = ctypes.c_char_p
        self.lib.bypass_calls.restype = ctypes.c_uint64
        self.hooks = self.lib.bypass_find(shim.encode())
        if not self.hooks:
            raise RuntimeError("no hook of the shim can be switched")

    def set(self, way):
        self.lib.bypass_set(way)

    def choose(self):
        return self.lib.bypass_choose()

    def calls(self):
        names = {i: self.lib.bypass_name(i).decode() for i in range(self.hooks)}
        return {n: self.lib.bypass_calls(i) for i, n in names.items() if self.lib.bypass_calls(i)}


def by_turns(step, synchronize, seconds, steps):
    """The ratios of neighbouring groups of `steps`, minus one, and the same for groups that both
    pass the shim."""
    bypass = Bypass()

    def group(way):
        bypass.set(way)
        step()  # the first step after a switch fetches the changed code
        synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        synchronize()
        return time.perf_counter() - begin

    for way in (THROUGH, COUNTED):
        for _ in range(3):
            group(way)
    calls = {name: n / (3 * (steps + 1)) for name, n in bypass.calls().items()}
    chosen = bypass.choose()
    for way in (PAST, THROUGH, PAST, THROUGH):
        group(way)
    took = {THROUGH: [], PAST: []}
    ratios, control = [], []
    gc.collect()
    gc.disable()
    until = time.monotonic() + seconds
    turn = 0
    while time.monotonic() < until:
        turn += 1
        if turn % CONTROL_EVERY == 0:
            bypass.set(PAST)  # the switch is made here, too
            first, second = group(THROUGH), group(THROUGH)
            control.append((first / second if turn // CONTROL_EVERY % 2 else second / first) - 1)
            continue
        order = (THROUGH, PAST) if turn % 2 else (PAST, THROUGH)
        now = {way: group(way) for way in order}
        for way in order:
            took[way].append(now[way] / steps)
        ratios.append(now[THROUGH] / now[PAST] - 1)
    gc.enable()
    bypass.set(THROUGH)
    return dict(
        ratios=ratios,
        control=control,
        calls=calls,
        switched=chosen,
        through_s=statistics.median(took[THROUGH]),
        past_s=statistics.median(took[PAST]),
    )


def interval(groups, block=20, times=1000, seed=1):
    """The median of all, and where 95 % of the medians of samples with replacement lie. Samples are
    of blocks of neighbours: what disturbs the host disturbs several of them."""
    blocks = [g[i : i + block] for g in groups for i in range(0, len(g), block)]
    chance = random.Random(seed)
    medians = sorted(
        statistics.median(sum(chance.choices(blocks, k=len(blocks)), [])) for _ in range(times)
    )
    low, high = medians[int(0.025 * times)], medians[int(0.975 * times)]
    return statistics.median(sum(groups, [])), low, high


def memsets():
    """A step of a hundred small memsets."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    for got in (
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)),
    ):
        if got:
            raise RuntimeError(f"the driver answered {got}")

    def step():
        for _ in range(100):
            if cuda.cuMemsetD8Async(memory, 7, ctypes.c_size_t(64), None):
                raise RuntimeError("a memset failed")

    return step, cuda.cuCtxSynchronize


def main():
    seconds, steps, path = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    got = by_turns(*memsets(), seconds, steps)
    with open(path, "w") as out:
        json.dump(got, out)
    print("ok ready=1", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
