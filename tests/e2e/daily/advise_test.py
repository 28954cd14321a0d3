"""Advice that needs a running Billow or a serving endpoint: profile, compare, loadtest, --mine,
plan from history, POST /v1/advise."""
import contextlib
import csv
import datetime
import http.server
import json
import os
import sqlite3
import threading
import time

from rig import RigTest, poll


class Tokens(http.server.BaseHTTPRequestHandler):
    """An endpoint that streams tokens the way OpenAI's does: each after a pause of its server's."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = json.dumps({"data": [{"id": "tiny"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        self.server.tokens_sent.append(self.headers.get("Authorization"))
        if self.server.broken:
            body = b'{"error": {"message": "out of memory"}}'
            self.send_response(503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        time.sleep(self.server.first_s)
        for _ in range(asked["max_tokens"]):
            self.event(json.dumps({"choices": [{"text": "word "}]}))
            time.sleep(self.server.pause_s)
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, data):
        line = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def log_message(self, *_):
        pass


class Endpoint:
    def __init__(self, first_s=0.0, pause_s=0.005, broken=False):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tokens)
        self.server.daemon_threads = True
        self.server.first_s, self.server.pause_s, self.server.broken = first_s, pause_s, broken
        self.server.asked, self.server.tokens_sent = [], []
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/completions"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


# The same as a program of its own, for an endpoint that is deployed.
SERVER = """
import http.server, json, os
class Tokens(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.answer(json.dumps({"data": [{"id": "tiny"}]}), "application/json")
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer("".join("data: " + json.dumps({"choices": [{"text": "word "}]}) + "\\n\\n" for _ in range(asked["max_tokens"])) + "data: [DONE]\\n\\n", "text/event-stream")
    def answer(self, text, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Tokens).serve_forever()
"""


class LoadTest(RigTest):
    def endpoint(self, **options):
        e = Endpoint(**options)
        self.addCleanup(e.close)
        return e

    def test_measures_and_judges(self):
        e = self.endpoint(first_s=0.05, pause_s=0.01)
        done = self.rig.cli(
            "loadtest",
            e.url,
            "--rps",
            20,
            "--for",
            "2s",
            "--input",
            16,
            "--output",
            5,
            "--ttft",
            "5s",
            "--tps",
            1,
            "--json",
        )
        self.assertEqual(done.code, 0, done)
        test = done.json["tests"][0]
        self.assertEqual(test["failed"], 0)
        self.assertEqual(test["requests"], len(e.server.asked))
        self.assertAlmostEqual(test["output_mean"], 5)
        # What the server waited is a floor, however busy this machine is.
        self.assertGreaterEqual(test["ttft_ms"]["p50"], 50)
        self.assertGreaterEqual(test["tpot_ms"]["p50"], 9)
        self.assertEqual(e.server.asked[0]["model"], "tiny")
        self.assertEqual(len(e.server.asked[0]["prompt"].split()), 16)
        self.assertNotEqual(e.server.asked[0]["prompt"], e.server.asked[1]["prompt"])

    def test_a_missed_level_is_said_and_fails(self):
        e = self.endpoint(first_s=0.2)
        done = self.rig.cli(
            "loadtest", e.url, "--rps", 10, "--for", "1s", "--output", 2, "--ttft", "20ms"
        )
        self.assertEqual(done.code, 1, done)
        self.assertIn("time to first token", done.text)
        self.assertIn("not met", done.text)

    def test_smallest_viable_first(self):
        slow, fast, never = self.endpoint(first_s=3), self.endpoint(), self.endpoint()
        done = self.rig.cli(
            "loadtest",
            f"H100={never.url}",
            f"A100={fast.url}",
            f"L4={slow.url}",
            "--rps",
            10,
            "--for",
            "1s",
            "--output",
            2,
            "--ttft",
            "2s",
            "--json",
        )
        self.assertEqual(done.code, 0, done)
        self.assertEqual([t["gpu"] for t in done.json["tests"]], ["L4", "A100"])
        self.assertEqual(done.json["smallest_viable"], "A100")
        self.assertEqual(never.server.asked, [])

    def test_a_trace_is_replayed_as_it_was(self):
        e = self.endpoint()
        path = self.rig.file("trace.csv")
        with open(path, "w", encoding="ascii") as f:
            f.write(
                "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.1,7,3\n2023-11-16"
                " 18:15:46.6,9,4\n2023-11-16 18:15:47.1,11,2\n"
            )
        done = self.rig.cli("loadtest", e.url, "--trace", path, "--json")
        self.assertEqual(done.json["tests"][0]["requests"], 3)
        self.assertEqual(
            sorted((len(a["prompt"].split()), a["max_tokens"]) for a in e.server.asked),
            [(7, 3), (9, 4), (11, 2)],
        )

    def test_it_recalibrates_advise(self):
        e = self.endpoint(pause_s=0.03)
        batch = self.rig.file("row.csv")
        with open(batch, "w", encoding="ascii") as f:
            f.write(
                "id,backend,backend_version,model_path,system,precision,mode,isl,osl,batch_size,tp_size\nx,vllm,,7B,L4,bf16,agg,64,8,4,1\n"
            )
        before = self.rig.cli("advise", "--batch", batch, "--json").json[0]
        done = self.rig.cli(
            "loadtest",
            e.url,
            "--rps",
            10,
            "--for",
            "2s",
            "--input",
            64,
            "--output",
            8,
            "--model",
            "7B",
            "--gpu",
            "L4",
            "--precision",
            "bf16",
            "--json",
        )
        self.assertEqual(done.code, 0, done)
        self.assertTrue(done.json["tests"][0]["recalibrated"], done)
        after = self.rig.cli("advise", "--batch", batch, "--json").json[0]
        measured = done.json["tests"][0]["tpot_ms"]["p50"]
        self.assertLess(abs(after["tpot_ms"] - measured), abs(before["tpot_ms"] - measured))
        with open(os.path.join(self.rig.data, "measurements.csv"), encoding="utf-8") as f:
            self.assertEqual(len(list(csv.DictReader(f))), 1)

    def test_an_endpoint_goes_by_its_name(self):
        refused = self.rig.cli("loadtest", "nosuch", "--rps", 1)
        self.assertEqual(refused.code, 1, refused)
        self.assertIn('no endpoint "nosuch"', refused.errors)
        server = self.rig.file("serve.py")
        with open(server, "w", encoding="ascii") as f:
            f.write(SERVER)
        self.rig.ok("deploy", "chat", "--min", 1, "--", "python3", server)
        done = self.rig.cli(
            "loadtest", "chat", "--rps", 10, "--for", "1s", "--output", 3, "--ttft", "20s", "--json"
        )
        self.assertEqual(done.code, 0, done)
        self.assertIn("/f/chat/v1/completions", done.json["tests"][0]["endpoint"])
        self.assertEqual(done.json["tests"][0]["failed"], 0, done)
        # Where a key is asked for, the test says how to give one, and takes it.
        self.rig.ok("deploy", "chat", "--min", 1, "--access", "key", "--", "python3", server)
        refused = self.rig.cli("loadtest", "chat", "--rps", 5, "--for", "1s", "--output", 1)
        self.assertEqual(refused.code, 1, refused)
        self.assertIn("billow endpoint-key chat", refused.errors)
        key = self.rig.ok("endpoint-key", "chat").text.strip()
        self.assertEqual(
            self.rig.cli(
                "loadtest",
                "chat",
                "--rps",
                5,
                "--for",
                "1s",
                "--output",
                1,
                env={"BILLOW_ENDPOINT_TOKEN": key},
            ).code,
            0,
        )
        self.rig.ok("delete", "chat")

    def test_errors_are_counted_and_wrong_words_refused(self):
        e = self.endpoint(broken=True)
        done = self.rig.cli("loadtest", e.url, "--rps", 10, "--for", "1s")
        self.assertEqual(done.code, 1)
        self.assertIn("HTTP 503", done.text)
        for words in (
            [],
            ["here"],
            [e.url],
            [e.url, "--rps", "0"],
            [e.url, "--rps", "1", "--trace", "x"],
            [e.url, "--trace", "/none"],
            ["NoSuchGpu=" + e.url, "--rps", "1"],
            [e.url, "--rps", "1", "--for", "-1s"],
        ):
            refused = self.rig.cli("loadtest", *words)
            self.assertIn(refused.code, (1, 2), refused)
            self.assertTrue(refused.errors.startswith("billow: "), refused)

    def test_a_credential_comes_from_the_environment(self):
        e = self.endpoint()
        self.rig.cli(
            "loadtest",
            e.url,
            "--rps",
            5,
            "--for",
            "1s",
            "--output",
            1,
            env={"BILLOW_ENDPOINT_TOKEN": "sesame"},
        )
        self.assertIn("Bearer sesame", e.server.tokens_sent)


class Reviews(RigTest):
    """The month is over: the head makes its review by itself, keeps it and sends it to those who
    asked for reviews."""

    options = {"sim": "2xH100"}

    def test_last_months_review_is_made_once_and_sent(self):
        told = []

        class Hook(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        threading.Thread(target=hook.serve_forever, daemon=True).start()
        self.addCleanup(hook.server_close)
        self.addCleanup(hook.shutdown)
        url = f"http://127.0.0.1:{hook.server_port}/"
        self.assertIn("review", self.rig.cli("webhook", "add", url, "--kinds", "revue").errors)
        self.rig.ok("webhook", "add", url, "--kinds", "review")
        self.rig.ok("run", "--gpus", 2, "--", "true")
        self.rig.ok("down")
        # The job, as if it had run for a week of last month.
        now = datetime.datetime.now(datetime.timezone.utc)
        first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        month = (first - datetime.timedelta(days=1)).strftime("%Y-%m")
        end = int(first.timestamp() * 1e9) - 86400 * 10**9
        with contextlib.closing(
            sqlite3.connect(os.path.join(self.rig.data, "billow.db"))
        ) as db, db:
            db.execute(
                "UPDATE leases SET from_at = ?, to_at = ?, charge = 2000000000000",
                (end - 7 * 86400 * 10**9, end),
            )
        self.rig.up()
        poll(lambda: told, "the review at its webhook")
        self.assertEqual(told[0]["kind"], "review." + month)
        self.assertAlmostEqual(told[0]["data"]["gpu_hours"], 2 * 7 * 24, delta=1)
        self.assertGreater(told[0]["data"]["saves_usd_month"], 0)
        self.assertTrue(told[0]["data"]["actions"])
        kept = os.path.join(self.rig.data, "reviews", month + ".json")
        self.assertTrue(os.path.exists(kept))
        # Made once: a head that starts again finds it, and tells nobody twice.
        self.rig.ok("down")
        self.rig.up()
        self.rig.ok("run", "--", "true")
        self.assertEqual(len(told), 1)


class Sizes(RigTest):
    options = {"sim": "2xH100,2xA100-40,2xL4"}
    WORK = (
        "for i in 1 2 3 4 5 6 7 8; do echo step $i; end=$(($(date +%s%N) + 300000000)); while ["
        " $(date +%s%N) -lt $end ]; do :; done; done"
    )

    def test_profile_answers_with_a_slice(self):
        done = self.rig.cli(
            "profile",
            "--gpus",
            1,
            "--gpu-type",
            "H100",
            "--env-var",
            "BILLOW_SIM_GPU_MEM=6G",
            "--json",
            "--quiet",
            "--",
            "sh",
            "-c",
            self.WORK,
        )
        self.assertEqual(done.code, 0, done)
        got = done.json
        self.assertEqual(got["measured"]["gpu"], "H100")
        self.assertEqual(got["measured"]["steps"], 8)
        self.assertGreater(got["measured"]["step_s"], 0.2)
        self.assertGreater(got["measured"]["samples"], 0)
        self.assertGreaterEqual(got["mem_needed_mib"], got["measured"]["mem_peak_mib"] * 1.1)
        for option in got["options"]:
            self.assertGreaterEqual(option["memory_mib"], got["mem_needed_mib"] - 1)

    def test_profile_of_a_running_job_leaves_it_running(self):
        job = self.rig.submit("--gpus", 1, "--", "sleep", 600)
        self.rig.wait_for(job, "running")
        done = self.rig.cli("profile", job, "--for", "2s", "--json")
        self.assertEqual(done.code, 0, done)
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.rig.ok("stop", "--force", "--wait", job)
        self.assertEqual(self.rig.cli("profile", job).code, 1)
        self.assertEqual(self.rig.cli("profile").code, 2)

    def test_profile_gives_the_jobs_own_exit_code(self):
        done = self.rig.cli(
            "profile", "--gpus", 1, "--quiet", "--", "sh", "-c", self.WORK + "; exit 7"
        )
        self.assertEqual(done.code, 7, done)

    def test_compare_names_a_winner(self):
        done = self.rig.cli(
            "compare", "--gpu-types", "H100,L4,A100-40:0.5", "--json", "--", "sh", "-c", self.WORK
        )
        self.assertEqual(done.code, 0, done)
        runs = done.json["runs"]
        self.assertEqual(
            [(r["gpu"], r["ok"], r["units"]) for r in runs],
            [("H100", True, 8), ("L4", True, 8), ("A100-40:0.5", True, 8)],
        )
        for r in runs:
            self.assertGreaterEqual(r["seconds"], 2)
        self.assertIn(done.json["winner"], [r["gpu"] for r in runs])
        self.assertEqual(self.rig.cli("compare", "--gpu-types", "B200", "--", "true").code, 2)
        self.assertEqual(self.rig.cli("compare", "--gpu-types", "H100:2", "--", "true").code, 2)
        self.assertEqual(self.rig.cli("compare", "--", "true").code, 2)
        failed = self.rig.cli("compare", "--gpu-types", "L4", "--", "false")
        self.assertEqual(failed.code, 1, failed)
        self.assertIn("exit code 1", failed.text)

    def test_mine_offers_slices_that_the_head_grants(self):
        got = self.rig.cli("advise", "--model", "1B", "--mine", "--json").json
        slices = {c["slice"] for c in got["ranked"]}
        self.assertFalse(any("MIG" in s for s in slices), "no card is partitioned")
        self.assertTrue(any(s.startswith("0.") for s in slices), slices)
        self.assertIn("slice", got["best"])
        words = got["launch"].split(" --min ")[0].split()[3:]  # after billow deploy llm
        self.rig.ok("run", *words, "--", "true")
        refused = self.rig.cli("advise", "--model", "2T", "--mine")
        self.assertEqual(refused.code, 1)

    def test_plan_and_review_from_history(self):
        refused = self.rig.cli("plan")
        self.assertEqual(refused.code, 2, refused)
        self.assertIn("less than a day of usage", refused.errors)
        self.rig.ok("run", "--gpus", 1, "--", "true")
        review = self.rig.cli("plan", "--review", "--this-month", "--json")
        self.assertEqual(review.code, 0, review)
        self.assertIn("actions", review.json)
        self.assertEqual(self.rig.cli("plan", "--review").code, 0)

    def test_the_api_answers_as_the_command_does(self):
        api = self.rig.api("POST", "/v1/advise", {"model": "7B", "users": 10, "tps": 20})
        self.assertEqual(api.status, 200, api.body)
        said = self.rig.cli("advise", "--model", "7B", "--users", 10, "--tps", 20, "--json").json
        got = json.loads(api.body)
        self.assertEqual(
            (got["best"]["gpu"], got["best"]["gpus"], got["best"]["tpot_ms"]),
            (said["best"]["gpu"], said["best"]["gpus"], said["best"]["tpot_ms"]),
        )
        self.assertEqual(
            json.loads(self.rig.api("POST", "/v1/advise", {"model": "1B", "mine": True}).body)[
                "best"
            ]["gpu"][:2]
            in ("L4", "H1", "A1"),
            True,
        )
        for bad in (
            {},
            {"model": "/etc/passwd"},
            {"modle": "7B"},
            {"model": "7B", "users": -3},
            {"model": "900T"},
        ):
            self.assertIn(self.rig.api("POST", "/v1/advise", bad).status, (400, 422), bad)
