"""Somebody has taken over the agent of a node that is not root, and speaks to its root helper: as
the agent's account, with any message."""
import json
import os
import pwd
import random
import unittest

from rig import alive, poll
from rootless import AGENT, Helper, RootlessRig, sealed

ORDER = {
    "argv": ["/bin/sh", "-c", "id -u > /tmp/out; id -u; sleep 300"],
    "env": ["PATH=/usr/bin:/bin"],
    "log_segment_bytes": 1 << 20,
    "log_segments_max": 4,
    "stop_grace_ns": 0,
    "leftover_grace_ns": 0,
}


def content(value):
    return sealed(json.dumps(value).encode())


class Attacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, for the root helper")
        cls.rig = RootlessRig()
        cls.games = pwd.getpwnam("games").pw_uid
        cls.next = 700_000

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def setUp(self):
        self.helper = Helper(self.rig.socket)
        self.addCleanup(self.helper.close)
        self.marker = f"/tmp/became-root-{os.getpid()}-{random.randrange(1 << 30)}"

    def tearDown(self):
        # Whatever it was sent: the helper is the same process, and answers its agent.
        self.assertIsNone(self.rig.helper.poll(), self.rig.log_of("helper")[-3000:])
        helper = Helper(self.rig.socket)
        self.assertEqual(helper.ask(verb="hello").get("code", ""), "")
        helper.close()
        self.assertFalse(os.path.exists(self.marker), "something ran as root")

    @classmethod
    def task(cls):
        cls.next += 1
        return cls.next

    def refused(self, answer, *codes):
        self.assertIsNotNone(answer)
        self.assertIn(answer.get("code", ""), codes or ("invalid", "forbidden"), answer)
        return answer["error"]

    def start(self, task, order=None, uid=None):
        answer = self.helper.ask(verb="prepare", task=task, uid=uid or self.games)
        self.assertEqual(answer.get("code", ""), "", answer)
        empty = sealed(b"")
        return self.helper.ask([content(order or ORDER), empty, empty], verb="start", task=task)

    def stop(self, task):
        for pid in self.supervisors(task):
            os.kill(pid, 15)
        poll(lambda: not self.supervisors(task), "its end", 20)
        self.helper.ask(verb="end", task=task)
        poll(lambda: not self.helper.ask(verb="clear", task=task).get("code"), "its groups", 10)
        self.assertEqual(self.helper.ask(verb="forget", task=task).get("code", ""), "")

    def supervisors(self, task):
        end = f"/tasks/{task}"
        return [
            p
            for p, line in self.rig.processes().items()
            if line.startswith("billow-supervise") and line.strip().endswith(end) and alive(p)
        ]

    def test_no_job_is_root_the_agent_or_a_denied_account(self):
        mail = pwd.getpwnam("mail").pw_uid
        man = pwd.getpwnam("man").pw_uid  # not allowed either
        for uid in (0, AGENT, mail, man, 4_000_000_000, -1, 1 << 32, "0", None):
            task = self.task()
            answer = self.helper.ask(verb="prepare", task=task, uid=uid)
            self.refused(answer, "invalid", "forbidden", "not_found")
            empty = sealed(b"")
            answer = self.helper.ask([content(ORDER), empty, empty], verb="start", task=task)
            self.refused(answer, "conflict")

    def test_an_order_says_nothing_about_identity_mounts_or_groups(self):
        touch = {**ORDER, "argv": ["/usr/bin/touch", self.marker]}
        for extra in (
            {"identity": {"uid": 0, "gid": 0}},
            {"uid": 0},
            {"has_uid": False},
            {"groups": [0]},
            {"cgroup_v2": "/sys/fs/cgroup"},
            {"cgroups_v1": ["/sys/fs/cgroup/memory"]},
            {"binds": [{"source": "/etc", "path": "/mnt"}]},
            {"private_tmp": "/etc"},
            {"no_new_privs": False},
            {"user_namespace": True},
            {"own_network": True},
            {"resource_limits": []},
            {"nice": -20},
            {"oom_score_adj": -1000},
        ):
            task = self.task()
            self.refused(self.start(task, {**touch, **extra}), "invalid")
            self.assertEqual(self.supervisors(task), [])
            self.helper.ask(verb="clear", task=task)
        for wrong in (
            {"argv": []},
            {"argv": ["a\0b"]},
            {"env": ["no-equals-sign"]},
            {"cwd": "relative"},
            {"hide_devices": ["../etc/passwd"]},
            {"hide_devices": ["/dev/null"]},
            {"shown": ["relative"]},
            {"shown": ["/tmp/../etc"]},
            {"umask": 0o7777},
            {"refused_calls": 1 << 20},
            {"log_segments_max": 0},
            {"log_segments_max": 1 << 31},
            {"log_segment_bytes": 0},
            {"time_limit_ns": -5},
        ):
            task = self.task()
            self.refused(self.start(task, {**ORDER, **wrong}), "invalid", "internal")
            self.assertEqual(self.supervisors(task), [])
            self.helper.ask(verb="clear", task=task)

    def test_a_job_gains_no_privileges(self):
        script = (
            f"grep -E 'NoNewPrivs|CapEff|CapBnd|Uid|Seccomp:' /proc/self/status;"
            f" su -c 'touch {self.marker}'; sudo -n touch {self.marker};"
            " unshare -Ur true && echo namespace; mount -t tmpfs none /mnt && echo mounted;"
            " echo done; sleep 300"
        )
        task = self.task()
        answer = self.start(task, {**ORDER, "argv": ["/bin/sh", "-c", script], "refused_calls": 0})
        self.assertEqual(answer.get("code", ""), "", answer)
        log = os.path.join(self.rig.state, "tasks", str(task), "out.log")

        def text():
            with open(log, "rb") as f:
                return f.read().decode(errors="replace")

        poll(lambda: os.path.exists(log) and "done" in text(), "the job's output", 20)
        said = text()
        self.assertIn("NoNewPrivs:\t1", said)
        self.assertIn("Seccomp:\t2", said)
        self.assertIn("CapEff:\t0000000000000000", said)
        self.assertIn(f"Uid:\t{self.games}\t{self.games}\t{self.games}", said)
        for word in ("namespace\n", "mounted\n"):
            self.assertNotIn(word, said)
        self.stop(task)

    def test_names_and_numbers_lead_nowhere_else(self):
        task = self.task()
        self.assertFalse(self.helper.ask(verb="prepare", task=task, uid=self.games).get("code"))
        for name in ("../x", "/etc/passwd", "a/b", ".", "..", "", ".hidden", "x" * 300, "a\0b"):
            answer = self.helper.ask([sealed(b"v")], verb="secret", task=task, name=name)
            self.refused(answer, "invalid")
        self.assertFalse(
            self.helper.ask([sealed(b"v")], verb="secret", task=task, name="ok").get("code")
        )
        answer = self.helper.ask([sealed(b"v")], verb="secret", task=task, name="ok")
        self.refused(answer, "internal", "conflict")  # it exists
        self.helper.ask(verb="clear", task=task)
        for verb in ("connect", "acknowledge", "clear", "forget", "end", "start", "prepare"):
            for number in (0, -1, 1 << 63, 1 << 64, "../1", "1/../../..", None, 1.5, [1]):
                self.refused(self.helper.ask(verb=verb, task=number, uid=self.games), "invalid")
        for verb in ("connect", "acknowledge", "signal"):
            answer = self.helper.ask(verb=verb, task=999_999_999, pid=4, number=9)
            self.assertTrue(answer.get("code"), answer)

    def test_only_processes_of_its_tasks_get_signals(self):
        task = self.task()
        self.assertFalse(self.start(task).get("code"))
        helper, agent = self.rig.helper.pid, self.rig.agent.pid
        for pid in (1, -1, 0, helper, agent, os.getpid(), *self.supervisors(task)):
            answer = self.helper.ask(verb="signal", task=task, pid=pid, number=9)
            self.refused(answer, "invalid", "forbidden", "not_found")
        for number in (0, -9, 65, 1 << 40):
            answer = self.helper.ask(verb="signal", task=task, pid=agent, number=number)
            self.refused(answer, "invalid")
        for pid in (helper, agent):
            self.assertTrue(alive(pid))
        # Nor does `end`, or anything that removes, touch a task that runs.
        for verb in ("end", "clear", "forget", "acknowledge"):
            self.refused(self.helper.ask(verb=verb, task=task), "conflict")
        self.refused(self.helper.ask(verb="prepare", task=task, uid=self.games), "conflict")
        # Its child has the same command line until it has executed the job's program.
        poll(lambda: len(self.supervisors(task)) == 1, "one supervisor", 10)
        self.stop(task)

    def test_a_task_is_started_once(self):
        task = self.task()
        self.assertFalse(self.start(task).get("code"))
        empty = sealed(b"")
        answer = self.helper.ask([content(ORDER), empty, empty], verb="start", task=task)
        self.refused(answer, "conflict")
        record = sealed(b"\0" * 4000)
        self.refused(self.helper.ask([record], verb="record", task=task), "invalid")
        self.stop(task)

    def test_descriptors_must_be_sealed_memory(self):
        task = self.task()
        self.assertFalse(self.helper.ask(verb="prepare", task=task, uid=self.games).get("code"))
        good = [content(ORDER), sealed(b""), sealed(b"")]
        pipe = os.pipe()[0]
        with open("/etc/shadow", "rb") as shadow:
            for bad in (pipe, shadow.fileno(), sealed(b"{}", 0), sealed(b"{}", 2)):
                for at in range(3):
                    given = [*good]
                    given[at] = bad
                    self.refused(self.helper.ask(given, verb="start", task=task), "invalid")
        for count in (0, 1, 2, 4):
            given = (good + good)[:count]
            self.refused(self.helper.ask(given, verb="start", task=task), "invalid")
        large = sealed(b"x" * (5 << 20))
        answer = self.helper.ask([large, *good[1:]], verb="start", task=task)
        self.refused(answer, "too_large")
        self.helper.ask(verb="clear", task=task)

    def test_frames_that_are_none(self):
        texts = (b"{", b"[]", b"null", b"\0" * 100, b'{"version":1}', b'{"verb":"hello"', b"x" * 9)
        for text in texts:
            helper = Helper(self.rig.socket)
            helper.send(text)
            answer = helper.receive()
            if text != b'{"version":1}':  # whose verb is the first
                self.refused(answer, "invalid")
            helper.close()
        for request in ({"version": 2, "verb": "hello"}, {"version": -1, "verb": "hello"}):
            self.helper.send(json.dumps(request).encode())
            self.refused(self.helper.receive(), "unsupported", "invalid")
        for extra in ({"path": "/etc"}, {"gid": 0}, {"groups": [0]}):
            self.refused(self.helper.ask(verb="hello", **extra), "invalid")
        self.refused(self.helper.ask(verb="become_root"), "invalid")
        # Larger than a message may be, or with more descriptors: the connection ends.
        for data, fds in ((b"x" * 20_000, ()), (b"x" * 150_000, ()), (b"{}", [0] * 30)):
            helper = Helper(self.rig.socket)
            helper.send(data, fds)
            self.assertIsNone(helper.receive())
            helper.close()
        dice = random.Random(7)
        for _ in range(300):
            helper = Helper(self.rig.socket)
            helper.send(dice.randbytes(dice.randrange(1, 400)))
            helper.receive()
            helper.close()

    def test_nobody_else_is_listened_to(self):
        for uid in (self.games, pwd.getpwnam("daemon").pw_uid):
            with self.assertRaises(PermissionError):
                Helper(self.rig.socket, uid)
        os.chmod(self.rig.socket, 0o666)  # even if the socket were open to all
        try:
            helper = Helper(self.rig.socket, self.games)
            try:
                answer = helper.ask(verb="hello")
            except OSError:
                answer = None
            self.assertIsNone(answer)
            helper.close()
        finally:
            os.chmod(self.rig.socket, 0o660)
        # Root is no agent, and the agent is not root.
        root = Helper(self.rig.socket, 0)
        self.refused(root.ask(verb="prepare", task=self.task(), uid=self.games), "forbidden")
        self.refused(self.helper.ask(verb="take", task=1), "forbidden")
        self.refused(root.ask(verb="take", task=1), "not_found")
        root.close()

    def test_a_flood_of_connections_and_preparations_ends_at_a_limit(self):
        many = [Helper(self.rig.socket) for _ in range(60)]
        for helper in many:
            helper.close()
        first = self.next + 1
        for _ in range(200):
            self.helper.ask(verb="prepare", task=self.task(), uid=self.games)
        for task in range(first, self.next + 1):
            self.assertFalse(self.helper.ask(verb="clear", task=task).get("code"))
        self.assertEqual(self.rig.groups_left(), [])


if __name__ == "__main__":
    unittest.main()
