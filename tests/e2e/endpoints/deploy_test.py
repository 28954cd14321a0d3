"""Deploying as a user meets it: what it waits for is said, and what a replica is given (an image, an environment, secrets, volumes) is there,
after its sleep too, and cannot be taken away while it is served with it."""
import hashlib
import json
import os
import signal
import unittest

import images
from endpoints_test import EndpointTest
from rig import poll

NO_IMAGES = images.missing()

# What it was given, as a replica sees it.
LOOK = """
import hashlib, http.server, json, os, subprocess
def read(path):
    try:
        with open(path) as f:
            return f.read()
    except OSError as e:
        return type(e).__name__
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            word = subprocess.run(["greet"], capture_output=True, text=True).stdout
        except OSError:
            word = None
        try:
            with open("/mnt/shelf/written", "a") as f:
                f.write("x")
            wrote = True
        except OSError:
            wrote = False
        out = json.dumps({"pid": os.getpid(), "secret": hashlib.sha256(os.environ.get("KEY", "").encode()).hexdigest(), "variable": os.environ.get("MOOD"), "word": word, "shelf": read("/mnt/shelf/book"),
                          "wrote": wrote}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


class Waiting(EndpointTest):
    def test_what_it_waits_for_is_said(self):
        busy = self.rig.submit("--gpus", 8, "--time", "10m", "--", "sleep", "600")
        self.rig.wait_for(busy, "running")
        deploying = self.rig.start(
            "deploy",
            "app",
            "--gpus",
            1,
            "--timeout",
            "2s",
            "--",
            "python3",
            self.rig.file("serve.py"),
        )
        line = deploying.stderr.readline().decode()
        self.assertIn("in use", line)
        self.assertIn("billow explain app", line)
        why = poll(lambda: self.rig.json("explain", "app")["replicas"], "an explanation")[0]
        self.assertEqual(
            (why["state"], why["reasons"][0]["kind"], why["revision"]), ("queued", "no_room", 1)
        )
        self.assertTrue(why["earliest_start"], "when the other's time is over")
        text = self.rig.ok("explain", "app").text
        self.assertIn("endpoint app is starting", text)
        self.assertIn("No GPU is free: ", text)
        self.assertNotIn("no_room", text)
        self.assertIn("queued: No GPU is free: ", self.rig.ok("describe", "app").text)
        self.assertIn("in use", self.endpoint("app")["waiting"])

        def told():
            status, _, body = self.call("app")
            return (
                status == 504 and "a replica waits: No GPU is free: " in json.loads(body)["detail"]
            )

        poll(told, "the reason in the answer to a call")
        self.rig.ok("stop", busy)
        self.assertEqual(deploying.wait(60), 0, deploying.stderr.read())
        self.assertIn(b"app is serving", deploying.stdout.read())
        self.assertIn("nothing blocks it", self.rig.ok("explain", "app").text)
        self.assertEqual(self.call("app")[0], 200)
        for option in (("--reservation", "nosuch"), ("--after", "1")):
            refused = self.rig.cli("deploy", "other", *option, "--", "true")
            self.assertEqual((refused.code, "omit" in refused.errors), (2, True), refused)
        missing = self.rig.cli("explain", "nobody")
        self.assertEqual(missing.code, 1)
        self.assertIn("no endpoint", missing.errors)

    def test_a_server_on_the_wrong_port_is_named_within_seconds(self):
        serve = self.rig.script(
            "import http.server, socketserver, time\nserver = socketserver.TCPServer(('127.0.0.1',"
            " 0), http.server.SimpleHTTPRequestHandler)\nprint('port', server.server_address[1],"
            " flush=True)\nserver.serve_forever()\n"
        )
        deploying = self.rig.start("deploy", "astray", "--", "python3", serve)
        line = deploying.stderr.readline().decode()
        self.assertRegex(
            line, r"astray: replica \(job \d+\) does not serve: it listens on port \d+, not on \d+"
        )
        self.assertIn("PORT", line)
        job = self.endpoint("astray")["replicas"][0]["job"]
        port = self.rig.ok("logs", job).text.split()[1]
        self.assertIn(f"listens on port {port}, not on ", line)
        wrong = f"it listens on port {port}, not on "
        for command in ("describe", "explain"):
            for what in ("astray", job):
                self.assertIn(wrong, self.rig.ok(command, what).text, (command, what))
        self.assertNotIn("nothing blocks it", self.rig.ok("explain", "astray").text)
        self.assertIn(wrong[:20], self.rig.json("ps")["jobs"][0]["reason"])
        deploying.kill()
        # A revision that is given up says so too.
        self.rig.ok("delete", "astray")
        poll(lambda: self.rig.json("ps")["jobs"] == [], "its end")
        done = self.rig.cli(
            "deploy", "astray", "-q", "--start-timeout", "3s", "--", "python3", serve
        )
        self.assertEqual(done.code, 1)
        self.assertRegex(done.errors, r"not healthy in time; it listens on port \d+, not on \d+")

    def test_a_command_that_listens_nowhere_is_told_where_to_listen(self):
        nowhere = r"nothing listens on \$PORT \(\d+\): the command must listen on the port"
        done = self.rig.cli("deploy", "mute", "-q", "--start-timeout", "3s", "--", "sleep", "600")
        self.assertEqual(done.code, 1)
        self.assertRegex(done.errors, r"not healthy in time; " + nowhere)
        for command in ("describe", "explain"):
            self.assertRegex(self.rig.ok(command, "mute").text, nowhere)
        judged = [
            e
            for e in self.rig.api("GET", "/v1/events?limit=1000").json["events"]
            if e["kind"] == "revision_judged"
        ]
        self.assertRegex(json.dumps(judged[-1]), nowhere)
        # A replica of a revision that has served, and listens no longer when it is started again.
        once = self.rig.script(
            "import os, sys, time\n"
            "if os.path.exists(sys.argv[1] + '.again'):\n"
            "    time.sleep(600)\n"
            "os.execvp('python3', ['python3', sys.argv[1], '1'])\n"
        )
        self.rig.ok(
            "deploy", "app", "--access", "local", "--min", 1, "--start-timeout", "3s", "--",
            "python3", once, self.rig.file("serve.py"), timeout=90,
        )  # fmt: skip
        with open(self.rig.file("serve.py.again"), "w", encoding="utf-8"):
            pass
        os.kill(json.loads(self.call("app")[2])["pid"], signal.SIGKILL)
        note = poll(
            lambda: [n for n in self.endpoint("app").get("notes", []) if "nothing listens" in n],
            "the note about its start",
            60,
        )[0]
        self.assertRegex(note, r"the last start failed: .* was not healthy within 3\.0 s; " + nowhere)
        self.assertRegex(self.rig.ok("describe", "app").text, nowhere)

    def test_deploying_again_says_what_it_changes(self):
        self.deploy("app", "--gpus", 1, "--cpus", 2, "--max", 2, "--cors", "https://a.example",
                    "--health", "/", "-e", "MOOD=good")  # fmt: skip
        again = self.rig.ok(
            "deploy", "app", "--cpus", 2, "--max", 3, "--cors", "none", "--",
            "python3", self.rig.file("serve.py"), "2", timeout=90,
        )  # fmt: skip
        for line in (
            "app: revision 2 changes gpus: 1 → none (give --gpus 1 to keep it)",
            "app: revision 2 changes env-var: MOOD → none (give --env-var MOOD to keep it)",
            "app: revision 2 changes max: 2 → 3\n",
            "app: revision 2 changes cors: https://a.example → none\n",
            "app keeps its settings: --access local, --health /",
        ):
            self.assertIn(line, again.errors)
        self.assertNotIn("cpus", again.errors)
        self.assertLess(again.errors.index("gpus"), again.errors.index("cors"))
        # Scripts get the same.
        changes = self.deploy("app", "--gpus", "0.5", "--cpus", 2, "--health", "none")["changes"]
        self.assertEqual(
            changes,
            [
                {"setting": "gpus", "before": "none", "after": "0.5"},
                {"setting": "health", "before": "/", "after": "none"},
            ],
        )
        self.assertEqual(self.deploy("app", "--gpus", "0.5", "--cpus", 2)["changes"], [])
        self.assertNotIn("changes", self.endpoint("app"))
        # A refused deployment says nothing but why.
        refused = self.rig.cli("deploy", "app", "--min", 9, "--max", 3, "--", "true")
        self.assertNotEqual(refused.code, 0)
        self.assertNotIn("keeps", refused.errors)
        self.assertNotIn("changes", refused.errors)

    def test_none_removes_a_setting(self):
        self.deploy(
            "app", "--health", "/", "--live", "/", "--start-probe", "/", "--cors", "*", "--webhook",
            "https://hooks.example.org/", "--sticky", "client", "--sample", "5%", "--price",
            "0.01/request", "--drain", "5s", "--max-spend", "9/h", "--target-tokens", 5000,
            "--min-at", "Mon 08:00-09:00=1", "--access", "local",
        )  # fmt: skip
        options = ("health", "live", "start-probe", "cors", "webhook", "sticky", "sample", "price",
                   "drain", "max-spend", "target-tokens", "min-at")  # fmt: skip
        for option in options:
            self.assertIn(f"--{option} ", self.rig.ok("describe", "app").text)
        self.deploy("app", *(word for o in options for word in (f"--{o}", "none")))
        policy = self.endpoint("app")["policy"]
        self.assertEqual({k: v for k, v in policy.items() if k not in ("access", "max")}, {})

    def test_scale_takes_every_scaling_option_without_a_revision(self):
        self.deploy("app", "--max", 2)
        done = self.rig.ok(
            "scale", "app", "--max", 4, "--min", 1, "--concurrency", 3, "--idle", "9s", "--keep",
            "suspended=5m", "--slo", "3s", "--queue", 7, "--balance", "spread", "--min-at",
            "Mon-Fri 08:00-18:00=2", "--max-spend", "5/h", "--target-tokens", 4000, "--prometheus",
            "http://metrics.example.org:9090", "--query", "sum(queue)", "--query-target", 2,
            "--predict", "on",
        )  # fmt: skip
        self.assertIn("app: 1 to 4 replicas, 3 concurrent requests each, --idle 9s", done.text)
        self.assertIn("--max-spend 5.00/h", done.text)
        self.assertEqual(
            self.endpoint("app")["policy"],
            {
                "min": 1, "max": 4, "concurrency": 3, "idle_ns": 9 * 10**9,
                "keep_suspended_ns": 300 * 10**9, "wait_target_ns": 2 * 10**9, "queue_max": 7,
                "balance": "spread",
                "scaling": {
                    "min_at": ["Mon-Fri 08:00-18:00=2"], "spend_per_hour": 5 * 10**9,
                    "target_tokens": 4000, "predict": True,
                    "query": {"url": "http://metrics.example.org:9090", "query": "sum(queue)",
                              "target": 2.0},
                },
            },
        )  # fmt: skip
        self.rig.ok("scale", "app", "--query-target", 5)
        self.assertEqual(
            self.endpoint("app")["policy"]["scaling"]["query"],
            {"url": "http://metrics.example.org:9090", "query": "sum(queue)", "target": 5.0},
        )
        self.rig.ok("scale", "app", "--query", "none", "--max-spend", "none", "--min-at", "none",
                    "--target-tokens", "none", "--predict", "off")  # fmt: skip
        self.assertNotIn("scaling", self.endpoint("app")["policy"])
        self.assertEqual(self.endpoint("app")["revision"], 1)
        self.assertEqual(len(self.endpoint("app")["revisions"]), 1)
        self.assertIn("nothing to change", self.rig.cli("scale", "app").errors)
        self.assertIn("not valid", self.rig.cli("scale", "app", "--max-spend", "5").errors)
        self.assertIn("has no option", self.rig.cli("scale", "app", "--access", "open").errors)

    def test_a_new_key_works_at_once_and_a_removed_one_no_longer(self):
        self.deploy("app", "--access", "key", "--min", 1)
        for number in range(20):
            name = f"key{number}"
            key = self.rig.api("POST", "/v1/endpoints/app/keys", {"name": name}).json["key"]
            self.assertEqual(self.call("app", headers={"Authorization": f"Bearer {key}"})[0], 200)
            self.rig.api("DELETE", f"/v1/endpoints/app/keys/{name}")
            self.assertEqual(self.call("app", headers={"Authorization": f"Bearer {key}"})[0], 401)

    def test_a_budget_that_is_used_up_is_the_reason(self):
        self.deploy("app", "--gpus", 1, "--idle", "1s")
        poll(lambda: self.endpoint("app")["cost_usd"] > 0.0001, "some cost")
        poll(
            lambda: [r.get("task_state") for r in self.endpoint("app")["replicas"]]
            == ["suspended"],
            "sleep",
        )
        self.rig.ok("budget", "set", "0.0001", "--project", "default")
        self.addCleanup(self.rig.cli, "budget", "rm", "--project", "default")

        def reasons():
            self.call("app")  # which asks for it
            return [r for r in self.rig.json("explain", "app")["reasons"] if r["kind"] == "budget"]

        self.assertIn("default", poll(reasons, "the budget named")[0]["text"])


class Given(EndpointTest):
    VALUE = "a value that nobody else knows"

    def setUp(self):
        super().setUp()
        with open(self.rig.file("look.py"), "w", encoding="utf-8") as f:
            f.write(LOOK)

    def seen(self, name="app"):
        status, _, body = self.again(name)
        self.assertEqual(status, 200, body)
        return json.loads(body)

    @unittest.skipIf(os.geteuid() != 0, "an environment is mounted, and a volume: that needs root")
    def test_environment_secret_volume_and_variables(self):
        tools = os.path.join(self.rig.root, "tools")
        shelf = os.path.join(self.rig.root, "shelf")
        for directory in (os.path.join(tools, "bin"), shelf):
            os.makedirs(directory, exist_ok=True)
        with open(os.path.join(tools, "bin", "greet"), "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho saved\n")
        os.chmod(f.name, 0o755)
        with open(os.path.join(shelf, "book"), "w", encoding="utf-8") as f:
            f.write("read me")
        self.rig.ok("env", "save", "tools", tools, timeout=120)
        self.rig.ok("secret", "set", "KEY", stdin=self.VALUE.encode())
        self.rig.ok("volume", "add", "shelf", "--path", shelf)
        os.unlink(os.path.join(tools, "bin", "greet"))  # what was saved counts
        self.rig.ok(
            "deploy",
            "app",
            "--env",
            "tools",
            "--secret",
            "KEY",
            "--volume",
            "shelf:/mnt/shelf:ro",
            "--env-var",
            "MOOD=good",
            "--idle",
            "1s",
            "--",
            "python3",
            self.rig.file("look.py"),
            timeout=120,
        )
        wanted = {
            "secret": hashlib.sha256(self.VALUE.encode()).hexdigest(),
            "variable": "good",
            "word": "saved\n",
            "shelf": "read me",
            "wrote": False,
        }
        first = self.seen()
        self.assertEqual({k: first[k] for k in wanted}, wanted)
        poll(
            lambda: [r.get("task_state") for r in self.endpoint("app")["replicas"]]
            == ["suspended"],
            "sleep",
        )
        self.assertEqual(
            self.seen(), first, "the same process with the same things after its sleep"
        )
        self.assertNotIn(self.VALUE, self.rig.ok("endpoints", "app", "--json").text)
        for args in (("env", "rm", "tools"), ("secret", "rm", "KEY"), ("volume", "rm", "shelf")):
            refused = self.rig.cli(*args)
            self.assertEqual(refused.code, 1, args)
            self.assertIn("endpoint app uses", refused.errors)
        # Another replica, long after the environment was saved anew under the same name: what was
        # deployed is what is served.
        self.rig.ok("env", "save", "tools", tools, timeout=120)
        self.rig.kill(first["pid"])
        again = poll(
            lambda: (lambda now: now if now["pid"] != first["pid"] else None)(self.seen()),
            "its successor",
        )
        self.assertEqual({k: again[k] for k in wanted}, wanted)
        self.rig.ok("delete", "app")
        for args in (("env", "rm", "tools"), ("secret", "rm", "KEY"), ("volume", "rm", "shelf")):
            self.rig.ok(*args)
        for option, word in (
            ("--env", "tools"),
            ("--secret", "KEY"),
            ("--volume", "shelf:/mnt/shelf"),
        ):
            gone = self.rig.cli("deploy", "app", option, word, "--", "true")
            self.assertNotEqual(gone.code, 0, option)
            self.assertIn(word.split(":")[0], gone.errors)

    @unittest.skipIf(NO_IMAGES, NO_IMAGES)
    def test_an_image(self):
        """The replica is in the image, its port is reached from outside, and it sleeps and wakes
        like any other."""
        registry = images.Registry(self.rig.root)
        try:
            image = registry.push("web:1", images.root_tar(), "ENV FLAVOUR=plain", "WORKDIR /srv")
            serve = "exec busybox httpd -f -p 127.0.0.1:$PORT -h /etc"
            done = self.rig.cli(
                "deploy",
                "boxed",
                "--image",
                image,
                "--idle",
                "1s",
                "--",
                "sh",
                "-c",
                serve,
                timeout=120,
            )
            self.assertEqual(done.code, 0, done)
            self.assertEqual(self.again("boxed", "/hello")[2], b"from the image\n")
            poll(
                lambda: [r.get("task_state") for r in self.endpoint("boxed")["replicas"]]
                == ["suspended"],
                "sleep",
            )
            self.assertEqual(self.again("boxed", "/hello")[2], b"from the image\n")
            self.rig.ok("delete", "boxed")
            poll(lambda: self.rig.json("ps")["jobs"] == [], "its replicas gone")
        finally:
            registry.close()


if __name__ == "__main__":
    unittest.main()
