"""The units of a node whose agent is not root, under a real systemd: both are confined, jobs are
not, and jobs outlive both."""
import os
import re
import unittest

from rig import poll
from units_test import HEAD, HEAD_DATA, UnitsCase

AGENT_DATA = "/var/lib/billow-agent"
ACCOUNT = ("setpriv", "--reuid=billow-node", "--regid=billow-node", "--clear-groups", "--")


class RootlessUnits(UnitsCase):
    @classmethod
    def prepare(cls):
        cls.start("billow-head")
        poll(lambda: cls.billow("status").returncode == 0, "the head answers", 15)
        cls.machine.put("/etc/billow/node.policy", "allow 1000-59999\n")
        token = cls.machine.ok("billow", "token", "create", "--node", BILLOW_DATA=HEAD_DATA)
        folder = ("install", "-d", "-m", "700", "-o", "billow-node", "-g", "billow-node")
        cls.machine.ok(*folder, AGENT_DATA)
        words = ("--token", token.strip(), "--node-name", "worker", "--register-only")
        cls.machine.ok(*ACCOUNT, "billow", "join", HEAD, *words, "--data", AGENT_DATA, HOME="/")
        cls.start("billow-privileged", "billow-agent")
        cls.node_here()
        cls.machine.ok("billow", "user", "create", "ana", BILLOW_DATA=HEAD_DATA)
        cls.machine.ok(
            *("billow", "project", "member", "default", "ana", "--role", "member"),
            BILLOW_DATA=HEAD_DATA,
        )
        token = cls.machine.ok(
            *("billow", "token", "create", "first", "--user", "ana"), BILLOW_DATA=HEAD_DATA
        )
        cls.ana_ok("billow", "login", HEAD, stdin=token)

    @classmethod
    def billow(cls, *args):
        return cls.machine.run("billow", *args, BILLOW_DATA=HEAD_DATA)

    @classmethod
    def node_here(cls):
        def ready():
            return " ready " in cls.billow("nodes").stdout

        try:
            poll(ready, "the node is ready", 20)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{cls.machine.journal()[-4000:]}") from e

    def test_jobs_are_their_users_and_not_confined_by_the_helper(self):
        script = (
            "id -un; echo $HOME; touch ~/made && echo made;"
            " grep -E 'CapBnd|NoNewPrivs' /proc/self/status; cat /proc/self/cgroup;"
            " ls -d /dev/null /etc/hostname; ulimit -n"
        )
        said = self.ana_ok("billow", "run", "--", "sh", "-c", script)
        self.assertIn("ana\n/home/ana\nmade\n", said)
        self.assertNotIn("privileged", said)
        self.assertIn("NoNewPrivs:\t1", said)
        done = self.ana("billow", "run", "--", "sh", "-c", "read x; echo $x; exit 9", stdin="in\n")
        self.assertEqual((done.returncode, done.stdout), (9, "in\n"), done)

    def test_each_supervisor_is_a_unit(self):
        job = self.submit_for_long()
        pid = self.supervisor()[0]
        group = self.machine.ok("cat", f"/proc/{pid}/cgroup")
        self.assertRegex(group, r"billow-task-p[0-9a-f]+-\d+\.service")
        status = self.machine.ok("cat", f"/proc/{pid}/status")
        self.assertRegex(status, r"Seccomp:\t0")
        self.assertRegex(status, r"NoNewPrivs:\t0")
        self.end_long(job)

        def units():
            return self.machine.run("systemctl", "list-units", "--plain", "billow-task-*").stdout

        poll(lambda: "billow-task" not in units(), "its unit is gone", 15)

    def test_both_units_are_confined(self):
        _, agent = self.status_of("billow-agent")
        number = self.machine.ok("id", "-u", "billow-node").strip()
        self.assertEqual(set(agent["Uid"].split()), {number})
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(agent[kind], 16), 0, kind)
        pid, helper = self.status_of("billow-privileged")
        # Ownership, permissions, signals, network guards, BPF; not administration or set uid.
        self.assertEqual(int(helper["CapEff"], 16), 1 << 0 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 12 | 1 << 39)
        for status in (agent, helper):
            self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        here, there = (os.readlink(f"/proc/{p}/ns/net") for p in (self.machine.first, pid))
        self.assertNotEqual(here, there)

    def test_both_are_rated_two_or_better(self):
        for unit in ("billow-agent", "billow-privileged"):
            said = self.machine.run("systemd-analyze", "security", "--no-pager", unit).stdout
            rated = re.search(r"exposure level for \S+ ([0-9.]+)", said)
            self.assertLessEqual(float(rated[1]), 2.0, said)

    def test_jobs_outlive_both(self):
        job = self.submit_for_long()
        supervisor = self.supervisor()
        self.machine.ok("systemctl", "stop", "billow-agent", "billow-privileged", timeout=30)
        self.assertEqual(self.programs("billow-supervise"), supervisor)
        self.start("billow-privileged", "billow-agent")
        self.node_here()
        self.end_long(job)

    def test_a_job_sees_its_own_processes_and_tmp_only(self):
        script = "ls /proc | grep -c '^[0-9]'; echo x > /tmp/only-mine; ls /tmp"
        said = self.ana_ok("billow", "run", "--", "sh", "-c", script).splitlines()
        self.assertLess(int(said[0]), 10)
        others = [name for name in said[1:] if not name.startswith("billow-")]
        self.assertEqual(others, ["only-mine"])
        self.assertNotEqual(self.machine.run("test", "-e", "/tmp/only-mine").returncode, 0)


if __name__ == "__main__":
    unittest.main()
