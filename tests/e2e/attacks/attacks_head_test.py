"""Attacks by a head that was taken over, on a node whose owner does not trust it: well-formed
orders that no honest head sends, and what the node's policy denies. The agent is a real one and
runs as root; it has a list of accounts of its own, whose numbers mean nobody of this machine."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from attacks_neighbour_test import NEEDS_ROOT
from lying_head import LyingHead
from rig import BILLOW, Rig, alive, poll

# bobby is bob by another name, and toor is root by another name.
ACCOUNTS = """root:x:0:0:root:/root:/bin/sh
toor:x:0:0:root again:/root:/bin/sh
daemon:x:1:1:daemon:/:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/bin/sh
ana:x:20001:20001:Ana:/:/bin/sh
bob:x:20002:20002:Bob:/:/bin/sh
bobby:x:20002:20001:Bob by another name:/:/bin/sh
"""
ANA, BOB = 20001, 20002
POLICY = "allow 20000-29999\ndeny bob\nroot none\n"
STRICT_FOR = "BILLOW_CONFINED_FOR"
# A plan of the container that is none: its job runs on the node itself.
NO_CONTAINER = {"key": "x", "store": "/tmp/x", "root": False}

EVIL = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void begin(void) {
  close(open(MARK, O_CREAT | O_WRONLY, 0666));
}
"""


def base(text):
    return base64.b64encode(text.encode()).decode()


def code_of(status):
    return status.get("exit", {}).get("code", 0)


@NEEDS_ROOT
class Agent(unittest.TestCase):
    """An agent of root that serves a lying head."""

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(up=False)
        cls.addClassCleanup(shutil.rmtree, cls.rig.root, True)
        cls.addClassCleanup(cls.rig.remove_places)
        cls.head = LyingHead(cls.rig.root)
        cls.addClassCleanup(cls.head.close)
        cls.where = tempfile.mkdtemp(prefix="lies-", dir="/var/tmp")
        cls.addClassCleanup(shutil.rmtree, cls.where, True)
        os.chmod(cls.where, 0o777)
        paths = {}
        for name, text in (("passwd", ACCOUNTS), ("token", "a-token")):
            paths[name] = os.path.join(cls.rig.root, name)
            with open(paths[name], "w", encoding="ascii") as f:
                f.write(text)
        command = [BILLOW, "agent", "--head", f"unix:{cls.head.path}", "--data", cls.rig.data]
        command += ["--token-file", paths["token"], "--sim", "1xH100", "--node-name", "prey"]
        script = f"mount --bind {paths['passwd']} /etc/passwd && exec \"$@\""
        cls.log = open(os.path.join(cls.rig.root, "agent.log"), "wb")
        cls.addClassCleanup(cls.log.close)
        cls.agent = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", *command],
            env=cls.rig.environment,
            stdout=cls.log,
            stderr=cls.log,
        )
        cls.addClassCleanup(cls.end)

    @classmethod
    def end(cls):
        cls.head.order(type="leave", stop_tasks=True)
        try:
            cls.agent.wait(30)
        finally:
            for pid in cls.rig.processes():
                cls.rig.kill(pid)
            cls.agent.kill()
            cls.agent.wait()

    def setUp(self):
        self.rig.node_policy(POLICY)
        self.addCleanup(self.check_agent)

    def check_agent(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as f:
            self.assertTrue(alive(self.agent.pid), f.read()[-2000:])

    def mark(self):
        return tempfile.mktemp(prefix="mark-", dir=self.where)

    def run_one(self, command="id", **order):
        """What an ordered command left in its mark, None without; and how its task ended."""
        mark = self.mark()
        script = f"umask 0; {{ {command}; }} > {mark} 2>&1"
        task = self.head.start(**{"argv": ["/bin/sh", "-c", script], **order})
        ended = self.head.end_of(task)
        if not os.path.exists(mark):
            return None, ended
        with open(mark, encoding="utf-8", errors="replace") as f:
            return f.read(), ended

    def assert_refused(self, orders, command="id"):
        """None of these orders runs its command. `orders`: from a name to the order's fields."""
        for name, order in orders.items():
            with self.subTest(name):
                got, ended = self.run_one(command, **order)
                self.assertIsNone(got, ended)
                self.assertNotEqual(code_of(ended), 0, ended)

    def strict(self, account="ana", **order):
        env = {"PATH": "/usr/bin:/bin", STRICT_FOR: account, **order.pop("env", {})}
        return {"unix_user": "billow:strict", "owner": "ana", "env": env, **order}


class Accounts(Agent):
    def test_the_allowed_account_runs_with_its_own_numbers_alone(self):
        own = f"uid={ANA}(ana) gid={ANA} groups={ANA}"
        for more in (
            {},
            {"uid": 0, "gid": 0, "groups": [0], "identity": {"uid": 0, "gid": 0, "groups": [0]}},
            {"user": "root", "unix_name": "root", "no_new_privs": False, "root": True},
        ):
            got, ended = self.run_one(unix_user="ana", owner="root", **more)
            self.assertEqual((got or "").strip(), own, ended)

    def test_denied_accounts_run_nothing(self):
        names = ["root", "", "toor", "bob", "bobby", "daemon", "nobody", "no-such-account"]
        names += ["0", "1", str(BOB), f"+{BOB}", f"#{BOB}", "0:0", f"{ANA}:0", "-1", "4294967296"]
        names += ["ROOT", "root ", " root", "root\n", "root\0x", "bob\0ana", "ana\0", "ana:0:0"]
        names += ["../root", "ana/../root", "*", "a" * 5000, "ana\nroot", "bob,ana", "ana bob"]
        orders = {
            f"{name[:20]!r} of {owner!r}": {"unix_user": name, "owner": owner}
            for name in names
            for owner in ("root", "", "ana")
        }
        self.assert_refused(orders)

    def test_denied_accounts_run_nothing_behind_a_wall_either(self):
        orders = {}
        for kind in ("billow:strict", "billow:confined"):
            names = ["root", "toor", "bob", "bobby", "daemon", "", "no-such", "bob\0x", None]
            for account in names:
                env = {} if account is None else {STRICT_FOR: account}
                orders[f"{kind} for {account!r}"] = {"unix_user": kind, "owner": "root", "env": env}
        orders["root, confined for ana"] = {"unix_user": "root", "env": {STRICT_FOR: "ana"}}
        self.assert_refused(orders)

    def test_nothing_beside_a_refused_task_runs(self):
        mark = self.mark()
        touch = f"touch {mark}"
        task = self.head.start(
            unix_user="bob",
            owner="bob",
            suspend_hook=touch,
            resume_hook=touch,
            checkpoint_every_ns=10**9,
            checkpoint_cmd=touch,
            checkpoint_dir=self.where,
            suspendable=True,
        )
        self.head.end_of(task)
        self.head.order(type="suspend", epoch=1, task=task, order=1)
        self.head.order(type="resume", epoch=1, task=task, order=2)
        self.head.order(type="signal", task=task, number=9)
        self.head.order(type="input", task=task)
        self.head.order_copy(request=7, task=task)
        key = "ssh-ed25519 " + "A" * 68
        for number, port in ((1, 0), (2, 22)):
            self.head.order_tunnel(tunnel=number, task=task, port=port, authorized_key=key)
        refusals = poll(
            lambda: (lambda found: found if len(found) == 3 else None)(
                [m for m in self.head.answers if m.get("error")]
            ),
            "refusals of the copy and both tunnels",
        )
        self.assertEqual({m["type"] for m in refusals}, {"files_copied", "tunnel_opened"})
        self.assertFalse(os.path.exists(mark))

    def test_hooks_of_an_allowed_account_are_not_root(self):
        marks = {name: self.mark() for name in ("suspend", "checkpoint")}
        task = self.head.start(
            unix_user="ana",
            owner="root",
            argv=["sleep", "600"],
            suspend_hook=f"id -u > {marks['suspend']}",
            checkpoint_every_ns=10**9,
            checkpoint_cmd=f"id -u > {marks['checkpoint']}",
            checkpoint_dir=os.path.join(self.where, "kept"),
            suspendable=True,
        )
        poll(lambda: self.head.state(task) == "running", "the start")
        read = lambda name: os.path.exists(marks[name]) and open(marks[name], "rb").read()
        self.assertEqual(poll(lambda: read("checkpoint"), "a checkpoint"), b"%d\n" % ANA)
        self.head.order(type="suspend", epoch=1, task=task, order=1)
        self.assertEqual(poll(lambda: read("suspend"), "the hook"), b"%d\n" % ANA)
        self.head.order(type="stop", epoch=1, task=task, grace_ns=0)
        self.head.end_of(task)
        shutil.rmtree(os.path.join(self.where, "kept"), ignore_errors=True)

    def test_a_group_that_is_denied_stays_denied(self):
        self.rig.node_policy("allow 20000-29999\ndeny @daemon 20001\nroot ana")
        self.assert_refused({"ana": {"unix_user": "ana"}, "root": {"unix_user": "root"}})


class Walls(Agent):
    """What the policy says of images and of isolation."""

    def test_no_images_where_they_are_refused(self):
        self.rig.node_policy(POLICY + "images none")
        orders = {}
        names = ["docker.io/library/busybox", "busybox", " busybox", "localhost/x", "/", "../x"]
        for image in names:
            ask = {"image": image}
            orders[f"image {image}"] = {"unix_user": "ana", "surroundings": ask}
            orders[f"strict, image {image}"] = self.strict(surroundings=ask)
        for digest in ("0" * 64, "../../../tmp", "x"):
            ask = {"environment": "e", "environment_digest": digest}
            orders[f"environment {digest[:4]}"] = {"unix_user": "ana", "surroundings": ask}
        both = {"image": "busybox", "environment": "e", "environment_digest": "0" * 64}
        orders["both"] = {"unix_user": "ana", "surroundings": both}
        self.assert_refused(orders)

    def test_no_plain_job_where_strict_isolation_is_required(self):
        self.rig.node_policy(POLICY + "isolation strict")
        # Behind a wall the command can leave no mark, and it must run for the rest to mean much.
        got, ended = self.run_one(**self.strict())
        self.assertEqual((got, code_of(ended)), (None, 2), ended)
        ask = {"isolation": "strict"}
        name = "BILLOW_BOX_PLAN"
        half = json.dumps({**NO_CONTAINER, "more": "|"}).split("|")
        library = self.library()
        orders = {
            "plain": {"unix_user": "ana"},
            "asks alone": {"unix_user": "ana", "surroundings": ask},
            "confined": {"unix_user": "billow:confined", "env": {STRICT_FOR: "ana"}},
            "a variable beside a plain user": {"unix_user": "ana", "env": {STRICT_FOR: "ana"}},
            "another name": {"unix_user": "billow:strict ", "env": {STRICT_FOR: "ana"}},
            "a plan": self.strict(env={name: json.dumps(NO_CONTAINER)}),
            "a plan in a name": self.strict(env={f"{name}={half[0]}": half[1]}),
            "a plan in a secret": self.strict(**self.secret(name, json.dumps(NO_CONTAINER))),
            "a library": self.strict(env={"LD_PRELOAD": library}),
            "a library in a secret": self.strict(**self.secret("LD_PRELOAD", library)),
            "two variables in a secret": self.strict(**self.secret(f"A=\0{name}", "x")),
            "the whole node": self.strict(bare=True),
            "a path of the node": self.strict(env={"BILLOW_CACHE": self.where}),
            "a checkpoint": self.strict(env={"BILLOW_CHECKPOINT": self.where}),
        }
        for what in ("/", "/proc", "/sys", "/dev", "/run", "/srv/../", "//"):
            volume = [{"source": what, "path": "/mnt/node"}]
            command = "ls /mnt/node"
            orders[f"volume {what}"] = self.strict(volumes=volume, argv=["sh", "-c", command])
        for what, order in orders.items():
            with self.subTest(what):
                got, ended = self.run_one(**order)
                self.assertIsNone(got, ended)
                self.assertNotEqual(code_of(ended), 0, ended)
                before = os.path.exists(library + ".mark") and os.unlink(library + ".mark") is None
                self.assertFalse(before, "its code ran before the wall")

    @staticmethod
    def secret(variable, value):
        return {
            "surroundings": {"secrets": [{"name": "s", "variable": variable}]},
            "secrets": [{"variable": variable, "value": base(value)}],
        }

    def library(self):
        path = os.path.join(self.where, "evil.so")
        mark = f'-DMARK="{path}.mark"'
        command = ["gcc", "-shared", "-fPIC", mark, "-o", path, "-x", "c", "-"]
        subprocess.run(command, input=EVIL, text=True, check=True)
        subprocess.run(["/bin/true"], env={**os.environ, "LD_PRELOAD": path}, check=True)
        os.unlink(path + ".mark")
        return path


class Paths(Agent):
    """Names in orders that the agent, as root, would follow."""

    def file_secret(self, name="s", file="/run/secrets/s", value="planted"):
        return {
            "unix_user": "ana",
            "surroundings": {"secrets": [{"name": name, "file": file}]},
            "secrets": [{"file": file, "value": base(value)}],
        }

    def test_a_secret_is_written_nowhere_else(self):
        got, ended = self.run_one("cat $s_FILE", **self.file_secret())
        self.assertEqual(got, "planted", ended)
        planted = os.path.join(self.where, "planted")
        up = "../" * 12
        self.assert_refused(
            {
                "name above": self.file_secret(name=up + planted),
                "usual place": self.file_secret(up + planted, "/run/secrets/" + up + planted),
                "name of two": self.file_secret(name="a/b"),
                "name ..": self.file_secret(name=".."),
                "no name": self.file_secret(name=""),
                "no slash": self.file_secret(file="planted"),
                "ends in ..": self.file_secret(file="/mnt/x/.."),
                "ends in a slash": self.file_secret(file="/mnt/x/"),
                "above": self.file_secret(file="/mnt/../etc/planted"),
                "proc": self.file_secret(file="/proc/1/planted"),
                "line": self.file_secret(file=f"/mnt/x\n{self.where}/planted"),
                "no wish": {**self.file_secret(), "surroundings": {}},
            }
        )
        self.assertFalse(os.path.exists(planted))

    def test_volumes_do_not_open_what_is_closed_to_the_account(self):
        data = tempfile.mkdtemp(prefix="volume-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, data, True)
        os.makedirs(f"{data}/bobs/open")
        os.makedirs(f"{data}/all")
        for name in ("bobs/open", "all"):
            with open(f"{data}/{name}/file", "w", encoding="ascii") as f:
                f.write("content")
        os.symlink("/", f"{data}/all/root")
        os.chmod(data, 0o755)
        os.chmod(f"{data}/bobs", 0o700)
        os.chown(f"{data}/bobs", BOB, BOB)

        def mounted(source, path="/mnt/v"):
            volume = {"source": source, "path": path}
            return {"unix_user": "ana", "volumes": [volume]}

        for name, owner in (("own", ANA), ("bobs-link", BOB)):
            os.symlink("all", f"{data}/{name}")
            os.lchown(f"{data}/{name}", owner, owner)
        for source in ("all", "own"):
            got, ended = self.run_one("cat /mnt/v/file", **mounted(f"{data}/{source}"))
            self.assertEqual(got, "content", ended)
        orders = {
            f"{what!r}": mounted(what)
            for what in (
                *("/", "//", "/proc", "/sys", "/dev", "/run", "/proc/1", "/dev/shm", "/var/..", ""),
                *("tmp", f"{data}/bobs/open", f"{data}/all/root", f"{data}/all/root/proc"),
                f"{data}/bobs-link",
                "/etc\n/x",
                *(f"{data}/all/../bobs/open", f"{self.rig.data}/tasks", f"{data}/all/root/run"),
            )
        }
        places = ["/", "/proc", "/proc/1", "/sys/x", "/dev/x", "/mnt/../proc", "mnt", "/mnt/a\nb"]
        for path in places:
            orders[f"at {path!r}"] = mounted(f"{data}/all", path)
        self.assert_refused(orders)

    def test_odd_numbers_and_names_do_not_end_the_agent(self):
        secret = [{"variable": "S", "value": "not base64!"}]
        project = {"isolation": "strict", "network": "project"}
        odd = {
            "no command": {"argv": []},
            "an empty command": {"argv": [""]},
            "a zero in the command": {"argv": ["sh", "-c", "id\0"]},
            "a GPU that is not there": {"gpus": [{"gpu": 7}]},
            "a negative GPU": {"gpus": [{"gpu": -1}]},
            "an empty variable": {"env": {"": "x"}},
            "a zero in a variable": {"env": {"A": "x\0B=y"}},
            "a relative directory": {"cwd": "tmp"},
            "a project network without a project": self.strict(surroundings=project),
            "a call that does not exist": {"surroundings": {"refused_calls": ["no_such_call"]}},
            "a secret that is no base64": {
                "secrets": secret,
                "surroundings": {"secrets": [{"name": "s", "variable": "S"}]},
                "argv": ["sh", "-c", "test -n \"$S\""],
            },
        }
        self.assert_refused({k: {"unix_user": "ana", **order} for k, order in odd.items()})


if __name__ == "__main__":
    unittest.main()
