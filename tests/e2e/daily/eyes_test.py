"""What people and machines see: the history, health, the live stream, /metrics by a real
Prometheus."""
import base64
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

import replica
from rig import BILLOW, SOURCE, Rig, poll, sse_events

BUSY = "while true; do :; done"
# What the eight panels of the dashboard that NVIDIA publishes for dcgm-exporter ask for.
NVIDIA_PANELS = {
    "GPU Temperature": "DCGM_FI_DEV_GPU_TEMP",
    "GPU Avg. Temp": "avg(DCGM_FI_DEV_GPU_TEMP)",
    "GPU Power Usage": "DCGM_FI_DEV_POWER_USAGE",
    "GPU Power Total": "sum(DCGM_FI_DEV_POWER_USAGE)",
    "GPU SM Clocks": "DCGM_FI_DEV_SM_CLOCK * 1000000",
    "GPU Utilization": "DCGM_FI_DEV_GPU_UTIL",
    "GPU Framebuffer Mem Used": "DCGM_FI_DEV_FB_USED",
    "Tensor Core Utilization": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
}


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


class OneHead(unittest.TestCase):
    """Cases that share one head with two simulated GPUs."""

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="2xH100")

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def get(self, path):
        answer = self.rig.api("GET", path)
        self.assertEqual(answer.status, 200, answer)
        return answer.json


class History(OneHead):
    def test_a_jobs_use_is_kept_over_its_end_and_a_restart(self):
        rig = self.rig
        job = rig.submit("--gpus", 1, "--", "sh", "-c", BUSY)
        rig.wait_for(job, "running")
        poll(
            lambda: any(
                (v or 0) > 20 for v in self.get(f"/v1/jobs/{job}/history")["series"]["gpu_util_pct"]
            ),
            "a busy GPU in the job's series",
            60,
        )
        poll(
            lambda: any(
                (v or 0) > 0 for v in self.get(f"/v1/jobs/{job}/history")["series"]["cpu_cores"]
            ),
            "CPU in the job's series",
            60,
        )
        rig.ok("stop", "--force", "--wait", job)
        # Saved when the job is gone from the state; then also a new head knows it.
        poll(
            lambda: self.get(f"/v1/jobs/{job}/history")["points"] > 1,
            "the series of an ended job",
            30,
        )
        rig.ok("down")
        rig.up()
        kept = self.get(f"/v1/jobs/{job}/history")
        self.assertTrue(any((v or 0) > 20 for v in kept["series"]["gpu_util_pct"]), kept)

    def test_gpus_and_the_fleet_have_a_past(self):
        node = self.rig.json("nodes")["nodes"][0]["name"]
        poll(
            lambda: any(
                v is not None
                for v in self.get(f"/v1/nodes/{node}/gpus/1/history?span_s=600")["series"][
                    "power_w"
                ]
            ),
            "a GPU's power",
            40,
        )
        fleet = self.get("/v1/history/fleet?span_s=600&points=10")
        self.assertLessEqual(fleet["points"], 11)
        self.assertIn(2, [v for v in fleet["series"]["gpus"] if v is not None])
        self.assertEqual(self.rig.api("GET", f"/v1/nodes/{node}/gpus/7/history").status, 404)
        for bad in ("span_s=x", "from_ms=5&to_ms=1", "points=0"):
            self.assertEqual(self.rig.api("GET", f"/v1/history/fleet?{bad}").status, 400, bad)


class Health(unittest.TestCase):
    def test_a_bad_gpu_is_drained_with_its_reason_and_undrained_by_a_person(self):
        rig = Rig(sim="2xH100")
        try:

            def gpu(index):
                return rig.json("nodes")["nodes"][0]["gpus"][index]

            node = rig.json("nodes")["nodes"][0]["name"]
            faults = os.path.join(rig.data, "agent/sim/faults")
            poll(lambda: "score" in gpu(0), "a first reading", 30)
            write(faults, "xid 0 31\n")  # a program's own fault
            write(faults, "xid 0 31\nlink 1 3\n")
            poll(lambda: gpu(1)["score"] < 100, "a few link errors cost something", 30)
            self.assertFalse(gpu(1)["unhealthy"])
            self.assertEqual(gpu(0)["score"], 100)
            write(faults, "xid 0 31\nlink 1 3\necc 0 2\n")
            poll(lambda: "uncorrected memory error" in gpu(0)["unhealthy"], "a drained GPU", 30)
            one = rig.submit("--gpus", 1, "--", "true")
            rig.ok("wait", one)
            self.assertEqual(rig.job(one)["tasks"][0]["gpus"], [1])
            self.assertTrue(
                any(
                    e["kind"] == "gpu_drained"
                    for e in rig.api("GET", "/v1/events?limit=1000").json["events"]
                )
            )
            os.unlink(faults)
            # What was decided stays decided: over a restart, and although the fault is gone.
            rig.ok("down")
            rig.up()
            self.assertIn("uncorrected", gpu(0)["unhealthy"])
            rig.ok("undrain", node, "--gpu", 0)
            self.assertFalse(gpu(0)["unhealthy"])
            both = rig.submit("--gpus", 2, "--", "true")
            rig.ok("wait", both)
            rig.ok("drain", node, "--gpu", 1, "--reason", "a fan rattles")
            self.assertEqual(gpu(1)["unhealthy"], "a fan rattles")
            self.assertNotEqual(rig.cli("drain", node, "--gpu", 9).code, 0)
        finally:
            rig.close()


class OwnLog(unittest.TestCase):
    def test_a_client_that_leaves_is_no_trouble(self):
        rig = Rig(sim="1xH100")
        try:
            job = rig.submit("--", "sleep", 600)
            rig.wait_for(job, "running")
            for command in (("wait", job), ("logs", "-f", job), ("events", "-f")):
                client = rig.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                poll(
                    lambda: any(
                        os.readlink(f"/proc/{client.pid}/fd/{fd}").startswith("socket:")
                        for fd in os.listdir(f"/proc/{client.pid}/fd")
                    ),
                    "its call to be under way",
                )
                rig.ok("ps")  # what was sent before has been taken up
                client.kill()
                client.wait()
            # The head has heard of all of it once it has answered later calls.
            for _ in range(20):
                rig.ok("ps")
            self.assertEqual(
                [
                    line
                    for line in rig.head_log().splitlines()
                    if " error " in line or " warn " in line
                ],
                [],
            )
        finally:
            rig.close()


class Live(unittest.TestCase):
    def test_the_stream_tells_everything_and_then_what_changes(self):
        rig = Rig(sim="2xH100")
        try:
            reader = subprocess.Popen(
                [
                    "curl",
                    "-sN",
                    "--unix-socket",
                    rig.data + "/head.sock",
                    "-H",
                    f"Authorization: Bearer {rig.token()}",
                    "http://x/v1/live",
                ],
                stdout=subprocess.PIPE,
            )
            rig.started.append(reader)
            pieces = []

            def pump():
                buffer = b""
                for chunk in iter(lambda: reader.stdout.read1(65536), b""):
                    buffer += chunk
                    while b"\n\n" in buffer:
                        block, buffer = buffer.split(b"\n\n", 1)
                        pieces.extend(
                            json.loads(data) for _, _, data in sse_events(block + b"\n\n") if data
                        )

            threading.Thread(target=pump, daemon=True).start()
            poll(
                lambda: any("nodes" in p for p in pieces) and any("summary" in p for p in pieces),
                "the beginning",
            )
            job = rig.submit("--gpus", 1, "--name", "seen", "--", "sleep", 100)
            poll(
                lambda: any(
                    r["id"] == job and r["state"] == "running" and r["rate_nano"] > 0
                    for p in pieces
                    for r in p.get("jobs", [])
                ),
                "a running row",
            )
            poll(
                lambda: any(
                    g[8] == [job] and g[2] == 1000 for p in pieces for g in p.get("gpus", [])
                ),
                "who holds the GPU",
            )
            rig.ok("stop", "--force", "--wait", job)
            poll(
                lambda: any(job in p.get("gone", []) for p in pieces)
                and any(d["id"] == job for p in pieces for d in p.get("ended", [])),
                "its end",
            )
            # A reader of another project sees none of it.
            rig.ok("user", "create", "eve")
            token = rig.token_for("eve", scope="read")
            other = rig.submit("--gpus", 1, "--name", "secret", "--", "sleep", 100)
            rig.wait_for(other, "running")
            seen = subprocess.run(
                [
                    "curl",
                    "-sN",
                    "-m",
                    "4",
                    "--unix-socket",
                    rig.data + "/head.sock",
                    "-H",
                    f"Authorization: Bearer {token}",
                    "http://x/v1/live",
                ],
                stdout=subprocess.PIPE,
                check=False,
            ).stdout
            self.assertIn(b"summary", seen)
            self.assertNotIn(b"secret", seen)
            rig.ok("stop", "--force", "--wait", other)
        finally:
            rig.close()

    def test_a_fleet_that_comes_in_pieces_has_all_its_readings(self):
        rig = Rig(sim="2xH100")
        try:
            for n in range(8):  # more GPUs than one piece holds
                rig.start(
                    "agent",
                    "--head",
                    "unix:" + rig.data + "/head.sock",
                    "--token-file",
                    rig.node_token_file(f"node{n}"),
                    "--data",
                    rig.file(f"agent{n}"),
                    "--sim",
                    "64xH100",
                    "--node-name",
                    f"node{n}",
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            poll(
                lambda: rig.api("GET", "/metrics").body.count(b"\nDCGM_FI_DEV_GPU_UTIL{")
                == 8 * 64 + 2,
                "readings of every GPU",
                90,
            )
            seen = subprocess.run(
                [
                    "curl",
                    "-sN",
                    "-m",
                    "5",
                    "--unix-socket",
                    rig.data + "/head.sock",
                    "-H",
                    f"Authorization: Bearer {rig.token()}",
                    "http://x/v1/live",
                ],
                stdout=subprocess.PIPE,
                check=False,
            ).stdout
            nodes, told = set(), set()
            for piece in (
                json.loads(data) for _, _, data in sse_events(seen[: seen.rfind(b"\n\n")]) if data
            ):
                nodes |= {n["id"] for n in piece.get("nodes", [])}
                for reading in piece.get("gpus", []):
                    self.assertIn(reading[0], nodes, "a reading before its node would be lost")
                    told.add((reading[0], reading[1]))
            self.assertEqual((len(nodes), len(told)), (9, 8 * 64 + 2))
        finally:
            rig.close()


class Search(unittest.TestCase):
    def test_logs_are_searched_over_all_elements(self):
        rig = Rig(sim="2xH100")
        try:
            array = rig.submit(
                "--array",
                "0-3",
                "--",
                "sh",
                "-c",
                "echo begin; [ $BILLOW_ARRAY_INDEX = 2 ] && echo Error in 2; echo end",
            )
            rig.ok("wait", array)
            done = rig.cli("logs", array, "--grep", "error", "-i")
            self.assertEqual((done.code, done.text), (0, f"{array}.2: Error in 2\n"))
            self.assertEqual(rig.cli("logs", array, "--grep", "error").code, 1)
            one = rig.submit("--", "sh", "-c", "echo yes; echo no")
            rig.ok("wait", one)
            self.assertEqual(rig.ok("logs", one, "--grep", "yes").text, "yes\n")
            # Request ids go from the caller through the answer into the journal.
            answer = rig.api(
                "POST", "/v1/jobs", rig.spec("true"), headers={"X-Request-Id": "trace-me-7"}
            )
            self.assertEqual(answer.headers["x-request-id"], "trace-me-7")
            self.assertTrue(
                any(
                    e["request_id"] == "trace-me-7"
                    for e in rig.api("GET", "/v1/events?limit=1000").json["events"]
                )
            )
        finally:
            rig.close()

    def test_the_log_is_json_with_request_ids_and_the_journal_covers_secrets(self):
        rig = Rig(sim="1xH100", args=("--log-json", "--verbose"))
        try:
            token = rig.ok("token", "create", "ci", "--scope", "read").text.strip()
            rig.ok("run", "--", "sh", "-c", "exit 0", env={"MY_SETTING": "hunter2-hunter2"})
            rig.ok("webhook", "add", "https://hooks.example.com/T000/pass-word-path")
            self.assertEqual(
                rig.api(
                    "POST", "/v1/jobs/999/stop", {}, headers={"X-Request-Id": "trace-me-8"}
                ).status,
                404,
            )
            events = rig.api("GET", "/v1/events?limit=1000")
            made = [e for e in events.json["events"] if e["kind"] == "token_created"]
            self.assertIn("ci", [e["event"]["token"]["name"] for e in made])
            self.assertTrue(all("hash" not in e["event"]["token"] for e in made), made)
            stored = [
                e["event"]["env"]
                for e in events.json["events"]
                if e["kind"] == "environment_stored"
            ]
            self.assertTrue(any("MY_SETTING" in env for env in stored), "the variable is named")
            self.assertEqual(
                [e["event"]["state"] for e in events.json["events"] if e["kind"] == "job_ended"],
                ["succeeded"],
            )
            lines = [json.loads(line) for line in rig.head_log().splitlines()]
            found = [line for line in lines if line.get("request_id") == "trace-me-8"]
            self.assertEqual([line["status"] for line in found], ["404"], found)
            for secret in (token, "hunter2-hunter2", "pass-word-path"):
                self.assertNotIn(secret, events.body.decode())
                self.assertNotIn(secret, rig.head_log())
        finally:
            rig.close()


@unittest.skipUnless(
    shutil.which("prometheus") and shutil.which("promtool"), "prometheus is not installed"
)
class Pages(OneHead):
    """What pages and monitors build on: compressed files, log lines, one stream for all tabs."""

    def fetch(self, path, **headers):
        answer = self.rig.api("GET", path, headers=headers)
        return answer.headers, answer.body

    def test_a_first_load_is_small_and_is_not_sent_twice(self):
        headers, page = self.fetch("/", **{"Accept-Encoding": "br, gzip"})
        tag = headers["etag"]
        text = gzip.decompress(page) if headers.get("content-encoding") == "gzip" else page
        names = sorted(set(re.findall(rb"/assets/[\w.-]+", text)))
        if not names:
            self.skipTest("the dashboard was not built")
        total = len(page) + len(self.fetch("/v1/routes", **{"Accept-Encoding": "gzip"})[1])
        for name in names:
            headers, body = self.fetch(name.decode(), **{"Accept-Encoding": "br, gzip"})
            self.assertEqual(headers["content-encoding"], "br")
            self.assertIn("immutable", headers["cache-control"])
            total += len(body)
            plain = self.fetch(name.decode())[1]
            packed = self.fetch(name.decode(), **{"Accept-Encoding": "gzip"})[1]
            self.assertEqual(gzip.decompress(packed), plain)
        self.assertLessEqual(total, 100_000, "bytes of a first load on the wire")
        again = self.rig.api("GET", "/", headers={"If-None-Match": tag})
        self.assertEqual((again.status, again.body), (304, b""))

    def test_a_node_serves_its_metrics_however_it_was_started(self):
        for way in ("up", "join"):
            with self.subTest(way):
                self.serves_metrics(way)

    def serves_metrics(self, way):
        options = ("--tls",) if way == "join" else ("--metrics", "127.0.0.1:0")
        rig = Rig(sim="2xH100", args=options)
        try:
            log = os.path.join(rig.data, "agent.log")
            if way == "join":
                log = rig.file("joined.log")
                with open(log, "w", encoding="utf-8") as out:
                    # fmt: off
                    rig.start(
                        "join", rig.json("status")["addresses"][0],
                        "--token", rig.ok("token", "create", "--node").text.strip(),
                        "--node-name", "joined", "--data", rig.file("joined"), "--sim", "2xH100",
                        "--metrics", "127.0.0.1:0", stdout=out, stderr=out,
                    )
                    # fmt: on

            def address():
                for path in (log, os.path.join(rig.data, "head.log")):
                    if os.path.exists(path):
                        with open(path, encoding="utf-8", errors="replace") as f:
                            found = re.search(r"metrics at (http://[\d.:]+/metrics)", f.read())
                        if found:
                            return found.group(1)
                return None

            url = poll(address, "where the node serves its metrics", 60)

            def scraped():
                with urllib.request.urlopen(url, timeout=10) as answer:
                    return answer.read().count(b"\nDCGM_FI_DEV_GPU_UTIL{")

            poll(lambda: scraped() == 2, "both cards of the node", 30)
        finally:
            rig.close()

    def test_metrics_are_compressed_for_those_who_ask(self):
        headers, packed = self.fetch("/metrics", **{"Accept-Encoding": "gzip"})
        self.assertEqual(headers["content-encoding"], "gzip")
        self.assertGreater(len(gzip.decompress(packed)), 3 * len(packed))
        self.assertNotIn("content-encoding", self.fetch("/metrics")[0])

    def test_the_default_set_of_dcgm_exporter_is_whole_and_a_lost_card_has_none(self):
        rig = self.rig
        wanted = """GPU_UTIL MEM_COPY_UTIL ENC_UTIL DEC_UTIL SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP
            POWER_USAGE TOTAL_ENERGY_CONSUMPTION PCIE_REPLAY_COUNTER XID_ERRORS FB_FREE FB_USED
            FB_RESERVED NVLINK_BANDWIDTH_TOTAL UNCORRECTABLE_REMAPPED_ROWS
            CORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE"""
        names = ["DCGM_FI_DEV_" + name for name in wanted.split()]
        names += [
            "DCGM_FI_PROF_" + name
            for name in ("GR_ENGINE_ACTIVE", "PIPE_TENSOR_ACTIVE", "DRAM_ACTIVE")
        ]

        def series(gpu):
            text = self.fetch("/metrics")[1].decode()
            found = re.findall(r'^(DCGM_\w+)\{gpu="%d",(.*)\} ' % gpu, text, re.M)
            self.assertTrue(all("pci_bus_id=" in labels for _, labels in found), found)
            return {name for name, _ in found}

        # Activity is measured between two samples.
        poll(lambda: set(names) <= series(0), "all of them", 60)
        write(os.path.join(rig.data, "agent/sim/faults"), "lost 1\n")
        measured = {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_FREE"}
        # The agent says hello again first, and its readings come after that.
        poll(
            lambda: measured <= series(0) and not measured & series(1),
            "figures of the other card alone",
            60,
        )
        # A card without a reading yet has no such member; one that does not answer has null.
        poll(
            lambda: self.get("/v1/nodes")["nodes"][0]["gpus"][1].get("power_w", "none") is None,
            "a lost card whose power is not known",
            30,
        )
        gpus = self.get("/v1/status")["gpus"]
        self.assertEqual((gpus["free"], gpus["lost"]), (1, 1), gpus)
        write(os.path.join(rig.data, "agent/sim/faults"), "")

    def test_lines_of_a_log_by_number_and_by_text(self):
        rig = self.rig
        job = rig.submit(
            "--",
            "sh",
            "-c",
            "seq 1 5000 | sed 's/$/ of the log/'; printf '\\r 15%%|###'; sleep 300",
        )
        rig.wait_for(job, "running")
        path = f"/v1/jobs/{job}/log"
        poll(
            lambda: (self.get(f"{path}/range?tail=1")["lines"] or [{}])[-1].get("text", "")
            == "\r 15%|###",
            "a progress bar that has no newline yet",
            60,
        )
        part = self.get(f"{path}/range?from_line=4000&limit=2")
        self.assertEqual([line["line"] for line in part["lines"]], [4000, 4001])
        self.assertEqual(part["lines"][0]["text"], "4000 of the log")
        self.assertEqual(
            self.get(f"{path}/range?from_byte={part['next_byte']}&limit=1")["lines"][0]["text"],
            "4002 of the log",
        )
        found = self.get(f"{path}/search?q=4321+of")
        self.assertEqual([m["line"] for m in found["matches"]], [4321])
        self.assertTrue(found["end"])
        found = self.get(f"{path}/search?q=%5E49%5Cd%5Cd+&regex=1")
        self.assertEqual(len(found["matches"]), 100)
        self.assertEqual(rig.api("GET", f"{path}/search?q=").status, 400)
        self.assertEqual(rig.api("GET", f"{path}/search?q=(&regex=1").status, 400)
        rig.ok("stop", "--force", "--wait", job)
        # Afterwards the head's copy is read, with the same answers.
        kept = self.get(f"{path}/range?from_line=4000&limit=2")
        self.assertEqual(kept["lines"], part["lines"])
        self.assertTrue(kept["final"])
        self.assertEqual(
            [m["line"] for m in self.get(f"{path}/search?q=4321+of")["matches"]], [4321]
        )

    def test_one_stream_follows_several_logs(self):
        rig = self.rig
        jobs = [
            rig.submit("--", "sh", "-c", f"echo hello {n}; sleep {300 if n else 0}") for n in (0, 1)
        ]
        reader = subprocess.Popen(
            [
                "curl",
                "-sN",
                "--max-time",
                "90",
                "--unix-socket",
                rig.data + "/head.sock",
                "-H",
                f"Authorization: Bearer {rig.token()}",
                f"http://x/v1/live?job={jobs[0]}",
            ],
            stdout=subprocess.PIPE,
        )
        rig.started.append(reader)
        texts, buffer = {}, b""
        wanted = {str(jobs[0]): "hello 0\nsucceeded", str(jobs[1]): "hello 1\n"}
        for chunk in iter(lambda: reader.stdout.read1(65536), b""):
            *blocks, buffer = (buffer + chunk).split(b"\n\n")
            for event, _, data in sse_events(b"\n\n".join(blocks)):
                data = json.loads(data)
                if event == "stream":
                    logs = {"logs": [{"job": str(job)} for job in jobs]}
                    answer = rig.api("POST", f"/v1/live/{data['stream']}/subscriptions", logs)
                    self.assertEqual(answer.status, 200, answer)
                if event != "log":
                    continue
                job = data["job"]
                for record in data.get("records", []):
                    texts[job] = texts.get(job, "") + base64.b64decode(record[3]).decode()
                if data.get("end"):
                    texts[job] = texts.get(job, "") + data["state"]
            if texts == wanted:
                break
        self.assertEqual(texts, wanted)
        reader.terminate()
        rig.ok("stop", "--force", "--wait", jobs[1])


class Prometheus(unittest.TestCase):
    def start_prometheus(self, rig, *options):
        """Prometheus with prometheus.yml of the rig, and a function that asks it."""
        probe = __import__("socket").socket()
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
        probe.close()
        prometheus = subprocess.Popen(
            [
                "prometheus",
                "--config.file",
                rig.file("prometheus.yml"),
                "--storage.tsdb.path",
                rig.file("tsdb"),
                "--web.listen-address",
                f"127.0.0.1:{free}",
                *options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        rig.started.append(prometheus)

        def ask(path, *parameters):
            done = subprocess.run(
                [
                    "curl",
                    "-sf",
                    *(part for p in parameters for part in ("--data-urlencode", p)),
                    f"http://127.0.0.1:{free}/api/v1/{path}",
                ],
                capture_output=True,
                check=False,
            )
            return json.loads(done.stdout)["data"] if done.returncode == 0 and done.stdout else {}

        return prometheus, ask

    def test_rules_hold(self):
        folder = os.path.join(SOURCE, "packaging/prometheus")
        for args in (["check", "rules", "billow.rules.yml"], ["test", "rules", "billow.test.yml"]):
            done = subprocess.run(
                ["promtool", *args], cwd=folder, capture_output=True, text=True, check=False
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_head_tells_what_gateways_say_of_endpoints(self):
        rig = Rig(sim="1xH100")
        try:
            rig.ok(
                "deploy",
                "files",
                "--gpus",
                "0.5",
                "--min",
                "1",
                "--",
                "sh",
                "-c",
                "exec python3 -m http.server --bind 127.0.0.1 $PORT",
                timeout=120,
            )
            url = rig.json("endpoints")["endpoints"][0]["url"]
            for _ in range(3):
                with urllib.request.urlopen(url, timeout=60) as answer:
                    self.assertEqual(answer.status, 200)

            def told():
                lines = rig.api("GET", "/metrics").body.decode().splitlines()
                return {
                    line.split("{")[0]: float(line.rsplit(" ", 1)[1])
                    for line in lines
                    if line.startswith("billow_endpoint_") and 'endpoint="files"' in line
                }

            poll(
                lambda: told().get("billow_endpoint_requests_total", 0) >= 3,
                "the requests, counted",
                30,
            )
            figures = told()
            self.assertEqual(figures["billow_endpoint_replicas_ready"], 1)
            self.assertEqual(figures["billow_endpoint_held"], 0)
            self.assertGreater(figures["billow_endpoint_first_byte_seconds_p99"], 0)
            self.assertGreaterEqual(figures["billow_endpoint_cold_starts_total"], 1)
            checked = subprocess.run(
                ["promtool", "check", "metrics"],
                input=rig.api("GET", "/metrics").body,
                capture_output=True,
                check=False,
            )
            self.assertEqual(
                [
                    line
                    for line in (checked.stdout + checked.stderr).decode().splitlines()
                    if "billow_endpoint" in line
                ],
                [],
            )
        finally:
            rig.close()

    def test_exemplars_lead_to_traces_jobs_and_requests(self):
        rig = Rig(sim="1xH100")
        try:
            # fmt: off
            rig.ok(
                "deploy", "files", "--gpus", 0, "--min", 1, "--access", "open", "--",
                "sh", "-c", "exec python3 -m http.server --bind 127.0.0.1 $PORT", timeout=120,
            )
            # fmt: on
            url = rig.json("endpoints")["endpoints"][0]["url"]
            traces = {flag: os.urandom(16).hex() for flag in ("01", "00")}
            for flag, trace in traces.items():
                traced = {"traceparent": f"00-{trace}-{os.urandom(8).hex()}-{flag}"}
                with urllib.request.urlopen(
                    urllib.request.Request(url, headers=traced), timeout=60
                ) as answer:
                    self.assertEqual(answer.status, 200)
            job = rig.submit("--", "true")
            rig.wait_for(job, "succeeded")
            token = rig.api("POST", "/v1/tokens", {"name": "prom", "scope": "read"}).json["token"]
            write(rig.file("token"), token)
            host, port = rig.address()
            target = {
                "job_name": "billow",
                "authorization": {"credentials_file": rig.file("token")},
                "static_configs": [{"targets": [f"{host}:{port}"]}],
            }
            config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [target]}
            write(rig.file("prometheus.yml"), json.dumps(config))
            _, ask = self.start_prometheus(rig, "--enable-feature=exemplar-storage")

            def named(family):
                window = (f"start={time.time() - 600}", f"end={time.time() + 60}")
                return {
                    tuple(e["labels"].items())
                    for series in ask("query_exemplars", f"query={family}_bucket", *window) or []
                    for e in series["exemplars"]
                }

            poll(
                lambda: (("trace_id", traces["01"]),)
                in named("billow_endpoint_first_byte_seconds"),
                "the trace of a request",
                60,
            )
            self.assertNotIn(
                (("trace_id", traces["00"]),),
                named("billow_endpoint_first_byte_seconds"),
                "a trace that nobody records leads nowhere",
            )
            poll(lambda: (("job", str(job)),) in named("billow_job_wait_seconds"), "the job", 60)

            def scrape(who, accept="application/openmetrics-text;version=1.0.0"):
                return rig.api("GET", "/metrics", token=who, headers={"Accept": accept})

            answer = scrape(token)
            self.assertIn("application/openmetrics-text", answer.headers["content-type"])
            text = answer.body.decode()
            self.assertTrue(text.endswith("\n# EOF\n"))
            self.assertIn("# TYPE billow_jobs_ended counter\nbillow_jobs_ended_total{", text)
            self.assertIn(f'# {{job="{job}"}} ', text)
            request = re.search(r'# \{request_id="([^"]+)"\}', text).group(1)
            events = rig.api("GET", "/v1/events?limit=1000").json["events"]
            self.assertIn(request, [e["request_id"] for e in events], "the journal has it")
            # Others get no exemplars that name jobs and requests of all projects, and whoever
            # does not ask for OpenMetrics gets none at all.
            rig.ok("user", "create", "eve")
            self.assertNotIn("# {", scrape(rig.token_for("eve", scope="read")).body.decode())
            plain = scrape(token, "*/*")
            self.assertIn("text/plain", plain.headers["content-type"])
            self.assertNotIn("# {", plain.body.decode())
        finally:
            rig.close()

    def test_native_histograms_of_latencies(self):
        rig = Rig(sim="1xH100")
        try:
            serve = rig.script(
                replica.program("def answer(self):\n    time.sleep(0.3)\n    self.say(b'')\n")
            )
            rig.ok("deploy", "slow", "--min", 1, "--access", "open", "--", "python3", serve,
                   timeout=120)  # fmt: skip
            url = rig.json("endpoints")["endpoints"][0]["url"]
            for _ in range(10):
                with urllib.request.urlopen(url, timeout=60) as answer:
                    self.assertEqual(answer.status, 200)
            token = rig.api("POST", "/v1/tokens", {"name": "prom", "scope": "read"}).json["token"]
            write(rig.file("token"), token)
            host, port = rig.address()
            target = {
                "job_name": "billow",
                "authorization": {"credentials_file": rig.file("token")},
                "static_configs": [{"targets": [f"{host}:{port}"]}],
            }
            config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [target]}
            write(rig.file("prometheus.yml"), json.dumps(config))
            _, ask = self.start_prometheus(rig, "--enable-feature=native-histograms")

            def value(query):
                result = ask("query", f"query={query}").get("result", [])
                return result[0] if result else {}

            family = "billow_endpoint_first_byte_seconds"
            native = poll(lambda: value(family).get("histogram"), "a native histogram", 60)[1]
            poll(
                lambda: value(family)["histogram"][1]["count"] == "10", "all requests in it", 60
            )
            native = value(family)["histogram"][1]
            self.assertGreaterEqual(float(native["sum"]), 3)
            for _, lower, upper, _ in native["buckets"]:
                self.assertAlmostEqual(float(upper) / float(lower), 2 ** (1 / 8), places=6)
            median = float(value(f"histogram_quantile(0.5, {family})")["value"][1])
            self.assertGreaterEqual(median, 0.27)
            self.assertLess(median, 0.5, "the text format knows only that it is below 0.5")
            self.assertEqual(value(family + "_bucket"), {}, "these are not the coarse buckets")
            # A scrape has one format, so everything else is in it too.
            text = rig.api("GET", "/metrics", token=token).body.decode()
            families = {
                line.split()[2]
                for line in text.splitlines()
                if line.startswith("# TYPE ") and not line.endswith(" histogram")
            }
            self.assertGreater(len(families), 50)
            poll(
                lambda: families <= set(ask("label/__name__/values")),
                "every other metric",
                30,
            )
            labelled = 'billow_endpoint_requests_total{endpoint="slow",project="default"}'
            self.assertEqual(value(labelled)["value"][1], "10")
            answer = rig.api("GET", "/metrics", token=token, headers={
                "Accept": "application/openmetrics-text,application/vnd.google.protobuf;"
                          "encoding=delimited;q=0.5"})  # fmt: skip
            self.assertIn("openmetrics-text", answer.headers["content-type"])
        finally:
            rig.close()

    def test_the_grafana_dashboard_is_well_formed(self):
        dashboard = json.load(
            open(os.path.join(SOURCE, "packaging/grafana/billow.json"), encoding="utf-8")
        )
        panels = dashboard["panels"]
        self.assertEqual(len({p["id"] for p in panels}), len(panels))
        taken = set()
        for p in panels:
            at = p["gridPos"]
            cells = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            self.assertFalse(cells & taken, f"{p['title']} lies over another panel")
            self.assertLessEqual(at["x"] + at["w"], 24, p["title"])
            taken |= cells
        # One choice of node, project and endpoint for all panels, and a way back from each of them.
        names = [v["name"] for v in dashboard["templating"]["list"]]
        self.assertEqual(names, ["datasource", "node", "project", "endpoint", "billow"])
        choices = {"Hostname": "$node", "project": "$project", "endpoint": "$endpoint"}
        for p in panels:
            asked = " ".join(t["expr"] for t in p["targets"])
            for label in re.findall(r"by \((Hostname|project|endpoint)\)", asked):
                self.assertIn(f'{label}=~"{choices[label]}"', asked, p["title"])
                (link,) = p["fieldConfig"]["defaults"]["links"]
                self.assertIn("${billow}/#/", link["url"], p["title"])
                self.assertIn("${__field.labels." + label + "}", link["url"], p["title"])
        for wanted in (
            "billow_endpoint_held",
            "billow_endpoint_in_flight",
            "billow_endpoint_first_byte_seconds_p99",
            "billow_endpoint_cold_starts_total",
            "billow_endpoint_wakes_total",
        ):
            self.assertTrue(any(wanted in t["expr"] for p in panels for t in p["targets"]), wanted)
        # Every question is PromQL: promtool reads them as rules.
        rules = {
            "groups": [
                {
                    "name": "grafana",
                    "rules": [
                        {"record": f"panel:{p['id']}:{t['refId'].lower()}", "expr": t["expr"]}
                        for p in panels
                        for t in p["targets"]
                    ],
                }
            ]
        }
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as f:
            json.dump(rules, f)
            f.flush()
            checked = subprocess.run(
                ["promtool", "check", "rules", f.name], capture_output=True, check=False
            )
        self.assertEqual(checked.returncode, 0, checked)

    def test_a_real_prometheus_scrapes_the_head_and_an_agent(self):
        rig = Rig(sim="4xH100")
        try:
            job = rig.submit("--gpus", 1, "--", "sleep", 300)
            rig.wait_for(job, "running")
            poll(lambda: "util_pct" in rig.json("nodes")["nodes"][0]["gpus"][0], "readings", 30)
            text = rig.api("GET", "/metrics").body
            checked = subprocess.run(
                ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
            )
            complaints = [
                line
                for line in (checked.stdout + checked.stderr).decode().splitlines()
                if line and "DCGM_" not in line and "camelCase" not in line
            ]
            self.assertEqual(
                complaints, [], "promtool finds nothing but the names and labels of dcgm-exporter"
            )
            token = rig.api("POST", "/v1/tokens", {"name": "prom", "scope": "read"}).json["token"]
            write(rig.file("token"), token)
            host, port = rig.address()
            agent = rig.start(
                "agent",
                "--head",
                f"http://{host}:{port}",
                "--token-file",
                rig.node_token_file("second"),
                "--data",
                rig.file("n2"),
                "--sim",
                "2xL4",
                "--node-name",
                "second",
                "--metrics",
                "127.0.0.1:0",
                stderr=subprocess.PIPE,
            )
            address = None
            deadline = time.monotonic() + 20
            while address is None and time.monotonic() < deadline:
                found = re.search(rb"metrics at http://([\d.:]+)/", agent.stderr.readline())
                address = found and found.group(1).decode()
            self.assertTrue(address, "the agent says where its metrics are")
            threading.Thread(target=agent.stderr.read, daemon=True).start()
            write(
                rig.file("prometheus.yml"),
                json.dumps(
                    {
                        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                        "rule_files": [
                            os.path.join(SOURCE, "packaging/prometheus/billow.rules.yml")
                        ],
                        "scrape_configs": [
                            {
                                "job_name": "billow",
                                "authorization": {"credentials_file": rig.file("token")},
                                "static_configs": [{"targets": [f"{host}:{port}"]}],
                            },
                            {"job_name": "agent", "static_configs": [{"targets": [address]}]},
                        ],
                    }
                ),
            )
            prometheus, ask = self.start_prometheus(rig)

            def query(expression):
                return ask("query", f"query={expression}").get("result", [])

            rig.ok(
                "deploy",
                "hello",
                "--max",
                1,
                "--",
                "sh",
                "-c",
                "exec python3 -m http.server $PORT",
                timeout=90,
            )
            poll(lambda: len(query("up == 1")) == 2, "both targets up", 60)
            poll(
                lambda: query('billow_endpoint_replicas_ready{endpoint="hello"}'),
                "what the gateway says of an endpoint",
                60,
            )
            node = rig.json("nodes")["nodes"][0]["name"]
            poll(
                lambda: len(query(f'DCGM_FI_DEV_GPU_UTIL{{job="billow",Hostname="{node}"}}')) == 4,
                "four GPUs by dcgm-exporter's name",
                30,
            )
            poll(
                lambda: len(query('DCGM_FI_DEV_GPU_TEMP{job="agent",Hostname="second"}')) == 2,
                "the agent's own two",
                30,
            )
            poll(
                lambda: any(
                    float(r["value"][1]) >= 1 for r in query('billow_jobs{state="running"}')
                ),
                "a running job",
                30,
            )
            poll(
                lambda: any(float(r["value"][1]) > 0 for r in query("billow:spend_usd_per_hour")),
                "a recorded rule over it",
                40,
            )
            for panel, expression in NVIDIA_PANELS.items():
                asked = re.sub(r"(DCGM_\w+)", r'\1{instance=~".+",gpu=~"(0|1|2|3)"}', expression)
                got = poll(lambda asked=asked: query(asked), f"data for NVIDIA's panel {panel}", 30)
                if "(" not in expression:
                    for job, cards in (("billow", 4), ("agent", 2)):
                        seen = [r for r in got if r["metric"]["job"] == job]
                        # Profiling figures exist from Hopper on: an L4 has none.
                        wanted = cards if job == "billow" or "_PROF_" not in expression else 0
                        self.assertGreaterEqual(len(seen), wanted, f"{panel}: {got}")
            rules = ask("rules")
            self.assertEqual(
                [
                    r["name"]
                    for g in rules["groups"]
                    for r in g["rules"]
                    if r["health"] == "err"
                ],
                [],
            )
            dashboard = json.load(
                open(os.path.join(SOURCE, "packaging/grafana/billow.json"), encoding="utf-8")
            )
            expressions = [t["expr"] for p in dashboard["panels"] for t in p["targets"]]
            self.assertGreater(len(expressions), 20)
            for (
                expression
            ) in expressions:  # each asks for something that exists; histograms may still be empty
                for name in re.findall(r"\b(?:billow|DCGM)_\w+", expression):
                    self.assertTrue(
                        query(f'count({{__name__=~"{name}"}})'),
                        f"{name} of the Grafana dashboard is not exported",
                    )
            prometheus.send_signal(signal.SIGTERM)
            prometheus.wait(20)
        finally:
            rig.close()


@unittest.skipUnless(
    os.path.exists("/usr/bin/chromium")
    and shutil.which("node")
    and os.path.isdir(os.path.join(SOURCE, "web/node_modules/playwright-core")),
    "chromium, node or playwright-core is not installed",
)
class Browser(unittest.TestCase):
    """tests/browser in Debian's Chromium, against a head of its own."""

    def run_script(self, script, sim, timeout, **environment):
        rig = Rig(sim=sim)
        try:
            shots = os.environ.get("BILLOW_SHOTS", "")
            done = subprocess.run(
                ["node", os.path.join(SOURCE, "tests/browser", script)],
                timeout=timeout,
                check=False,
                cwd=rig.files,
                env={
                    **rig.environment,
                    "BILLOW_BIN": os.path.dirname(BILLOW),
                    "BILLOW_FILES": rig.files,
                    "BILLOW_SHOTS": shots,
                    "PATH": os.environ["PATH"],
                    **{k: v for k, v in os.environ.items() if k == "BILLOW_WEB"},
                    **environment,
                },
            )
            self.assertEqual(done.returncode, 0, "the cases above say which")
        finally:
            rig.close()

    def test_dashboard(self):
        self.run_script("dashboard.mjs", "8xH100", 600)

    def test_tasks(self):
        self.run_script("tasks.mjs", "8xH100", 240)

    def test_jobs(self):
        self.run_script("jobs.mjs", "8xH100", 600)

    def test_options(self):
        self.run_script("options.mjs", "8xH100", 240)

    def test_frame(self):
        self.run_script("frame.mjs", "8xH100", 240)

    def test_fleet(self):
        self.run_script("fleet.mjs", "64xH100", 240)

    def test_time(self):
        self.run_script("time.mjs", "8xH100", 120)

    def test_keyboard(self):
        self.run_script("keyboard.mjs", "8xH100", 300)

    def test_endpoints(self):
        self.run_script("endpoints.mjs", "8xH100", 300)

    def test_phone(self):
        self.run_script("phone.mjs", "8xH100", 300)

    def test_states(self):
        self.run_script("states.mjs", "8xH100", 420)


if __name__ == "__main__":
    unittest.main()
