"""`billow cloud head aws`: the head of this machine moves to an instance in a network namespace of its own, which runs only the
user data that the cloud was given. The disk with its state is a file behind a loop device."""
import os
import random
import re
import socket
import subprocess
import unittest

import net
from aws_policy import Policy
from aws_server import KEY, SECRET, AwsServer
from booted import Machines
from caches_test import no_loop_devices
from cloud_boot_test import PLAIN_PATH
from far import FarRig
from rig import MARK, Rig, alive, poll

# The person who moves the head has rights of their own, and the head those of its instance profile.
OWN_KEY, OWN_SECRET = "AKIDOWNOWNOWNOWNOWNO", "ownsecretownsecretownsecretownsecretowns"
CREATES = {"RunInstances", "CreateVolume", "AllocateAddress", "CreateSecurityGroup"}


class HeadMachines(Machines):
    """The head's machines have one address, rented machines another."""

    def __init__(self, network, *args, **options):
        super().__init__(*args, **options)
        self.network = network

    def start(self, name, script, rank=0):
        host = "a" if "this machine the head of" in script else "b"
        self.inside = lambda _: self.network.inside(host)
        return super().start(name, script, rank)


class HeadRig(FarRig):
    def __init__(self, network):
        listening = net.socket_in(
            network.hosts["head"][0], lambda: socket.create_server(("0.0.0.0", 0), backlog=128)
        )
        self.aws = AwsServer(boots=True, listening=listening)
        self.aws.url = f"http://{network.address('head')}:{listening.getsockname()[1]}"
        self.aws.free_addresses = [network.address("a")]
        self.aws.keys[OWN_KEY] = OWN_SECRET
        self.aws.policies = {OWN_KEY: Policy("aws-head-policy.json"), KEY: Policy("aws-policy.json")}
        super().__init__(network, up=False)
        credentials = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REGION": "us-east-1",
        }
        self.environment.update(**credentials, HOME=self.root)
        self.aws.machines = HeadMachines(
            network,
            os.path.join(self.root, "instances"),
            environment={
                **credentials,  # as those of an instance profile
                MARK: self.data,
                "PATH": PLAIN_PATH,
                "BILLOW_BOOT_TICK": "1",
                "BILLOW_BOOT_USER": "nobody",
                "BILLOW_DATA": "",
                "BILLOW_SIM": "",
                "BILLOW_NODE_POLICY": self.environment["BILLOW_NODE_POLICY"],
                "XDG_STATE_HOME": "",
            },
        )
        self.up()

    def move(self, *options, timeout=240):
        own = {"AWS_ACCESS_KEY_ID": OWN_KEY, "AWS_SECRET_ACCESS_KEY": OWN_SECRET}
        words = ("cloud", "head", "aws", "--endpoint", self.aws.url, *options)
        return self.cli(*words, env=own, timeout=timeout)

    def there(self, *args, **options):
        """A command for the head that the last login was for, as a user gives it."""
        return self.ok(*args, env={"BILLOW_DATA": ""}, **options)

    def machine(self):
        return next(one for one in self.aws.alive() if "billow:head" in one["tags"])

    def heads(self):
        """Processes of heads on the machine, with the number of their user."""
        out = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
                if b"up" in words and self.machine()["home"].encode() in words[0]:
                    out[int(pid)] = os.stat(f"/proc/{pid}").st_uid
            except OSError:
                pass
        return out

    def counts(self):
        aws = self.aws
        heads = [one for one in aws.alive() if "billow:head" in one["tags"]]
        return len(heads), len(aws.addresses), len(aws.volumes)

    def head_groups(self):
        names = self.aws.groups.get("us-east-1", {})
        return [n for n in names if n.startswith("billow-head-")]

    def close(self):
        try:
            self.aws.close()
            Rig.close(self)
        finally:
            self.aws.machines.close()


class CloudHead(unittest.TestCase):
    def setUp(self):
        if why := net.usable() or no_loop_devices():
            self.skipTest(why)
        self.net = net.Net("head", "a", "b")
        try:
            self.rig = HeadRig(self.net)
        except BaseException:
            self.net.close()
            raise

    def tearDown(self):
        try:
            self.rig.close()
        finally:
            self.net.close()

    def asked(self, actions):
        return [r[2] for r in self.rig.aws.requests if r[2] in actions]

    def test_the_head_moves_rents_and_comes_back_from_its_disk(self):
        rig = self.rig
        job = rig.submit("--gpus", 1, "--", "true")
        rig.ok("stop", job)
        rig.ok(
            *("cloud", "add", "aws", "--region", "us-east-1", "--gpu-type", "L4", "--max", 2),
            *("--idle", "2s", "--sim", "1xL4", "--option", f"endpoint={rig.aws.url}"),
            timeout=120,
        )
        created = len(self.asked(CREATES))

        refused = rig.move("--yes")
        self.assertEqual(refused.code, 2)
        self.assertIn("--allow", refused.errors)
        shown = rig.move("--allow", "10.77.0.0/24")
        self.assertEqual(shown.code, 0, shown)
        self.assertIn("opens TCP port 7070 to 10.77.0.0/24", shown.text)
        self.assertRegex(shown.text, r"about \$\d+\.\d\d per month")
        self.assertIn("nothing was created", shown.errors)
        self.assertEqual(len(self.asked(CREATES)), created, "a dry run creates nothing")

        moved = rig.move("--allow", "10.77.0.0/24", "--instance-profile", "billow", "--yes")
        self.assertEqual(moved.code, 0, moved)
        url = f"https://{self.net.address('a')}:7070"
        self.assertIn(f"the head runs at {url}", moved.text)
        self.assertEqual(rig.counts(), (1, 1, 1))
        group = rig.aws.group_facts[rig.machine()["group"]]
        self.assertEqual(group["rules"], {(7070, "10.77.0.0/24")})
        self.assertEqual(set(rig.heads().values()), {65534}, "it runs without root")
        self.assertFalse(os.path.exists(rig.data), "no second head starts on the old data")
        self.assertNotIn(SECRET, rig.machine()["data"])

        # It knows what it knew, and rents machines that reach it at its public address.
        self.assertEqual(rig.there("ps", "-a", "--json").json["jobs"][0]["id"], job)
        ran = rig.there("run", "--gpus", 1, "--", "echo", "rented", timeout=240)
        self.assertEqual(ran.out, b"rented\n")
        poll(lambda: len(rig.aws.alive()) == 1, "only the head is left", 90)
        self.assertIn("every machine", rig.there("cloud", "sweep").text)
        rig.there("cloud", "sweep", "--yes")
        self.assertEqual(rig.counts(), (1, 1, 1), "nothing sweeps a head")

        # Its machine is lost, its state is not.
        rig.aws.end(rig.machine()["id"], "Server.InternalError")
        gone = rig.move("--remove", "--yes")
        self.assertEqual(gone.code, 0, gone)
        self.assertEqual((rig.counts(), rig.head_groups()), ((0, 0, 1), []))
        again = rig.move("--allow", "10.77.0.0/24", "--yes")
        self.assertEqual(again.code, 0, again)
        self.assertEqual(len(rig.there("ps", "-a", "--json").json["jobs"]), 2)

        # Another network; then everything ends.
        rig.move("--allow", "10.77.0.0/25", "--allow", "10.77.0.128/25", "--yes")
        group = rig.aws.group_facts[rig.machine()["group"]]
        self.assertEqual(group["rules"], {(7070, "10.77.0.0/25"), (7070, "10.77.0.128/25")})
        self.assertIn("nothing was changed", rig.move("--remove").errors)
        self.assertEqual(rig.counts(), (1, 1, 1))
        rig.move("--remove", "--delete-disk", "--yes")
        self.assertEqual((rig.counts(), rig.head_groups()), ((0, 0, 0), []))
        self.assertEqual(rig.aws.mistakes, [])
        self.assertEqual(rig.aws.policies[OWN_KEY].surplus(), set(), "nobody needs these rights")

    def test_lost_answers_create_nothing_twice_and_leave_nothing(self):
        rig = self.rig
        seed = int(os.environ.get("BILLOW_CLOUD_SEED", random.randrange(1 << 30)))
        print(f"seed {seed}")
        rig.aws.free_addresses.append("203.0.113.7")  # of a second one, if it comes to that
        rig.aws.chaos = random.Random(seed)
        rig.aws.chaos_rate = 0.3
        moved = rig.move("--allow", "0.0.0.0/0", "--yes")
        self.assertEqual(moved.code, 0, moved)
        self.assertEqual(rig.counts(), (1, 1, 1))
        removed = rig.move("--remove", "--delete-disk", "--yes")
        self.assertEqual(removed.code, 0, removed)
        self.assertEqual((rig.counts(), rig.head_groups()), ((0, 0, 0), []))

    def test_orders_that_arrive_twice_create_nothing_twice(self):
        class Twice:
            def random(self):
                return 0

            def choice(self, _):
                return "twice"

        rig = self.rig
        rig.aws.free_addresses.append("203.0.113.7")
        rig.aws.chaos = Twice()
        moved = rig.move("--allow", "10.77.0.0/24", "--yes")
        self.assertEqual(moved.code, 0, moved)
        self.assertEqual(rig.counts(), (1, 1, 1))
        removed = rig.move("--remove", "--delete-disk", "--yes")
        self.assertEqual(removed.code, 0, removed)
        self.assertEqual((rig.counts(), rig.head_groups()), ((0, 0, 0), []))

    def test_what_fails_is_taken_back_and_the_head_here_goes_on(self):
        rig = self.rig
        before = rig.head_pid()
        for reason in ("AddressLimitExceeded", "InsufficientInstanceCapacity"):
            with self.subTest(reason):
                rig.aws.free_addresses = []
                if reason.startswith("Insufficient"):
                    rig.aws.free_addresses = [self.net.address("a")]
                    zones = rig.aws.zones["us-east-1"]
                    rig.aws.capacity = {zone: (reason, 400, "none") for zone in zones}
                done = rig.move("--allow", "10.77.0.0/24", "--yes")
                self.assertEqual(done.code, 1, done)
                self.assertIn(reason, done.errors)
                self.assertEqual((rig.counts(), rig.head_groups()), ((0, 0, 0), []))
        self.assertTrue(alive(before))
        self.assertEqual(rig.ok("ps").code, 0)

    def test_a_machine_whose_mover_was_killed_ends_itself(self):
        rig = self.rig
        rig.aws.machines.environment["BILLOW_BOOT_WAIT"] = "3"  # seconds instead of 12 minutes
        rig.aws.machines.attach = lambda *_: None  # it waits for its disk, and nothing is sent
        words = ("cloud", "head", "aws", "--endpoint", rig.aws.url, "--allow", "10.77.0.0/24")
        own = {"AWS_ACCESS_KEY_ID": OWN_KEY, "AWS_SECRET_ACCESS_KEY": OWN_SECRET}
        mover = subprocess.Popen(
            rig.command(*words, "--yes"),
            env={**rig.environment, **own},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        poll(lambda: any(v["instance"] for v in rig.aws.volumes.values()), "its disk", 60)
        mover.kill()
        mover.wait()
        one = rig.machine()
        Machines.attach(rig.aws.machines, one["id"], next(iter(rig.aws.volumes)), 20)
        poll(lambda: os.path.exists(one["home"] + "/off"), "power off", 60)
        rig.aws.powered_off()
        self.assertEqual(rig.aws.alive(), [])
        self.assertEqual(rig.move("--allow", "10.77.0.0/24", "--yes").code, 1, "parts are left")
        self.assertEqual(rig.move("--remove", "--delete-disk", "--yes").code, 0)
        self.assertEqual((rig.counts(), rig.head_groups()), ((0, 0, 0), []))

    def test_a_head_with_a_running_job_does_not_move(self):
        rig = self.rig
        rig.join("b", rig.join_token())
        rig.node_here("b")
        job = rig.submit("--gpus", 1, "--", "sleep", "600")
        poll(lambda: rig.job(job)["state"] == "running", "running", 60)
        done = rig.move("--allow", "10.77.0.0/24", "--yes")
        self.assertEqual(done.code, 1, done)
        self.assertRegex(done.errors, re.escape("1 job of this head would lose it"))
        self.assertEqual((rig.counts(), rig.head_groups()), ((0, 0, 0), []))
        rig.ok("stop", job)


if __name__ == "__main__":
    unittest.main()
