"""A PyTorch load that answers lines: `run KIND SECONDS` → iterations, seconds, and the best group's
seconds per iteration; `at KIND START FROM UNTIL END` (times of the monotonic clock) → how many
iterations it made from FROM until UNTIL while it ran from START to END; `paired KIND SECONDS STEPS
FILE` → ratios of groups of STEPS by turns through the shim and past it, into FILE. Kinds: matmul,
train, graph, replay (a training step as one graph); for mixed pairs also long (matrices of 12288), step (a training step that reads its
loss and then computes on the host), memory (bound by memory) and tiny (small kernels)."""
import json
import sys
import time

import torch

torch.backends.cuda.matmul.allow_tf32 = True
device = torch.device("cuda")
a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
b = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
c = torch.empty_like(a)
model = torch.nn.Sequential(
    *[layer for _ in range(4) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU())]
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(512, 1024, device=device)


def matmul():
    torch.matmul(a, b, out=c)


def train():
    optimizer.zero_grad(set_to_none=True)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()


def capture():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            matmul()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            matmul()
    return graph


graph = capture()
steps = {"matmul": (matmul, 20), "train": (train, 10), "graph": (graph.replay, 5)}
if "mixed" in sys.argv:
    big = torch.randn(12288, 12288, device=device, dtype=torch.bfloat16)
    product = torch.empty_like(big)
    wide = torch.randn(1 << 28, device=device)
    little = torch.randn(4096, device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        for _ in range(3):
            loss = model(x).square().mean()
            loss.backward()
        optimizer.step()
        loss.item()
        until = time.perf_counter() + 0.003  # the next batch
        while time.perf_counter() < until:
            pass

    steps.update(
        long=(lambda: torch.matmul(big, big, out=product), 2),
        step=(step, 5),
        memory=(lambda: wide.mul_(1.0), 10),
        tiny=(lambda: little.add_(1.0), 500),
    )
if "replay" in sys.argv:

    def captured_step():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                train()
        torch.cuda.current_stream().wait_stream(side)
        optimizer.zero_grad(set_to_none=True)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            train()
        return captured

    steps["replay"] = (captured_step().replay, 20)
for step, _ in list(steps.values()):
    for _ in range(3 if "mixed" in sys.argv else 20):
        step()
torch.cuda.synchronize()
print("ok ready=1", flush=True)


def run(step, group, seconds):
    count = 0
    best = seconds
    begin = last = time.monotonic()
    while last - begin < seconds:
        for _ in range(group):
            step()
        torch.cuda.synchronize()
        count += group
        now = time.monotonic()
        best, last = min(best, (now - last) / group), now
    print(f"ok iterations={count} seconds={last - begin:.6f} best={best:.9f}", flush=True)


def run_at(step, group, start, since, until, end):
    """A group that began before SINCE or ended after UNTIL counts in part."""
    time.sleep(max(0.0, start - time.monotonic()))
    began = last = time.monotonic()
    count = 0.0
    while last < end:
        for _ in range(group):
            step()
        torch.cuda.synchronize()
        now = time.monotonic()
        count += group * max(0.0, min(now, until) - max(last, since)) / (now - last)
        last = now
    print(
        f"ok iterations={count:.3f} seconds={until - since:.6f} late={began - start:.6f}"
        f" over={last - end:.6f}",
        flush=True,
    )


def run_paired(kind, seconds, count, path):
    from bypass import by_turns

    before = torch.cuda.memory_stats()["num_device_alloc"]
    got = by_turns(steps[kind][0], torch.cuda.synchronize, float(seconds), int(count))
    got["allocations"] = torch.cuda.memory_stats()["num_device_alloc"] - before
    with open(path, "w") as out:
        json.dump(got, out)
    print(f"ok pairs={len(got['ratios'])}", flush=True)


for line in sys.stdin:
    words = line.split()
    if not words or words[0] == "quit":
        break
    if words[0] == "paired":
        run_paired(*words[1:])
        continue
    (run if words[0] == "run" else run_at)(*steps[words[1]], *map(float, words[2:]))
