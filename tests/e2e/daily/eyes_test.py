"""What people and machines see: the history, health, the live stream, /metrics by a real
Prometheus."""
import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import threading
import unittest
import urllib.request

from rig import Rig, poll, sse_events

BUSY = "while true; do :; done"


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


if __name__ == "__main__":
    unittest.main()
