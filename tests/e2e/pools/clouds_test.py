"""Machines from Amazon EC2, against a server of our own that checks signatures and keeps EC2's semantics. A machine is a real
agent, started by the instance's own user data."""
import json
import os
import random
import subprocess
import time
import unittest

from aws_policy import Policy
from aws_server import ACCOUNT, KEY, SECRET, AwsServer
from booted import Machines
from rig import SOURCE, Rig, poll


class CloudRig(Rig):
    """A head without a machine of its own, and a cloud."""

    def __init__(self, boots=True, regions=None, **options):
        super().__init__(sim="1xL4", args=("--no-agent", "--tls"), up=False)
        self.aws = AwsServer(
            boots=boots, machines=Machines(os.path.join(self.root, "instances"), self.data)
        )
        self.aws.zones = regions or self.aws.zones
        self.aws.policies = {KEY: Policy("aws-policy.json")}  # the shipped one, in every test
        self.environment.update(
            AWS_ACCESS_KEY_ID=KEY,
            AWS_SECRET_ACCESS_KEY=SECRET,
            AWS_EC2_METADATA_DISABLED="true",
            HOME=self.root,
        )
        self.up()

    def close(self):
        self.aws.close()
        super().close()

    def add(self, *options, gpu="L4", sim="1xL4", max_machines=4):
        return self.ok(
            "cloud",
            "add",
            "aws",
            "--region",
            ",".join(self.aws.zones),
            "--gpu-type",
            gpu,
            "--max",
            max_machines,
            "--idle",
            "2s",
            "--sim",
            sim,
            "--option",
            f"endpoint={self.aws.url}",
            *options,
            timeout=120,
        )

    def machines(self):
        return {
            m["name"]: m for pool in self.json("pool", "list")["pools"] for m in pool["machines"]
        }

    def offers(self):
        return self.json("cloud", "prices", "--limit", 1000)["offers"]


class Clouds(unittest.TestCase):
    def setUp(self):
        self.rig = CloudRig()

    def tearDown(self):
        self.rig.close()

    def test_a_job_rents_a_machine_and_nothing_is_left_afterwards(self):
        rig = self.rig
        added = rig.add()
        self.assertIn(ACCOUNT, added.text)
        self.assertIn("problems  none", added.text)
        poll(rig.offers, "offers", 30)
        began = time.monotonic()
        done = rig.ok("run", "--gpus", 1, "--gpu-type", "L4", "--", "echo", "rented", timeout=120)
        print(f"first output after {time.monotonic() - began:.1f} s")
        self.assertEqual(done.out, b"rented\n")
        one = next(iter(rig.aws.instances.values()))
        self.assertEqual(one["tags"]["billow:pool"], "aws")
        self.assertNotIn(SECRET, one["data"])
        node = rig.aws.made_for
        self.assertEqual(len(node), 1, node)
        poll(lambda: not rig.aws.alive(), "the machine ended", 60)
        poll(lambda: not rig.machines(), "nothing left in the books", 60)
        self.assertEqual(rig.json("nodes")["nodes"], [])
        self.assertEqual(rig.aws.created, 1)
        self.assertEqual(rig.aws.mistakes, [])
        # The price on the bill is the offer's.
        job = rig.json("ps", "-a")["jobs"][0]
        self.assertGreater(rig.job(job["id"])["cost_nano_usd"], 0)

    def test_the_labels_of_a_node_say_where_it_is(self):
        rig = self.rig
        rig.add()
        job = rig.submit(
            "--gpus", 1, "--zone", "us-east-1b", "--cloud", "aws", "--", "sleep", "600"
        )
        poll(lambda: rig.job(job)["state"] == "running", "running", 120)
        labels = rig.json("nodes")["nodes"][0]["labels"]
        self.assertEqual(labels["zone"], "us-east-1b")
        self.assertEqual(labels["instance"], "g6.xlarge")
        self.assertIn("Rented aws-1: g6.xlarge in us-east-1b", rig.ok("explain", job).text)
        rig.ok("stop", job)

    def test_missing_rights_and_quotas_are_named(self):
        rig = self.rig
        rig.aws.denied = {"RunInstances"}
        rig.aws.quota = 0.0
        text = rig.add().text
        self.assertIn("ec2:RunInstances is missing", text)
        self.assertIn("the quota of on-demand G and VT instances", text)
        job = rig.submit("--gpus", 1, "--", "true")
        poll(lambda: "UnauthorizedOperation" in rig.ok("explain", job).text, "the reason", 60)
        asked = len(
            [r for r in rig.aws.requests if r[2] == "RunInstances" and "DryRun" not in r[3]]
        )
        self.assertEqual(asked, 1, "wrong rights do not tour the world")
        rig.aws.denied = set()
        self.assertEqual(rig.cli("cloud", "check", "aws", timeout=120).code, 1)
        self.assertEqual(rig.cli("wait", job, timeout=120).code, 0)

    def test_a_machine_that_loses_its_head_ends_itself(self):
        rig = self.rig
        rig.add()
        job = rig.submit("--gpus", 1, "--", "sleep", "600")
        poll(lambda: rig.job(job)["state"] == "running", "running", 120)
        rig.kill(rig.head_pid())
        one = rig.aws.alive()[0]
        # Twelve ticks of a second instead of a minute.
        poll(lambda: os.path.exists(one["home"] + "/off"), "power off", 60)
        rig.aws.powered_off()
        self.assertEqual(rig.aws.alive(), [])

    def test_a_machine_that_the_cloud_does_not_end_ends_itself(self):
        rig = self.rig
        rig.add()
        job = rig.submit("--gpus", 1, "--", "sleep", "600")
        poll(lambda: rig.job(job)["state"] == "running", "running", 120)
        one = rig.aws.alive()[0]
        rig.aws.denied = {"TerminateInstances"}
        rig.ok("stop", job)
        poll(lambda: os.path.exists(one["home"] + "/off"), "power off", 90)
        rig.aws.powered_off()
        poll(lambda: not rig.machines(), "nothing left in the books", 60)

    def test_sweep_finds_what_is_ours_and_unknown(self):
        rig = self.rig
        rig.add(max_machines=1)
        job = rig.submit("--gpus", 1, "--", "sleep", "600")
        poll(lambda: rig.job(job)["state"] == "running", "running", 120)
        self.assertIn("every machine", rig.ok("cloud", "sweep").text)
        rig.ok("stop", job)


class Adding(unittest.TestCase):
    """What a new user meets before anything is rented."""

    def setUp(self):
        self.rig = CloudRig(boots=False)

    def tearDown(self):
        self.rig.close()

    def test_an_unknown_provider_is_named_before_a_key_is_asked_for(self):
        rig = self.rig
        done = rig.cli("cloud", "add", "nosuch", stdin=b"")
        self.assertNotEqual(done.code, 0)
        self.assertIn('no provider is named "nosuch"', done.errors)
        self.assertNotIn("API key", done.errors)
        self.assertEqual(rig.json("pool", "list")["pools"], [])
        self.assertIn("is it lambda?", rig.cli("cloud", "add", "lamda", stdin=b"").errors)

    def test_a_cloud_without_credentials_is_not_kept(self):
        rig = self.rig
        rig.aws.keys = {}
        done = rig.cli(
            "cloud",
            "add",
            "aws",
            "--region",
            "us-east-1",
            "--option",
            f"endpoint={rig.aws.url}",
            timeout=120,
        )
        self.assertNotEqual(done.code, 0)
        self.assertIn("cloud aws was not added", done.errors)
        poll(lambda: not rig.json("pool", "list")["pools"], "nothing kept", 30)

    def test_a_cloud_that_does_not_answer_is_not_taken_for_wrong_credentials(self):
        rig = self.rig
        silent = "http://127.0.0.1:1"  # where nobody listens
        words = ("cloud", "add", "aws", "--region", "us-east-1", "--option", f"endpoint={silent}")
        done = rig.cli(*words, timeout=120)
        self.assertNotEqual(done.code, 0)
        self.assertIn("AWS did not answer", done.errors)
        self.assertNotIn("not accepted", done.errors)

    def test_a_job_whose_price_is_too_low_is_told_so(self):
        rig = self.rig
        rig.add()
        poll(rig.offers, "offers", 60)
        job = rig.submit("--gpus", 1, "--max-price", "0.50", "--", "true")
        text = rig.ok("explain", job).text
        self.assertRegex(text, r"cheapest offer, g6.xlarge in us-east-1[ab] \(on demand, \$0.80/h\)")
        self.assertIn("--max-price $0.50", text)
        self.assertNotIn("billow join", text)
        self.assertEqual(rig.aws.created, 0)

    def test_a_profile_with_sso_uses_the_login_of_the_heads_user(self):
        rig = self.rig
        os.makedirs(rig.root + "/.aws/sso/cache")
        with open(rig.root + "/.aws/config", "w", encoding="ascii") as f:
            f.write(
                "[profile gpu]\nsso_session = work\nsso_account_id = 123456789012\nsso_role_name ="
                " Renter\n[sso-session work]\nsso_region = us-east-1\nsso_start_url ="
                " https://work.example/start\n"
            )
        login = {"startUrl": "https://work.example/start", "accessToken": "browser-token"}
        cache = rig.root + "/.aws/sso/cache/0123.json"

        def logged_in(expires):
            with open(cache, "w", encoding="ascii") as f:
                json.dump({**login, "expiresAt": expires}, f)

        logged_in("2020-01-01T00:00:00Z")
        rig.aws.logins["browser-token"] = (ACCOUNT, "Renter")
        rig.environment["AWS_ENDPOINT_URL_SSO"] = rig.aws.url
        rig.ok("down")
        rig.up()
        words = ("cloud", "add", "aws", "--region", "us-east-1", "--profile", "gpu")
        words += ("--option", f"endpoint={rig.aws.url}")
        done = rig.cli(*words, timeout=120)
        self.assertNotEqual(done.code, 0)
        self.assertIn("aws sso login --profile gpu", done.errors)
        poll(lambda: not rig.json("pool", "list")["pools"], "nothing kept", 30)
        logged_in("2099-01-01T00:00:00Z")
        self.assertIn("profile gpu (SSO)", rig.ok(*words, timeout=120).text)

    def test_what_is_missing_is_said_with_what_to_do(self):
        done = self.rig.cli("cloud", "add", "runpod", stdin=b"")
        self.assertIn("billow cloud add runpod --key-file FILE", done.errors)
        self.assertIn("--region eastus", self.rig.cli("cloud", "add", "azure").errors)

    def test_every_cloud_has_a_policy_and_a_way_to_run_the_head(self):
        rig = self.rig
        self.assertIn("ec2:RunInstances", rig.ok("cloud", "policy", "aws").text)
        self.assertIn("compute.instances.create", rig.ok("cloud", "policy", "gcp").text)
        self.assertIn("virtualMachines/write", rig.ok("cloud", "policy", "azure").text)
        self.assertEqual(rig.cli("cloud", "policy", "lambda").code, 2)
        for words in (("aws", "--show"), ("google",), ("azure",)):
            self.assertIn("billow up --listen", rig.ok("cloud", "head", *words).text)
        self.assertIn("ec2:AllocateAddress", rig.ok("cloud", "policy", "aws", "--head").text)
        self.assertEqual(rig.cli("cloud", "head", "gcp", "--yes").code, 2)
        words = ("--region", "us-east-1", "--endpoint", rig.aws.url, "--allow", "203.0.113.7")
        refused = rig.cli("cloud", "head", "aws", *words)
        self.assertEqual(refused.code, 1)
        self.assertIn("billow cloud policy aws --head", refused.errors)

    def test_names_and_gpus_are_found_as_people_write_them(self):
        rig = self.rig
        endpoint = ("--option", f"endpoint={rig.aws.url}")
        added = rig.cli("cloud", "add", "Amazon", "--region", "us-east-1", *endpoint, timeout=120)
        self.assertIn("created cloud aws", added.text, added)
        self.assertIn("billow cloud head aws", added.errors, "this head is on loopback only")
        poll(rig.offers, "offers", 60)
        self.assertIn("g6.xlarge", rig.ok("cloud", "prices", "--gpu-type", "l4").text)
        self.assertIn("they rent H100, L4", rig.cli("cloud", "prices", "--gpu-type", "A10").errors)

    def test_the_provider_files_are_listed_and_right(self):
        listed = self.rig.json("cloud", "providers")["providers"]
        self.assertIn("lambda", [p["name"] for p in listed])
        self.assertEqual([p["error"] for p in listed if p["error"]], [])
        verda = next(p for p in listed if p["name"] == "verda")
        self.assertEqual(verda["bill_step_s"], 600)


class Rights(unittest.TestCase):
    """Every test of this file has exactly the rights of the shipped policy: one that is missing fails them."""

    def test_the_policy_allows_nothing_that_nobody_needs(self):
        rig = CloudRig(boots=False)
        try:
            policy = rig.aws.policies[KEY]
            reserved = {
                "capacityReservationId": "cr-1",
                "instanceType": "g6.xlarge",
                "availabilityZone": "us-east-1b",
                "availableInstanceCount": 1,
            }
            rig.aws.DescribeCapacityReservations = lambda *_: {"capacityReservationSet": [reserved]}
            price = {"instanceType": "g6.xlarge", "availabilityZone": "us-east-1a"}
            price["spotPrice"] = "0.2"
            rig.aws.DescribeSpotPriceHistory = lambda *_: {"spotPriceHistorySet": [price]}
            added = rig.add("--cache", "20GB", "--spot", max_machines=8).text
            self.assertIn("problems  none", added)
            poll(rig.offers, "offers", 60)
            spot = rig.submit("--gpus", 1, "--spot", "--zone", "us-east-1a", "--", "true")
            poll(lambda: any(m["spot"] for m in rig.aws.alive()), "a spot machine", 60)
            one = rig.submit("--gpus", 1, "--zone", "us-east-1b", "--disk", "300GB", "--", "true")
            poll(lambda: any(v["instance"] for v in rig.aws.volumes.values()), "a cache", 60)
            gang = rig.submit("--gpus", 1, "--nodes", 2, "--", "true")
            poll(lambda: rig.aws.placement_groups, "a gang", 60)
            rig.ok("cloud", "sweep", "--yes", timeout=60)
            for job in (one, gang, spot):
                rig.ok("stop", job)
            rig.ok("cloud", "rm", "aws")
            poll(lambda: not rig.aws.alive() and not rig.aws.volumes, "everything ended", 120)
            self.assertEqual(policy.surplus(), set())
        finally:
            rig.close()


class Failover(unittest.TestCase):
    def test_eleven_zones_refuse_and_the_twelfth_runs_the_job(self):
        regions = {
            name: [f"{name}{z}" for z in "abcd"]
            for name in ("us-east-1", "us-west-2", "eu-north-1")
        }
        rig = CloudRig(regions=regions)
        try:
            zones = [z for zs in regions.values() for z in zs]
            rig.add()
            poll(lambda: len(rig.offers()) >= 12, "offers of twelve zones", 60)
            last = max(rig.offers(), key=lambda o: (o["price_usd_per_h"], o["zone"]))["zone"]
            codes = [
                "InsufficientInstanceCapacity",
                ("Unsupported", 400, "Your requested instance type is not supported in the zone"),
                "InsufficientHostCapacity",
                ("InsufficientFreeAddressesInSubnet", 400, "no addresses"),
            ]
            for i, zone in enumerate(z for z in zones if z != last):
                rig.aws.capacity[zone] = codes[i % len(codes)]
            job = rig.submit("--gpus", 1, "--gpu-type", "L4", "--", "sleep", "60")
            began = (
                poll(
                    lambda: next((r for r in rig.aws.requests if r[2] == "RunInstances"), None),
                    "the first request",
                    60,
                )
                and time.monotonic()
            )
            poll(lambda: rig.aws.alive(), "a machine", 60)
            took = time.monotonic() - began
            poll(lambda: rig.job(job)["state"] == "running", "running", 120)
            print(f"eleven refusals and a machine took {took:.1f} s")
            self.assertLess(took, 15)
            text = rig.ok("explain", job).text
            for zone in zones:
                self.assertIn(zone, text)
            asked = [
                r[3]["Placement.AvailabilityZone"]
                for r in rig.aws.requests
                if r[2] == "RunInstances" and "DryRun" not in r[3]
            ]
            self.assertEqual(sorted(asked), sorted(zones))
            positions = [text.index(zone) for zone in asked]
            self.assertEqual(positions, sorted(positions), "in the order of the requests")
            rig.ok("stop", job)
        finally:
            rig.close()

    def test_accepted_and_then_ended_goes_to_the_next_zone(self):
        rig = CloudRig()
        try:
            rig.aws.dies_after_accept = {"us-east-1a": "Server.InsufficientInstanceCapacity"}
            rig.add()
            job = rig.submit("--gpus", 1, "--", "sleep", "60")
            poll(lambda: rig.job(job)["state"] == "running", "running", 120)
            self.assertEqual(rig.aws.alive()[0]["zone"], "us-east-1b")
            self.assertIn("Server.InsufficientInstanceCapacity", rig.ok("explain", job).text)
            rig.ok("stop", job)
        finally:
            rig.close()


class Limits(unittest.TestCase):
    """EC2 counts requests by region: five orders at once, then two a second."""

    machines = int(os.environ.get("BILLOW_CLOUD_MACHINES", "12"))

    def test_many_machines_are_asked_for_without_being_throttled(self):
        rig = CloudRig(boots=False)
        try:
            rig.aws.limited, rig.aws.page = True, 1000
            rig.add(max_machines=self.machines)
            poll(rig.offers, "offers", 60)
            began = time.monotonic()
            jobs = [rig.submit("--gpus", 1, "--", "true") for _ in range(self.machines)]
            poll(lambda: len(rig.aws.alive()) == self.machines, "all machines", 120)
            print(f"{self.machines} machines after {time.monotonic() - began:.1f} s")
            for job in jobs:
                rig.ok("stop", job)
            poll(lambda: not rig.aws.alive(), "every machine ended", 120)
            self.assertEqual(rig.aws.throttled, 0)
            self.assertEqual(rig.aws.created, self.machines)
        finally:
            rig.close()


class Parity(unittest.TestCase):
    """Our requests against those of Amazon's own SDK."""

    def test_requests_and_signatures_are_those_of_the_sdk(self):
        folder = os.path.join(SOURCE, "tests/clouds")
        if not os.path.isdir(os.path.join(folder, "node_modules/@aws-sdk/client-ec2")):
            self.skipTest("needs `npm ci` in tests/clouds")
        rig = CloudRig()
        try:
            rig.aws.boots = False
            rig.add("--cache", "10GB")
            job = rig.submit("--gpus", 1, "--", "true")
            poll(lambda: any(v["instance"] for v in rig.aws.volumes.values()), "its cache", 60)
            rig.ok("stop", job)
            rig.ok("cloud", "rm", "aws")
            poll(lambda: not rig.aws.alive() and not rig.aws.volumes, "everything ended", 60)
            done = subprocess.run(
                ["node", os.path.join(folder, "ec2_parity.mjs")],
                input=json.dumps([r for r in rig.aws.raw if "DryRun" not in r["body"]]).encode(),
                env={**os.environ, "KEY": KEY, "SECRET": SECRET},
                cwd=folder,
                capture_output=True,
                timeout=120,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:])
            checked = json.loads(done.stdout)
            volumes = ["AttachVolume", "CreateVolume", "DeleteVolume", "DescribeVolumes"]
            machines = ["DescribeInstances", "RunInstances", "TerminateInstances"]
            self.assertEqual(sorted(checked), sorted(volumes + machines))
        finally:
            rig.close()


class NeverLeak(unittest.TestCase):
    """Cycles of ordering and releasing while requests fail in every way and the head is killed."""

    cycles = int(os.environ.get("BILLOW_CLOUD_CYCLES", "24"))

    def test_nothing_is_leaked_doubled_or_forgotten(self):
        seed = int(os.environ.get("BILLOW_CLOUD_SEED", random.randrange(1 << 30)))
        print(f"seed {seed}, {self.cycles} cycles")
        chance = random.Random(seed)
        rig = CloudRig(boots=False)
        try:
            rig.aws.invisible_looks = 2
            rig.aws.page = max(2, self.cycles // 10)  # ended instances stay listed for an hour
            most = max(4, min(24, self.cycles // 8))
            rig.add(max_machines=20 * most)
            poll(rig.offers, "offers", 60)
            rig.aws.chaos = random.Random(seed + 1)
            while rig.aws.created < self.cycles:
                jobs = [
                    rig.submit("--gpus", 1, "--", "true") for _ in range(chance.randrange(1, most))
                ]
                if chance.random() < 0.3:
                    time.sleep(chance.random() * 0.5)
                    rig.kill(rig.head_pid())
                    rig.up()
                few = chance.randrange(1, len(jobs) + 1)  # the rest is ordered while jobs end
                poll(lambda: self.alive(rig) >= few, "some instances", 120)
                time.sleep(chance.random())
                for job in jobs:
                    rig.cli("stop", job)
                if chance.random() < 0.3:
                    rig.kill(rig.head_pid())
                    rig.up()
                poll(lambda: not rig.aws.alive(), "every instance ended", 120)
            rig.aws.chaos = None
            poll(lambda: not rig.aws.alive(), "every instance ended", 60)
            doubled = {m: n for m, n in rig.aws.made_for.items() if n > 1}
            self.assertEqual(doubled, {}, "made twice")
            self.assertEqual(rig.aws.mistakes, [])
            if (
                self.cycles > 24
            ):  # an order that no list ever showed is believed lost after 5 minutes
                poll(lambda: not rig.machines(), "nothing left in the books", 420)
            print(f"{rig.aws.created} instances made, 0 left, {len(rig.aws.requests)} requests")
        finally:
            rig.close()

    def test_nodes_reach_each_other_although_the_answer_about_their_group_was_lost(self):
        rig = CloudRig(boots=False)
        try:
            rig.aws.loses.append("CreateSecurityGroup")
            rig.add(max_machines=1)
            poll(rig.offers, "offers", 60)
            rig.submit("--gpus", 1, "--", "true")
            poll(rig.aws.alive, "an instance", 120)
            groups = list(rig.aws.group_facts.values())
            self.assertEqual([group["inside"] for group in groups], [True], groups)
        finally:
            rig.close()

    @staticmethod
    def alive(rig):
        """As an administrator does: these machines run nothing, and after some the pool stops."""
        if any(pool["denied"] for pool in rig.json("pool", "list")["pools"]):
            rig.ok("pool", "retry", "aws")
        return len(rig.aws.alive())


if __name__ == "__main__":
    unittest.main()
