"""Inputs and outputs on a real S3 server, the node's cache of them, and volumes of the node."""
import hashlib
import http.server
import os
import shutil
import tempfile
import threading
import unittest
import urllib.request

import images
import s3
from rig import Rig, poll


WHY_NOT = s3.usable()
NO_SWIFT = s3.swift_usable()


class Rigged(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="1xH100")

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def last(self):
        return self.rig.json("ps", "-a")["jobs"][0]["id"]


class OnAServer(Rigged):
    server_class = s3.Server

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            cls.server = cls.server_class(os.path.join(cls.rig.root, "s3"), "data")
        except BaseException:
            cls.rig.close()
            raise

    @classmethod
    def tearDownClass(cls):
        try:
            cls.server.close()
        finally:
            super().tearDownClass()

    def run_job(self, *args, env=None, expect=0):
        options = [
            word
            for name, value in {**self.server.env(), **(env or {})}.items()
            for word in ("--env-var", f"{name}={value}")
        ]
        done = self.rig.cli("run", *options, *args, timeout=120)
        self.assertEqual(done.code, expect, done)
        return done

    def there_and_back(self):
        # Large enough for parts both ways, and names that a signature must encode.
        make = (
            "mkdir -p 'out/a b' && head -c 40000000 /dev/urandom > 'out/a b/big+1=x.bin' && echo"
            " hello > out/small && : > out/empty && find out -type f -exec sha256sum {} + | sort"
        )
        sent = self.run_job("--output", "out=s3://data/runs/1", "--", "sh", "-c", make)
        self.assertIn("3 files sent to s3://data/runs/1", sent.errors)
        got = self.run_job(
            "--input",
            "s3://data/runs/1:out",
            "--",
            "sh",
            "-c",
            "find out -type f -exec sha256sum {} + | sort; touch out/mine; echo x >> out/small",
        )
        self.assertEqual(got.text.splitlines(), sent.text.splitlines())
        self.assertIn("out: 3 files", got.errors)
        return got


@unittest.skipIf(NO_SWIFT, NO_SWIFT)
class Signed(OnAServer):
    """Against a server that computes every signature itself."""

    server_class = s3.SignedServer

    def test_what_goes_out_comes_in_again(self):
        self.there_and_back()
        # Names with what a path, a query and a signature each write in their own way.
        odd = "odd ~!*'()&=+,;:@$ %25 é日.txt"
        self.run_job(
            "--output",
            "d=s3://data/odd",
            "--",
            "python3",
            "-c",
            f"import os; os.mkdir('d'); open('d/' + {odd!r}, 'w').write('read me')",
        )
        done = self.run_job(
            "--input",
            "s3://data/odd:d",
            "--",
            "python3",
            "-c",
            "import os; n = os.listdir('d'); print(ascii(n), open('d/' + n[0]).read())",
        )
        self.assertEqual(done.text, f"{ascii([odd])} read me\n")

    def test_a_wrong_key_is_refused_by_its_signature(self):
        self.run_job(
            "--output", "secret=s3://data/private/secret", "--", "sh", "-c", "echo hidden > secret"
        )
        done = self.run_job(
            "--input",
            "s3://data/private/secret",
            "--",
            "cat",
            "secret",
            env={"AWS_SECRET_ACCESS_KEY": "another"},
            expect=125,
        )
        self.assertEqual(done.text, "")
        done = self.run_job(
            "--input",
            "s3://data/private/",
            "--",
            "true",
            env={"AWS_SECRET_ACCESS_KEY": "another"},
            expect=125,
        )
        self.assertIn("SignatureDoesNotMatch", done.errors)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Objects(OnAServer):
    def test_what_goes_out_comes_in_again_and_is_fetched_once(self):
        self.assertNotIn("cache", self.there_and_back().errors)
        # The second job has the node's copy, as it was.
        again = self.run_job(
            "--input",
            "s3://data/runs/1/small:one",
            "--input",
            "s3://data/runs/1/",
            "--",
            "sh",
            "-c",
            "cat one 1/small; sha256sum < '1/a b/big+1=x.bin'",
        )
        self.assertEqual(again.text.splitlines()[:2], ["hello", "hello"])
        self.assertIn("from this node's cache", again.errors)
        # What changed at its source is fetched again.
        self.run_job(
            "--output", "new=s3://data/runs/1/small", "--", "sh", "-c", "echo changed > new"
        )
        changed = self.run_job("--input", "s3://data/runs/1/small", "--", "cat", "small")
        self.assertEqual(changed.text, "changed\n")
        self.assertNotIn("cache", changed.errors)

    def test_keys_are_needed_each_time(self):
        self.run_job(
            "--output", "secret=s3://data/private/secret", "--", "sh", "-c", "echo hidden > secret"
        )
        self.assertEqual(
            self.run_job("--input", "s3://data/private/secret", "--", "cat", "secret").text,
            "hidden\n",
        )
        done = self.run_job(
            "--input",
            "s3://data/private/secret",
            "--",
            "cat",
            "secret",
            env={"AWS_ACCESS_KEY_ID": "SOMEBODY"},
            expect=125,
        )
        self.assertEqual(done.text, "")
        self.assertIn("could not be fetched", done.errors)

    def test_what_is_wrong_is_said(self):
        for url, word in (
            ("s3://data/nothing-here", "does not exist"),
            ("s3://no-such-bucket/x", "no-such-bucket"),
        ):
            done = self.run_job("--input", url, "--", "true", expect=125)
            self.assertIn(word, done.errors)
        for option, word in (
            ("ftp://host/x", "must start with s3://"),
            ("s3://", "bucket name"),
            ("https://user:pw@host/x", "password"),
            ("s3://data/x:../up", "not a path inside"),
        ):
            done = self.rig.cli("run", "--input", option, "--", "true")
            self.assertEqual(done.code, 2, done)
            self.assertIn(word, done.errors)
        done = self.run_job(
            "--output", "x=s3://no-such-bucket/x", "--", "sh", "-c", "echo 1 > x", expect=125
        )
        self.assertIn("an output could not be kept: x", done.errors)
        job = self.rig.api(
            "POST",
            "/v1/jobs",
            {
                "spec": {
                    "argv": ["true"],
                    "cwd": "/",
                    "surroundings": {"inputs": [{"url": "s3://data/x", "path": "../x"}]},
                }
            },
        ).json["id"]
        self.assertNotEqual(self.rig.cli("wait", job, timeout=60).code, 0)

    def test_http_inputs_and_the_projects_cache(self):
        content = os.urandom(300_000)
        served = []

        class Files(http.server.BaseHTTPRequestHandler):
            def answer(self):
                served.append(self.command)
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("ETag", '"v1"')
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(content)

            do_GET = do_HEAD = answer

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}/models/m.bin"
        for _ in range(2):
            done = self.rig.ok(
                "run",
                "--input",
                url,
                "--",
                "sh",
                "-c",
                "sha256sum < m.bin; ls -l m.bin | cut -c1-10",
            )
            self.assertEqual(done.text.split()[0], hashlib.sha256(content).hexdigest())
            self.assertEqual(done.text.split()[-1], "-r--r--r--")
        self.assertEqual(served.count("GET"), 1, served)
        # An endpoint's replicas have theirs in the same way, from the same copy.
        with open(self.rig.file("page.txt"), "w", encoding="ascii") as f:
            f.write("came along")
        done = self.rig.cli(
            "deploy",
            "models",
            "--sync",
            "--json",
            "--input",
            url,
            "--",
            "sh",
            "-c",
            "exec python3 -m http.server --bind 127.0.0.1 $PORT",
            timeout=120,
        )
        self.assertEqual(done.code, 0, done)
        self.addCleanup(self.rig.cli, "endpoint", "rm", "models")
        where = done.json["urls"][0].rstrip("/")
        with urllib.request.urlopen(where + "/m.bin", timeout=60) as answer:
            self.assertEqual(answer.read(), content)
        with urllib.request.urlopen(where + "/page.txt", timeout=60) as answer:
            self.assertEqual(answer.read(), b"came along")
        self.assertEqual(served.count("GET"), 1, served)
        first = self.rig.ok(
            "run",
            "--",
            "sh",
            "-c",
            'test -d "$BILLOW_CACHE" && echo kept > "$BILLOW_CACHE/x" && echo "$BILLOW_CACHE"',
        ).text.strip()
        self.assertEqual(
            self.rig.ok("run", "--", "sh", "-c", 'cat "$BILLOW_CACHE/x"').text, "kept\n"
        )
        self.rig.ok("project", "create", "other")
        self.assertNotEqual(
            self.rig.ok(
                "run",
                "--project",
                "other",
                "--",
                "sh",
                "-c",
                'echo "$BILLOW_CACHE"; ls "$BILLOW_CACHE"',
            ).text.strip(),
            first,
        )


class CacheLimit(unittest.TestCase):
    """A node that keeps three megabytes of what its jobs name, and jobs that name one each."""

    def setUp(self):
        self.gets = gets = []

        class Models(http.server.BaseHTTPRequestHandler):
            def answer(self):
                content = self.path.encode() * (1_000_000 // len(self.path))
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("ETag", '"v1"')
                self.end_headers()
                if self.command == "GET":
                    gets.append(self.path)
                    self.wfile.write(content)

            do_GET = do_HEAD = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Models)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.rig = Rig(sim="1xH100", args=("--no-agent",))
        self.addCleanup(self.rig.close)
        data = os.path.join(self.rig.root, "node")
        address = self.rig.json("status")["addresses"][0]
        self.rig.start(
            "join",
            address,
            "--token",
            self.rig.ok("token", "create", "--node").text.strip(),
            "--node-name",
            "box",
            "--data",
            data,
            "--sim",
            "1xH100",
            "--cache-max",
            "3M",
        )
        poll(
            lambda: any(
                n["name"] == "box" and n["state"] == "ready"
                for n in self.rig.json("nodes")["nodes"]
            ),
            "the node",
        )

    def url(self, name):
        return f"http://127.0.0.1:{self.server.server_port}/{name}"

    def use(self, *names):
        inputs = [word for name in names for word in ("--input", f"{self.url(name)}:{name}")]
        done = self.rig.ok(
            "run",
            "--sync",
            *inputs,
            "--",
            "sh",
            "-c",
            "cat " + " ".join(names) + " | wc -c",
            timeout=60,
        )
        self.assertEqual(
            int(done.text), sum(len(f"/{name}") * (1_000_000 // len(f"/{name}")) for name in names)
        )

    def held(self):
        kept = os.path.join(
            images.work_place(os.path.join(self.rig.root, "node", "node")), "objects", "objects"
        )
        return sum(os.stat(os.path.join(kept, name)).st_size for name in os.listdir(kept))

    def test_the_longest_unused_goes_but_nothing_that_a_job_has(self):
        for name in ("a", "b", "c"):
            self.use(name)
        self.use("a")  # the longest unused is now b
        self.assertEqual(self.gets, ["/a", "/b", "/c"])
        self.use("d")
        self.assertLessEqual(self.held(), 3 << 20)
        self.gets.clear()
        self.use("a")
        self.use("c")
        self.assertEqual(self.gets, [], "what was used since is kept")
        self.use("b")
        self.assertEqual(self.gets, ["/b"], "and this had gone")
        # One that a running job has stays, however long ago it was used; the limit holds all the
        # same.
        gate = self.rig.file("gate")
        job = self.rig.submit(
            "--sync",
            "--input",
            f"{self.url('mine')}:mine",
            "--",
            "sh",
            "-c",
            f"until [ -e {gate} ]; do sleep 0.05; done; wc -c < mine",
        )
        poll(lambda: "/mine" in self.gets, "the job's input")
        self.rig.wait_for(job, "running")
        for name in ("e", "f", "g", "h"):
            self.use(name)
        self.assertLessEqual(self.held(), 3 << 20)
        self.gets.clear()
        self.use("mine")
        self.assertEqual(self.gets, [])
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job, timeout=30).code, 0)
        # More at once than there is room for is brought, and not kept.
        self.use("p", "q", "r", "s")
        self.assertLessEqual(self.held(), 3 << 20)


class Leftovers(unittest.TestCase):
    def test_what_agents_left_that_never_come_back_is_cleared(self):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            boot = f.read().strip()
        # In a container, say: its data directory may exist without being seen from here.
        elsewhere = f"/nowhere/at/all\n{boot} mnt:[1]"
        before = "/nowhere/at/all\n00000000-0000-0000-0000-000000000000 mnt:[1]"
        owners = ("/nowhere/at/all", "/", elsewhere, before)
        places = [tempfile.mkdtemp(prefix="billow-", dir="/var/tmp") for _ in owners]
        dead, live, unseen, earlier = places
        for path, owner in zip(places, owners):
            self.addCleanup(shutil.rmtree, path, ignore_errors=True)
            os.makedirs(os.path.join(path, "12"))
            with open(os.path.join(path, ".owner"), "w", encoding="ascii") as f:
                f.write(owner + "\n")
        rig = Rig(sim="1xH100")
        try:
            rig.ok("run", "--", "true")
            self.assertFalse(os.path.exists(dead))
            self.assertFalse(os.path.exists(earlier))
            self.assertTrue(os.path.exists(os.path.join(live, "12")))
            self.assertTrue(os.path.exists(os.path.join(unseen, "12")))
        finally:
            rig.close()


if __name__ == "__main__":
    unittest.main()
