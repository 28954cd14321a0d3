"""Many different programs, each suspended and resumed again and again while it works, every fifth time cold: none may hang, and no result
may differ by a bit."""
import random

from rig import *


KINDS = (
    "matmul threads fork subprocess loader compile graph recapture pools cooperative texture sparse"
    " fft conv solver jax conditional green"
).split()

COLD_EVERY = int(os.environ.get("BILLOW_GPU_TEST_COLD_EVERY", "5"))


def cycle(service, name, p, count, chosen, limit_s):
    done = cold = 0
    errors = []
    until = time.monotonic() + limit_s
    while done < count and p.process.poll() is None and time.monotonic() < until:
        time.sleep(chosen.uniform(0.005, 0.08))
        want_cold = done % COLD_EVERY == COLD_EVERY - 1
        try:
            out = service.call(
                f"suspend name={name} mode={'cold' if want_cold else 'warm'} timeout_ms=20000",
                timeout=60,
            )
            cold += int(out.get("cold", "0"))
            if "cold_error" in out:
                errors.append("stayed warm: " + out["cold_error"])
            time.sleep(chosen.uniform(0, 0.02))
            back = service.call("resume name=" + name, timeout=60)
            if "lost" in back:
                errors.append("lost " + back["lost"])
            done += 1
        except (RuntimeError, OSError) as error:
            errors.append(str(error).split(" -> ")[-1].replace(name, "JOB"))
            if len(errors) > 30:
                break
    return done, cold, errors


def one(service, kind, count, seed, limit_s):
    name = service.job(f"k{seed}-{kind}", memory=16 * GIB)
    p = Program([sys.executable, os.path.join(HERE, "kinds.py"), kind], service.env(name))
    result = dict(
        kind=kind, done=0, cold=0, errors=[], verdict="", rounds="0", wrong="-", hung=False
    )
    try:
        p.answer("start")
        result["done"], result["cold"], result["errors"] = cycle(
            service, name, p, count, random.Random(seed), limit_s
        )
        p.start("")
        timer = threading.Timer(60, p.process.kill)  # then `answer` fails
        timer.start()
        answer = p.answer("end")
        result["rounds"], result["wrong"] = answer["rounds"], answer["wrong"]
        p.process.wait(30)
        timer.cancel()
    except subprocess.TimeoutExpired:
        result["hung"] = True
    except (RuntimeError, BrokenPipeError) as error:
        result["hung"] = "-9" in str(error)
        result["verdict"] = f"{error}, exit {p.process.wait()}"
    p.process.kill()
    service.call("remove name=" + name)
    return result


def steady(kind):
    """The program without Billow: whether it gives the same bits again."""
    p = Program([sys.executable, os.path.join(HERE, "kinds.py"), kind])
    p.answer("start")
    time.sleep(1)
    p.start("")
    answer = p.answer("end")
    p.process.wait(30)
    return answer


def part_programs():
    setting = os.environ.get
    names = setting("BILLOW_GPU_TEST_KINDS", ",".join(KINDS)).split(",")
    count = -(-int(setting("BILLOW_GPU_TEST_CYCLES", "1000")) // len(names))
    limit_s = float(setting("BILLOW_GPU_TEST_LIMIT", "60"))
    workers = int(setting("BILLOW_GPU_TEST_WORKERS", "4"))
    service = MemoryService(16 * GIB)
    service.wait_arena(16 * GIB)
    results, queue, lock = [], list(enumerate(names)), threading.Lock()

    def work():
        while True:
            with lock:
                if not queue:
                    return
                seed, kind = queue.pop(0)
            begin = time.monotonic()
            r = one(service, kind, count, seed, limit_s)
            tally = {e: r["errors"].count(e) for e in set(r["errors"])}
            if r["wrong"] != "0":
                alone = steady(kind)
                tally["without Billow"] = f"{alone['rounds']} rounds, {alone['wrong']} wrong"
                r["repeats"] = alone["wrong"] == "0"
            with lock:
                results.append(r)
                print(
                    (
                        f"{kind}: {r['done']} cycles ({r['cold']} cold) in"
                        f" {time.monotonic() - begin:.0f} s, {r['rounds']} rounds,"
                        f" {r['wrong']} wrong{', HUNG' if r['hung'] else ''} {r['verdict']} {tally}"
                    ),
                    flush=True,
                )

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    ran = [r for r in results if r["done"]]
    # What differs from run to run by itself proves nothing.
    judged = [r for r in results if r.get("repeats", True)]
    wrong = sum(int(r["wrong"]) for r in judged if r["wrong"].isdigit())
    hung = sum(r["hung"] for r in results)
    failed = [r["kind"] for r in results if r["verdict"] or not r["done"]]
    done, cold = sum(r["done"] for r in results), sum(r["cold"] for r in results)
    Table.add(
        f"{len(ran)} different programs, suspended and resumed at work",
        (
            f"{done} cycles ({cold} cold): {hung} hung, {wrong} results wrong in"
            f" {len(judged)} programs that repeat their bits alone, failed:"
            f" {', '.join(failed) or 'none'}"
        ),
        "1000, none",
        done >= 1000 and not hung and not wrong and not failed,
    )
    service.stop()
