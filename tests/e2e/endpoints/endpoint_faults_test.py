"""Endpoints while something fails or everybody calls at once."""
import base64
import http.client
import http.server
import json
import os
import re
import signal
import subprocess
import threading
import time
import unittest

from endpoints_test import EndpointTest
from rig import poll


class Faults(EndpointTest):
    options = {"args": ("--webhook-host", "127.0.0.1")}

    def test_whatever_dies_an_endpoint_comes_back(self):
        self.deploy("app", "--min", 1, "--max", 2)
        pid = json.loads(self.call("app")[2])["pid"]
        # The replica: the next request is held for its successor.
        self.rig.kill(pid)
        self.assertNotEqual(json.loads(self.again("app")[2])["pid"], pid)
        # The head: known replicas are served meanwhile.
        self.rig.kill(self.rig.head_pid())
        self.assertEqual(self.call("app")[0], 200)
        # The gateway while the head is away: a new one serves from its table once the head is back
        # and starts it.
        self.rig.kill(self.gateway_pid())
        self.rig.up()
        self.assertEqual(self.again("app")[0], 200)
        # The agent.
        self.rig.kill(self.rig.agent_pid())
        self.assertEqual(self.again("app")[0], 200)

    def test_a_gateway_that_was_just_started_ends_with_its_head(self):
        self.deploy("app", "--max", 2)
        old = self.gateway_pid()
        self.rig.kill(old)
        pid = poll(lambda: self.gateway_pid() not in (0, old) and self.gateway_pid(), "a new one")
        os.kill(pid, signal.SIGSTOP)  # likely before it has connected
        down = self.rig.start("down", "--stop-jobs")
        poll(lambda: "shutting down" in self.rig.head_log(), "the head is ending")
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(down.wait(60), 0)
        poll(lambda: not self.gateway_pid(), "the gateway has ended", 30)
        self.rig.up()

    def test_no_accepted_call_is_lost(self):
        self.deploy("app", "--max", 2)
        made = {}

        def accept(i):
            status, headers, body = self.again(
                "app",
                f"/slow=0.2&{i}",
                "POST",
                b"x" * i,
                {"Prefer": "respond-async", "Idempotency-Key": f"k{i}"},
            )
            self.assertEqual(status, 202, body)
            made[i] = headers["location"]

        for i in range(6):
            accept(i)
        self.rig.kill(self.gateway_pid())
        for i in range(6, 12):
            accept(i)
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        for i in range(12, 16):
            accept(i)
        accept(0)
        self.assertEqual(len(set(made.values())), 16, "the same key is the same call")
        for i, url in made.items():

            def done():
                status, headers, body = self.again(None, url)
                return json.loads(body) if headers.get("x-billow-call") == "done" else None

            self.assertEqual(poll(done, f"the answer of call {i}", 60)["length"], i)
        ran = open(self.rig.file("calls.log"), encoding="ascii").read().split()
        self.assertEqual(set(ran), {f"k{i}" for i in range(16)})

    def test_the_end_of_a_call_is_told_to_its_webhook(self):
        told, signed = [], []

        class Hook(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                signed.append((self.headers, body))
                told.append(json.loads(body))
                self.send_response(
                    500 if len(told) == 1 else 200
                )  # the first time it is not taken, and told again
                self.end_headers()

            def log_message(self, *args):
                pass

        hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        threading.Thread(target=hook.serve_forever, daemon=True).start()
        self.addCleanup(hook.server_close)
        self.addCleanup(hook.shutdown)
        self.deploy("app", "--webhook", f"http://127.0.0.1:{hook.server_port}/over")
        url = self.again("app", "/x", "POST", b"", {"Prefer": "respond-async"})[1]["location"]
        poll(lambda: len(told) >= 2, "the webhook told again")
        self.assertEqual(
            {(t["status"], t["answer_status"], t["url"]) for t in told}, {("done", 200, url)}
        )
        published = json.loads(self.call(None, "/webhook-key")[2])["public_key"]
        for headers, body in signed:
            text = f"{headers['Billow-Id']}.{headers['Billow-Timestamp']}.".encode() + body
            kind, _, signature = headers["Billow-Signature"].partition("=")
            self.assertEqual(kind, "ed25519")
            self.assertTrue(self.is_signed(published, text, signature))
            self.assertFalse(self.is_signed(published, text + b"x", signature))

    def is_signed(self, public_key, text, signature):
        decode = lambda value: base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
        der = bytes.fromhex("302a300506032b6570032100") + decode(public_key)
        for name, data in (("key.der", der), ("text", text), ("signature", decode(signature))):
            with open(self.rig.file(name), "wb") as f:
                f.write(data)
        done = subprocess.run(
            ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-rawin"]
            + ["-inkey", self.rig.file("key.der"), "-in", self.rig.file("text")]
            + ["-sigfile", self.rig.file("signature")],
            capture_output=True,
            check=False,
        )
        return done.returncode == 0

    def test_a_call_can_be_cancelled(self):
        self.deploy("app")
        url = self.again("app", "/slow=30", "POST", b"", {"Prefer": "respond-async"})[1]["location"]
        self.assertEqual(json.loads(self.call(None, url)[2])["status"], "waiting")
        self.assertEqual(self.call(None, url, "DELETE")[0], 200)
        self.assertEqual(json.loads(self.call(None, url)[2])["status"], "cancelled")
        self.assertEqual(self.call(None, "/calls/nonsense")[0], 404)

    def test_calls_on_the_command_line(self):
        self.deploy("listed")
        self.assertIn("no asynchronous calls", self.rig.ok("calls", "listed").errors)
        made = lambda path: self.again("listed", path, "POST", b"", {"Prefer": "respond-async"})[1][
            "location"
        ].rsplit("/", 1)[1]
        slow, quick = made("/slow=30"), made("/")
        poll(lambda: self.rig.json("calls", "listed", quick)["state"] == "done", "the answer", 60)
        self.assertEqual(
            self.rig.ok("calls", "listed", quick).text,
            self.call("listed", "/", "POST", b"")[2].decode(),
        )
        shown = self.rig.ok("calls", "listed").text
        self.assertRegex(shown, rf"(?m)^{slow} +waiting +- ")
        self.assertRegex(shown, rf"(?m)^{quick} +done +200 ")
        self.assertIn(f"call {slow} is waiting", self.rig.ok("calls", "listed", slow).errors)
        self.assertIn("was cancelled", self.rig.ok("calls", "listed", slow, "--cancel").text)
        refused = self.rig.cli("calls", "listed", slow)
        self.assertIn("is cancelled", refused.errors)
        self.assertEqual(refused.code, 1)
        self.assertIn(
            "has no call with this id", self.rig.cli("calls", "listed", "nonsense").errors
        )


class UnderLoad(EndpointTest):
    """Whatever dies while requests flow: no call of a client that tries again is lost, no accepted
    call is, and every failure has a type."""

    RATE = int(
        os.environ.get("BILLOW_LOAD_RATE", "200")
    )  # requests a second, offered whether the last ones were answered or not
    CLIENTS = 24  # so many may wait for an answer at once before the offer falls behind

    def load(self, name):
        state = {
            "stop": False,
            "done": 0,
            "lost": [],
            "refused": {},
            "broken": 0,
            "untyped": [],
            "accepted": {},
        }
        lock = threading.Lock()
        kept = threading.local()  # a connection for each client, as long as it lasts

        def once(method, path, headers):
            where = self.gateway()
            if getattr(kept, "where", None) != where:
                kept.where, kept.connection = where, http.client.HTTPConnection(*where, timeout=20)
            try:
                kept.connection.request(
                    method, f"/f/{name}{path}", b"" if method == "POST" else None, headers
                )
                answer = kept.connection.getresponse()
                return (
                    answer.status,
                    dict((k.lower(), v) for k, v in answer.getheaders()),
                    answer.read(),
                )
            except (OSError, http.client.HTTPException):
                kept.connection.close()
                kept.where = None
                raise

        def call(number):
            """One logical call, tried until it is answered. Like any client's library: again after
            a failure of the server or the line."""
            deadline = time.monotonic() + 60
            while True:
                try:
                    background = number % 20 == 0
                    headers = (
                        {"Prefer": "respond-async", "Idempotency-Key": f"call-{number}"}
                        if background
                        else {}
                    )
                    status, headers, body = once(
                        "POST" if background else "GET", f"/{number}", headers
                    )
                    if status in (200, 202):
                        with lock:
                            state["done"] += 1
                            if status == 202:
                                state["accepted"][number] = headers["location"]
                        return
                    with lock:
                        state["refused"][status] = state["refused"].get(status, 0) + 1
                        if not (
                            status in (429, 502, 503, 504)
                            and headers.get("content-type") == "application/problem+json"
                            and json.loads(body)["detail"]
                            and headers.get("x-request-id")
                        ):
                            state["untyped"].append((status, headers, body[:200]))
                except (OSError, http.client.HTTPException):
                    with lock:
                        state["broken"] += 1
                if time.monotonic() > deadline:
                    state["lost"].append(number)
                    return
                time.sleep(0.05)

        def run(client):
            number = client
            while not state["stop"]:
                call(number)
                number += self.CLIENTS
                time.sleep(max(0.0, state["began"] + number / self.RATE - time.monotonic()))

        threads = [threading.Thread(target=run, args=(i,)) for i in range(self.CLIENTS)]
        state["began"] = time.monotonic()
        for t in threads:
            t.start()

        def end():
            state.setdefault("seconds", time.monotonic() - state["began"])
            state["stop"] = True
            for t in threads:
                t.join()

        self.addCleanup(end)
        return state, end

    def test_replicas_agent_gateway_head_spot_and_a_broken_revision(self):
        self.deploy("app", "--gpus", 1, "--min", 3, "--max", 4, "--spot", "--base-on-demand", 1)
        state, end = self.load("app")

        def flows(after):
            seen = state["done"]
            poll(
                lambda: state["done"] >= seen + self.RATE,
                f"answers after {after}; so far {state}",
                60,
            )  # a second of them

        flows("the start")
        self.rig.kill(json.loads(self.again("app")[2])["pid"])
        flows("a killed replica")
        self.rig.kill(self.rig.agent_pid())
        flows("a killed agent")
        self.rig.kill(self.gateway_pid())
        flows("a killed gateway")
        self.rig.kill(self.rig.head_pid())
        flows("a killed head, which is still away")
        self.rig.up()
        flows("the head's return")
        broken = self.rig.cli(
            "deploy", "app", "--gpus", 1, "--max", 4, "--", "sh", "-c", "exit 3", timeout=90
        )
        self.assertEqual(broken.code, 1, broken)
        flows("a broken revision")
        # All spot replicas at once: somebody pays for their GPUs.
        job = self.rig.submit("--gpus", 7, "--", "sleep", "600")
        self.rig.wait_for(job, "running", 60)
        flows("the reclaim of every spot replica")
        self.rig.ok("stop", job)
        end()
        self.assertEqual((state["lost"], state["untyped"]), ([], []), state)
        self.assertGreater(len(state["accepted"]), 5)
        for number, url in state["accepted"].items():
            last = []

            def done():
                last[:] = [self.again(None, url)]
                return json.loads(last[0][2]) if last[0][1].get("x-billow-call") == "done" else None

            try:
                self.assertEqual(
                    poll(done, f"the answer of call {number}", 60)["path"], f"/{number}"
                )
            except AssertionError as e:
                raise AssertionError(f"{e}: {last}")
        print(
            (
                f"under load: {state['done'] / state['seconds']:.0f} answers a second of"
                f" {self.RATE} offered;"
            ),
            {k: len(v) if k == "accepted" else v for k, v in state.items()},
        )


class Many(EndpointTest):
    def billed(self):
        """GPU seconds that the ledger has charged."""
        text = self.rig.api("GET", "/metrics").body.decode()
        return sum(
            float(x) for x in re.findall(r"(?m)^billow_gpu_seconds_total\{[^}]*\} (\S+)", text)
        )

    def test_many_endpoints_share_a_few_gpus(self):
        """More endpoints than GPUs, each called rarely: all answer, and what is billed is little
        more than what they served."""
        count, turns, idle = 12, 2, 1.0
        for i in range(count):
            self.rig.ok(
                "deploy",
                f"e{i}",
                "--gpus",
                1,
                "--idle",
                f"{idle:.0f}s",
                "--no-wait",
                "--",
                "python3",
                self.rig.file("serve.py"),
                str(i),
            )
        poll(
            lambda: all(self.endpoint(f"e{i}")["status"] == "serving" for i in range(count)),
            "all of them up",
            120,
        )
        poll(lambda: self.rig.json("status")["gpus"]["free"] == 8, "all of them asleep", 60)
        before, served = self.billed(), 0.0
        for _ in range(turns):
            for i in range(count):
                began = time.monotonic()
                status, _, body = self.call(f"e{i}")
                served += time.monotonic() - began
                self.assertEqual((status, json.loads(body).get("version")), (200, str(i)), body)
        poll(lambda: self.rig.json("status")["gpus"]["free"] == 8, "all of them asleep again", 60)
        # Waking and service as the caller met them, the idle window, and as much again for a busy
        # machine that puts them to sleep late.
        billed = self.billed() - before
        self.assertGreater(billed, 0)
        self.assertLessEqual(billed, (served + turns * count * idle) * 2)

    def test_batch_work_on_spot_makes_room_and_goes_on_afterwards(self):
        batch = [
            self.rig.submit("--gpus", 1, "--spot", "--", "sh", "-c", "while :; do sleep 0.05; done")
            for _ in range(8)
        ]
        for job in batch:
            self.rig.wait_for(job, "running")
        self.deploy("app", "--gpus", 1, "--idle", "1s")
        self.assertEqual(self.call("app")[0], 200)
        poll(lambda: self.figure("app", "sleeping") == 1, "sleep")
        poll(
            lambda: all(self.rig.job(job)["state"] == "running" for job in batch),
            "the batch work back on its GPUs",
        )
        self.assertEqual(self.call("app")[0], 200, "and woken again in its place")
        for job in batch:
            self.rig.ok("stop", job)


if __name__ == "__main__":
    unittest.main()
