"""A PyTorch job for the product test: works on GIB gibibytes whose right content is always known, until a file appears.

    job.py STOP-FILE GIB        prints what the slice shows, then "rate R" every second and "wrong N" at the end
"""
import os
import subprocess
import sys
import time

import torch

stop, gib = sys.argv[1], float(sys.argv[2])
device = torch.device("cuda")
free, total = torch.cuda.mem_get_info()
smi = subprocess.run(
    ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
    capture_output=True,
    text=True,
    check=False,
)
print(f"total {total >> 20} smi {smi.stdout.strip() or smi.stderr.strip()[:60]}", flush=True)
words = int(gib * (1 << 28))
A, C = 1664525, 1013904223
x = torch.arange(words, device=device, dtype=torch.int32)
a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
b = torch.empty_like(a)
rounds, done, mark = 0, 0, time.monotonic()
while not os.path.exists(stop):
    for _ in range(20):
        torch.matmul(a, a, out=b)
    if rounds < 300:
        x.mul_(A).add_(C)
        rounds += 1
    torch.cuda.synchronize()
    done += 20
    if time.monotonic() - mark >= 1:
        print(f"rate {done / (time.monotonic() - mark):.2f}", flush=True)
        done, mark = 0, time.monotonic()
wrong = 0
for begin in range(0, words, 1 << 26):  # piece by piece: there may be no room for a second copy
    y = torch.arange(begin, min(words, begin + (1 << 26)), device=device, dtype=torch.int32)
    for _ in range(rounds):
        y.mul_(A).add_(C)
    wrong += int((y != x[begin : begin + y.numel()]).sum())
print(f"wrong {wrong} after {rounds} rounds", flush=True)
sys.exit(1 if wrong else 0)
