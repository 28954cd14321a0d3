"""What rented machines cost and what they come with: bills, gangs in one place, disks."""
import unittest

from clouds_test import CloudRig
from rig import Rig, poll


class Money(unittest.TestCase):
    """The books against Amazon's meter: whole seconds, at least sixty."""

    def setUp(self):
        self.rig = CloudRig()

    def tearDown(self):
        self.rig.close()

    def meter(self):
        offers = {o["instance"]: o for o in self.rig.offers()}
        return sum(
            offers[one["type"]]["price_h_nano_usd"] * self.rig.aws.bill_s(one) // 3600
            for one in self.rig.aws.instances.values()
        )

    def fleet(self):
        return self.rig.json("cost")["fleet"]["cost_nano_usd"]

    def test_the_bill_is_the_providers_to_the_nano_dollar(self):
        rig = self.rig
        rig.add()
        poll(rig.offers, "offers", 60)
        rig.ok("run", "--gpus", 1, "--", "sleep", "2", timeout=120)
        poll(lambda: not rig.machines(), "the machine is gone", 90)
        self.assertGreater(self.meter(), 0)
        self.assertEqual(self.fleet(), self.meter())
        self.assertEqual(rig.json("waste")["unused_machines"], [])

    def test_a_machine_that_ran_nothing_is_waste_with_its_name(self):
        rig = self.rig
        rig.aws.boots = False
        rig.add()
        job = rig.submit("--gpus", 1, "--", "true")
        poll(lambda: rig.aws.alive(), "a machine", 60)
        poll(
            lambda: [m for m in rig.machines().values() if m["external"]], "it is in the books", 60
        )
        self.assertGreater(self.fleet(), 0, "it costs before it has joined")
        rig.ok("stop", job)
        poll(lambda: not rig.machines(), "the machine is gone", 90)
        self.assertEqual(self.fleet(), self.meter())
        unused = rig.json("waste")["unused_machines"]
        self.assertEqual([m["machine"] for m in unused], ["aws-1"])
        self.assertEqual(unused[0]["nano_usd"], self.meter())
        self.assertIn("aws-1", rig.ok("waste").text)

    def test_what_will_be_rented_is_said_with_price_and_place(self):
        rig = self.rig
        rig.add()
        poll(rig.offers, "offers", 60)
        done = rig.cli("run", "--gpus", 1, "--", "true", timeout=120)
        self.assertRegex(done.errors, r"renting g6.xlarge in us-east-1[ab] \(on demand, \$0.80/h\)")


class Gangs(unittest.TestCase):
    def test_the_nodes_of_a_gang_are_in_one_placement_group(self):
        rig = CloudRig(boots=False)
        try:
            rig.add()
            poll(rig.offers, "offers", 60)
            job = rig.submit("--gpus", 1, "--nodes", 2, "--", "true")
            poll(lambda: len(rig.aws.alive()) == 2, "two machines", 60)
            asked = [
                r[3] for r in rig.aws.requests if r[2] == "RunInstances" and "DryRun" not in r[3]
            ]
            self.assertEqual(len(asked), 1, "all or none")
            zone = asked[0]["Placement.AvailabilityZone"]
            self.assertTrue(asked[0]["Placement.GroupName"].endswith(zone), asked[0])
            self.assertEqual(len(rig.aws.placement_groups), 1)
            rig.ok("stop", job)
        finally:
            rig.close()


class Disks(unittest.TestCase):
    def test_a_machine_comes_with_the_disk_that_its_job_asks_for(self):
        rig = CloudRig(boots=False)
        try:
            rig.add()
            poll(rig.offers, "offers", 60)
            sizes = {}
            for asked in ("1TB", "100GB"):  # g6.xlarge has 250 GB of its own
                job = rig.submit("--gpus", 1, "--disk", asked, "--", "true")
                poll(lambda: len(rig.aws.alive()) == 1, "a machine", 60)
                launch = [r[3] for r in rig.aws.requests if r[2] == "RunInstances"][-1]
                sizes[asked] = int(launch["BlockDeviceMapping.1.Ebs.VolumeSize"])
                rig.ok("stop", job)
                poll(lambda: not rig.aws.alive(), "its end", 90)
            self.assertEqual(sizes, {"1TB": 1124, "100GB": 200})
        finally:
            rig.close()

    def test_a_job_waits_for_the_disk_that_another_was_promised(self):
        rig = Rig(sim="2xL4")
        try:
            free = rig.json("nodes")["nodes"][0]["disk_mib"]
            self.assertGreater(free, 0)
            most = free * 2 // 3
            first = rig.submit("--gpus", 1, "--disk", f"{most}M", "--", "sleep", "600")
            poll(lambda: rig.job(first)["state"] == "running", "running", 60)
            second = rig.submit("--gpus", 1, "--disk", f"{most}M", "--", "true")
            poll(lambda: "not enough disk" in rig.ok("explain", second).text, "the reason", 30)
            rig.ok("stop", first)
            self.assertEqual(rig.cli("wait", second, timeout=60).code, 0)
            self.assertEqual(rig.job(second)["disk_mib"], most)
        finally:
            rig.close()


if __name__ == "__main__":
    unittest.main()
