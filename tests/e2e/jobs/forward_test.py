"""Connections into running jobs: ports, a secure shell with the real ssh and scp, and who may not
have them."""
import hashlib
import os
import re
import shutil
import socket
import subprocess
import threading
import unittest

from far import FarCase
from ports import free_port
from rig import BILLOW, MARK, RigTest, poll


# Sends back what came, after the end of it, with its digest before it; so it needs each direction's
# end by itself.
ECHO = """
import hashlib, socket, sys, threading
server = socket.create_server((sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1", int(sys.argv[1])), backlog=128)
print("listens", flush=True)
def serve(peer):
    data = b""
    while piece := peer.recv(1 << 20):
        data += piece
    peer.sendall(hashlib.sha256(data).hexdigest().encode() + data)
    peer.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
# Sends for ever, until nobody takes it any more.
POUR = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
while True:
    peer = server.accept()[0]
    sent = 0
    try:
        while True:
            sent += peer.send(b"x" * 65536)
            print(sent, flush=True) if sent % (1 << 20) < 65536 else None
    except OSError:
        pass
"""


def exchange(port, data, timeout=60):
    with socket.create_connection(("127.0.0.1", port), timeout) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        got = b""
        while piece := s.recv(1 << 20):
            got += piece
    return got


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


class Helpers:
    def server(self, text, *args, options=()):
        script = self.rig.file(f"{abs(hash(text))}.py")
        with open(script, "w", encoding="ascii") as f:
            f.write(text)
        job = self.rig.submit(*options, "--", "python3", script, *args)
        poll(lambda: "listens" in self.rig.cli("logs", job).text, f"job {job} listens")
        return job

    def forward(self, job, *ports, **options):
        """port-forward beside the test: the process, and the local ports."""
        process = self.rig.start("port-forward", job, *ports, **options)
        local = []
        for _ in ports:
            line = process.stdout.readline().decode()
            match = re.match(r"127\.0\.0\.1:(\d+) → port", line)
            self.assertTrue(
                match,
                (line, process.poll(), process.stderr.read() if process.poll() is not None else ""),
            )
            local.append(int(match.group(1)))
        return process, local

    def stop(self, process):
        process.terminate()
        process.wait(20)
        process.stdout.close()
        process.stderr.close()


class Ports(Helpers, RigTest):
    def test_bytes_arrive_as_they_were_sent_both_ways_with_each_end(self):
        port = free_port()
        job = self.server(ECHO, port)
        process, (local,) = self.forward(job, f":{port}")
        data = os.urandom(24 << 20)
        got = exchange(local, data)
        self.assertEqual(got[:64].decode(), hashlib.sha256(data).hexdigest())
        self.assertEqual(hashlib.sha256(got[64:]).digest(), hashlib.sha256(data).digest())
        self.assertEqual(exchange(local, b"")[:64].decode(), hashlib.sha256(b"").hexdigest())
        # Many at once, each with its own bytes.
        wrong = []

        def one(number):
            mine = os.urandom(200_000 + number)
            try:
                if exchange(local, mine) != hashlib.sha256(mine).hexdigest().encode() + mine:
                    wrong.append(number)
            except OSError as error:
                wrong.append((number, error))

        threads = [threading.Thread(target=one, args=(n,)) for n in range(40)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(90)
        self.assertEqual(wrong, [])
        self.assertFalse(any(t.is_alive() for t in threads))
        # Nothing here listens for others.
        with open("/proc/net/tcp", encoding="ascii") as f:
            listening = [
                line.split()[1]
                for line in f
                if line.split()[3] == "0A" and line.split()[1].endswith(f":{local:04X}")
            ]
        self.assertEqual(listening, [f"0100007F:{local:04X}"])
        # The job's end is its end.
        self.rig.ok("stop", "--force", job)
        self.assertEqual(process.wait(30), 0)
        self.assertIn("has ended", process.stderr.read().decode())
        process.stdout.close()
        process.stderr.close()

    def test_one_that_is_not_read_holds_up_nobody_and_fills_nothing(self):
        pour, echo = free_port(), free_port()
        first, second = self.server(POUR, pour), self.server(ECHO, echo)
        p1, (slow,) = self.forward(first, f":{pour}")
        p2, (quick,) = self.forward(second, f":{echo}")
        head, agent = self.rig.head_pid(), self.rig.agent_pid()
        before = resident_kib(head) + resident_kib(agent)
        with socket.create_connection(("127.0.0.1", slow), 30) as lazy:
            lazy.recv(1)
            data = os.urandom(4 << 20)
            for _ in range(3):
                self.assertEqual(exchange(quick, data)[64:], data)
            # It has come to a stop: two looks show the same, and little was taken.
            sent = lambda: int(
                (self.rig.cli("logs", first).text.split() or ["0"])[-1].replace("listens", "0")
            )
            settled = poll(
                lambda: (lambda a, b: a if a == b and a > 0 else None)(sent(), sent()),
                "the sender waits",
            )
            self.assertLess(settled, 32 << 20)
            self.assertLess(resident_kib(head) + resident_kib(agent) - before, 48 << 10)
            # And goes on when it is read again.
            taken = 0
            while taken < (8 << 20):
                taken += len(lazy.recv(1 << 20))
            poll(lambda: sent() > settled, "it goes on")
        for process in (p1, p2):
            self.stop(process)
        for job in (first, second):
            self.rig.ok("stop", "--force", job)

    def test_only_what_the_job_itself_listens_on(self):
        job = self.server(ECHO, free_port())
        stranger = socket.create_server(("127.0.0.1", 0))
        try:
            process, (local,) = self.forward(job, f":{stranger.getsockname()[1]}")
            with socket.create_connection(("127.0.0.1", local), 30) as s:
                self.assertEqual(s.recv(100), b"")
            stranger.settimeout(0.2)
            with self.assertRaises(TimeoutError):
                stranger.accept()
            self.stop_and_find(process, "the job does not listen on port")
        finally:
            stranger.close()
        self.rig.ok("stop", "--force", job)

    def stop_and_find(self, process, text):
        process.terminate()
        _, errors = process.communicate(timeout=20)
        self.assertIn(text, errors.decode())

    def test_who_may_and_what_makes_no_sense(self):
        job = self.server(ECHO, free_port())
        done = self.rig.cli("port-forward", job)
        self.assertEqual(done.code, 2)
        for bad in ("x", "70000", "1:2:3", "0", "-1"):
            self.assertIn(self.rig.cli("port-forward", job, "--", bad).code, (1, 2), bad)
        self.assertEqual(self.rig.cli("port-forward", 999999, 80).code, 1)
        taken = socket.create_server(("127.0.0.1", 0))
        done = self.rig.cli("port-forward", job, f"{taken.getsockname()[1]}:80")
        taken.close()
        self.assertEqual(done.code, 1)
        self.assertIn("in use", done.errors)
        # Others of the installation have no way in, members of the project that are not its owner
        # neither, nor a token that only reads.
        self.rig.ok("project", "create", "quiet")
        for name, project in (("mia", "default"), ("zoe", "quiet")):
            self.rig.ok("user", "create", name, "--unix-name", "nobody")
            self.rig.ok("project", "member", project, name)
        tokens = [
            self.rig.json("token", "create", f"{name}-fwd", "--user", name)["token"]
            for name in ("mia", "zoe")
        ]
        tokens.append(self.rig.json("token", "create", "reader", "--scope", "read")["token"])
        for token in tokens:
            answer = self.rig.api(
                "GET",
                f"/v1/jobs/{job}/tunnel?port=80",
                token=token,
                headers={
                    "Connection": "Upgrade",
                    "Upgrade": "websocket",
                    "Sec-WebSocket-Version": "13",
                    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
                },
            )
            self.assertIn(answer.status, (403, 404), answer)
        done = self.rig.ok("run", "--", "true")
        ended = self.rig.json("ps", "-a")["jobs"][0]["id"]
        done = self.rig.cli("port-forward", ended, 80)
        self.assertEqual(done.code, 1)
        self.assertIn("has already ended", done.errors)
        self.rig.ok("stop", "--force", job)


class FarPorts(Helpers, FarCase):
    """The same on another machine, whose loopback nobody else reaches, over TLS."""

    hosts = ("head", "a", "laptop")
    joined = ("a",)

    def test_from_a_laptop_through_the_head_to_a_node(self):
        job = self.server(ECHO, 8123)
        token = self.rig.ok("token", "create", "laptop").text.strip()
        self.assertEqual(
            self.rig.on("laptop", "login", self.rig.url, stdin=token + "\n").returncode, 0
        )
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("BILLOW_", "XDG_"))}
        environment.update({MARK: self.rig.data, "HOME": self.rig.home("laptop")})
        process = subprocess.Popen(
            [*self.net.inside("laptop"), BILLOW, "port-forward", str(job), "8123"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self.rig.started.append(process)
        self.assertIn("127.0.0.1:8123", process.stdout.readline().decode())
        script = self.rig.file("ask.py")
        with open(script, "w", encoding="ascii") as f:
            f.write(
                "import socket, hashlib, os\nd = os.urandom(8 << 20)\ns ="
                " socket.create_connection(('127.0.0.1', 8123), 30)\ns.sendall(d)\ns.shutdown(1)\ng"
                " = b''\nwhile p := s.recv(1 << 20): g += p\nprint(g =="
                " hashlib.sha256(d).hexdigest().encode() + d)\n"
            )
        done = subprocess.run(
            [*self.net.inside("laptop"), "python3", script],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        self.assertEqual(done.stdout.strip(), "True", done)
        # A node that goes away takes its connections with it, and says so.
        self.stop(process)
        self.rig.ok("stop", "--force", job)


@unittest.skipIf(
    not shutil.which("ssh") or not os.path.exists("/usr/sbin/sshd"),
    "OpenSSH's client or server is missing",
)
class Ssh(Helpers, RigTest):
    @classmethod
    def setUpClass(cls):
        cls.options = {"XDG_CONFIG_HOME": os.path.join("/tmp", f"billow-ssh-test-{os.getpid()}")}
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        shutil.rmtree(cls.options["XDG_CONFIG_HOME"], ignore_errors=True)

    def own_places(self):
        """Directories of the agent's own where everybody may write."""
        with open(os.path.join(self.rig.data, "agent/place-tmp"), encoding="utf-8") as f:
            return [f.read().strip()]

    def config(self, job, env=None):
        path = self.rig.file(f"ssh-config-{job}")
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.rig.ok("ssh-config", job, env=env).text)
        return path

    def tool(self, *args, env=None, timeout=60):
        return subprocess.run(
            [str(a) for a in args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            env={**self.rig.environment, **(env or {})},
            check=False,
        )

    def test_one_entry_of_ssh_config_reaches_every_job(self):
        path = self.rig.file("ssh-config-all")
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.rig.ok("ssh-config", "--all").text)
        self.assertIn("Host billow-*\n", open(path, encoding="utf-8").read())
        one = self.rig.submit("--gpus", 1, "--", "sleep", 600)
        two = self.rig.submit("--gpus", 1, "--name", "named", "--", "sleep", 600)
        for job, host in ((one, f"billow-{one}"), (two, "billow-named")):
            self.rig.wait_for(job, "running")
            done = self.tool("ssh", "-F", path, host, "echo $BILLOW_JOB_ID")
            self.assertEqual(done.stdout.decode().strip(), str(job), done)
        self.rig.ok("stop", "--force", "--wait", one, two)

    def test_editors_come_back_after_a_suspend(self):
        job = self.rig.submit("--gpus", 1, "--name", "dev", "--", "sleep", 600)
        self.rig.wait_for(job, "running")
        config = self.rig.file("ssh-config-waits")
        wakes = self.rig.file("ssh-config-wakes")
        for path, more in ((config, ()), (wakes, ("--wake",))):
            with open(path, "w", encoding="utf-8") as f:
                f.write(self.rig.ok("ssh-config", "--all", *more).text)

        def begin(path, command):
            return subprocess.Popen(
                ["ssh", "-F", path, "billow-dev", command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.rig.environment,
            )

        session = begin(config, "echo here; read line; echo got $line")
        self.assertEqual(session.stdout.readline(), b"here\n")
        self.rig.ok("suspend", "--wait", "dev")
        # One that is open stands still; one that is new waits, and says for what.
        session.stdin.write(b"typed\n")
        session.stdin.flush()
        again = begin(config, "echo back")
        self.assertIn(b"is suspended; waiting until it is resumed", again.stderr.readline())
        self.assertEqual((session.poll(), again.poll()), (None, None))
        self.rig.ok("resume", "--wait", "dev")
        self.assertEqual(again.communicate(timeout=60)[0], b"back\n")
        self.assertEqual(session.communicate(timeout=60)[0], b"got typed\n")
        # Where somebody wants it, a connection resumes the job.
        self.rig.ok("suspend", "--wait", "dev")
        done = self.tool("ssh", "-F", wakes, "billow-dev", "echo awake")
        self.assertEqual(done.stdout, b"awake\n", done)
        self.rig.ok("suspend", "--wait", "dev")
        self.assertEqual(self.rig.cli("ssh", "dev", "--", "echo", "too").text, "too\n")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_the_real_ssh_and_scp_reach_a_job(self):
        places = lambda: {
            d for top in self.own_places() for d in os.listdir(top) if d.startswith("ssh-")
        }
        before = places()
        job = self.rig.submit("--gpus", 1, "--", "sleep", 600)
        self.rig.wait_for(job, "running")
        poll(
            lambda: any("sleep 600" in line for line in self.rig.processes().values()),
            "the job's process",
        )
        config = self.config(job)
        done = self.tool(
            "ssh",
            "-F",
            config,
            f"billow-{job}",
            "echo $BILLOW_JOB_ID $CUDA_VISIBLE_DEVICES; id -un; exit 7",
        )
        self.assertEqual(done.returncode, 7, done)
        first, who = done.stdout.decode().splitlines()
        self.assertTrue(first.startswith(f"{job} "), done)
        self.assertEqual(who, "root" if os.geteuid() == 0 else os.environ.get("USER", who))
        data = os.urandom(5 << 20)
        here, there, back = self.rig.file("here"), self.rig.file("there"), self.rig.file("back")
        with open(here, "wb") as f:
            f.write(data)
        for copy in (
            ("scp", "-q", "-F", config, here, f"billow-{job}:{there}"),
            ("scp", "-q", "-F", config, f"billow-{job}:{there}", back),
        ):
            done = self.tool(*copy)
            self.assertEqual(done.returncode, 0, done)
        with open(back, "rb") as f:
            self.assertEqual(f.read(), data)
        # `billow ssh` is the same in one word; the terminal is a real one.
        done = self.rig.cli("ssh", job, "--", "echo", "in", "one", "word")
        self.assertEqual(done.text, "in one word\n", done)
        # It begins where the job works, as scp's relative paths do; what a command says, and its
        # exit code, are its own.
        place = self.rig.file("working place")
        os.makedirs(place)
        there = self.rig.json("submit", "-n", "at-work", "--cwd", place, "--", "sleep", 600)["id"]
        self.rig.wait_for(there, "running")
        done = self.rig.cli("ssh", "at-work", "--", "pwd;", "exit", "5")
        self.assertEqual((done.code, done.text), (5, place + "\n"), done)
        shell = self.rig.cli("ssh", there, stdin=b"pwd\n")
        self.assertEqual(shell.text, place + "\n", shell)
        self.assertEqual(self.rig.cli("ssh", there, "--", "echo", '"it\'s"').text, "it's\n")
        self.rig.ok("stop", "--force", there)
        done = self.tool("ssh", "-tt", "-F", config, f"billow-{job}", "tty; stty size")
        self.assertIn(b"/dev/pts/", done.stdout, done)
        # Another key does not enter, and nothing was trusted by chance.
        key = self.rig.file("other_key")
        self.tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        done = self.tool(
            "ssh", "-F", config, "-o", f"IdentityFile={key}", "-i", key, f"billow-{job}", "true"
        )
        self.assertEqual(
            done.returncode, 0, done
        )  # the key of the config still enters; alone, the other one does not:
        alone = self.rig.file("alone")
        with open(config, encoding="utf-8") as f:
            text = re.sub(r"IdentityFile .*", f"IdentityFile {key}", f.read())
        with open(alone, "w", encoding="utf-8") as f:
            f.write(text)
        done = self.tool("ssh", "-F", alone, f"billow-{job}", "true")
        self.assertEqual(done.returncode, 255, done)
        self.assertIn(b"ermission denied", done.stderr)
        # A session ends with its job, and leaves nothing behind.
        session = subprocess.Popen(
            ["ssh", "-F", config, f"billow-{job}", "echo here; sleep 600"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.rig.environment,
        )
        self.rig.started.append(session)
        self.assertEqual(session.stdout.readline(), b"here\n")
        self.assertEqual(len(places() - before), 1)
        self.rig.ok("stop", "--force", job)
        self.assertNotEqual(session.wait(30), 0)
        session.stdout.close()
        poll(lambda: places() <= before, "its keys are gone")
        self.rig.wait_for(job, "stopped")
        done = self.tool("ssh", "-F", config, f"billow-{job}", "true")
        self.assertEqual(done.returncode, 255)
        self.assertIn(b"has already ended", done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
    def test_one_enters_as_the_user_of_the_job_and_only_ones_own(self):
        self.rig.ok("user", "create", "ana", "--unix-name", "games")
        self.rig.ok("user", "create", "ben", "--unix-name", "news")
        for name in ("ana", "ben"):
            self.rig.ok("project", "member", "default", name)
        tokens = {
            name: {
                "BILLOW_TOKEN": self.rig.json("token", "create", f"{name}-ssh", "--user", name)[
                    "token"
                ]
            }
            for name in ("ana", "ben")
        }
        command = ("sh", "-c", "echo up; exec sleep 600")
        job = self.rig.json("submit", "--cwd", "/", "--", *command, env=tokens["ana"])["id"]
        poll(lambda: "up" in self.rig.cli("logs", job).text, "a process to enter", 60)
        config = self.config(job, env=tokens["ana"])
        # The account's shell may be one that lets nobody in; then ssh says so. Debian's `games` has
        # nologin: the way there is what counts.
        done = self.tool("ssh", "-v", "-F", config, f"billow-{job}", "true", env=tokens["ana"])
        self.assertIn(b"Authenticated to", done.stderr, done)
        refused = self.tool("ssh", "-F", config, f"billow-{job}", "true", env=tokens["ben"])
        self.assertEqual(refused.returncode, 255)
        self.assertIn(b"belongs to another user", refused.stderr)
        self.rig.ok("stop", "--force", job)


if __name__ == "__main__":
    unittest.main()
