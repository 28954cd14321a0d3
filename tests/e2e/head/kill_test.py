"""kill -9 of head, agent, or both at random moments while fifty jobs run, a hundred times.

What must hold, whatever the moment: no job lost, none run twice, no byte of output missing, every exit code right. Each job keeps its
own record outside of Billow's reach: one line per start, and a copy of all it wrote.

BILLOW_KILL_SEED, BILLOW_KILLS and BILLOW_KILL_JOBS choose another run.
"""
import http.client
import os
import random
import socket
import threading
import time
import unittest

from rig import Rig, poll, sse_events, stream_bytes

JOB = r"""
# job.sh DIR LINES PAUSE CODE SIGNAL WIDTH
echo "start $BILLOW_ATTEMPT" >> "$1/starts"
pad=$(printf '%*s' "$6" '' | tr ' ' 'x')
i=0
while [ "$i" -lt "$2" ]; do
  echo "out $i $pad"; echo "out $i $pad" >> "$1/out"
  echo "err $i $pad" >&2; echo "err $i $pad" >> "$1/err"
  i=$((i + 1))
  sleep "$3"
done
echo done >> "$1/ends"
[ "$5" = 0 ] || kill -"$5" $$
exit "$4"
"""


class Kill(unittest.TestCase):
    def setUp(self):
        self.seed = int(
            os.environ.get("BILLOW_KILL_SEED") or random.SystemRandom().randrange(1 << 32)
        )
        self.kills_wanted = int(os.environ.get("BILLOW_KILLS", "100"))
        self.alive_wanted = int(os.environ.get("BILLOW_KILL_JOBS", "50"))
        print(f"seed: {self.seed} (BILLOW_KILL_SEED chooses it)", flush=True)
        self.random = random.Random(self.seed)
        self.rig = Rig()
        self.job_script = self.rig.script(JOB, "job.sh")
        self.jobs = {}  # number -> (folder, expected shell code)
        self.made = 0
        self.enough = threading.Event()
        self.trouble = []

    def tearDown(self):
        self.enough.set()
        self.rig.close()

    # ---- jobs
    def api(self, *args, **options):
        """An answer, or None while there is no head to give one."""
        try:
            return self.rig.api(*args, timeout=10, **options)
        except (OSError, socket.timeout, http.client.HTTPException):
            return None

    def submit(self, chance):
        """One job, exactly once: the key makes it safe to ask until there is an answer."""
        self.made += 1
        key = f"kill-{self.made}"
        folder = self.rig.file(key)
        os.mkdir(folder)
        lines = chance.randrange(0, 7)
        pause = round(chance.uniform(0, 3) / max(lines, 1), 3)
        number = chance.choice([0, 0, 9, 15, 6]) if chance.random() < 0.5 else 0
        code = 0 if number else chance.choice([0, 0, 1, 3, 77, 255])
        width = chance.choice([1, 40, 3000])
        resources = (
            {"gpus": 1, "share": {"milli": 50, "mem_mib": 0}} if chance.random() < 0.3 else {}
        )
        body = self.rig.spec(
            self.job_script, folder, lines, pause, code, number, width, resources=resources
        )
        body["env"]["PATH"] = "/usr/bin:/bin"
        deadline = time.monotonic() + 60
        while True:
            self.assertLess(time.monotonic(), deadline, "a submission without an answer")
            answer = self.api("POST", "/v1/jobs", body, headers={"Idempotency-Key": key})
            if answer and answer.status == 201:
                break
            if answer and answer.status not in (503,):
                raise AssertionError(f"submit: {answer!r}")
            time.sleep(0.02)
        job = answer.json["id"]
        self.assertNotIn(job, self.jobs, "one number for two jobs")
        self.jobs[job] = (folder, 128 + number if number else code)

    def keep_busy(self):
        """Fifty jobs under way, all the time."""
        chance = random.Random(self.seed + 1)
        try:
            while not self.enough.is_set():
                status = self.api("GET", "/v1/status")
                if status and status.status == 200:
                    counts = status.json["jobs"]
                    for _ in range(self.alive_wanted - sum(counts.values())):
                        self.submit(chance)
                time.sleep(0.05)
        except BaseException as error:  # noqa: the test's thread reports it
            self.trouble.append(error)

    # ---- kills
    def kill_something(self):
        target = self.random.choice(["head", "agent", "both"])
        if target in ("head", "both"):
            self.rig.kill(self.rig.head_pid())
        if target in ("agent", "both"):
            before = self.rig.agent_pid()
            self.rig.kill(before)
        if target in ("head", "both"):
            self.rig.up()
        else:
            # Its head has to notice by itself.
            poll(
                lambda: self.rig.agent_pid() != before
                and os.path.exists(f"/proc/{self.rig.agent_pid()}"),
                "a new agent",
            )
        return target

    def running(self):
        answer = self.api("GET", "/v1/status")
        return answer.json["jobs"]["running"] if answer and answer.status == 200 else None

    def test_a_hundred_kills_lose_nothing(self):
        begun = time.monotonic()
        busy = threading.Thread(target=self.keep_busy)
        busy.start()
        seen = []
        kills = {"head": 0, "agent": 0, "both": 0}
        try:
            for _ in range(self.kills_wanted):
                time.sleep(self.random.uniform(0, 0.25))  # the random moment
                seen.append(self.running())
                kills[self.kill_something()] += 1
                self.assertFalse(self.trouble)
        finally:
            self.enough.set()
            busy.join()
        self.assertFalse(self.trouble)
        killed_after = time.monotonic() - begun
        self.check_everything()
        alive = [n for n in seen if n is not None]
        print(
            (
                f"{sum(kills.values())} kills {kills} in {killed_after:.0f} s,"
                f" {len(self.jobs)} jobs, on average {sum(alive) / max(len(alive), 1):.0f} running"
                f" at a kill; all checked after {time.monotonic() - begun:.0f} s"
            ),
            flush=True,
        )

    def check_everything(self):
        wrong = []
        for job, (folder, code) in sorted(self.jobs.items()):
            document = self.wait_for_end(job)
            problems = []
            starts = self.lines(folder, "starts")
            if len(starts) != 1:
                problems.append(f"started {len(starts)} times")
            if self.lines(folder, "ends") != ["done"]:
                problems.append("did not reach its end")
            if document["exit_code"] != code or document["state"] != (
                "failed" if code else "succeeded"
            ):
                problems.append(
                    f"{document['state']} with {document['exit_code']}, not {code}:"
                    f" {document['exit']}"
                )
            body = self.rig.api("GET", f"/v1/jobs/{job}/logs?format=sse").body
            problems += [data for event, _, data in sse_events(body) if event in ("error", "gap")]
            for stream in ("out", "err"):
                want, got = self.bytes(folder, stream), stream_bytes(body, stream)
                if want != got:
                    problems.append(f"{stream}: {len(got)} bytes of log, {len(want)} written")
            if problems:
                wrong.append(f"job {job}: " + "; ".join(problems))
        self.assertEqual(wrong, [], "\n".join(wrong) + f"\n{self.rig.read('agent.log')[-3000:]}")
        # The same by the commands a person uses, for some of them.
        for job in self.random.sample(sorted(self.jobs), min(25, len(self.jobs))):
            folder, code = self.jobs[job]
            self.assertEqual(self.rig.cli("wait", "-q", job).code, code)
            log = self.rig.ok("logs", job).out
            for stream in ("out", "err"):
                tagged = b"".join(
                    line
                    for line in log.splitlines(keepends=True)
                    if line.startswith(stream.encode())
                )
                self.assertEqual(tagged, self.bytes(folder, stream))

    def wait_for_end(self, job):
        document = self.rig.api("GET", f"/v1/jobs/{job}/wait?timeout_s=30").json
        self.assertTrue(document.get("final"), f"job {job} does not end: {document}")
        return document

    def bytes(self, folder, name):
        try:
            with open(os.path.join(folder, name), "rb") as f:
                return f.read()
        except FileNotFoundError:
            return b""

    def lines(self, folder, name):
        return self.bytes(folder, name).decode().splitlines()
