"""An hour of live updates in two tabs: memory of the tabs, of the browser's processes and of the head.

tests/browser/hour.mjs measures; here its lines are printed as they come and judged at the end. The first quarter fills caches, charts,
the list of ended jobs and the window of the log; from then on nothing may grow.
"""
import json
import statistics
import subprocess

# Twelve lines a second as a training prints them: the window of the log and the part of it from
# which the page draws charts are full before the first quarter is over.
TRAINING = """
while true; do
  for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    s=$((s+1))
    echo "step=$s loss=0.$((s*7919%9000+1000)) lr=3e-4 grad=1.$((s%97)) tokens/s=$((41000+s%900)) eta 02:13:07"
  done
  sleep 1
done"""
NEAR = 5  # a sample alone may fall between two loads: the median of so many counts


def points(samples, get):
    """The values at first, after a quarter, after a half and at the end, and the growth per hour
    since the quarter."""
    values = [get(s) for s in samples]
    quarter, half = len(values) // 4, len(values) // 2
    late = samples[quarter:]
    slope = statistics.linear_regression([s["minute"] for s in late], [get(s) for s in late]).slope
    near = lambda at: statistics.median(values[max(0, at - NEAR) : at])
    return values[0], near(quarter), near(half), near(len(values)), slope * 60


def judge_series(judge, samples, what, get, allowed):
    first, quarter, half, end, slope = points(samples, get)
    judge.say(
        what,
        f"{first:.1f} MB at first, {quarter:.1f} after a quarter, {half:.1f} after a half,"
        f" {end:.1f} at the end; {slope:+.1f} MB/h since the quarter",
        f"the end at most {allowed} times the quarter",
        end <= quarter * allowed,
    )


def judge_account(judge, accounts):
    """What objects of the pages take, process by process: what allocators keep free is not in it."""
    first, last = (accounts[0], accounts[-1]) if accounts else ({}, {})
    both = [pid for pid in first if pid in last and pid != "account_minute"]

    def told(account):
        parts = (f"{pid}: {account[pid]['used_mb']:.1f} of {account[pid]['held_mb']:.1f}" for pid in both)
        return ", ".join(parts)

    used = [sum(account[pid]["used_mb"] for pid in both) for account in (first, last)]
    judge.say(
        f"memory that objects of {len(both)} page processes take",
        f"{used[0]:.1f} MB after a quarter ({told(first)} held),"
        f" {used[1]:.1f} MB at the end ({told(last)} held)",
        "at most a tenth more",
        bool(both) and used[1] <= used[0] * 1.1,
    )


def judge_samples(judge, samples, accounts, end):
    quarter = len(samples) // 4
    judge.say("samples in the first quarter", quarter, "at least 10", quarter >= 10)
    judge.say("errors in the console", end["trouble"] or "none", "none", not end["trouble"])
    over = f"over {samples[-1]['minute']:.0f} min, {end['churned']} jobs that ended"
    for what, get, allowed in (
        ("heap of the overview", lambda s: s["overview"]["heap_mb"], 1.1),
        ("heap of a job's page", lambda s: s["job"]["heap_mb"], 1.1),
        ("heap of the worker that both share", lambda s: s["worker_heap_mb"], 1.1),
        ("resident memory of the head", lambda s: s["head_rss_mb"], 1.25),
    ):
        judge_series(judge, samples, f"{what} {over}", get, allowed)
    kept = [name for name in samples[quarter]["rss_mb"] if name in samples[-1]["rss_mb"]]
    for name in kept:
        judge_series(judge, samples, f"resident memory, {name}", lambda s, name=name: s["rss_mb"].get(name, 0), 1.25)
    pages = [name for name in kept if name.startswith("renderer")]
    total = lambda s: sum(s["rss_mb"].get(name, 0) for name in pages)
    judge_series(judge, samples, f"resident memory of all {len(pages)} page processes", total, 1.1)
    judge_account(judge, accounts)


def judge_hour(judge, options, Rig, browser):
    rig = Rig(sim="8xH100")
    try:
        jobs = []
        for n in range(6):
            resources = {"gpus": 1, "share": {"milli": 1000}}
            spec = rig.spec("sh", "-c", TRAINING, name=f"train-{n}", resources=resources)
            jobs.append(rig.api("POST", "/v1/jobs", spec).json["id"])
        for job in jobs:
            rig.wait_for(job, "running")
        call = browser(
            rig,
            "hour.mjs",
            BENCH_JOB=str(jobs[0]),
            BENCH_HEAD=str(rig.head_pid()),
            BENCH_MINUTES=str(options.minutes),
        )
        watcher = subprocess.Popen(call.pop("args"), **call)
        rig.started.append(watcher)
        lines = []
        for line in watcher.stdout:
            lines.append(json.loads(line))
            print("       " + line.strip(), flush=True)
        assert watcher.wait() == 0, "the browser ended early"
        *measured, end = lines
        accounts = [s for s in measured if "account_minute" in s]
        samples = [s for s in measured if "minute" in s]
        judge_samples(judge, samples, accounts, end)
        drawn = {name: samples[-1][name]["drawn"] for name in ("overview", "job")}
        judge.say(
            "updates drawn",
            f"{drawn['overview']:,} on the overview, {drawn['job']:,} on the job's page",
            "one every two seconds at least",
            min(drawn.values()) >= options.minutes * 30,
        )
    finally:
        rig.cli("down", "--stop-jobs", timeout=120)
        rig.close()
