"""Attacks on a node, by accounts of the machine and by jobs: each is carried out as somebody else
would, and must fail."""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import pwd
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

from rig import BILLOW, Rig, RigTest, poll
from silent_files import SilentFiles

PYTHON = "/usr/bin/python3"  # that others can execute too
NOBODY = pwd.getpwnam("nobody")
NEEDS_ROOT = unittest.skipUnless(os.geteuid() == 0, "needs root, to be several users")


def as_nobody(*command, **options):
    """A command of an account that has nothing to do with Billow."""
    return subprocess.run(
        list(command),
        user=NOBODY.pw_uid,
        group=NOBODY.pw_gid,
        extra_groups=[],
        capture_output=True,
        cwd="/",
        check=False,
        timeout=60,
        **options,
    )


def old_name(agent_data, prefix, digits):
    """Names that could be computed from the data directory alone."""
    return prefix + hashlib.sha256(agent_data.encode()).hexdigest()[:digits]


@NEEDS_ROOT
class Places(unittest.TestCase):
    """A directory that somebody else made first where the agent keeps what jobs must reach."""

    def setUp(self):
        self.rig = Rig(sim="1xH100", up=False)
        self.addCleanup(self.rig.close)
        self.agent_data = os.path.join(self.rig.data, "agent")

    def test_a_link_in_a_squatted_directory_leads_nowhere(self):
        squatted = old_name(self.agent_data, "/var/tmp/billow-", 12)
        victim = os.path.join(self.rig.root, "victim")
        os.makedirs(victim, mode=0o700)
        self.addCleanup(subprocess.run, ["rm", "-rf", squatted], check=False)
        script = f"mkdir -m 711 {squatted} && ln -s {victim} {squatted}/caches && ls {squatted}"
        self.assertEqual(as_nobody("sh", "-c", script).stdout, b"caches\n")
        self.rig.up()
        done = self.rig.ok("run", "--", "sh", "-c", "echo $BILLOW_CACHE; touch $BILLOW_CACHE/mine")
        cache = done.text.strip()
        self.assertFalse(cache.startswith(squatted), cache)
        self.assertEqual(os.listdir(victim), [], "the agent followed another user's link")
        self.assertEqual(
            os.listdir(squatted), ["caches"], "the agent used another user's directory"
        )
        place = os.path.dirname(os.path.dirname(cache))
        self.assertEqual((os.stat(place).st_uid, os.stat(place).st_mode & 0o7777), (0, 0o711))
        self.assertEqual(as_nobody("ls", place).returncode, 2, "others can list it")
        # The next agent finds its own directory again.
        self.rig.ok("down")
        poll(lambda: not self.rig.processes(), "everything down")
        self.rig.up()
        again = self.rig.ok("run", "--", "sh", "-c", "ls $BILLOW_CACHE").text
        self.assertEqual(again, "mine\n")

    def test_a_directory_of_an_older_agent_is_kept_where_it_is_ours(self):
        kept = old_name(self.agent_data, "/var/tmp/billow-", 12)
        os.makedirs(kept, mode=0o711)
        self.addCleanup(subprocess.run, ["rm", "-rf", kept], check=False)
        self.rig.up()
        cache = self.rig.ok("run", "--", "sh", "-c", "echo $BILLOW_CACHE").text.strip()
        self.assertTrue(cache.startswith(kept + "/"), cache)

    def refused(self, *join, command=None):
        """What an agent says that does not start."""
        rig = Rig(sim="1xH100", args=("--no-agent",))
        try:
            token = rig.ok("token", "create", "--node").text.strip()
            run = [*(command or []), BILLOW, "join", rig.json("status")["addresses"][0]]
            done = subprocess.run(
                [*run, "--token", token, "--sim", "1xH100", *join],
                env=rig.environment,
                capture_output=True,
                timeout=20,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.fail("the agent started, and runs")
        finally:
            rig.close()
        self.assertNotEqual(done.returncode, 0, done)
        return done.stderr.decode()

    def test_an_agent_whose_data_directory_is_not_its_own_does_not_start(self):
        data = tempfile.mkdtemp(prefix="billow-attack-")
        self.addCleanup(subprocess.run, ["rm", "-rf", data], check=False)
        os.chmod(data, 0o755)
        os.makedirs(os.path.join(data, "node"))
        os.chown(os.path.join(data, "node"), NOBODY.pw_uid, NOBODY.pw_gid)
        said = self.refused("--data", data)
        self.assertIn(f"belongs to uid {NOBODY.pw_uid}", said)
        os.chown(os.path.join(data, "node"), 0, 0)
        os.chmod(os.path.join(data, "node"), 0o777)
        said = self.refused("--data", data)
        self.assertIn("other users can write", said)

    def test_an_agent_starts_nowhere_where_others_can_replace_its_files(self):
        data = tempfile.mkdtemp(prefix="billow-attack-")
        self.addCleanup(subprocess.run, ["rm", "-rf", data], check=False)
        unsafe = ["unshare", "-m", "sh", "-c"]
        unsafe += ['mount -t tmpfs -o mode=0777 none /var/tmp && exec "$0" "$@"']
        said = self.refused("--data", data, command=unsafe)
        self.assertIn("users can replace each other's files in /var/tmp", said)
        self.assertIn("chmod +t /var/tmp", said)


# Connects as often as told; the agent's end closes each connection.
STRANGER = """
import socket, sys
for _ in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    try:
        s.connect(sys.argv[1] if sys.argv[1].startswith("/") else "\\0" + sys.argv[1])
        s.recv(16)
    except OSError as e:
        print(e.errno)
        sys.exit(3)
    s.close()
"""


@NEEDS_ROOT
class Sockets(RigTest):
    """An account without a job connects to the agent's sockets as often as it likes."""

    options = {"sim": "1xH100"}

    def setUp(self):
        # As on any busy machine: whatever looks through all processes takes its time.
        crowd = [subprocess.Popen(["sleep", "600"]) for _ in range(150)]
        self.addCleanup(lambda: [p.kill() or p.wait() for p in crowd])
        shown = self.rig.ok(
            "run", "--sync", "--", "sh", "-c", "echo $BILLOW_FILES_SOCKET $BILLOW_AGENT_SOCKET"
        )
        self.sockets = shown.text.split()
        self.assertEqual(len(self.sockets), 2)

    def reads(self):
        with open(f"/proc/{self.rig.agent_pid()}/io", encoding="ascii") as f:
            return int(next(line for line in f if line.startswith("syscr")).split()[1])

    def test_a_strangers_connection_costs_the_agent_nothing(self):
        job = self.rig.submit("--", "sleep", "600")
        self.rig.wait_for(job, "running")
        for path in self.sockets:
            times = 200
            began, before = time.monotonic(), self.reads()
            done = as_nobody(PYTHON, "-c", STRANGER, path, str(times))
            took, after = time.monotonic() - began, self.reads()
            self.assertEqual(done.returncode, 0, done)
            self.assertLess(after - before, 10 * times, f"reads for {times} strangers, {took} s")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_jobs_run_during_a_flood(self):
        flood = [
            subprocess.Popen(
                [PYTHON, "-c", STRANGER, path, "1000000"],
                user=NOBODY.pw_uid,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for path in (*self.sockets, self.sockets[0])
        ]
        try:
            for _ in range(5):
                began = time.monotonic()
                self.rig.ok("run", "--", "true")
                self.assertLess(time.monotonic() - began, 10)
            with open(self.rig.file("sent"), "w", encoding="ascii") as f:
                f.write("along")
            done = self.rig.ok("run", "--sync", "--", "cat", "sent", timeout=60)
            self.assertEqual(done.text, "along")
        finally:
            for process in flood:
                process.kill()
                process.wait()
        self.assertEqual(self.rig.json("nodes")["nodes"][0]["state"], "ready")

    def test_the_sockets_names_are_not_shown_to_others(self):
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as f:
            shown = f.read()
        for path in self.sockets:
            self.assertTrue(path.startswith("/"), path)
            self.assertNotIn(os.path.basename(os.path.dirname(path)), shown)
        agent_data = os.path.join(self.rig.data, "agent")
        self.assertNotIn(old_name(agent_data, "billow-files-", 16), shown)
        self.assertNotIn(old_name(agent_data, "billow-agent-", 16), shown)

    def test_a_name_taken_by_somebody_else_takes_no_files_away(self):
        rig = Rig(sim="1xH100", up=False)
        self.addCleanup(rig.close)
        name = old_name(os.path.join(rig.data, "agent"), "billow-files-", 16)
        with socket.socket(socket.AF_UNIX) as squatter:
            squatter.bind("\0" + name)
            squatter.listen(16)
            rig.up()
            with open(rig.file("sent"), "w", encoding="ascii") as f:
                f.write("along")
            done = rig.cli("run", "--sync", "--", "cat", "sent", timeout=60)
            self.assertEqual((done.code, done.text), (0, "along"), done)


@NEEDS_ROOT
class Limits(RigTest):
    """A job that asks for no memory and no processes cannot have all there is."""

    options = {"sim": "4xH100"}
    LOOK = (
        "g=/sys/fs/cgroup; for d in $(sed -n 's/^[0-9]*:memory:/memory/p;s/^[0-9]*:pids:/pids/p;"
        "s/^0::/unified/p;s/^0:://p' /proc/self/cgroup); do cat $g/$d/memory.limit_in_bytes"
        " $g/$d/memory.max $g/$d/pids.max; done 2>/dev/null; true"
    )

    def limits(self, *options):
        text = self.rig.ok("run", *options, "--", "sh", "-c", self.LOOK).text
        return [int(word) for word in text.split() if word.isdigit()]

    def test_memory_and_processes_are_limited_by_default(self):
        doctor = self.rig.ok("doctor").text
        if "memory limits: not" in doctor or "process limits: not" in doctor:
            self.skipTest("this machine has no control groups for memory and processes")
        with open("/proc/meminfo", encoding="ascii") as f:
            all_of_it = int(f.readline().split()[1]) << 10
        one, half = self.limits("--gpus", "1"), self.limits("--gpus", "2")
        self.assertTrue([n for n in one if 1 << 29 < n <= all_of_it * 0.27], one)
        self.assertTrue([n for n in half if all_of_it * 0.4 < n <= all_of_it * 0.52], half)
        with open("/proc/sys/kernel/pid_max", encoding="ascii") as f:
            self.assertIn(min(4096, int(f.read()) // 8), one)

    def test_a_file_server_that_goes_away_stops_no_other_job(self):
        try:
            silent = SilentFiles(self.rig.file("served"))
        except OSError as why:
            self.skipTest(str(why))
        with contextlib.closing(silent):
            self.use_what_falls_silent(silent)

    def use_what_falls_silent(self, silent):
        rig = self.rig
        rig.ok("secret", "set", "S", "--project", "default", stdin=b"not-for-others")
        job = rig.ok("submit", "-q", "--", "sleep", "600", cwd=silent.path).text.strip()
        rig.wait_for(int(job), "running")
        silent.fall_silent()
        rig.start("ssh", job, "--", "true")
        wishes = [
            rig.submit("--secret", f"S:{silent.path}/here{i}/file", "--", "true") for i in range(5)
        ]
        for number in wishes:
            rig.wait_for(number, "failed", 60)
        self.assertIn("does not answer", rig.ok("describe", wishes[0]).text)
        rig.ok("run", "--", "true", timeout=60)
        self.assertEqual({n["state"] for n in rig.json("nodes")["nodes"]}, {"ready"})
        rig.ok("stop", "--force", job)


@NEEDS_ROOT
class Devices(unittest.TestCase):
    """A job opens the GPU of another job, by a device file that it finds or makes elsewhere."""

    # A /dev with the files of four GPUs, in a mount namespace of the test's own.
    DEV = (
        "d=$(mktemp -d) && mount -t tmpfs none $d && cp -a /dev/null /dev/zero /dev/full"
        " /dev/random /dev/urandom /dev/tty /dev/ptmx $d && mkdir $d/pts $d/shm && mount --rbind"
        " /dev/pts $d/pts && mount --rbind /dev/shm $d/shm && ln -s /proc/self/fd $d/fd && for i in"
        " 0 1 2 3; do mknod -m 666 $d/nvidia$i c 195 $i; done && mount --move $d /dev && rmdir $d"
    )

    # As on a machine that mounts only version 1 of the control groups.
    ONLY_V1 = " && for m in $(awk '$3 == \"cgroup2\" {print $2}' /proc/mounts); do umount $m; done"

    def test_a_gpu_that_is_not_the_jobs_cannot_be_opened_by_any_path(self):
        self.open_the_cards_of_others("")

    @unittest.skipUnless(
        os.access("/sys/fs/cgroup/devices/devices.deny", os.W_OK), "needs control groups of v1"
    )
    def test_nor_where_control_groups_are_those_of_version_1(self):
        self.open_the_cards_of_others(self.ONLY_V1)

    def open_the_cards_of_others(self, prepare):
        library = os.path.join(
            os.path.dirname(os.path.dirname(BILLOW)), "lib/libbillow-nvml-sim.so"
        )
        if not os.path.exists(library):
            self.skipTest("the simulated NVML is not built")
        keeper = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", self.DEV + prepare + " && echo ready && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(lambda: (keeper.stdin.close(), keeper.wait(), keeper.stdout.close()))
        if keeper.stdout.readline() != b"ready\n":
            self.skipTest("no /dev of its own can be made here")
        rig = Rig(sim="4xH100", args=("--no-agent",))
        self.addCleanup(rig.close)
        if not prepare and "device control: not available" in rig.ok("doctor").text:
            self.skipTest("this kernel attaches no BPF programs to control groups")
        # To this agent the cards are real: only the library behind them is simulated.
        agent = subprocess.Popen(
            [
                *("nsenter", "-t", str(keeper.pid), "-m", BILLOW, "agent"),
                *("--head", f"unix:{rig.data}/head.sock", "--token-file", f"{rig.data}/node-token"),
                *("--data", f"{rig.root}/agent"),
            ],
            env={**rig.environment, "BILLOW_NVML": library},
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(lambda: (agent.terminate(), agent.wait()))
        poll(lambda: rig.json("nodes")["nodes"], "the node")
        elsewhere = os.path.join(rig.root, "nodes")
        os.makedirs(elsewhere)
        for i in range(4):
            os.mknod(f"{elsewhere}/gpu{i}", 0o666 | 0o020000, os.makedev(195, i))
            os.chmod(f"{elsewhere}/gpu{i}", 0o666)
        look = (
            "import errno\nfor i in range(4):\n  try: open('%s/gpu%d' % (r'"
            + elsewhere
            + "', i))\n  except OSError as e: print(errno.errorcode[e.errno])\n  else:"
            " print('opened')"
        )
        got = rig.ok("run", "--gpus", "1", "--", "python3", "-c", look, timeout=60).text.split()
        # A device without a driver answers ENXIO; one that is denied EPERM.
        self.assertEqual(sorted(got), ["ENXIO", "EPERM", "EPERM", "EPERM"], got)
        got = rig.ok("run", "--", "python3", "-c", look, timeout=60).text.split()
        self.assertEqual(got, ["EPERM"] * 4)


@NEEDS_ROOT
class Memory(RigTest):
    """Whoever reads the memory of the agent, or of the head, finds no secret of a job that was
    started."""

    options = {"sim": "1xH100"}

    @staticmethod
    def found(pid, *texts):
        """Where in the memory of a process one of these texts is."""
        out = []
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            with open(f"/proc/{pid}/mem", "rb", 0) as memory:
                for line in maps:
                    words = line.split()
                    if "rw" not in words[1] or words[-1].startswith("[v"):
                        continue
                    begin, end = (int(part, 16) for part in words[0].split("-"))
                    try:
                        memory.seek(begin)
                        data = memory.read(end - begin)
                    except OSError:
                        continue
                    for text in texts:
                        at = data.find(text)
                        if at >= 0:
                            out.append((words[-1], data[max(0, at - 40) : at + 60]))
        return out

    def check_gone(self, pid, texts, what):
        try:
            poll(lambda: not self.found(pid, *texts), what, 5)
        except AssertionError:
            self.fail(f"{what}: {self.found(pid, *texts)}")

    def test_secrets_are_gone_once_the_job_has_them(self):
        value = "hf_" + os.urandom(24).hex()
        texts = (value.encode(), base64.b64encode(value.encode())[:-4])
        self.rig.ok("secret", "set", "TOKEN", stdin=value.encode())
        self.check_gone(self.rig.head_pid(), texts, "gone from the head once it is set")
        for option in ("TOKEN", "TOKEN:file"):
            job = self.rig.submit("--secret", option, "--", "sleep", "600")
            self.rig.wait_for(job, "running")
            for who, pid in (("agent", self.rig.agent_pid()), ("head", self.rig.head_pid())):
                self.check_gone(pid, texts, f"{option} gone from the {who}")
            self.rig.ok("stop", "--force", "--wait", job)
            for pid in (self.rig.agent_pid(), self.rig.head_pid()):
                self.assertEqual(self.found(pid, *texts), [], option)

    def test_a_connection_that_stays_open_does_not_keep_them(self):
        """Over TLS, as clients elsewhere."""
        rig = Rig(args=("--no-agent", "--tls"))
        self.addCleanup(rig.close)
        value = "hf_" + os.urandom(24).hex()
        connection = http.client.HTTPSConnection(
            rig.json("status")["addresses"][0].removeprefix("https://"),
            context=ssl._create_unverified_context(),
        )
        self.addCleanup(connection.close)
        head = {"Authorization": "Bearer " + rig.token()}
        connection.request("PUT", "/v1/secrets/TOKEN", json.dumps({"value": value}), head)
        answer = connection.getresponse()
        self.assertEqual((answer.status, bool(answer.read())), (200, True))
        self.check_gone(rig.head_pid(), (value.encode(),), "gone from the head")
