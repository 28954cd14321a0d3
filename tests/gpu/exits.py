"""Processes that exit while they are suspended and resumed: four threads with a stream each, suspended every 0.02 to 0.25 s, every
fifth time cold, until they have ended."""
import random
import threading

from rig import *


def one(service, name, seed, counts, lock):
    chosen = random.Random(seed)
    p = probe(service.env(name))
    p.ask(f"hold {32 * MIB} {seed}")
    join = seed % 2
    p.start(f"storm {chosen.randint(300, 1500)} {join}")
    cycles, cold, errors, lost = 0, 0, [], 0
    deadline = time.monotonic() + 60
    while p.process.poll() is None and time.monotonic() < deadline:
        time.sleep(chosen.uniform(0.02, 0.25))
        mode = "cold" if cycles % 5 == 4 else "warm"
        try:
            service.call(f"suspend name={name} mode={mode} timeout_ms=10000")
        except RuntimeError as error:
            errors.append(str(error))
            continue
        time.sleep(chosen.uniform(0.0, 0.05))
        try:
            back = service.call("resume name=" + name)
            lost += "lost" in back
            cycles += 1
            cold += mode == "cold"
        except RuntimeError as error:
            errors.append(str(error))
    hung = p.process.poll() is None
    if hung:
        p.process.kill()
    status = p.process.wait()
    with lock:
        counts["tries"] += 1
        counts["cycles"] += cycles
        counts["cold"] += cold
        counts["hung"] += hung
        counts["lost"] += lost
        counts["wrong"] += status == 3
        counts["failed"] += join == 1 and status not in (0, 3)
        for e in errors:
            e = e.split(" -> ")[-1].replace(name, "JOB")
            counts["errors"][e] = counts["errors"].get(e, 0) + 1


def part_exits(tries=12 if SIM else 120, workers=2 if SIM else 4):
    size = 256 * MIB if SIM else 4 * GIB
    service = MemoryService(size)
    service.wait_arena(size)
    counts = dict(tries=0, cycles=0, cold=0, hung=0, lost=0, wrong=0, failed=0, errors={})
    lock = threading.Lock()

    def work(worker):
        for i in range(worker, tries, workers):
            name = service.job(f"e{i}", memory=256 * MIB)
            try:
                one(service, name, i, counts, lock)
            finally:
                service.call("remove name=" + name)

    threads = [threading.Thread(target=work, args=(w,)) for w in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(counts["errors"], flush=True)
    Table.add(
        f"{counts['tries']} processes of four threads suspended until they exit",
        (
            f"{counts['cycles']} cycles ({counts['cold']} cold): {counts['hung']} hung, "
            f"{counts['lost']} lost, {counts['wrong']} wrong, {counts['failed']} failed"
        ),
        "none",
        counts["tries"] == tries
        and not (counts["hung"] or counts["lost"] or counts["wrong"] or counts["failed"]),
    )
    service.stop()
