"""What goes wrong, goes wrong clearly: each error says what was wrong and what to do, and never
costs the head or leaves half a job."""
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import unittest

import zero_bytes
from rig import Rig, RigTest, WebSocket, alive, poll


class Requests(RigTest):
    def refused(self, *args, code=None):
        done = self.rig.cli("submit", *args)
        self.assertNotEqual(done.code, 0, done)
        self.assertEqual(
            self.rig.api("GET", "/v1/jobs?state=all").json["jobs"], [], "a half-made job"
        )
        return done.errors

    def test_unknown_gpu_types_get_a_suggestion(self):
        errors = self.refused("--gpus", "1", "--gpu-type", "H10", "--", "true")
        self.assertIn('unknown GPU type "H10"', errors)
        self.assertIn("did you mean H100?", errors)

    def test_what_no_node_has_is_infeasible(self):
        self.assertIn(
            "no node has 9 GPUs; the largest has 8", self.refused("--gpus", "9", "--", "true")
        )
        self.assertIn(
            "of memory; the largest has",
            self.refused("--gpus", "1", "--gpu-mem", "500G", "--", "true"),
        )
        self.assertIn(
            "the job needs 2 nodes; only 1 could run",
            self.refused("--nodes", "2", "--gpus", "8", "--", "true"),
        )
        answer = self.rig.api(
            "POST",
            "/v1/jobs",
            self.rig.spec("true", resources={"gpus": 9, "share": {"milli": 1000}}),
        )
        self.assertEqual((answer.status, answer.json["code"]), (422, "infeasible"))

    def test_numbers_that_make_no_sense(self):
        for args, word in (
            (["--gpus", "1.5"], "--gpus"),
            (["--gpus", "-1"], "--gpus"),
            (["--gpus", "many"], "many"),
            (["--time", "soon"], "--time"),
            (["--mem", "0"], "--mem"),
            (["--array", "9-1"], "9-1"),
            (["--array", "0-999999999"], "array"),
            (["--after", "x"], "--after"),
            (["--retries", "1000"], "--retries"),
            (["--label", "novalue"], "--label"),
            (["--name", "a/b c"], "name"),
            (["--nodes", "0"], "--nodes"),
        ):
            self.assertIn(word, self.refused(*args, "--", "true"), args)
        self.assertIn("no such job", self.refused("--after", "12345", "--", "true"))

    def test_options_that_do_not_go_together_say_so(self):
        for args, words in (
            (["--gpus", "1", "--strict"], ("--strict", "--gpus 0.5 --strict")),
            (["--strict"], ("--strict",)),
            (["--gpus", "1", "--share", "time"], ("--share time", "--gpus 0.5")),
            (["--mig", "1g.10gb", "--gpu-mem", "10G"], ("profile of --mig", "drop --gpu-mem")),
            (["--mig", "1g.10gb", "--gpus", "0.5"], ("cannot be divided further", "omit --gpus")),
            (["--mig", ""], ("--mig needs a profile", "1g.10gb")),
            (["--mig", "big"], ("is not a MIG profile", "1g.10gb")),
            (["--checkpoint-signal", "KILL"], ("no job can answer signal 9", "USR1")),
            (["--checkpoint-signal", "STOP"], ("signal 19", "USR1")),
            (
                ["--gpus", "1000000"],
                ("no node has 1000000 GPUs; the largest has 8", "at most --gpus 8"),
            ),
            (["--output", "a\udcff"], ("--output", "UTF-8")),
        ):
            errors = self.refused(*args, "--", "true")
            for word in words:
                self.assertIn(word, errors, args)
        for spec in (
            {"strict": True},
            {"time_sliced": True},
            {"checkpoint_signal": 9},
        ):  # and so does the API
            answer = self.rig.api(
                "POST",
                "/v1/jobs",
                self.rig.spec("true", resources={"gpus": 1, "share": {"milli": 1000}}, **spec),
            )
            self.assertEqual((answer.status, answer.json["code"]), (400, "invalid"), answer)
            self.assertTrue(answer.json["hint"], answer)

    def test_names_that_are_paths(self):
        for args in (("delete", "../x"), ("scale", "../x", "--max", "2"), ("delete", "")):
            done = self.rig.cli(*args)
            self.assertNotEqual(done.code, 0)
            self.assertIn("endpoint", done.errors, args)

    def test_a_user_without_an_account_is_told(self):
        done = self.rig.ok("user", "create", "nobody-has-this-name")
        self.assertIn('no account "nobody-has-this-name"', done.errors)
        self.assertIn("--unix-name", done.errors)
        self.assertNotIn(
            "no account", self.rig.ok("user", "create", "somebody", "--unix-name", "nobody").errors
        )

    def test_a_zero_byte_in_any_text_is_refused(self):
        self.assertGreater(zero_bytes.check(self, self.rig), 100)
        answer = self.rig.api("POST", "/v1/jobs", self.rig.spec("true", labels={"team": "a\0b"}))
        self.assertEqual(
            (answer.status, answer.json["detail"]),
            (400, "spec.labels.team contains a zero byte"),
            answer,
        )
        self.assertEqual(
            self.rig.api("GET", "/v1/jobs?state=all").json["jobs"], [], "a half-made job"
        )
        self.assertLess(self.rig.api("GET", "/v1/jobs?state=all&name=a%00b").status, 500)

    def test_malformed_json(self):
        for body in (
            b"{",
            b"nonsense",
            b'{"spec": {"argv": ["true"]}',
            b'{"spec": 5}',
            b"\xff\xfe",
            b"[" * 100000,
            b'{"spec":{"argv":["\x00"]}}',
            b'{"a":1e999999}',
        ):
            answer = self.rig.api("POST", "/v1/jobs", body)
            self.assertEqual((answer.status, answer.json["code"]), (400, "invalid"), body[:40])

    def test_a_body_of_10_mb_is_413(self):
        answer = None
        try:
            answer = self.rig.api(
                "POST", "/v1/jobs", b'{"x":"' + b"y" * (10 << 20) + b'"}', tcp=True
            )
        except (BrokenPipeError, ConnectionResetError):
            # the head may hang up before all of it has been sent; the answer is read below by a
            # politer client
            pass
        if answer is not None:
            self.assertEqual((answer.status, answer.json["code"]), (413, "too_large"))
        with socket.create_connection(self.rig.address()) as polite:
            polite.sendall(
                "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer"
                f" {self.rig.token()}\r\nContent-Length: {10 << 20}\r\n\r\n".encode()
            )
            polite.settimeout(20)
            self.assertTrue(polite.recv(4096).startswith(b"HTTP/1.1 413 "))
        self.assertEqual(self.rig.api("GET", "/v1/status").status, 200)

    def test_what_is_too_large_for_a_job(self):
        self.assertEqual(
            self.rig.api("POST", "/v1/jobs", self.rig.spec("true", "x" * (300 << 10))).status
            // 100,
            4,
        )
        body = self.rig.spec("true")
        body["env"]["BIG"] = "x" * (300 << 10)
        answer = self.rig.api("POST", "/v1/jobs", body)
        self.assertEqual((answer.status, answer.json["code"]), (413, "too_large"))
        self.assertEqual(
            self.rig.api(
                "POST", "/v1/jobs", self.rig.spec("true", labels={str(i): "x" for i in range(100)})
            ).status,
            400,
        )

    def test_noise_instead_of_http(self):
        for noise in (
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"POST /v1/jobs HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
            b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
            os.urandom(2000),
        ):
            with socket.create_connection(self.rig.address()) as noisy:
                noisy.settimeout(20)
                try:
                    noisy.sendall(noise)
                    noisy.shutdown(socket.SHUT_WR)
                    answer = noisy.recv(4096)
                except (ConnectionResetError, BrokenPipeError):
                    answer = b""
                self.assertTrue(
                    answer == b""
                    or answer.startswith(b"HTTP/1.1 4")
                    or answer.startswith(b"HTTP/1.1 5"),
                    answer,
                )
        self.assertEqual(self.rig.api("GET", "/healthz").json, {"ok": True})


class Access(RigTest):
    def token(self, **fields):
        user = fields.pop("user", None)
        path = f"/v1/users/{user}/tokens" if user else "/v1/tokens"
        answer = self.rig.api("POST", path, fields)
        self.assertEqual(answer.status, 201, answer)
        return answer.json["token"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        assert (
            cls.rig.api(
                "POST", "/v1/users", {"name": "ana", "unix_name": "nobody", "role": "member"}
            ).status
            == 201
        )
        assert (
            cls.rig.api("PUT", "/v1/projects/default/members/ana", {"role": "viewer"}).status == 200
        )

    def test_bad_tokens_open_nothing(self):
        for token in ("", "x", "bw_" + "A" * 40, self.rig.token()[:-1], self.rig.token() + "x"):
            for path in ("/v1/status", "/v1/jobs", "/v1/tokens", "/v1/events"):
                self.assertEqual(
                    self.rig.api("GET", path, token=token or "").status, 401, (token, path)
                )
        done = self.rig.cli("ps", env={"BILLOW_TOKEN": "bw_wrong"})
        self.assertNotEqual(done.code, 0)
        self.assertIn("token", done.errors)

    def test_tokens_end(self):
        token = self.token(name="short", user="ana", scope="read", life_s=1)
        self.assertEqual(self.rig.api("GET", "/v1/status", token=token).status, 200)
        poll(lambda: self.rig.api("GET", "/v1/status", token=token).status == 401, "its end")
        made = self.rig.api("POST", "/v1/users/ana/tokens", {"name": "gone"}).json
        self.assertEqual(self.rig.api("DELETE", f"/v1/tokens/{made['id']}").status, 200)
        self.assertEqual(self.rig.api("GET", "/v1/status", token=made["token"]).status, 401)

    def test_roles_hold(self):
        read = self.token(name="read", user="root", scope="read")
        self.assertEqual(self.rig.api("GET", "/v1/jobs", token=read).status, 200)
        self.assertEqual(
            self.rig.api("POST", "/v1/jobs", self.rig.spec("true"), token=read).status, 403
        )
        viewer = self.token(name="viewer", user="ana")
        self.assertEqual(
            self.rig.api("POST", "/v1/jobs", self.rig.spec("true"), token=viewer).status, 403
        )
        for method, path, body in (
            ("POST", "/v1/users", {"name": "eve"}),
            ("POST", "/v1/projects", {"name": "p"}),
            ("POST", "/v1/shutdown", {}),
            ("POST", "/v1/nodes/x/drain", {}),
            ("PUT", "/v1/projects/default/members/ana", {"role": "admin"}),
            ("POST", "/v1/tokens", {"name": "t", "user": "root"}),
            ("POST", "/v1/tokens", {"name": "t", "scope": "node"}),
            ("GET", "/v1/events", None),
        ):
            self.assertEqual(
                self.rig.api(method, path, body, token=viewer).status, 403, (method, path)
            )
        node = self.rig.read("node-token").strip()
        for method, path in (("GET", "/v1/jobs"), ("GET", "/v1/status"), ("POST", "/v1/jobs")):
            self.assertEqual(self.rig.api(method, path, token=node).status, 403)
        self.assertEqual(WebSocket(self.rig, "/v1/agent", self.rig.token()).status, 403)
        self.assertEqual(self.rig.api("GET", "/v1/status").json["jobs"]["running"], 0)

    def test_secrets_are_stored_nowhere(self):
        token = self.token(name="secret", user="ana")
        self.rig.ok("run", "--", "true")
        for folder, _, names in os.walk(self.rig.data):
            for name in names:
                if name in ("token", "node-token", "gateway-token", "head.sock"):
                    continue
                path = os.path.join(folder, name)
                if os.path.isfile(path):
                    with open(path, "rb") as f:
                        content = f.read()
                    self.assertNotIn(token.encode(), content, path)
                    self.assertNotIn(self.rig.token().encode(), content, path)


class Starting(unittest.TestCase):
    def test_a_taken_port_is_named(self):
        rig = Rig(up=False)
        try:
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                taken.listen()
                port = taken.getsockname()[1]
                for background in ([], ["--background"]):
                    done = rig.cli("up", *background, "--listen", f"127.0.0.1:{port}")
                    self.assertNotEqual(done.code, 0)
                    self.assertIn(f"127.0.0.1:{port}", done.errors)
                    self.assertIn("--listen", done.errors)
            self.assertEqual(rig.processes(), {})
            rig.up()
        finally:
            rig.close()

    def test_a_second_head_on_the_same_directory_is_refused(self):
        rig = Rig()
        try:
            done = rig.cli("up", "--listen", "127.0.0.1:0")
            self.assertNotEqual(done.code, 0)
            self.assertIn("in use by another head", done.errors)
            self.assertIn("billow down", done.errors)
            self.assertIn("already running", rig.up().text)
            self.assertEqual(rig.cli("run", "--", "echo", "well").out, b"well\n")
        finally:
            rig.close()

    def test_a_directory_of_a_newer_version_is_left_alone(self):
        rig = Rig()
        try:
            rig.ok("run", "--", "true")
            rig.ok("down")
            path = os.path.join(rig.data, "billow.db")
            with sqlite3.connect(path) as db:
                (old,) = db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
                db.execute("UPDATE meta SET value = 999 WHERE key = 'format'")
            db.close()
            for background in ([], ["--background"]):
                done = rig.cli("up", *background, "--listen", "127.0.0.1:0")
                self.assertNotEqual(done.code, 0)
                self.assertIn("newer Billow", done.errors)
                self.assertIn("upgrade", done.errors)
            with sqlite3.connect(path) as db:
                db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (old,))
            db.close()
            rig.up()
            self.assertEqual(len(rig.json("ps", "-a")["jobs"]), 1)
        finally:
            rig.close()

    def test_a_directory_that_cannot_be_used(self):
        rig = Rig(up=False)
        try:
            file = rig.file("a-file")
            open(file, "w", encoding="ascii").close()
            for data in (file, file + "/below", "/proc/billow"):
                done = rig.cli("up", "--background", "--data", data, "--listen", "127.0.0.1:0")
                self.assertNotEqual(done.code, 0)
                self.assertIn(data, done.errors)
            os.makedirs(rig.data)
            with open(os.path.join(rig.data, "billow.db"), "wb") as f:
                f.write(b"this is not a database, whatever its name says" * 100)
            done = rig.cli("up", "--background", "--listen", "127.0.0.1:0")
            self.assertNotEqual(done.code, 0)
            self.assertIn("billow.db", done.errors)
        finally:
            rig.close()

    def test_wrong_simulations(self):
        rig = Rig(up=False)
        try:
            done = rig.cli("up", "--background", "--listen", "127.0.0.1:0", "--sim", "8xH1000")
            self.assertNotEqual(done.code, 0, done)
            self.assertIn("H1000", done.errors)
        finally:
            rig.close()


FULL_DISK = r"""
import os, subprocess, sys
sys.path[:0] = sys.path_
from bad_input_test import on_a_small_disk
on_a_small_disk(sys.argv[1])
"""


def on_a_small_disk(mount):
    """Runs in a mount namespace of its own, with a disk of 64 MB at `mount`."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=0755", "tmpfs", mount], check=True)
    rig = Rig(data=os.path.join(mount, "data"))
    try:
        case = unittest.TestCase()
        gate = rig.file("gate")
        job = rig.submit(
            "--", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done; echo finished; exit 5"
        )
        rig.wait_for(job, "running")
        filler = os.path.join(mount, "filler")
        space = os.open(filler, os.O_WRONLY | os.O_CREAT)
        for size in (65536, 4096):
            try:
                while os.write(space, b"x" * size):
                    pass
            except OSError:
                pass
        os.close(space)
        made = []

        def full():
            answer = rig.api("POST", "/v1/jobs", rig.spec("true"))
            if answer.status == 201:
                made.append(answer.json["id"])  # the last that fitted
            return answer if answer.status == 507 else None

        answer = poll(full, "507", 30)
        case.assertEqual(answer.json["code"], "storage_full")
        case.assertIn("free some space", answer.json["hint"])
        case.assertEqual(rig.api("GET", "/v1/status").json["store"], "disk_low")
        done = rig.cli("submit", "--", "true")
        case.assertNotEqual(done.code, 0)
        case.assertIn("full", done.errors)
        # Whatever writes something new down is refused, not jobs alone.
        for method, path, body in (
            ("POST", f"/v1/jobs/{job}/rerun", {}),
            ("POST", "/v1/schedules", {"name": "nightly", "cron": "0 3 * * *", **rig.spec("true")}),
            ("POST", "/v1/tokens", {"name": "t"}),
            ("POST", "/v1/users", {"name": "eve"}),
            ("POST", "/v1/projects", {"name": "p"}),
            ("POST", "/v1/session", {"token": rig.token()}),
            ("PUT", "/v1/secrets/S", {"value": "x"}),
        ):
            case.assertEqual(rig.api(method, path, body).status, 507, path)
        # What runs goes on, and its end is known.
        case.assertEqual(rig.job(job)["state"], "running")
        open(gate, "w", encoding="ascii").close()
        case.assertEqual(rig.cli("wait", job).code, 5)
        # What was accepted has an end too, and was not made by halves.
        for one in made:
            document = rig.api("GET", f"/v1/jobs/{one}/wait?timeout_s=30").json
            case.assertTrue(document["final"], document)
        # A head that is killed on a full disk starts on it again.
        rig.kill(rig.head_pid())
        rig.up()
        case.assertEqual(rig.job(job)["exit_code"], 5)
        os.unlink(filler)
        poll(lambda: rig.api("GET", "/v1/status").json["store"] == "ok", "room again", 30)
        case.assertEqual(rig.cli("run", "--", "echo", "room").out, b"room\n")
        print("jobs accepted before the first 507:", len(made))
    finally:
        rig.close()


class FullDisk(unittest.TestCase):
    def test_refuses_new_work_and_keeps_the_old(self):
        if (
            os.geteuid() != 0
            or subprocess.run(
                ["unshare", "--mount", "true"], check=False, capture_output=True
            ).returncode
            != 0
        ):
            self.skipTest("needs a mount namespace of its own (root)")
        rig_folder = subprocess.run(
            ["mktemp", "-d"], capture_output=True, check=True, text=True
        ).stdout.strip()
        try:
            program = FULL_DISK.replace(
                "sys.path_",
                repr([os.path.dirname(__file__), os.path.dirname(sys.modules["rig"].__file__)]),
            )
            done = subprocess.run(
                [
                    "unshare",
                    "--mount",
                    "--propagation",
                    "private",
                    sys.executable,
                    "-c",
                    program,
                    rig_folder,
                ],
                check=False,
                capture_output=True,
                text=True,
                timeout=150,
            )
            print(done.stdout)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        finally:
            os.rmdir(rig_folder)


class Crash(unittest.TestCase):
    def test_a_supervisor_that_dies_loses_its_job_and_says_so(self):
        rig = Rig()
        try:
            job = rig.submit("--", "sleep", "600")
            rig.wait_for(job, "running")
            (sleeper,) = poll(
                lambda: [
                    pid for pid, line in rig.processes().items() if line.startswith("sleep 600")
                ],
                "its process",
            )
            (supervisor,) = [
                pid for pid, line in rig.processes().items() if "billow-supervise" in line
            ]
            os.kill(supervisor, signal.SIGKILL)
            self.assertEqual(rig.cli("wait", job).code, 125)
            self.assertEqual(rig.job(job)["state"], "lost")
            poll(lambda: not alive(sleeper), "the end of what it supervised")
        finally:
            rig.close()

    def test_two_installations_leave_each_others_jobs_alone(self):
        # Both number their tasks from 1; one ends its own, well and badly, while the other's runs
        # on.
        ours, theirs = Rig(), Rig()
        try:
            keep = ours.submit("--mem", "100M", "--cpus", "0.5", "--", "sleep", "600")
            ours.wait_for(keep, "running")
            (sleeper,) = poll(
                lambda: [
                    pid for pid, line in ours.processes().items() if line.startswith("sleep 600")
                ],
                "its process",
            )
            first = theirs.submit("--mem", "100M", "--cpus", "0.5", "--", "sleep", "600")
            self.assertEqual(first, keep)
            poll(
                lambda: [
                    pid for pid, line in theirs.processes().items() if line.startswith("sleep 600")
                ],
                "the other's process",
            )
            (supervisor,) = [
                pid for pid, line in theirs.processes().items() if "billow-supervise" in line
            ]
            os.kill(supervisor, signal.SIGKILL)
            self.assertEqual(theirs.cli("wait", first).code, 125)
            self.assertEqual(
                theirs.cli("run", "--mem", "100M", "--", "echo", "done").out, b"done\n"
            )
            self.assertTrue(alive(sleeper))
            self.assertEqual(ours.job(keep)["state"], "running")
        finally:
            theirs.close()
            ours.close()
