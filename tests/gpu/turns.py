"""Holds GIB gibibytes of numbers and works on all of them in turn; answers `run SECONDS` and `verify`. Every block goes through
x -> x * A + C (mod 2^32) again and again, so after any number of rounds its right content is known."""
import sys
import threading
import time

import torch

gib, dirty = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
A, C, block_words = 1664525, 1013904223, 256 << 20  # blocks of 1 GiB
device = torch.device("cuda")


def original(i):
    g = torch.Generator(device=device)
    g.manual_seed(1000 + i)
    return torch.randint(
        -(1 << 31), (1 << 31) - 1, (block_words,), device=device, dtype=torch.int32, generator=g
    )


blocks = [original(i) for i in range(gib)]
active = max(1, int(len(blocks) * dirty))
rounds = [0] * len(blocks)
a = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
b = torch.empty_like(a)
torch.matmul(a, a, out=b)
torch.cuda.synchronize()
done, until, place = 0, 0.0, 0
print("ok ready=1", flush=True)


def work():
    global done, place
    while time.monotonic() < until:
        for _ in range(4):
            blocks[place].mul_(A).add_(C)
            rounds[place] += 1
            place = (place + 1) % active
            torch.matmul(a, a, out=b)
        torch.cuda.synchronize()
        done += 4


thread = None
for line in sys.stdin:
    words = line.split()
    if words[0] == "quit":
        break
    if words[0] == "start":
        until = time.monotonic() + float(words[1])
        thread = threading.Thread(target=work)
        thread.start()
        print("ok", flush=True)
    elif words[0] == "count":
        print(f"ok done={done} at={time.monotonic():.6f}", flush=True)
    elif words[0] == "stop":
        until = 0.0
        thread.join()
        print(f"ok done={done}", flush=True)
    elif words[0] == "verify":
        wrong = 0
        for i, block in enumerate(blocks):
            factor, term = 1, 0
            for _ in range(rounds[i]):
                factor, term = factor * A % (1 << 32), (term * A + C) % (1 << 32)
            signed = lambda v: v - (1 << 32) if v >= 1 << 31 else v
            wrong += int(
                (original(i).mul_(signed(factor)).add_(signed(term)) != block).sum().item()
            )
        print(f"ok wrong={wrong} rounds={sum(rounds)}", flush=True)
