"""Two ranks of NCCL on one GPU. NCCL refuses two ranks of one host on one card, so each rank is told
that it is a host of its own (NCCL_HOSTID); they then talk over sockets, not by peer memory. As a
program, `nccl.py RANK STORE SAME` is one rank."""
import os
import sys

ROUNDS_AHEAD = 8


def rank_env(rank, same):
    env = dict(
        os.environ,
        NCCL_NET="Socket",
        NCCL_SOCKET_IFNAME="lo",
        NCCL_IB_DISABLE="1",
        NCCL_DEBUG="WARN",
        CUBLAS_WORKSPACE_CONFIG=":4096:8",
    )
    if not same:
        env.update(NCCL_HOSTID=f"rank{rank}")
    return env


def rank_main(rank, store, same):
    """Rank 0 says before each batch of rounds whether there is another; both compare every sum
    with the first, bit for bit."""
    import threading

    answers_to = os.fdopen(os.dup(1), "w")  # NCCL writes its version to the standard output
    os.dup2(2, 1)
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    os.environ.update(rank_env(rank, same))
    dist.init_process_group("nccl", init_method="file://" + store, rank=rank, world_size=2)
    g = torch.Generator(device="cuda")
    g.manual_seed(rank + 1)
    x = torch.randn(1 << 20, device="cuda", generator=g)
    first = None
    stop = threading.Event()

    def listen():
        sys.stdin.readline()
        stop.set()

    def once():
        y = torch.tanh(x)
        dist.all_reduce(y)
        return y

    first = once().clone()
    torch.cuda.synchronize()
    if rank == 0:
        threading.Thread(target=listen, daemon=True).start()
    version = ".".join(map(str, torch.cuda.nccl.version()))
    print(f"ok ready=1 version={version}", file=answers_to, flush=True)
    rounds = wrong = 0
    more = torch.ones(1, device="cuda")
    while True:
        if rank == 0:
            more.fill_(0.0 if stop.is_set() else 1.0)
        dist.broadcast(more, 0)
        if more.item() == 0.0:
            break
        for _ in range(ROUNDS_AHEAD):
            again = once()
            wrong += not torch.equal(first.view(torch.int32), again.view(torch.int32))
            rounds += 1
    print(f"ok rounds={rounds} wrong={wrong}", file=answers_to, flush=True)
    os._exit(0)


def start(same, env_of=lambda: None):
    import tempfile

    from rig import HERE, Program

    store = os.path.join(tempfile.mkdtemp(prefix="bn-"), "store")
    script = os.path.join(HERE, "nccl.py")
    return [
        Program([sys.executable, script, str(r), store, str(int(same))], env_of()) for r in (0, 1)
    ]


def answers(programs, limit_s):
    """What each says, or how it ended."""
    import threading

    got = []
    timers = [threading.Timer(limit_s, p.process.kill) for p in programs]
    for t in timers:
        t.start()
    for p in programs:
        try:
            got.append(p.answer("rank"))
        except RuntimeError as error:
            got.append(str(error))
    for t in timers:
        t.cancel()
    return got


def part_nccl():
    import random
    import time

    from programs import cycle
    from rig import GIB, MemoryService, Table

    count = int(os.environ.get("BILLOW_GPU_TEST_NCCL_CYCLES", "60"))
    for same in (True, False):
        programs = start(same)
        got = answers(programs, 60)
        if all(isinstance(g, dict) for g in got):
            time.sleep(2)
            programs[0].start("")
            got = answers(programs, 60)
        for p in programs:
            p.process.kill()
        where = "one host" if same else "two hosts by name"
        Table.add(f"two ranks of NCCL on one card, {where}, without Billow", f"{got}", "shown")
    if not all(isinstance(g, dict) for g in got):
        return
    service = MemoryService(4 * GIB)
    service.wait_arena(4 * GIB)
    name = service.job("ranks", memory=16 * GIB)
    programs = start(False, lambda: service.env(name))
    got = answers(programs, 90)
    print("under Billow:", got, flush=True)
    done = cold = 0
    errors = []
    if all(isinstance(g, dict) for g in got):
        done, cold, errors = cycle(service, name, programs[0], count, random.Random(7), 90)
        try:
            programs[0].start("")
        except BrokenPipeError:
            pass
        got = answers(programs, 60)
    for p in programs:
        p.process.kill()
    tally = {e: errors.count(e) for e in set(errors)}
    right = all(isinstance(g, dict) and g.get("wrong") == "0" for g in got)
    Table.add(
        "two ranks of NCCL on one card, suspended as one job",
        f"{done} cycles ({cold} cold), {got}, said: {tally or 'nothing'}",
        "0 wrong, 0 hung",
        right and done == count,
    )
    service.call("remove name=" + name)
    service.stop()


if __name__ == "__main__":
    rank_main(int(sys.argv[1]), sys.argv[2], sys.argv[3] == "1")
