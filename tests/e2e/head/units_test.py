"""The units of packaging/systemd under a real systemd, started as docs/team.md and docs/access.md
say: what confines them lets their programs work, their programs end when they are stopped, and jobs
continue."""
import json
import os
import re
import unittest

from rig import BIN, SOURCE, poll
from systemd_machine import ADDRESS, UNITS, SystemdMachine, missing

HEAD = f"https://{ADDRESS}:7070"
HEAD_DATA = "/var/lib/billow-head"
PROGRAMS = ("bin/billow", "bin/billow-supervise", "bin/billow-gpumem", "lib/libbillow-nvml-sim.so")
OWN_GATEWAY, GATEWAY = 7071, 7072  # ports: of the one that the head starts, and of billow-gateway
# Powers by number, as in capabilities(7): over owners, accounts and other processes, and to
# administrate; over modules, raw devices, reboots, the clock and the kernel's log.
KEPT_BY_NODES, REFUSED_TO_NODES = (0, 6, 7, 19, 21), (16, 17, 22, 25, 34)
# A replica that answers with the number of its job.
SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = ("job " + os.environ["BILLOW_JOB_ID"]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


class UnitsCase(unittest.TestCase):
    """A machine with the package installed, and ana, who has an account."""

    @classmethod
    def setUpClass(cls):
        why = missing()
        if why:
            raise unittest.SkipTest(why)
        build = os.path.abspath(os.path.join(BIN, ".."))
        programs = {f"{build}/{name}": f"/usr/{name}" for name in PROGRAMS}
        try:
            cls.machine = SystemdMachine({a: b for a, b in programs.items() if os.path.exists(a)})
        except (OSError, RuntimeError) as e:
            raise unittest.SkipTest(str(e)) from e
        try:
            cls.install()
            cls.prepare()
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.machine.close()

    @classmethod
    def install(cls):
        """What dpkg does: the files of the package, then its script."""
        folder = f"{SOURCE}/packaging"
        for name in os.listdir(f"{folder}/systemd"):
            if name.endswith(".service"):
                with open(f"{folder}/systemd/{name}", encoding="utf-8") as f:
                    cls.machine.put(f"{UNITS}/{name}", f.read())
        with open(f"{folder}/deb/postinst", encoding="utf-8") as f:
            cls.machine.put("/root/postinst", f.read())
        cls.machine.ok("sh", "/root/postinst", "configure")
        cls.machine.run("userdel", "-f", "ana")  # if this machine has one, without a home there
        cls.machine.ok("useradd", "-m", "-s", "/bin/sh", "ana")

    @classmethod
    def prepare(cls):
        """Starts the units."""

    @classmethod
    def start(cls, *units):
        """The programs have only begun when this returns."""
        cls.machine.ok("systemctl", "enable", "--now", *units)

    def stop(self, unit):
        self.addCleanup(self.start, unit)
        self.machine.ok("systemctl", "stop", unit, timeout=30)
        said = self.machine.show(unit)
        ended = [said[name] for name in ("ActiveState", "Result", "ExecMainStatus")]
        self.assertEqual(ended, ["inactive", "success", "0"], self.machine.journal("-u", unit))

    def programs(self, name):
        return self.machine.run("pgrep", "-x", name[:15]).stdout.split()

    @classmethod
    def ana(cls, *args, **options):
        """A command that ana types at the machine."""
        become = ("setpriv", "--reuid=ana", "--regid=ana", "--init-groups", "--")
        return cls.machine.run(
            "env", "-C", "/home/ana", *become, *args, HOME="/home/ana", **options
        )

    @classmethod
    def ana_ok(cls, *args, **options):
        done = cls.ana(*args, **options)
        if done.returncode != 0:
            raise AssertionError(f"{done!r}\n{cls.machine.journal()[-4000:]}")
        return done.stdout

    def submit(self, script):
        done = self.ana_ok("billow", "submit", "--json", "--", "sh", "-c", script)
        return str(json.loads(done)["id"])

    def state_of(self, job):
        return json.loads(self.ana_ok("billow", "describe", "--json", job))["state"]

    def submit_for_long(self):
        """A job that runs until `end_long`."""
        wait = "until [ -e ~/end-$BILLOW_JOB_ID ]; do sleep 0.1; done"
        job = self.submit(f"echo begun; {wait}; echo over")
        poll(lambda: self.ana("billow", "logs", job).stdout == "begun\n", "the job runs", 15)
        return job

    def supervisor(self):
        """The number of the only one: those of jobs that have ended are about to end."""

        def only():
            found = self.programs("billow-supervise")
            return found if len(found) == 1 else None

        return poll(only, "one supervisor", 15)

    def end_long(self, job):
        self.assertEqual(self.state_of(job), "running")
        self.ana_ok("touch", f"end-{job}")
        self.ana_ok("billow", "wait", job)
        self.assertEqual(self.ana_ok("billow", "logs", job), "begun\nover\n")

    def status_of(self, unit):
        """What the kernel says about its process."""
        pid = self.machine.process_of(unit)
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            return pid, dict(re.findall(r"(?m)^(\w+):\s*(.*)$", f.read()))


class TeamUnits(UnitsCase):
    """The head of a team, a node, and a gateway of its own."""

    @classmethod
    def prepare(cls):
        cls.start("billow-head")
        poll(lambda: cls.billow("status").returncode == 0, "the head answers", 15)
        # The gateway is not root and on the node's own machine, where others may not call replicas.
        cls.machine.put("/etc/billow/node.policy", "allow 1000-59999\nreplicas open\n")
        cls.join()
        cls.billow_ok("user", "create", "ana")
        cls.billow_ok("project", "member", "default", "ana", "--role", "member")
        token = cls.billow_ok("token", "create", "first", "--user", "ana")
        cls.ana_ok("billow", "login", HEAD, stdin=token)
        token = cls.billow_ok("token", "create", "edge", "--scope", "gateway").strip()
        secret, fingerprint = token.split(".")
        cls.machine.put("/etc/billow/gateway.token", secret, 0o600)
        options = f"--head {HEAD} --fingerprint {fingerprint} --listen 0.0.0.0:{GATEWAY}"
        cls.machine.put("/etc/billow/gateway.conf", f"GATEWAY_OPTIONS={options}\n")
        cls.start("billow-gateway")

    @classmethod
    def billow(cls, *args, **options):
        """By root of the machine, who looks after the head."""
        return cls.machine.run("billow", *args, BILLOW_DATA=HEAD_DATA, **options)

    @classmethod
    def billow_ok(cls, *args, **options):
        return cls.machine.ok("billow", *args, BILLOW_DATA=HEAD_DATA, **options)

    @classmethod
    def join(cls):
        token = cls.billow_ok("token", "create", "--node").strip()
        words = ("--token", token, "--node-name", "worker", "--register-only")
        cls.machine.ok("billow", "join", HEAD, *words)
        cls.start("billow-node")
        cls.node_here()

    def setUp(self):
        self.all_here()

    def all_here(self):
        self.node_here()
        poll(self.edge_is_here, "the gateway is connected", 15)

    @classmethod
    def node_here(cls):
        poll(lambda: " ready " in cls.billow("nodes").stdout, "the node is ready", 15)

    def edge_is_here(self):
        found = json.loads(self.billow_ok("gateways", "--json"))["gateways"]
        return ("edge", "connected") in [(one["name"], one["state"]) for one in found]

    def deploy(self):
        self.machine.put("/home/ana/server.py", SERVER)
        options = ("--access", "open", "--min", "1", "--", "python3", "server.py")
        self.ana_ok("billow", "deploy", "hello", *options)
        deleted = lambda: self.ana("billow", "delete", "hello").returncode == 0
        self.addCleanup(poll, deleted, "the endpoint is deleted", 15)

    def served(self, port):
        """Waits for an answer of the endpoint at a gateway on this port."""
        url = f"http://{'127.0.0.1' if port == OWN_GATEWAY else ADDRESS}:{port}/f/hello"

        def answer():
            return re.fullmatch(r"job \d+", self.ana("curl", "-s", "-m", "10", url).stdout)

        poll(answer, f"an answer at port {port}", 15)

    def test_a_job_prints_its_output(self):
        done = self.ana("billow", "run", "--", "echo", "hello")
        self.assertEqual((done.returncode, done.stdout), (0, "hello\n"), done)
        self.assertEqual(self.ana_ok("billow", "run", "--", "id", "-un"), "ana\n")

    def test_the_gateway_serves_endpoints(self):
        self.deploy()
        self.served(GATEWAY)
        # Only for callers whose account it learns from the kernel.
        url = f"http://127.0.0.1:{GATEWAY}/metrics"
        self.assertIn("billow_endpoint_requests_total", self.ana_ok("curl", "-s", "-m", "10", url))

    def test_the_heads_own_gateway_serves_while_the_head_is_away(self):
        self.deploy()
        self.served(OWN_GATEWAY)
        self.stop("billow-head")
        self.served(OWN_GATEWAY)
        self.start("billow-head")
        self.node_here()
        self.served(OWN_GATEWAY)

    def test_head_and_gateway_are_confined(self):
        for unit, account in (("billow-head", "billow"), ("billow-gateway", "billow-gateway")):
            with self.subTest(unit):
                pid, status = self.status_of(unit)
                number = self.machine.ok("id", "-u", account).strip()
                self.assertEqual(set(status["Uid"].split()), {number})
                for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                    self.assertEqual(int(status[kind], 16), 0, kind)
                self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
                for kind in ("user", "mnt"):
                    here, there = (
                        os.readlink(f"/proc/{p}/ns/{kind}") for p in (self.machine.first, pid)
                    )
                    self.assertNotEqual(here, there)
                with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as f:
                    mounts = [line.split() for line in f]
                writable = {m[4] for m in mounts if "rw" in m[5].split(",")}
                self.assertLessEqual({f"/var/lib/{unit}", "/tmp"}, writable)
                self.assertFalse({"/", "/etc", "/home", "/usr", "/var"} & writable)

    def test_the_node_has_what_jobs_need(self):
        _, status = self.status_of("billow-node")
        self.assertEqual((status["Uid"].split()[0], status["Seccomp"]), ("0", "2"))
        bounds = int(status["CapBnd"], 16)
        self.assertEqual([n for n in KEPT_BY_NODES if not bounds >> n & 1], [])
        self.assertEqual([n for n in REFUSED_TO_NODES if bounds >> n & 1], [])

    def test_the_head_knows_the_addresses_of_its_machine(self):
        self.assertIn(f"API  {HEAD}\n", self.billow_ok("status"))
        names = ("-noout", "-ext", "subjectAltName")
        shown = self.machine.ok("openssl", "x509", "-in", f"{HEAD_DATA}/tls/server.pem", *names)
        self.assertIn(f"IP Address:{ADDRESS}", shown)

    def test_the_head_calls_other_machines_and_not_its_own(self):
        for target, expected in (("8.8.8.8", "cannot connect"), (ADDRESS, "is on this machine")):
            words = ("billow", "notify", "add", "--json", "webhook")
            added = json.loads(self.ana_ok(*words, stdin=f"https://{target}/x"))
            tried = self.ana("billow", "notify", "test", str(added["id"]))
            self.assertIn(expected, tried.stderr)

    def test_jobs_outlive_a_stop_of_every_unit(self):
        early = self.submit("echo early")
        self.ana_ok("billow", "wait", early)
        job = self.submit_for_long()
        supervisor = self.supervisor()
        for unit in ("billow-gateway", "billow-node", "billow-head"):
            self.stop(unit)
        self.assertEqual(self.programs("billow"), [])
        self.assertEqual(self.programs("billow-supervise"), supervisor)
        self.start("billow-head", "billow-node", "billow-gateway")
        self.node_here()
        self.end_long(job)
        self.assertEqual(self.state_of(early), "succeeded")
        self.assertEqual(self.ana_ok("billow", "logs", early), "early\n")

    def test_killed_programs_are_started_again(self):
        units = ("billow-head", "billow-node", "billow-gateway")
        job = self.submit_for_long()
        killed = {unit: self.machine.show(unit)["MainPID"] for unit in units}
        self.machine.ok("systemctl", "kill", "--kill-whom=main", "-s", "KILL", *units)

        def others():
            numbers = {unit: self.machine.show(unit)["MainPID"] for unit in units}
            return all(numbers[unit] not in ("0", killed[unit]) for unit in units)

        poll(others, "new programs", 15)
        poll(lambda: self.billow("status").returncode == 0, "the head answers", 15)
        self.all_here()
        self.end_long(job)

    def test_the_journal_has_what_the_programs_say(self):
        for unit, words in (
            ("billow-head", f"head: billow [0-9.]+ is up: {re.escape(HEAD)} "),
            ("billow-head", "head: node worker connected"),
            ("billow-node", "agent: no GPUs"),
            ("billow-gateway", f"gateway: the gateway listens on 0.0.0.0:{GATEWAY}"),
        ):
            self.assertRegex(self.machine.journal("-u", unit), words)

    def test_systemd_understands_every_line(self):
        units = [f"{UNITS}/{n}" for n in os.listdir(self.machine.path(UNITS)) if "billow" in n]
        self.assertEqual(len(units), 6)
        done = self.machine.run("systemd-analyze", "verify", "--man=no", *units)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class MachineUnit(UnitsCase):
    """The head of a machine for all its accounts."""

    @classmethod
    def prepare(cls):
        gpus = "[Service]\nEnvironment=BILLOW_SIM=1xL4\n"
        cls.machine.put("/etc/systemd/system/billow.service.d/gpus.conf", gpus)
        cls.machine.ok("systemctl", "daemon-reload")
        cls.begin()

    @classmethod
    def begin(cls):
        cls.start("billow")
        poll(lambda: "1 ready of 1" in cls.ana("billow", "status").stdout, "the node is ready", 15)

    def test_an_account_runs_jobs_without_a_token(self):
        script = "id -un; nvidia-smi -L"
        done = self.ana("billow", "run", "--gpus", "1", "--", "sh", "-c", script)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, r"\Aana\nGPU 0: NVIDIA L4")

    def test_jobs_outlive_a_stop(self):
        job = self.submit_for_long()
        supervisor = self.supervisor()
        self.stop("billow")
        self.assertEqual(self.programs("billow"), [])
        self.assertEqual(self.programs("billow-supervise"), supervisor)
        self.begin()
        self.end_long(job)

    def test_the_journal_has_what_the_head_says(self):
        self.assertRegex(self.machine.journal("-u", "billow"), r"head: billow [0-9.]+ is up: ")


if __name__ == "__main__":
    unittest.main()
