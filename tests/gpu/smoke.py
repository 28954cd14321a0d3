"""A quick look at everything: does the shim load, limit, show the slice, suspend, resume, swap? And
the raw link rates."""
import sys

from rig import *


def main():
    scale = MIB if SIM else GIB
    service = MemoryService(512 * MIB if SIM else 6 * GIB)
    plain = probe()
    print("plain", plain.ask("info"), flush=True)
    print("link", plain.ask(f"link {16 * MIB if SIM else GIB}"), flush=True)
    print("tiny", plain.ask("tiny 20000"), flush=True)
    plain.quit()
    service.job("a", memory=200 * scale // 10 if not SIM else 200 * MIB)
    p = probe(service.env("a"))
    print("slice", p.ask("info"), flush=True)
    print("tiny under the shim", p.ask("tiny 20000"), flush=True)
    print("graph", p.ask("graph 100 10"), flush=True)
    size = 32 * MIB if SIM else 2 * GIB
    print("hold", p.ask(f"hold {size} 7"), p.ask(f"vmm {size // 2} 99"), p.ask("check"), flush=True)
    print("status", service.status("a"), flush=True)
    service.wait_arena(size * 2)
    for mode in ("warm", "warm", "cold"):
        print("suspend", mode, service.call("suspend name=a mode=" + mode), flush=True)
        print("status", service.status("a"), flush=True)
        print("nvml", Nvml().processes(), flush=True)
        print("resume", service.call("resume name=a"), flush=True)
        print("check", p.ask("check"), flush=True)
    service.job("b", memory=200 * scale // 10 if not SIM else 200 * MIB)
    q = probe(service.env("b"))
    print("hold b", q.ask(f"hold {size} 1000"), flush=True)
    print("suspend b", service.call("suspend name=b"), flush=True)
    print("swap", service.call(f"swap out=a in=b allowance={4 * size}"), flush=True)
    print("check b", q.ask("check"), flush=True)
    print("swap", service.call(f"swap out=b in=a allowance={4 * size}"), flush=True)
    print("check a", p.ask("check"), flush=True)
    print("resume b", service.call("resume name=b"), q.ask("check"), flush=True)
    print(
        "shared spin",
        p.start("spin 500 400"),
        q.start("spin 500 400"),
        p.answer(),
        q.answer(),
        flush=True,
    )
    print("status", service.call("status")["lines"], flush=True)
    for path in (
        "alloc",
        "pitch",
        "managed",
        "async",
        "pool",
        "create",
        "array",
        "array3d",
        "mipmap",
        "graph",
    ):
        name = service.job("path-" + path, memory=128 * MIB if SIM else GIB)
        r = probe(service.env(name))
        peak = Peak(Nvml(), [r.pid])
        peak.start()
        try:
            print(
                path,
                r.ask(f"exhaust {path} {32 * MIB}"),
                service.status(name)["used"],
                r.ask("info"),
                "nvml MiB",
                peak.stop().processes >> 20,
                flush=True,
            )
        except RuntimeError as e:
            print(path, "FAILED", e, flush=True)
        r.quit()
        service.call("remove name=" + name)
    p.quit()
    q.quit()
    service.stop()


if __name__ == "__main__":
    main()
