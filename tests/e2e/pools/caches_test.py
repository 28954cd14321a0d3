"""Disks that keep the caches of rented machines, against the server that plays EC2. A disk is a file behind a loop device,
which the machine's own start-up script formats and mounts."""
import os
import random
import shutil
import subprocess
import time
import unittest

from clouds_test import CloudRig
from rig import poll


def no_loop_devices():
    if os.geteuid() != 0 or not shutil.which("losetup"):
        return "needs root and losetup"
    found = subprocess.run(["losetup", "-f"], capture_output=True, check=False)
    return "" if found.returncode == 0 else "needs loop devices"


class CacheCase(unittest.TestCase):
    boots = True

    def setUp(self):
        self.rig = CloudRig(boots=self.boots)

    def tearDown(self):
        self.rig.close()

    def disks(self):
        return {name: m for name, m in self.rig.machines().items() if m["disk_gib"]}


class Caches(CacheCase):
    def setUp(self):
        if why := no_loop_devices():
            self.skipTest(why)
        super().setUp()

    def run_job(self, script):
        return self.rig.ok("run", "--gpus", 1, "--", "sh", "-c", script, timeout=240)

    def test_the_next_machine_has_what_the_last_one_fetched(self):
        rig = self.rig
        self.assertIn("problems  none", rig.add("--cache", "10GB").text)
        first = self.run_job("echo weights > $BILLOW_CACHE/model; echo $BILLOW_CACHE")
        place = first.out.decode().strip()
        poll(lambda: not rig.aws.alive(), "the machine ended", 60)
        poll(lambda: not self.disks() or not self.held(), "its disk is free", 60)
        self.assertEqual(len(rig.aws.volumes), 1, "the disk stays")
        listed = rig.ok("pool", "list").text
        self.assertIn("cache of 10 GiB", listed)
        self.assertIn("not in use", listed)
        second = self.run_job("cat $BILLOW_CACHE/model; df -P $BILLOW_CACHE")
        self.assertIn(b"weights", second.out, place)
        self.assertIn(b"/dev/loop", second.out, "it is on the disk")
        self.assertEqual(rig.aws.created, 2)
        volume = next(iter(rig.aws.volumes.values()))
        self.assertEqual((rig.aws.volumes_made, volume["used"]), (1, 2))
        poll(lambda: not rig.aws.alive(), "the machine ended", 60)
        rig.ok("cloud", "rm", "aws")
        poll(lambda: not rig.json("pool", "list")["pools"], "the cloud is removed", 60)
        self.assertEqual(rig.aws.volumes, {})
        self.assertEqual(rig.aws.mistakes, [])

    def held(self):
        return [m for m in self.rig.machines().values() if m["cache"]]

    def test_machines_that_run_at_once_have_a_disk_each(self):
        rig = self.rig
        rig.add("--cache", "10GB")
        script = "touch $BILLOW_CACHE/$BILLOW_JOB; while [ ! -e /tmp/%s ]; do sleep 0.1; done"
        gate = f"billow-cache-{os.getpid()}"
        self.addCleanup(lambda: os.path.exists(f"/tmp/{gate}") and os.unlink(f"/tmp/{gate}"))
        jobs = [
            rig.submit("--gpus", 1, "--zone", "us-east-1a", "--", "sh", "-c", script % gate)
            for _ in range(2)
        ]
        poll(lambda: all(rig.job(j)["state"] == "running" for j in jobs), "both run", 240)
        self.assertEqual(len(rig.aws.volumes), 2)
        self.assertEqual(len({v["instance"] for v in rig.aws.volumes.values()}), 2)
        held = {m["cache"] for m in self.held()}
        self.assertEqual(held, {"aws-cache-us-east-1a-1", "aws-cache-us-east-1a-2"})
        busy = rig.cli("machine", "release", "aws-cache-us-east-1a-1")
        self.assertEqual(busy.code, 1)
        self.assertIn("uses the cache aws-cache-us-east-1a-1", busy.text + busy.err.decode())
        with open(f"/tmp/{gate}", "w", encoding="ascii"):
            pass
        poll(lambda: not rig.aws.alive(), "both ended", 120)
        poll(lambda: not self.held(), "the disks are free", 60)
        rig.ok("machine", "release", "aws-cache-us-east-1a-1")
        poll(lambda: list(self.disks()) == ["aws-cache-us-east-1a-2"], "one is left", 60)
        self.assertEqual(len(rig.aws.volumes), 1)


    def test_each_node_of_a_gang_has_a_disk_that_the_next_gang_gets(self):
        rig = self.rig
        rig.add("--cache", "10GB", "--option", "gang_caches=true")

        def run_gang(script):
            words = ("run", "--gpus", 1, "--nodes", 2, "--", "sh", "-c", script)
            done = rig.ok(*words, timeout=240)
            poll(lambda: not rig.aws.alive() and not self.held(), "the gang ended", 90)
            return done.text

        run_gang("echo of-rank-$RANK > $BILLOW_CACHE/model")
        self.assertEqual(len(rig.aws.volumes), 2, "one for each node")
        second = run_gang("cat $BILLOW_CACHE/model; df -P $BILLOW_CACHE")
        for rank in (0, 1):
            self.assertIn(f"of-rank-{rank}", second)
        self.assertEqual(second.count("/dev/loop"), 2, second)
        used = sorted(v["used"] for v in rig.aws.volumes.values())
        self.assertEqual((rig.aws.volumes_made, used), (2, [2, 2]))
        rig.ok("cloud", "rm", "aws")
        poll(lambda: not rig.aws.volumes, "nothing is left", 90)


class CacheDisksNeverLeak(CacheCase):
    """Orders and releases while requests fail in every way and the head is killed."""

    boots = False
    rounds = int(os.environ.get("BILLOW_CACHE_ROUNDS", "4"))

    def test_disks_are_neither_leaked_nor_doubled(self):
        seed = int(os.environ.get("BILLOW_CLOUD_SEED", random.randrange(1 << 30)))
        print(f"seed {seed}, {self.rounds} rounds")
        chance, rig = random.Random(seed), self.rig
        for number in range(self.rounds):
            rig.aws.chaos = None
            cloud = f"aws{number}"  # an order that no list ever showed holds a name for 5 minutes
            rig.add("--cache", "20GB", "--name", cloud, max_machines=40)
            poll(rig.offers, "offers", 60)
            rig.aws.chaos = random.Random(chance.randrange(1 << 30))
            jobs = [rig.submit("--gpus", 1, "--", "true") for _ in range(chance.randrange(1, 5))]
            poll(lambda: rig.aws.volumes, "a disk", 120)
            if chance.random() < 0.5:
                rig.kill(rig.head_pid())
                rig.up()
            time.sleep(chance.random() * 2)
            names = [v["tags"]["billow:cache"] for v in list(rig.aws.volumes.values())]
            self.assertEqual(len(names), len(set(names)), "made twice")
            for job in jobs:
                rig.cli("stop", job)
            rig.ok("cloud", "rm", cloud)
            if chance.random() < 0.5:
                rig.kill(rig.head_pid())
                rig.up()
            poll(lambda: not rig.aws.alive() and not rig.aws.volumes, "nothing is left", 180)
        rig.aws.chaos = None
        if self.rounds > 4:
            poll(lambda: not rig.json("pool", "list")["pools"], "the clouds are removed", 420)
        print(f"{rig.aws.volumes_made} disks made, 0 left")

    def test_a_disk_that_the_head_does_not_know_is_listed_and_ended(self):
        rig = self.rig
        rig.add("--cache", "20GB")
        rig.submit("--gpus", 1, "--", "true")
        poll(lambda: rig.aws.volumes, "a disk", 60)
        known = next(iter(rig.aws.volumes.values()))
        tags = {**known["tags"], "billow:cache": "aws-cache-us-east-1b-7"}
        rig.aws.volumes["vol-stray"] = dict(known, id="vol-stray", tags=tags, instance="")
        poll(lambda: "vol-stray" not in rig.aws.volumes, "it is ended", 60)
        self.assertIn(known["id"], rig.aws.volumes)

    def test_a_lost_answer_leaves_one_disk(self):
        """EC2 knows the token of a repeated order; if it ever does not, the second disk is ended."""
        rig = self.rig
        for forgets in (False, True):
            with self.subTest(forgets=forgets):
                cloud, made = f"aws{forgets:d}", rig.aws.volumes_made
                rig.aws.forgets_volume_tokens = forgets
                rig.aws.loses = ["CreateVolume"]
                rig.aws.invisible_disk_looks = 3  # so that the order is repeated
                rig.add("--cache", "20GB", "--name", cloud)
                job = rig.submit("--gpus", 1, "--cloud", "aws", "--", "true")
                poll(lambda: any(v["instance"] for v in rig.aws.volumes.values()), "a cache", 90)
                self.assertEqual(rig.aws.loses, [], "an answer was lost")
                poll(lambda: len(rig.aws.volumes) == 1, "one disk", 60)
                repeated = rig.aws.volumes_made - made > 1
                self.assertEqual(repeated, forgets, rig.aws.volumes_made)
                used = next(iter(rig.aws.volumes.values()))
                self.assertTrue(used["instance"], "the one that is used stays")
                rig.ok("stop", job)
                rig.ok("cloud", "rm", cloud)
                poll(lambda: not rig.aws.volumes, "nothing is left", 90)

    def test_a_refused_order_leaves_no_disk(self):
        rig = self.rig
        zones = rig.aws.zones["us-east-1"]
        rig.aws.capacity = {zone: "InsufficientInstanceCapacity" for zone in zones}
        rig.add("--cache", "20GB")
        job = rig.submit("--gpus", 1, "--", "true")
        poll(lambda: rig.ok("explain", job).text.count("no capacity") >= 2, "both zones", 60)
        self.assertEqual((rig.aws.volumes_made, self.disks()), (0, {}))

    def test_a_cache_that_cannot_be_had_stops_no_job(self):
        rig = self.rig
        rig.aws.denied = {"CreateVolume"}
        self.assertIn("ec2:CreateVolume is missing", rig.add("--cache", "20GB").text)
        rig.submit("--gpus", 1, "--", "true")
        poll(rig.aws.alive, "a machine", 60)
        poll(lambda: any(r[2] == "CreateVolume" for r in rig.aws.requests), "it is asked for", 60)
        self.assertIsNone(rig.json("pool", "list")["pools"][0]["denied"])

    def test_a_provider_without_such_disks_says_so(self):
        done = self.rig.cli("cloud", "add", "lambda", "--cache", "20GB")
        self.assertEqual(done.code, 2)
        self.assertIn("--cache is for aws, gcp and azure", done.err.decode())


if __name__ == "__main__":
    unittest.main()
