"""Machines from Google and Azure, with a head: rented for a job, booted from their own start-up script, used and ended."""
import base64
import os
import random
import time
import unittest

from aws_server import KEY, SECRET, AwsServer
from booted import Machines
from cloud_keys import google_key
from cloud_server import Answer
from fake_azure import FakeAzure
from fake_google import FakeGoogle
from rig import Rig, poll

A3 = {"name": "a3-highgpu-8g", "guestCpus": 208, "memoryMb": 1916928}


def azure_size(name, gpus, cpus, memory_gib, region):
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "locationInfo": [{"location": region, "zones": ["1", "2"]}],
        "capabilities": [
            {"name": "GPUs", "value": str(gpus)},
            {"name": "vCPUs", "value": str(cpus)},
            {"name": "MemoryGB", "value": str(memory_gib)},
        ],
        "restrictions": [],
    }


def rank_of(name):
    """What a machine of Google would read from its own name."""
    rank = name.rsplit("-n", 1)[-1]
    return int(rank) if rank.isdigit() else 0


class CloudsRig(Rig):
    """A head without a machine of its own, and clouds whose machines run beside it."""

    def __init__(self, google=None, azure=None):
        super().__init__(sim="1xL4", args=("--no-agent", "--tls"), up=False)
        self.google, self.azure = google, azure
        self.machines = Machines(os.path.join(self.root, "instances"), self.data)
        self.environment.update(
            HOME=self.root,
            AZURE_TENANT_ID="tenant-1",
            AZURE_CLIENT_ID="client-1",
            AZURE_CLIENT_SECRET="s3cret",
        )
        if google:
            google.boot = lambda machine: self.machines.start(
                machine["name"],
                {i["key"]: i["value"] for i in machine["metadata"]["items"]}["user-data"],
                rank_of(machine["name"]),
            )
            google.halt = lambda machine: self.machines.stop(machine["name"])
        if azure:
            azure.boot = lambda body, name, rank=0: self.machines.start(
                name,
                base64.b64decode(body["properties"]["osProfile"]["customData"]).decode(),
                rank,
            )
            azure.halt = self.machines.stop

    @property
    def cloud(self):
        return self.google or self.azure

    def close(self):
        for cloud in filter(None, (self.google, self.azure)):
            cloud.close()
        self.machines.close()
        super().close()

    def again(self):
        """The head is killed, and starts again at the same address."""
        address = self.json("status")["addresses"][0].split("//")[1]
        self.kill(self.head_pid())
        self.up(listen=address)

    def orders(self):
        return [m for pool in self.json("pool", "list")["pools"] for m in pool["machines"]]

    def add(self, name, sim, region, *options, more=()):
        words = [word for option in options for word in ("--option", option)]
        self.ok(
            *("cloud", "add", name, "--region", region, "--idle", "2s", "--sim", sim),
            *words,
            *more,
            timeout=120,
        )

    def add_google(self, more=()):
        key = "credentials=" + google_key(self.google.url + "/token")
        self.add("gcp", "8xH100", "us-central1", f"endpoint={self.google.url}", key, more=more)

    def add_azure(self, sim, region, more=()):
        url = self.azure.url
        options = (f"endpoint={url}", f"authority={url}", "subscription=sub-1")
        self.add("azure", sim, region, *options, more=more)

    def offers(self):
        return self.json("cloud", "prices", "--limit", 100)["offers"]


def google():
    cloud = FakeGoogle()
    cloud.types = [("us-central1-a", A3), ("us-central1-b", A3)]
    rig = CloudsRig(google=cloud)
    rig.up()
    rig.add_google()
    poll(rig.offers, "offers", 60)
    return rig


def azure():
    cloud = FakeAzure()
    cloud.sizes = {"eastus": [azure_size("Standard_NC4as_T4_v3", 1, 4, 28, "eastus")]}
    rig = CloudsRig(azure=cloud)
    rig.up()
    rig.add_azure("1xT4", "eastus")
    poll(rig.offers, "offers", 60)
    return rig


class Stories:
    """The same for each cloud; `make` is its rig."""

    def setUp(self):
        self.rig = type(self).make()

    def tearDown(self):
        self.rig.close()

    def nothing_is_left(self):
        rig = self.rig
        poll(lambda: not any(rig.cloud.left()), "nothing costs money", 90)
        poll(lambda: not rig.orders(), "nothing left in the books", 60)
        doubled = {name for name in rig.cloud.created if rig.cloud.created.count(name) > 1}
        self.assertEqual(doubled, set(), "made twice")

    def test_a_job_rents_a_machine_and_nothing_is_left(self):
        rig = self.rig
        began = time.monotonic()
        done = rig.ok("run", "--gpus", 1, "--", "echo", "rented", timeout=120)
        print(f"first output after {time.monotonic() - began:.1f} s")
        self.assertEqual(done.out, b"rented\n")
        self.assertEqual(len(rig.cloud.created), 1)
        began = time.monotonic()
        self.nothing_is_left()
        # The cloud has agreed to end it, so its absence counts at once, not after five minutes.
        print(f"gone from the books after {time.monotonic() - began:.1f} s")
        self.assertGreater(rig.json("cost")["fleet"]["cost_nano_usd"], 0)

    def test_a_gang_comes_whole_and_nothing_of_it_is_left(self):
        rig = self.rig
        done = rig.ok(
            *("run", "--gpus", 1, "--nodes", 3, "--disk", "1GB", "--"),
            *("sh", "-c", 'echo "rank $RANK of $WORLD_SIZE"'),
            timeout=180,
        )
        self.assertEqual(
            sorted(line[-11:] for line in done.text.splitlines() if "rank" in line),
            [f"rank {rank} of 3" for rank in range(3)],
        )
        self.assertEqual(len(rig.cloud.gangs()), 1, "one order")
        self.nothing_is_left()

    def test_a_head_that_is_killed_rents_nothing_twice(self):
        rig = self.rig
        rig.cloud.provision_s = 2
        job = rig.submit("--gpus", 1, "--", "echo", "ran")
        poll(lambda: rig.cloud.created, "the order", 60)
        rig.again()
        self.assertEqual(rig.cli("wait", job, timeout=120).code, 0)
        self.assertEqual(len(rig.cloud.created), 1, rig.cloud.created)
        # And once more while the machine is being ended.
        rig.cloud.delete_s = 1
        poll(lambda: [m for m in rig.orders() if m["state"] == "releasing"], "its release", 60)
        rig.again()
        self.nothing_is_left()
        self.assertEqual(len(rig.cloud.created), 1, rig.cloud.created)

    def test_orders_and_releases_with_faults_and_head_kills_leave_nothing(self):
        rig = self.rig
        seed = int(os.environ.get("BILLOW_CLOUD_SEED", random.randrange(1 << 30)))
        chance = random.Random(seed)
        cycles = int(os.environ.get("BILLOW_CLOUD_CYCLES", "4"))
        print(f"seed {seed}, {cycles} cycles")
        rig.cloud.provision_s = rig.cloud.delete_s = 0.3
        boot, rig.cloud.boot = rig.cloud.boot, None  # these machines never join

        def fault(request):
            if request.path.endswith("token") or chance.random() > 0.2:
                return None
            busy = {"error": {"code": "Busy", "message": "try again", "errors": []}}
            return chance.choice(["lose", "drop", Answer(503, busy), Answer(429, busy)])

        rig.cloud.faults.append(fault)
        for _ in range(cycles):
            before = len(rig.cloud.created)
            jobs = [rig.submit("--gpus", 1, "--", "true") for _ in range(chance.randrange(1, 4))]
            if chance.random() < 0.5:
                time.sleep(chance.random() * 0.5)
                rig.again()
            poll(lambda: len(rig.cloud.created) > before, "a machine", 120)
            for job in jobs:
                rig.ok("stop", job)
            if chance.random() < 0.5:
                rig.again()
            poll(lambda: not any(rig.cloud.left()), "nothing costs money", 120)
        rig.cloud.faults.clear()
        rig.cloud.boot = boot
        self.nothing_is_left()
        print(f"{len(rig.cloud.created)} machines, {len(rig.cloud.requests)} requests, 0 left")


class Google(Stories, unittest.TestCase):
    make = staticmethod(google)


class Azure(Stories, unittest.TestCase):
    make = staticmethod(azure)


class ThreeClouds(unittest.TestCase):
    """Twelve places of three clouds, eleven of which refuse, each in its own way."""

    def setUp(self):
        azure_cloud, google_cloud = FakeAzure(), FakeGoogle()
        self.zones = [f"us-central1-{z}" for z in "abcf"]
        google_cloud.types = [(zone, A3) for zone in self.zones]
        google_cloud.empty_zones = [self.zones[0]]
        for zone in self.zones[1:]:
            google_cloud.capacity[zone] = ("ZONE_RESOURCE_POOL_EXHAUSTED", "none left")
        for region in ("eastus", "westus3"):
            size = azure_size("Standard_ND96isr_H100_v5", 8, 96, 1900, region)
            azure_cloud.sizes[region] = [size]
        self.rig = CloudsRig(google_cloud, azure_cloud)
        self.aws = AwsServer(boots=True, machines=self.rig.machines)
        self.aws.zones = {"us-east-1": [f"us-east-1{z}" for z in "abcdef"]}
        codes = ["InsufficientInstanceCapacity", "Unsupported", "InsufficientHostCapacity"]
        for i, zone in enumerate(self.aws.zones["us-east-1"]):
            self.aws.capacity[zone] = codes[i % 3]
        self.rig.environment.update(
            AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_EC2_METADATA_DISABLED="true"
        )
        self.rig.up()
        only = ("--gpu-type", "H100")
        self.rig.add("aws", "8xH100", "us-east-1", f"endpoint={self.aws.url}", more=only)
        self.rig.add_google(more=only)
        self.rig.add_azure("8xH100", "eastus,westus3", more=only)

    def tearDown(self):
        self.aws.close()
        self.rig.close()

    def test_the_last_place_runs_the_job_and_explain_tells_all_answers(self):
        rig = self.rig
        poll(lambda: len({o["pool"] for o in rig.offers()}) == 3, "offers of three clouds", 60)
        places = sorted(rig.offers(), key=lambda o: (o["price_usd_per_h"], o["zone"]))
        self.assertGreaterEqual(len(places), 12)
        free = [o for o in places if o["pool"] == "azure"][-1]
        for offer in places:
            if offer["pool"] == "azure" and offer != free:
                place = offer["zone"] or offer["region"]
                rig.azure.capacity[place] = ("AllocationFailed", "none")
        job = rig.submit("--gpus", 8, "--gpu-type", "H100", "--", "sleep", "60")
        began = time.monotonic()
        poll(lambda: rig.machines.homes, "a machine", 120)
        took = time.monotonic() - began
        poll(lambda: rig.job(job)["state"] == "running", "running", 60)
        text = rig.ok("explain", job).text
        asked = text.count("Asked ")
        print(f"{asked} of {len(places)} places refused; a machine after {took:.1f} s")
        self.assertEqual(asked, len(places) - 1, text)
        rig.ok("stop", job)
        poll(lambda: not rig.orders(), "nothing left in the books", 90)
        self.assertEqual(self.aws.alive(), [])
        self.assertEqual((rig.google.left(), rig.azure.left()[0]), (([], [], [], []), []))


if __name__ == "__main__":
    unittest.main()
