"""What a call of a function costs, beside its peers in the same run: ./dev bench python.

Each figure is taken several times, ours and the peer's in turn, and the best of each counts: other
work on the machine disturbs both, and the ratio is what matters.
"""
import argparse
import multiprocessing
import os
import resource
import socket
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
sys.path[:0] = [os.path.join(ROOT, "tests/support"), os.path.join(ROOT, "sdk/python/src")]

MIB = 1 << 20


def nothing(x):
    return x


def back(array):
    return array


def quantile(times, q):
    return sorted(times)[min(len(times) - 1, int(len(times) * q))]


def line(what, value, peer="", promised="", met=None):
    verdict = "" if met is None else ("yes" if met else "NO")
    print(f"{what:<44} {value:>16} {peer:>30} {promised:>16} {verdict:>5}", flush=True)
    return met is not False


def timed(call, count):
    out = []
    for i in range(count):
        began = time.perf_counter()
        call(i)
        out.append((time.perf_counter() - began) * 1e3)
    return out


# ---- peers


def echo(end, other, size):
    """The other side of the Unix socket: takes everything, then gives it back."""
    other.close()  # inherited: the end would otherwise never come
    while True:
        data = bytearray(size)
        view = memoryview(data)
        at = 0
        while at < size:
            got = end.recv_into(view[at:])
            if got == 0:
                return
            at += got
        end.sendall(data)


class SocketPeer:
    """Octets there and back through a Unix socket, each time into new memory, as arrays are."""

    def __init__(self, size):
        self.here, there = socket.socketpair(socket.AF_UNIX)
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=echo, args=(there, self.here, size))
        self.process.start()
        there.close()
        self.size = size
        self.sent = bytearray(b"x") * size

    def turn(self):
        began = time.perf_counter()
        self.here.sendall(self.sent)
        got = bytearray(self.size)
        view, at = memoryview(got), 0
        while at < self.size:
            at += self.here.recv_into(view[at:])
        return 2 * self.size / MIB / (time.perf_counter() - began)

    def close(self):
        self.here.close()
        self.process.join(10)


class DaskPeer:
    def __init__(self, workers):
        import logging

        from distributed import Client, LocalCluster

        logging.getLogger("distributed").setLevel(logging.ERROR)
        self.cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            host="127.0.0.1",
        )
        self.client = Client(self.cluster)
        self.number = 0

    def call(self, i):
        self.number += 1
        return self.client.submit(nothing, (self.number, i), pure=False).result()

    def map(self, count):
        self.number += 1
        futures = self.client.map(nothing, [(self.number, i) for i in range(count)], pure=False)
        return self.client.gather(futures)

    def close(self):
        self.client.close()
        self.cluster.close()


# ---- figures


def latency(function, dask, pool, count):
    rounds = 3
    ours, theirs, bare = [], [], []
    for _ in range(rounds):
        ours.append(timed(function.remote, count))
        if dask:
            theirs.append(timed(dask.call, count))
        bare.append(timed(lambda i: pool.apply(nothing, (i,)), count))

    def best(many, q):
        return min(quantile(each, q) for each in many) if many else float("nan")

    peers = f"Dask {best(theirs, 0.5):.2f}, pool {best(bare, 0.5):.2f} ms"
    ok = line("warm no-op, p50", f"{best(ours, 0.5):.2f} ms", peers, "≤ 5 ms", best(ours, 0.5) <= 5)
    peers = f"Dask {best(theirs, 0.99):.2f}, pool {best(bare, 0.99):.2f} ms"
    p99 = best(ours, 0.99)
    return line("warm no-op, p99", f"{p99:.2f} ms", peers, "≤ 20 ms", p99 <= 20) and ok


def throughput(function, dask, pool, count):
    ours, theirs, bare = [], [], []
    for _ in range(3):
        began = time.perf_counter()
        assert sum(1 for _ in function.map(range(count))) == count
        ours.append(count / (time.perf_counter() - began))
        if dask:
            began = time.perf_counter()
            assert len(dask.map(count)) == count
            theirs.append(count / (time.perf_counter() - began))
        began = time.perf_counter()
        assert len(pool.map(nothing, range(count))) == count
        bare.append(count / (time.perf_counter() - began))
    dask_rate = max(theirs) if theirs else 0
    return line(
        f"map of {count:,} no-ops",
        f"{max(ours):,.0f}/s",
        f"Dask {dask_rate:,.0f}, pool {max(bare):,.0f}/s",
        "≥ Dask",
        max(ours) >= dask_rate if theirs else None,
    )


def arrays(function, gateway, size):
    import numpy

    array = numpy.ones(size // 8)
    peer = SocketPeer(size)
    direct, through, bare = [], [], []
    try:
        function.remote(array[:10])
        for _ in range(5):
            bare.append(peer.turn())
            began = time.perf_counter()
            assert function.remote(array).nbytes == array.nbytes
            direct.append(2 * size / MIB / (time.perf_counter() - began))
        for _ in range(2):
            began = time.perf_counter()
            assert gateway(array).nbytes == array.nbytes
            through.append(2 * size / MIB / (time.perf_counter() - began))
    finally:
        peer.close()
    share = max(direct) / max(bare)
    ok = line(
        f"{size // MIB} MiB of arrays there and back",
        f"{max(direct):,.0f} MiB/s",
        f"Unix socket {max(bare):,.0f} MiB/s",
        "≥ 70 %",
        share >= 0.7,
    )
    line(
        "the same through the gateway",
        f"{max(through):,.0f} MiB/s",
        f"{100 * max(through) / max(bare):.0f} % of the socket",
    )
    return ok


def memory(function, count):
    """The peak of this process while a million items pass, and what the first tenth needed."""
    first = 0
    began = time.perf_counter()
    total = 0
    for number, value in enumerate(function.map(iter(range(count)), ordered=True)):
        total += value
        if number == count // 10:
            first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = time.perf_counter() - began
    assert total == count * (count - 1) // 2
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first) / 1024
    return line(
        f"{count:,} items: growth after the first tenth",
        f"{grown:.1f} MiB",
        f"{count / took:,.0f}/s",
        "≤ 16 MiB",
        grown <= 16,
    )


def through_gateway(function):
    """The same function for a caller that shares no memory with the worker."""
    from billow import _caller, _lane

    before, _lane._identity = _lane._identity, ""
    caller = _caller.Caller(function._pool.caller().place, None)
    _lane._identity = before
    from billow._wire import pack

    def call(array):
        caller.shares_memory = False
        outcome = caller.run([_caller.new_id()], [pack(("", (array,), {}))])[0]
        if outcome.error:
            raise outcome.error
        return outcome.value

    return call


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    options.add_argument("--short", action="store_true", help="a tenth of the work")
    given = options.parse_args()
    os.environ["BILLOW_BIN"] = given.bin
    from rig import Rig

    part = 10 if given.short else 1
    workers = 2
    rig = Rig()
    # Without the rig's mark: the helpers of Dask and multiprocessing are not the rig's.
    for name, value in rig.environment.items():
        if name in ("BILLOW_DATA", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            os.environ[name] = value
    import billow

    billow.connect()
    noop = billow.function(max=workers, min=workers)(nothing)
    echoed = billow.function(max=1, min=1)(back)
    pool = multiprocessing.get_context("fork").Pool(workers)
    dask = None
    try:
        line("", "Billow", "peer in the same run", "promised", None)
        for each in (noop, echoed):
            each.deploy()
        list(noop.map(range(1000)))
        ok = arrays(echoed, through_gateway(echoed), (1 << 30) // part)
        ok = memory(noop, 1_000_000 // part) and ok
        try:
            dask = DaskPeer(workers)
            dask.map(1000)
        except ImportError:
            print("Dask is not installed: apt install python3-distributed")
        ok = latency(noop, dask, pool, 1000 // part) and ok
        ok = throughput(noop, dask, pool, 20_000 // part) and ok
    finally:
        if dask:
            dask.close()
        pool.terminate()
        rig.close()
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
