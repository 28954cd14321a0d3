"""The first minutes on a machine: without a GPU, and with simulated ones."""
import os
import pwd
import subprocess
import unittest
import urllib.error
import urllib.request

from rig import BIN, Rig, RigTest


class WithoutGpu(unittest.TestCase):
    """The first command of the README where the driver reports no GPU."""

    def setUp(self):
        self.rig = Rig(up=False)
        self.home = os.path.join(self.rig.root, "home")
        os.makedirs(self.home)
        self.plain = {
            "BILLOW_SIM": "",
            "BILLOW_NVML": "/nonexistent/libnvidia-ml.so.1",
            "BILLOW_DATA": "",
            "HOME": self.home,
            "XDG_DATA_HOME": os.path.join(self.home, "share"),
            "XDG_STATE_HOME": os.path.join(self.home, "state"),
        }

    def tearDown(self):
        self.rig.cli("down", "--stop-jobs", env=self.plain)
        self.rig.close()

    def test_it_says_what_to_do_and_leaves_nothing(self):
        for command in (
            ("run", "--gpus", 1, "--", "python", "train.py"),
            ("submit", "--gpus", 0.25, "--", "true"),
            ("deploy", "model", "--gpus", 1, "--", "true"),
        ):
            done = self.rig.cli(*command, env=self.plain)
            self.assertEqual(done.code, 1, done)
            for words in ("no NVIDIA GPU", "--sim", "billow login", "billow cloud add"):
                self.assertIn(words, done.errors)
            self.assertEqual(self.rig.processes(), {})
            self.assertEqual(os.listdir(self.home), [])

    def test_a_job_without_gpus_runs(self):
        done = self.rig.cli("run", "-q", "--", "echo", "hello", env=self.plain)
        self.assertEqual((done.code, done.out), (0, b"hello\n"), done)
        # The head that runs now has no GPU either, and says what to do.
        done = self.rig.cli("run", "--gpus", 1, "--", "true", env=self.plain)
        self.assertEqual(done.code, 1, done)
        self.assertIn("no node has a GPU", done.errors)
        self.assertIn("--sim", done.errors)


class SimulatedSmi(RigTest):
    """nvidia-smi in jobs on simulated GPUs shows what the job was given."""

    options = {"sim": "2xH100,1xA100-40+mig=3g.20gb/2g.10gb"}

    def smi(self, gpus, *args):
        return self.rig.ok("run", "-q", *gpus, "--", "nvidia-smi", *args).text

    def test_list_names_the_cards_of_the_job(self):
        one = self.smi(["--gpus", 1], "-L").splitlines()
        self.assertEqual(len(one), 1, one)
        self.assertRegex(one[0], r"^GPU 0: NVIDIA H100.* \(UUID: GPU-[0-9a-f-]+\)$")
        self.assertEqual(len(self.smi(["--gpus", 2], "-L").splitlines()), 2)

    def test_a_slice_shows_its_memory(self):
        whole = self.smi(
            ["--gpus", 1], "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"
        )
        name, total = whole.strip().split(", ")
        self.assertIn("H100", name)
        part = self.smi(
            ["--gpus", 0.25], "--query-gpu=memory.total", "--format=csv,noheader,nounits"
        )
        self.assertAlmostEqual(int(part) / int(total), 0.25, delta=0.01)
        self.assertIn("Slice of this job: 0.25 GPU", self.smi(["--gpus", 0.25]))
        header = self.smi(["--gpus", 1], "--query-gpu=index,memory.used", "--format=csv")
        self.assertEqual(header.splitlines()[0], "index, memory.used [MiB]")

    def test_mig_instances_are_listed(self):
        lines = self.smi(["--mig", "2g.10gb"], "-L").splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertRegex(lines[1], r"^  MIG 2g.10gb +Device +0: \(UUID: MIG-")
        self.assertIn("Enabled", self.smi(["--mig", "2g.10gb"]))

    def test_a_busy_job_is_busy(self):
        script = (
            "python3 -c 'import time; e = time.time() + 8\nwhile time.time() < e: pass' & sleep"
            " 0.5; nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits; kill $!"
        )
        busy = self.rig.ok("run", "-q", "--gpus", 1, "--", "sh", "-c", script).text
        self.assertGreater(int(busy), 50)
        idle = "sleep 1; nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits"
        self.assertLess(int(self.rig.ok("run", "-q", "--gpus", 1, "--", "sh", "-c", idle).text), 50)

    def test_what_is_not_simulated_is_an_error(self):
        for args, words in (
            (["--query-gpu=fan.speed", "--format=csv"], "fan.speed"),
            (["-pm", "1"], "simulated"),
            (["--query-gpu=name", "--format=xml"], "xml"),
        ):
            done = self.rig.cli("run", "-q", "--gpus", 1, "--", "nvidia-smi", *args)
            self.assertEqual(done.code, 2, done)
            self.assertIn(words, done.errors)


# One card behind an interface like the driver's.
ONE_CARD = os.path.join(os.path.abspath(BIN), "../lib/libbillow-test-old-nvml.so")


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be several users")
class SharedMachine(unittest.TestCase):
    """Several accounts of one machine: root's head serves them all, and nobody starts a second one
    on the same GPUs."""

    def setUp(self):
        self.rig = Rig(up=False, sim="2xH100")
        self.socket = os.path.join(self.rig.root, "run/head.sock")
        self.rig.environment["BILLOW_SYSTEM_SOCKET"] = self.socket

    def tearDown(self):
        for name in ("nobody", "daemon"):
            if os.path.isdir(self.home(name)):
                self.as_user(name, "down", "--stop-jobs")
        self.rig.close()

    def up(self, *args):
        done = self.rig.cli("up", "--background", "--listen", "127.0.0.1:0", *args)
        self.assertEqual(done.code, 0, done)

    def home(self, name):
        return os.path.join(self.rig.root, "home-" + name)

    def as_user(self, name, *args, **env):
        home = self.home(name)
        account = pwd.getpwnam(name)
        os.makedirs(home, exist_ok=True)
        os.chown(home, account.pw_uid, account.pw_gid)
        plain = {
            "BILLOW_DATA": "",
            "HOME": home,
            "XDG_DATA_HOME": home + "/share",
            "XDG_CONFIG_HOME": home + "/config",
            "XDG_STATE_HOME": home + "/state",
        }
        return self.rig.cli(*args, env={**plain, **env}, user=account.pw_uid, cwd="/")

    def test_an_account_uses_the_head_of_the_machine(self):
        self.up("--system")
        done = self.as_user("nobody", "run", "--gpus", 1, "--", "sh", "-c", "id -un; nvidia-smi -L")
        self.assertEqual(done.code, 0, done)
        self.assertEqual(done.text.splitlines()[0], "nobody")
        self.assertEqual(done.errors, "")
        # It is one user from then on, and no head or data of its own was made.
        self.assertIn("nobody", self.rig.ok("user", "list").text)
        self.assertFalse(os.path.exists(self.home("nobody") + "/share"))
        before = len(self.rig.api("GET", "/v1/tokens").json["tokens"])
        for _ in range(3):
            self.assertEqual(self.as_user("nobody", "ps", "-a").code, 0)
        self.assertEqual(len(self.rig.api("GET", "/v1/tokens").json["tokens"]), before)
        token = os.stat(self.home("nobody") + "/state/billow/machine-token.json")
        self.assertEqual(token.st_mode & 0o777, 0o600)

    def test_options_that_a_running_head_does_not_take_are_named(self):
        self.up()
        done = self.rig.cli("up", "--background", "--system", "--listen", "127.0.0.1:0")
        self.assertEqual(done.code, 0, done)
        self.assertIn("already running: ", done.text)
        self.assertIn("--system, --listen had no effect", done.errors)
        self.assertIn("billow down", done.errors)
        self.assertFalse(os.path.exists(self.socket))
        plain = self.rig.cli("up", "--background")
        self.assertIn("already running: ", plain.text)
        self.assertEqual(plain.errors, "", "nothing was asked for that it does not do")

    def test_nobody_becomes_somebody_else(self):
        self.up("--system")
        self.rig.ok("user", "create", "daemon", "--unix-name", "bin")
        self.rig.ok("user", "create", "ana", "--unix-name", "nobody")
        self.rig.ok("project", "member", "default", "ana")
        # An account is the user whose jobs run as it, not the user of the same name.
        self.assertEqual(
            self.as_user("nobody", "run", "--", "sh", "-c", "echo $BILLOW_USER").code, 0
        )
        refused = self.as_user("daemon", "ps")
        self.assertEqual(refused.code, 1, refused)
        self.assertIn("runs jobs as another account", refused.errors)
        # Members do not become admins, and what a program says about itself does not count.
        self.assertEqual(self.as_user("nobody", "user", "create", "eve").code, 1)
        for headers in ({}, {"X-User": "root"}, {"Authorization": "Bearer root"}):
            answer = self.rig.api(
                "POST", "/v1/session/account", token="", headers=headers, tcp=True
            )
            self.assertEqual(answer.status, 403, answer)
        # Who was removed stays so.
        self.rig.ok("user", "rm", "ana")
        refused = self.as_user("nobody", "ps")
        self.assertEqual(refused.code, 1, refused)
        self.assertIn("removed", refused.errors)
        # The way back that it names works.
        self.assertIn("billow user create ana --unix-name nobody", refused.errors)
        self.rig.ok("user", "create", "ana", "--unix-name", "nobody")
        self.assertEqual(self.as_user("nobody", "ps").code, 0)

    def test_the_policy_of_the_machine_decides(self):
        self.rig.environment["BILLOW_NODE_POLICY"] = self.rig.node_policy("allow daemon")
        self.up("--system")
        self.assertEqual(self.as_user("daemon", "run", "--", "true").code, 0)
        refused = self.as_user("nobody", "run", "--", "true")
        self.assertEqual(refused.code, 1, refused)
        self.assertIn("policy", refused.errors)

    def test_a_head_for_one_user_lets_nobody_in(self):
        self.up()
        answer = self.rig.api("POST", "/v1/session/account", token="")
        self.assertEqual(answer.status, 403, answer)
        self.assertFalse(os.path.exists(self.socket))

    @unittest.skipUnless(os.path.exists(ONE_CARD), "needs the tests of gpu")
    def test_a_second_head_on_the_same_gpus_is_refused(self):
        self.rig.environment.update({"BILLOW_SIM": "", "BILLOW_NVML": ONE_CARD})
        self.up()
        for command in (("run", "--gpus", 1, "--", "true"), ("up", "--background")):
            done = self.as_user("nobody", *command)
            self.assertNotEqual(done.code, 0, done)
            self.assertIn("root already runs Billow on this machine's GPUs", done.errors)
            self.assertIn("billow up --system", done.errors)
        self.assertFalse(os.path.exists(self.home("nobody") + "/share"))
        # Simulated GPUs are everybody's own.
        simulated = {"BILLOW_SIM": "1xL4", "BILLOW_NVML": ""}
        done = self.as_user("nobody", "run", "--gpus", 1, "--", "true", **simulated)
        self.assertEqual(done.code, 0, done)

    def test_only_root_serves_a_machine(self):
        done = self.as_user("nobody", "up", "--system", "--background")
        self.assertEqual(done.code, 2, done)
        self.assertIn("needs root", done.errors)


class Documentation(RigTest):
    """The documentation inside the program: served by the head, and in the terminal."""

    def get(self, path):
        host, port = self.rig.address()
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=30) as answer:
            return answer.geturl(), dict(answer.headers), answer.read().decode()

    def test_the_head_serves_the_site(self):
        url, headers, page = self.get("/docs")
        self.assertTrue(url.endswith("/docs/"), url)
        self.assertIn("text/html", headers["Content-Type"])
        self.assertIn("default-src 'self'", headers["Content-Security-Policy"])
        self.assertIn('href="start.html"', page)
        self.assertIn("billow run --gpus 1", self.get("/docs/start.html")[2])
        self.assertIn("window.billowDocs=", self.get("/docs/search-index.js")[2])
        self.assertIn("<svg", self.get("/docs/images/concepts.svg")[2])
        with self.assertRaises(urllib.error.HTTPError) as missing:
            self.get("/docs/nothing.html")
        self.assertEqual(missing.exception.code, 404)

    def test_pages_in_the_terminal(self):
        listed = self.rig.ok("docs").text
        for topic in ("start", "from-slurm", "troubleshooting"):
            self.assertIn(f"  {topic} ", listed)
        page = self.rig.ok("docs", "start").text
        self.assertTrue(page.startswith("START\n"), page[:80])
        self.assertIn("    $ billow run --gpus 1 -- python3 train.py\n", page)
        self.assertNotIn("](", page)
        self.assertNotIn("<!--", page)
        self.assertTrue(all(len(line) <= 160 for line in page.splitlines()))
        self.assertIn("# Start", self.rig.ok("docs", "start", "--markdown").text)
        self.assertEqual(self.rig.ok("docs", "slurm").text, self.rig.ok("docs", "from-slurm").text)
        missing = self.rig.cli("docs", "strat")
        self.assertEqual(missing.code, 2)
        self.assertIn("did you mean start?", missing.errors)
        # A word that names no page: the pages and headings about it.
        for word, part in (
            ("gateway", "More threads and gateways"),
            ("registry", "environments"),
            ("disk", "Disk space"),
        ):
            about = self.rig.ok("docs", word).text
            self.assertIn(part, about, word)
            self.assertLessEqual(len(about.splitlines()), 10)

    def test_search_over_all_pages(self):
        found = self.rig.ok("docs", "--search", "suspended idle").text
        self.assertIn("start: ", found)
        self.assertEqual(self.rig.cli("docs", "--search", "xyzzyplugh").code, 1)


class Manual(unittest.TestCase):
    def test_manual_pages_from_the_declarations(self):
        rig = Rig(up=False)
        try:
            pages = os.path.join(rig.root, "man")
            rig.ok("help", "--man-dir", pages)
            names = os.listdir(pages)
            self.assertIn("billow.1", names)
            self.assertIn("billow-token-create.1", names)
            run = rig.ok("help", "--man", "run").text
            self.assertIn("\\-\\-gpus", run)
            for name in ("billow.1", "billow-run.1", "billow-nvidia-smi.1"):
                checked = subprocess.run(
                    ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", name],
                    cwd=pages,
                    capture_output=True,
                    check=False,
                )
                self.assertEqual((checked.returncode, checked.stderr), (0, b""), name)
        finally:
            rig.close()


if __name__ == "__main__":
    unittest.main()
