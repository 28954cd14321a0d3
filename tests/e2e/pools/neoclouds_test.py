"""Machines of providers that a file describes, from the order to the last list without them. The
providers are those of fake_cloud.py; machines are agents started from their own start-up script."""
import os
import re
import unittest

import fake_cloud
from cloud_shapes import KEY
from fake_cloud import SHAPES, Cloud
from rig import SOURCE, Rig, poll

PROVIDERS = os.path.join(SOURCE, "data/providers")
ENVIRONMENT = {
    "LAMBDA_API_KEY": KEY,
    "RUNPOD_API_KEY": KEY,
    "DIGITALOCEAN_TOKEN": KEY,
    "VULTR_API_KEY": KEY,
    "HYPERSTACK_API_KEY": KEY,
    "VAST_API_KEY": KEY,
    "SHADEFORM_API_KEY": KEY,
    "VERDA_CLIENT_ID": "client-id",
    "VERDA_CLIENT_SECRET": KEY,
    "CRUSOE_ACCESS_KEY_ID": "access-key",
    "CRUSOE_SECRET_KEY": fake_cloud.Crusoe.secret,
}


class CloudRig(Rig):
    """A head without a machine of its own, and providers."""

    def __init__(self):
        super().__init__(sim="1xH100", args=("--no-agent", "--tls"), **ENVIRONMENT)
        self.clouds = []

    def cloud(self, shape):
        place = os.path.join(self.root, f"cloud-{len(self.clouds)}")
        cloud = Cloud(shape, place, self.data)
        self.clouds.append(cloud)
        return cloud

    def provider_file(self, name, lag=3):
        """The shipped file without its patience: tests have no time to be polite."""
        with open(os.path.join(PROVIDERS, name + ".toml"), encoding="utf-8") as f:
            text = f.read()
        text = re.sub(r"(requests_per_s) = .*", r"\1 = 1000", text)
        text = re.sub(r"(creates_per_s) = .*\n", "", text)
        text = text.replace(f'name = "{name}"', f'name = "{name}"\nlist_lag_s = {lag}', 1)
        path = os.path.join(self.root, name + ".toml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def add(self, cloud, *options, lag=3, idle="1s"):
        shape = cloud.shape
        self.ok(
            "pool",
            "add",
            "rest",
            shape.name,
            "--gpu",
            "1xH100",
            "--sim",
            "1xH100",
            "--max",
            2,
            "--idle",
            idle,
            "--option",
            "provider=" + self.provider_file(shape.name, lag),
            "--option",
            "address=" + cloud.url,
            *options,
        )

    def machines(self):
        return {
            m["name"]: m for pool in self.json("pool", "list")["pools"] for m in pool["machines"]
        }

    def pool(self, name):
        return next(p for p in self.json("pool", "list")["pools"] if p["name"] == name)

    def gone(self, cloud):
        poll(lambda: not cloud.machines, f"{cloud.shape.name}: every machine given back", 60)
        poll(lambda: not self.machines(), "nothing left in the books", 60)

    def close(self):
        for cloud in self.clouds:
            cloud.close()
        super().close()


class Neoclouds(unittest.TestCase):
    def setUp(self):
        self.rig = CloudRig()

    def tearDown(self):
        self.rig.close()

    def check_secrets(self, cloud):
        """The key is in headers alone, and what the provider was told holds no other secret."""
        for request in cloud.requests:
            self.assertNotIn(KEY, request["url"])
            if request["path"] != "/oauth2/token":
                self.assertNotIn(KEY, str(request["body"]))
        self.assertNotIn(KEY, self.rig.head_log())


class Lifecycle(Neoclouds):
    """Create, join, job, release; one pool after the other."""

    def go(self, shapes):
        for shape in shapes:
            with self.subTest(provider=shape.name):
                cloud = self.rig.cloud(shape)
                self.rig.add(cloud)
                done = self.rig.ok("run", "--gpus", 1, "--", "echo", "from", shape.name, timeout=90)
                self.assertEqual(done.text, f"from {shape.name}\n")
                self.rig.gone(cloud)
                self.assertEqual(len(cloud.created), 1, cloud.created)
                self.assertRegex(cloud.created[0], rf"^billow-[0-9a-f]+-{shape.name}-\d+$")
                self.assertEqual(cloud.deleted, cloud.created)
                self.check_secrets(cloud)
                self.rig.ok("pool", "rm", shape.name)
                self.assertEqual(cloud.objects, {}, "the script holds the join token")

    def test_crusoe_digitalocean_hyperstack(self):
        self.go(SHAPES[:3])

    def test_lambda_runpod_shadeform(self):
        self.go(SHAPES[3:6])

    def test_vast_verda_vultr(self):
        self.go(SHAPES[6:])


class Faults(Neoclouds):
    def explained(self, job, words):
        poll(lambda: words in self.rig.ok("explain", job).text, f"{words!r} in explain", 40)

    def test_a_lost_answer_makes_no_second_machine(self):
        cloud = self.rig.cloud(fake_cloud.Lambda)
        cloud.fault("create", "lost")
        self.rig.add(cloud)
        done = self.rig.ok("run", "--gpus", 1, "--", "echo", "ran", timeout=90)
        self.assertEqual(done.text, "ran\n")
        self.assertEqual(len(cloud.created), 1)
        self.rig.gone(cloud)

    def test_a_lost_answer_and_a_late_list_make_no_second_machine(self):
        cloud = self.rig.cloud(fake_cloud.Lambda)
        cloud.fault("create", "lost")
        cloud.hidden_looks = 4
        self.rig.add(cloud, lag=30)
        done = self.rig.ok("run", "--gpus", 1, "--", "echo", "ran", timeout=90)
        self.assertEqual(done.text, "ran\n")
        self.rig.gone(cloud)
        self.assertEqual(len(cloud.created), 1)

    def repeated(self, what):
        cloud = self.rig.cloud(fake_cloud.Lambda)
        cloud.fault("create", what)
        self.rig.add(cloud)
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=90)
        asked = [r for r in cloud.requests if r["path"].endswith("/launch")]
        self.assertEqual(len(asked), 2)
        self.rig.gone(cloud)
        self.assertEqual(len(cloud.created), 1)

    def test_an_order_that_never_arrived_is_repeated_after_the_lag(self):
        self.repeated("lost-before")

    def test_an_order_that_the_server_could_not_carry_out_is_repeated(self):
        self.repeated("500")

    def test_a_provider_of_the_documentations_example_can_be_added(self):
        with open(os.path.join(PROVIDERS, "../../docs/providers.md"), encoding="utf-8") as f:
            text = f.read().split("```toml\n", 1)[1].split("```", 1)[0]
        for change, code in ((("", ""), 0), (("{name}", "{nmae}"), 2)):
            path = os.path.join(self.rig.root, "acme.toml")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.replace(*change, 1))
            done = self.rig.cli(
                "pool", "add", "rest", "acme", "--gpu", "1xH100", "--option", "provider=" + path
            )
            self.assertEqual(done.code != 0, code != 0, done)
            if code:
                self.assertIn(f"{path}:33: create.body: {{nmae}} has no value here", done.errors)
            else:
                self.rig.ok("pool", "rm", "acme")

    def test_throttling_delays_an_order_and_a_list_that_fails_ends_nothing(self):
        cloud = self.rig.cloud(fake_cloud.DigitalOcean)
        cloud.fault("create", "429", 2)
        self.rig.add(cloud, idle="30s")
        job = self.rig.start("run", "--gpus", 1, "--", "sh", "-c", "sleep 6; echo ran")
        poll(lambda: self.rig.machines() and self.rig.json("nodes")["nodes"], "the node", 60)
        # Lists that fail, or that are no list, say nothing about the machine.
        cloud.fault("list", "500", 3)
        cloud.fault("list", (200, {"message": "maintenance"}), 3)
        cloud.fault("list", (200, "<html>"), 3)
        out, _ = job.communicate(timeout=60)
        self.assertEqual(out, b"ran\n")
        self.assertEqual((len(cloud.created), cloud.deleted), (1, []))
        types = {r["query"].get("type") for r in cloud.requests if r["path"] == "/droplets"}
        self.assertIn("gpus", types)

    def test_capacity_errors_in_each_providers_own_form(self):
        words = {
            "crusoe": "no h100 left in us-east1-a",
            "digitalocean": "Size is not available in this region.",
            "hyperstack": "out of stock",
            "lambda": "insufficient-capacity",
            "runpod": "no longer any instances available",
            "shadeform": "out of stock",
            "vast": "no longer available",
            "verda": "not available right now",
            "vultr": "not available in the selected region",
        }
        for shape in SHAPES:
            with self.subTest(provider=shape.name):
                cloud = self.rig.cloud(shape)
                cloud.fault("create", "capacity")
                self.rig.add(cloud)
                job = self.rig.submit("--gpus", 1, "--", "true")
                self.explained(job, words[shape.name])
                self.assertEqual(cloud.created, [])
                self.rig.ok("stop", job)
                self.rig.ok("pool", "rm", shape.name)

    def test_an_error_within_a_200_is_an_error(self):
        cloud = self.rig.cloud(fake_cloud.RunPod)
        text = "There are no longer any instances available"
        cloud.fault("create", (200, {"errors": [{"message": text}], "detail": text}))
        self.rig.add(cloud)
        job = self.rig.submit("--gpus", 1, "--", "true")
        self.explained(job, text)
        self.assertEqual(cloud.created, [])

    def test_a_bid_that_is_too_low_leaves_nothing_behind(self):
        """Its stopped contract is ended, the bid is not repeated, and the job runs on demand."""
        cloud = self.rig.cloud(fake_cloud.Vast)
        self.rig.add(cloud, "--spot")
        done = self.rig.ok("run", "--gpus", 1, "--spot", "--", "echo", "ran", timeout=90)
        self.assertEqual(done.text, "ran\n")
        asked = [r["path"] for r in cloud.requests if r["path"].startswith("/v0/asks/")]
        self.assertEqual(asked, ["/v0/asks/7001/", "/v0/asks/7000/"])
        answer = self.rig.api("GET", "/v1/pools/vast/offers").json
        reasons = [refusal["reason"] for refusal in answer["refusals"]]
        self.assertTrue(any("your bid is below the minimum bid" in one for one in reasons), reasons)
        self.rig.gone(cloud)

    def test_a_dead_machine_is_released_and_says_why(self):
        cloud = self.rig.cloud(fake_cloud.Lambda)
        cloud.first_state = "unhealthy"
        cloud.fault("delete", "500")
        self.rig.add(cloud)
        job = self.rig.submit("--gpus", 1, "--", "true")
        poll(lambda: cloud.created and not cloud.machines, "the dead machine ended", 60)
        self.assertEqual(len(cloud.created), 1)
        self.explained(job, "reports the instance as unhealthy")

    def test_a_machine_that_cannot_be_ended_yet_is_ended_later_with_its_script(self):
        cloud = self.rig.cloud(fake_cloud.Verda)
        cloud.first_state = "provisioning"
        self.rig.add(cloud)
        job = self.rig.submit("--gpus", 1, "--", "true")
        poll(lambda: cloud.machines, "the machine", 60)
        self.rig.ok("stop", job)
        machine = poll(
            lambda: next((m for m in cloud.machines.values() if m.get("refused")), None),
            "a refused deletion",
            60,
        )
        machine["state"] = "running"
        self.rig.gone(cloud)
        self.assertEqual(cloud.deleted, cloud.created)

    def test_a_second_machine_of_one_name_is_ended(self):
        cloud = self.rig.cloud(fake_cloud.Vultr)
        self.rig.add(cloud, idle="30s")
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=90)
        (first,) = cloud.machines.values()
        cloud.boots = False
        with cloud.lock:
            cloud.first_state = "pending"
            double = cloud.create(first["name"], "")
        poll(lambda: double["id"] not in cloud.machines, "the double ended", 40)
        self.assertIn(first["id"], cloud.machines, "the one that runs stays")

    def test_a_wrong_key_is_said_and_forgets_nothing(self):
        cloud = self.rig.cloud(fake_cloud.Lambda)
        self.rig.add(cloud, idle="1s")
        job = self.rig.start("run", "--gpus", 1, "--", "sh", "-c", "sleep 5; echo ran")
        poll(lambda: self.rig.json("nodes")["nodes"], "the node", 60)
        cloud.shape.allowed = lambda request: False
        out, _ = job.communicate(timeout=60)
        self.assertEqual(out, b"ran\n")
        poll(lambda: "bad key" in self.rig.head_log(), "the refusal in the log", 40)
        self.assertTrue(self.rig.machines(), "a machine is not forgotten without a list")
        del cloud.shape.allowed
        self.rig.gone(cloud)

    def test_a_head_that_dies_orders_nothing_twice(self):
        cloud = self.rig.cloud(fake_cloud.Lambda)
        cloud.hidden_looks = 3
        cloud.fault("create", "lost")
        self.rig.add(cloud, lag=20)
        job = self.rig.submit("--gpus", 1, "--", "true")
        poll(lambda: cloud.created, "the machine", 60)
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        poll(lambda: self.rig.machines(), "the machine in the books", 60)
        poll(lambda: any(m["external"] for m in self.rig.machines().values()), "listed", 60)
        self.assertEqual(len(cloud.created), 1)
        self.rig.ok("stop", job)
        self.rig.gone(cloud)


if __name__ == "__main__":
    unittest.main()
