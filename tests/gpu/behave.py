"""A PyTorch process that behaves in one of four ways, for the idle verdicts: idle, busy, hung,
bursty."""
import sys
import time

import torch

kind = sys.argv[1]
device = torch.device("cuda")
held = torch.empty(1 << 28, device=device, dtype=torch.uint8)
a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
b = torch.empty_like(a)
torch.matmul(a, a, out=b)
torch.cuda.synchronize()
print("ready", flush=True)
while True:
    if kind == "idle":
        time.sleep(60)
    elif kind == "hung":
        torch.cuda._sleep(
            2_000_000_000
        )  # one multiprocessor spins: busy by its own word, at the power of an idle card
        torch.cuda.synchronize()
    else:
        begin = time.monotonic()
        while time.monotonic() - begin < (5 if kind == "busy" else 0.7):
            for _ in range(20):
                torch.matmul(a, a, out=b)
            torch.cuda.synchronize()
        if kind == "bursty":
            time.sleep(25)  # less than a second of work in every 25: a service with few callers
