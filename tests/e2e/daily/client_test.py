"""A client that was built alone, against a whole head: login over TLS, jobs, logs, files, names in
place of numbers."""
import json
import os
import subprocess

from rig import BILLOW, RigTest, poll

CLIENT = BILLOW + "-client"


class ClientOnly(RigTest):
    options = {"sim": "4xH100", "args": ("--tls",)}

    def client(self, *args, stdin=None, cwd=None, timeout=120):
        """As a laptop would: no data directory of a head, only what `login` kept."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": self.home,
            "XDG_CONFIG_HOME": os.path.join(self.home, "config"),
            "BILLOW_SYSTEM_SOCKET": os.path.join(self.home, "none"),
        }
        return subprocess.run(
            [CLIENT, *map(str, args)],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=cwd or self.home,
            env=environment,
            timeout=timeout,
            check=False,
        )

    def ok(self, *args, **more):
        done = self.client(*args, **more)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def setUp(self):
        self.home = self.rig.file("laptop")
        os.makedirs(self.home, exist_ok=True)
        url = json.loads(self.rig.read("head.json"))["addresses"][0]
        token = self.rig.ok("token", "create", "laptop-" + self._testMethodName).text.strip()
        said = self.ok("login", url, stdin=token + "\n")
        self.assertIn("logged in to https://", said)

    def test_it_changes_between_heads(self):
        url = json.loads(self.rig.read("head.json"))["addresses"][0]
        self.ok("ps")
        self.ok("context", "use", "local")
        self.assertEqual(self.client("ps").returncode, 69, "no head runs on the laptop")
        self.ok("context", "use", url)
        self.ok("ps")
        unknown = self.client("context", "use", "https://nowhere:7070")
        self.assertEqual(unknown.returncode, 1, unknown)
        self.assertIn("billow login https://nowhere:7070", unknown.stderr)

    def test_a_job_its_output_and_its_files(self):
        done = self.client(
            "run", "--gpus", 1, "--", "sh", "-c", "echo out of the job; echo beside it >&2; exit 3"
        )
        self.assertEqual((done.returncode, done.stdout), (3, "out of the job\n"), done)
        self.assertIn("beside it", done.stderr)
        with open(os.path.join(self.home, "in.txt"), "w", encoding="ascii") as f:
            f.write("from the laptop\n")
        self.ok(
            "run",
            "--sync",
            "-n",
            "copies",
            "--output",
            "out",
            "--",
            "sh",
            "-c",
            "mkdir out; cp in.txt out/result; cat in.txt",
        )
        self.assertEqual(self.ok("logs", "copies"), "from the laptop\n")
        self.ok("cp", "copies:out/result", "./renamed")
        with open(os.path.join(self.home, "renamed"), encoding="ascii") as f:
            self.assertEqual(f.read(), "from the laptop\n")

    def test_names_stand_for_jobs(self):
        first, second = (
            self.ok(
                "submit",
                "--json",
                "-n",
                "twin",
                "--gpus",
                1,
                "--",
                "sh",
                "-c",
                f"echo {i}; sleep 600",
            )
            for i in (1, 2)
        )
        first, second = (json.loads(text)["id"] for text in (first, second))
        for job in (first, second):
            self.rig.wait_for(job, "running")
        # Who looks gets the newest and is told so; who changes something must say which.
        done = poll(
            lambda: (lambda d: d if d.stdout else None)(self.client("logs", "twin")), "its output"
        )
        self.assertEqual(done.stdout, "2\n")
        self.assertIn(
            f"2 of your jobs are called twin ({second}, {first}); this is job {second}", done.stderr
        )
        done = self.client("stop", "twin")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"2 of your jobs are called twin: {second}, {first}", done.stderr)
        self.ok("stop", "--force", "--wait", second)
        self.ok("stop", "--force", "--wait", "twin")
        self.assertEqual(self.rig.json("describe", first)["state"], "stopped")
        self.assertIn(
            f"{second}", self.ok("describe", "twin").splitlines()[0], "of ended ones the newest"
        )
        done = self.client("logs", "nobody")
        self.assertEqual(done.returncode, 1)
        self.assertIn("you have no job called nobody", done.stderr)

    def test_a_job_that_waits_says_why_in_the_list(self):
        holds = self.rig.submit("--gpus", 4, "--", "sleep", 600)
        self.rig.wait_for(holds, "running")
        waits = self.rig.submit("--gpus", 2, "--", "true")
        row = next(line for line in self.ok("ps").splitlines() if line.startswith(f"{waits} "))
        self.assertIn("in use", row)
        self.ok("stop", "--force", "--wait", holds, waits)

    def test_what_only_a_head_can_do_is_said(self):
        done = self.client("up")
        self.assertEqual(done.returncode, 1)
        self.assertIn(
            "this program is a client only; run `billow up` on the head's machine (Linux)",
            done.stderr,
        )
        self.ok("logout")
        done = self.client("run", "--", "true")
        self.assertEqual(done.returncode, 69, done)
        self.assertIn("billow login", done.stderr)
