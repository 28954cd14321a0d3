"""A job behind the wall of `--isolation strict` on the real card: it computes and has no network.
Needs runc, and a bundle like part 7."""
from product import Product, Table, sys, wait_for

# Behind the wall there is no file of its owner: the program is given as text, and ends by a signal.
PROGRAM = """
import os, signal, socket, sys, time
import torch
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
names = [name for _, name in socket.if_nameindex() if name != "lo"]
free, total = torch.cuda.mem_get_info()
print("total", total >> 20, "cards", torch.cuda.device_count(), "networks", len(names), flush=True)
x = torch.arange(1 << 28, device="cuda", dtype=torch.int32)
rounds = 0
while not stop:
    x.mul_(1664525).add_(1013904223)
    torch.cuda.synchronize()
    rounds += 1
    print("round", rounds, flush=True)
    time.sleep(0.05)
y = torch.arange(1 << 28, device="cuda", dtype=torch.int32)
for _ in range(rounds):
    y.mul_(1664525).add_(1013904223)
print("wrong", int((x != y).sum()), "after", rounds, flush=True)
"""


def rounds(product, job):
    return sum(line.startswith("round ") for line in product.logs(job).splitlines())


def behind_the_wall(product):
    job = product.submit(
        *("--name", "wall", "--gpus", 1, "--isolation", "strict", "--no-sync"),
        *("--stop-grace", "60s", "--", sys.executable, "-c", PROGRAM),
    )
    what = "--isolation strict"
    card = product.json("nodes")["nodes"][0]["gpus"][0]
    try:
        product.started(job, what)
        words = product.logs(job).split()
        sees = {w: int(words[words.index(w) + 1]) for w in ("total", "cards", "networks")}
        Table.add(
            f"{what}: what it sees",
            f"{sees} of {card['mem_mib']} MiB",
            "its card, no network",
            (sees["cards"], sees["networks"]) == (1, 0),
        )
        wait_for(lambda: rounds(product, job) > 20, 60, "twenty rounds")
        product.cli("stop", job)
        product.cli("wait", job, check=False, timeout=120)
        result = [line for line in product.logs(job).splitlines() if line.startswith("wrong ")]
        Table.add(
            f"{what}: the result",
            result[0] if result else product.logs(job)[-300:],
            "0 wrong",
            bool(result) and result[0].startswith("wrong 0 "),
        )
    except Exception as error:
        Table.add(what, f"{error} {product.log('agent.log')[-600:]}", "runs", False)
        product.cli("stop", job, check=False)
        print(product.cli("describe", job, check=False), product.logs(job)[-1500:], flush=True)


def part_wall():
    product = Product("8G")
    print(product.cli("doctor", "--isolation", check=False), flush=True)
    behind_the_wall(product)
    product.down()
