"""Answers that no provider should give: pages of a proxy, wrong types, redirects, floods, numbers without sense. Nothing is
concluded from them: no list is not an empty list."""
import os
import unittest

from cloud_keys import google_key
from cloud_server import Answer, CloudServer, Driver
from fake_azure import FakeAzure
from fake_google import FakeGoogle

OFFER = {"instance": "g6.xlarge", "region": "us-east-1", "zone": "us-east-1a", "gpus": 1}
PAGES = {
    "a page of a proxy": Answer(200, b"<html><body>Sign in</body></html>", content_type="text/html"),
    "nothing": Answer(200, b""),
    "a number": Answer(200, b"17"),
    "another type": Answer(200, {"items": "none", "value": "none", "data": "none"}),
    "a redirect": Answer(302, b"", location="http://127.0.0.1:1/"),
    "half a document": Answer(200, b'{"items": {"zones/a": {"instances": ['),
    "deep": Answer(200, b"[" * 100_000),
    "an error within a success": Answer(200, {"error": {"message": "no"}, "value": 3}),
}


class Anything(CloudServer):
    def serve(self, request):
        return self.says


class Hostile(unittest.TestCase):
    def no_list(self, pool, server, match):
        for name, answer in PAGES.items():
            with self.subTest(name):
                fault = lambda r, a=answer: a if match(r) else None
                server.faults.append(fault)
                listed = pool.nodes()
                self.assertNotIsInstance(listed, list, f"{name}: {listed}")
                server.faults.remove(fault)

    def test_google(self):
        google = FakeGoogle()
        self.addCleanup(google.close)
        options = {"endpoint": google.url, "credentials": google_key(google.url + "/token")}
        pool = Driver("gce", options)
        self.addCleanup(pool.close)
        self.no_list(pool, google, lambda r: r.path.endswith("/aggregated/instances"))
        self.assertEqual(pool.nodes(), [])

    def test_azure(self):
        azure = FakeAzure()
        self.addCleanup(azure.close)
        options = {"endpoint": azure.url, "authority": azure.url, "subscription": "s"}
        secret = {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}
        pool = Driver("azure", {**options, "regions": "eastus"}, env=secret)
        self.addCleanup(pool.close)
        offer = {"instance": "Standard_NC24", "region": "eastus", "zone": "", "gpus": 1}
        self.assertTrue(pool.want("fast-1", offer=offer)["ordered"])
        self.no_list(pool, azure, lambda r: r.path.endswith("/virtualMachines"))
        self.assertEqual(len(pool.nodes()), 1)

    def test_ec2(self):
        server = Anything()
        self.addCleanup(server.close)
        keys = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "s" * 40}
        keys["AWS_EC2_METADATA_DISABLED"] = "true"
        pool = Driver("ec2", {"endpoint": server.url, "regions": "us-east-1"}, env=keys)
        self.addCleanup(pool.close)
        pages = dict(PAGES, other=Answer(200, b"<DescribeVpcsResponse/>"))
        pages["a flood"] = Answer(200, b"<DescribeInstancesResponse>" + b"<a/>" * (20 << 20))
        for name, answer in pages.items():
            with self.subTest(name):
                server.says = answer
                listed = pool.nodes()
                self.assertNotIsInstance(listed, list, f"{name}: {str(listed)[:200]}")
        server.says = Answer(200, b"<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>")
        self.assertEqual(pool.nodes(), [])

    def test_a_provider_described_by_a_file(self):
        server = Anything()
        self.addCleanup(server.close)
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/providers")
        with open(os.path.join(folder, "lambda.toml"), encoding="utf-8") as f:
            text = f.read()
        path = f"/tmp/billow-hostile-{os.getpid()}.toml"
        self.addCleanup(os.unlink, path)
        with open(path, "w", encoding="utf-8") as f:
            lines = text.splitlines(keepends=True)
            f.writelines(
                f'address = "{server.url}"\n' if line.startswith("address") else line
                for line in lines
            )
        pool = Driver("rest", {"provider": path}, env={"LAMBDA_API_KEY": "k", "LAMBDALABS_API_KEY": "k"})
        self.addCleanup(pool.close)
        for name, answer in PAGES.items():
            with self.subTest(name):
                server.says = answer
                for asked in (pool.nodes(), pool.ask(do="offers")):
                    self.assertNotIsInstance(asked, list, f"{name}: {asked}")
        server.says = Answer(200, {"data": self.kinds()})
        offers = pool.ask(do="offers")
        self.assertIsInstance(offers, list, offers)
        self.assertEqual({o["instance"] for o in offers}, {"good", "dear", "huge"})
        self.assertTrue(all(o["price"] >= 0 and o["cpus"] >= 0 for o in offers), offers)

    @staticmethod
    def kinds():
        """What Lambda lists, with numbers that no machine has."""

        def kind(name, cents, cpus=30, gpus=1):
            return {
                "instance_type": {
                    "name": name,
                    "gpu_description": "H100 (80 GB SXM5)",
                    "price_cents_per_hour": cents,
                    "specs": {"vcpus": cpus, "memory_gib": 200, "gpus": gpus},
                },
                "regions_with_capacity_available": [{"name": "us-west-1"}],
            }

        return {
            "good": kind("good", 249),
            "below zero": kind("below", -100),
            "dear": kind("dear", 1e300),
            "huge": kind("huge", 300, cpus=1e300),
            "no GPUs": kind("none", 5, gpus=-1),
            "half a GPU": kind("half", 5, gpus=0.5),
        }


if __name__ == "__main__":
    unittest.main()
