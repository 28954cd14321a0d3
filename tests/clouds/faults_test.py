"""Many machines ordered, listed and given back while the provider loses answers, fails, throttles,
is silent and runs out of machines, and the head is killed again and again: nothing is left over,
nothing is created twice, nothing is forgotten."""
import os
import random
import unittest

from cloud_keys import google_key
from cloud_server import Answer, Driver
from fake_azure import FakeAzure
from fake_google import FakeGoogle

CYCLES = int(os.environ.get("BILLOW_CLOUD_CYCLES", "1000"))
AT_ONCE = 8
SECRET = {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}


class Book:
    """What the head's journal knows of the machines: enough to repeat each call until it holds.
    A machine is wanted, here or releasing; a refused one is gone."""

    def __init__(self, pool, offers):
        self.pool, self.offers = pool, offers
        self.machines, self.next = {}, 1
        self.orders = self.refusals = self.silences = 0

    def begin(self):
        name = f"fast-{self.next}"
        self.next += 1
        self.machines[name] = {
            "state": "wanted",
            "offer": self.offers[self.next % len(self.offers)],
            "nodes": 3 if self.next % 4 == 0 else 1,
        }

    def round(self, driver):
        listed = driver.nodes()
        if isinstance(listed, dict):  # no list: nothing is concluded from it
            self.silences += 1
            return
        seen = {node["machine"]: node for node in listed}
        for name, node in seen.items():
            machine = self.machines.get(name)
            if "failed" in node and node["ended"]:
                if machine:
                    del self.machines[name]
                    self.refusals += 1
                continue
            if machine and "failed" in node:
                self.refusals += machine["state"] != "releasing"
                machine["state"] = "releasing"
            elif machine and machine["state"] == "wanted":
                machine["state"] = "here"
            if not machine or machine["state"] == "releasing":  # a stray, or no longer wanted
                driver.release(name, node["external"])
        for name, machine in list(self.machines.items()):
            if machine["state"] == "releasing" and name not in seen:
                del self.machines[name]
            elif machine["state"] == "wanted" and name not in seen:
                self.order(driver, name, machine)
            elif machine["state"] == "here":
                machine["state"] = "releasing"

    def order(self, driver, name, machine):
        # Each order carries another token, as the head's do.
        answer = driver.want(
            name, offer=machine["offer"], nodes=machine["nodes"], token=str(random.random())
        )
        if answer.get("ordered"):
            self.orders += 1
        elif answer["refused"] != "no_answer":
            assert answer["refused"] in ("capacity", "quota", "not_offered"), answer
            del self.machines[name]
            self.refusals += 1


class Faults(unittest.TestCase):
    def run_cycles(self, fake, make_driver, offers, seed):
        dice = random.Random(seed)

        def fault(request):
            if "token" in request.path or dice.random() > 0.15:
                return None
            return dice.choice(
                ["lose", "lose", "drop", Answer(500), Answer(503, b"busy"), Answer(200, b"{")]
            )

        fake.faults.append(fault)
        book, driver = Book("fast", offers), make_driver()
        begun = rounds = kills = 0
        while begun < CYCLES or book.machines:
            rounds += 1
            self.assertLess(rounds, CYCLES * 10, "it does not end")
            while len(book.machines) < AT_ONCE and begun < CYCLES:
                book.begin()
                begun += 1
            book.round(driver)
            if dice.random() < 0.05:
                driver.kill()
                driver, kills = make_driver(), kills + 1
        fake.faults.clear()
        for policy in getattr(fake, "policies", {}).values():  # of gangs whose driver was killed
            policy["creationTimestamp"] = "2026-01-01T00:00:00.000-00:00"
        for _ in range(3):
            book.round(driver)
        driver.close()
        print(
            f"seed {seed}: {begun} machines in {rounds} rounds, {len(fake.requests)} requests,"
            f" {len(fake.created)} created, {book.refusals} refused, {book.silences} lists failed,"
            f" {kills} kills"
        )
        self.assertEqual(len(fake.created), len(set(fake.created)), "one was created twice")
        self.assertEqual(sum(map(len, fake.left())), 0, fake.left())
        self.assertGreater(book.refusals, CYCLES / 10)

    def test_google(self):
        google = FakeGoogle(page=3)
        self.addCleanup(google.close)
        google.capacity["us-east4-b"] = ("ZONE_RESOURCE_POOL_EXHAUSTED", "none")
        google.capacity["us-west1-b"] = ("QUOTA_EXCEEDED", "Quota 'NVIDIA_H100_GPUS' exceeded.")
        google.empty_zones = ["us-south1-a"]
        zones = ("us-central1-a", "us-central1-b", "us-east4-b", "us-west1-b", "us-south1-a")
        offers = [{"instance": "a3-highgpu-8g", "zone": zone, "gpus": 8} for zone in zones]
        options = {
            "endpoint": google.url,
            "credentials": google_key(google.url + "/token", "faults.json"),
        }
        google.delete_s = 0.01
        self.run_cycles(google, lambda: Driver("gce", options), offers, seed=1)

    def test_azure(self):
        azure = FakeAzure(page=3)
        self.addCleanup(azure.close)
        azure.capacity["westus-2"] = ("ZonalAllocationFailed", "none")
        azure.refused["northeurope"] = (409, "SkuNotAvailable", "none")
        azure.delete_s = 0.01
        size = "Standard_ND96isr_H100_v5"
        places = [("eastus", ""), ("westus", "westus-1"), ("westus", "westus-2")]
        offers = [
            {"instance": size, "region": region, "zone": zone, "gpus": 8}
            for region, zone in places + [("northeurope", "")]
        ]
        options = {
            "endpoint": azure.url,
            "authority": azure.url,
            "subscription": "s",
            "regions": "eastus,westus,northeurope",
        }
        self.run_cycles(azure, lambda: Driver("azure", options, env=SECRET), offers, seed=2)


if __name__ == "__main__":
    unittest.main()
