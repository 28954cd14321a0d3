"""Images that never come: whose they are waits for them, and nobody else does."""
import fcntl
import json
import os
import socket
import subprocess
import threading
import unittest

import images
from rig import BILLOW, Rig, poll

WHY_NOT = images.missing()


class SilentRegistry:
    """Takes every connection and never says a word."""

    def __init__(self):
        self.server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.held = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        try:
            while True:
                self.held.append(self.server.accept()[0])
        except OSError:
            pass

    def name(self, image):
        return f"127.0.0.1:{self.server.getsockname()[1]}/{image}"

    def close(self):
        self.server.close()
        for connection in self.held:
            connection.close()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SlowPulls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="2xH100", args=("--pull-patience", "60s"))
        try:
            cls.silent = SilentRegistry()
            cls.registry = images.Registry(cls.rig.root)
            cls.image = cls.registry.push("tools:1", images.root_tar())
            cls.tokens = {}
            for name, unix_name in (("ana", "nobody"), ("ben", "daemon")):
                cls.rig.ok("user", "create", name, "--unix-name", unix_name)
                cls.rig.ok("project", "member", "default", name)
                cls.tokens[name] = cls.rig.json("token", "create", f"{name}-token", "--user", name)[
                    "token"
                ]
        except BaseException:
            cls.rig.close()
            raise

    @classmethod
    def tearDownClass(cls):
        try:
            cls.registry.close()
            cls.silent.close()
        finally:
            cls.rig.close()

    def cli(self, who, *args, **options):
        return self.rig.cli(*args, env={"BILLOW_TOKEN": self.tokens[who]}, **options)

    def submit(self, who, image):
        return int(self.cli(who, "submit", "-q", "--cwd", "/", "--image", image, "--", "true").text)

    def test_one_users_hanging_pulls_hold_up_nobody_else(self):
        hung = [self.submit("ana", self.silent.name(f"never{n}:1")) for n in range(20)]
        poll(lambda: self.silent.held, "a pull that hangs", 60)
        done = self.cli(
            "ben", "run", "--cwd", "/", "--image", self.image, "--", "cat", "/etc/hello", timeout=50
        )  # well within the patience for the others
        self.assertEqual((done.code, done.text), (0, "from the image\n"), done)
        states = [self.rig.job(job)["state"] for job in hung]
        self.assertNotIn("failed", states)  # they hang still: nobody waited for their end
        waits = [
            self.rig.job(job).get("starting", "") or json.dumps(self.rig.job(job)) for job in hung
        ]
        self.assertTrue(any("to be fetched first" in text for text in waits), waits[:3])
        # One that is stopped while it is brought, or waits, goes at once.
        for job in hung[2:]:
            self.rig.ok("stop", job)
        for job in hung[2:]:
            self.rig.wait_for(job, "stopped", 30)
        # What makes no progress is given up, with what it was.
        for job in hung[:2]:
            self.rig.wait_for(job, "failed", 180)
            reason = json.dumps(self.rig.job(job))
            self.assertIn("was given up: no progress for 1m", reason)
            self.assertIn(f"pulling {self.silent.name('never')}", reason)
            self.assertIn("check that the registry is reachable from this node", reason)

    def test_a_pull_that_hangs_is_not_charged(self):
        pulled = len(self.silent.held)
        job = self.json("ana", "submit", *self.with_gpu(self.silent.name("costs:1")))["id"]
        poll(lambda: len(self.silent.held) > pulled, "a pull that hangs", 60)
        lease = lambda: self.rig.json("cost", "--job", job)["leases"][0]
        poll(lambda: lease()["held_s"] > 3, "a GPU held for longer than a start takes", 30)
        self.rig.ok("stop", job)
        self.rig.wait_for(job, "stopped", 30)
        self.assertEqual(self.charge(job), 0)
        self.assertEqual(self.rig.job(job)["cost_nano_usd"], 0)
        # What runs is charged: there is a price.
        other = self.json("ben", "submit", *self.with_gpu(self.image))["id"]
        self.rig.wait_for(other, "running", 60)
        poll(lambda: self.rig.job(other)["ran_s"] > 1, "a second of work", 30)
        self.rig.ok("stop", other)
        self.rig.wait_for(other, "stopped", 30)
        self.assertGreater(self.charge(other), 0)

    @staticmethod
    def with_gpu(image):
        return ("--gpus", 1, "--cwd", "/", "--image", image, "--", "sleep", "600")

    def json(self, who, *args):
        at = args.index("--")
        return self.cli(who, *args[:at], "--json", *args[at:]).json

    def charge(self, job):
        return self.rig.json("cost", "--job", job)["total"]["charge_nano_usd"]

    def test_a_lock_that_somebody_holds_takes_no_place(self):
        """The store is its user's, who can hold its lock for ever."""
        store = os.path.join(self.rig.root, "store")
        os.makedirs(store)
        with open(os.path.join(store, "lock"), "wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = subprocess.run(
                [BILLOW, "box", "--store", store, "--image", self.image, "--key", "k"],
                capture_output=True,
                check=False,
                timeout=60,
            )
            self.assertIn(
                {"busy": True}, [json.loads(line) for line in done.stdout.splitlines()], done
            )
            fcntl.flock(held, fcntl.LOCK_UN)
        done = subprocess.run(
            [BILLOW, "box", "--store", store, "--image", self.image, "--key", "k"],
            capture_output=True,
            check=False,
            timeout=120,
        )
        self.assertTrue(any("image" in json.loads(line) for line in done.stdout.splitlines()), done)

    def test_a_home_that_cannot_be_written_is_no_hindrance(self):
        done = self.cli(
            "ben", "run", "--cwd", "/", "--image", self.image, "--", "id", "-u", timeout=120
        )  # daemon's home is /usr/sbin
        self.assertEqual((done.code, done.text), (0, "0\n"), done)


if __name__ == "__main__":
    unittest.main()
