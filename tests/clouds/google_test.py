"""A gce pool against a server that plays Google: orders, refusals, lists, credentials, rights."""
import os
import unittest

from cloud_keys import file_of, google_key
from cloud_server import Answer, Driver, until
from fake_google import FakeGoogle, problem

ROLE = os.path.join(os.path.dirname(__file__), "../../packaging/clouds/gce-role.yaml")
OFFER = {"instance": "a3-highgpu-8g", "region": "us-central1", "zone": "us-central1-a", "gpus": 8}


def is_insert(request):
    return request.method == "POST" and request.path.endswith("/instances")


def is_list(request):
    return request.path.endswith("/aggregated/instances")


class GoogleCase(unittest.TestCase):
    options = {}

    def setUp(self):
        self.google = FakeGoogle()
        self.addCleanup(self.google.close)
        self.pool = self.driver(**self.options)

    def driver(self, spot=False, env=None, cache_gib=0, **options):
        options.setdefault("credentials", google_key(self.google.url + "/token"))
        options = {"endpoint": self.google.url, **options}
        driver = Driver("gce", options, spot=spot, env=env, cache_gib=cache_gib)
        self.addCleanup(lambda: driver.process.poll() is None and driver.kill())
        return driver

    def nodes(self):
        listed = self.pool.nodes()
        self.assertIsInstance(listed, list, listed)
        return {node["machine"]: node for node in listed}


class Caches(GoogleCase):
    options = {"cache_gib": 100}
    disk = "fast-cache-us-central1-a-1"

    def test_a_disk_stays_when_its_machine_ends_and_goes_to_the_next(self):
        self.assertTrue(self.pool.want(self.disk, offer=OFFER, disk_gib=100)["ordered"])
        self.assertTrue(self.pool.want(self.disk, offer=OFFER, disk_gib=100)["ordered"])
        for name in ("fast-1", "fast-2"):
            self.pool.want(name, offer=OFFER, cache=self.disk)
            self.assertEqual(self.pool.attach(name, self.disk), {"done": True})
            seen = self.nodes()
            self.assertTrue(seen[self.disk]["attached"])
            self.assertNotEqual(
                self.pool.release(self.disk, seen[self.disk]["external"]), {"released": True}
            )
            self.pool.release(name, seen[name]["external"])
            self.assertNotIn("attached", self.nodes()[self.disk])
        self.assertEqual(len(self.google.caches), 1)
        body = next(r for r in self.google.requests if is_insert(r)).json()
        user_data = {i["key"]: i["value"] for i in body["metadata"]["items"]}["user-data"]
        self.assertIn('"$R"/dev/disk/by-id/google-billow-cache', user_data)
        self.pool.release(self.disk, self.nodes()[self.disk]["external"])
        self.assertEqual((self.nodes(), self.google.caches), ({}, {}))

    def test_a_machine_that_does_not_run_yet_gets_its_disk_later(self):
        self.google.provision_s = 60
        self.pool.want("fast-1", offer=OFFER, cache=self.disk)
        self.pool.want(self.disk, offer=OFFER, disk_gib=100)
        self.assertEqual(self.pool.attach("fast-1", self.disk), {"done": True})
        self.assertNotIn("attached", self.nodes()[self.disk])

    def test_a_zone_that_does_not_list_its_disks_makes_no_list(self):
        self.pool.want(self.disk, offer=OFFER, disk_gib=100)
        quiet = {"items": {"zones/us-central1-a": {"warning": {"code": "UNREACHABLE"}}}}
        self.google.once(lambda r: r.path.endswith("/aggregated/disks"), Answer(200, quiet))
        self.assertEqual(self.pool.nodes()["error"], "unavailable")


class Orders(GoogleCase):
    def test_an_order_its_list_and_its_end_leave_nothing(self):
        self.assertEqual(
            self.pool.want("fast-1", offer=dict(OFFER, spot=True)),
            {"machine": "fast-1", "ordered": True},
        )
        body = next(r for r in self.google.requests if is_insert(r)).json()
        self.assertEqual(body["scheduling"]["provisioningModel"], "SPOT")
        self.assertEqual(body["scheduling"]["instanceTerminationAction"], "DELETE")
        self.assertEqual(body["scheduling"]["maxRunDuration"], {"seconds": "604800"})
        self.assertTrue(body["disks"][0]["autoDelete"])
        self.assertNotIn("serviceAccounts", body)
        user_data = {i["key"]: i["value"] for i in body["metadata"]["items"]}["user-data"]
        self.assertIn("billow join", user_data)
        seen = self.nodes()["fast-1"]
        self.assertEqual(seen["external"], "us-central1-a/billow-ab12cd34-fast-1")
        self.assertEqual(seen["note"], "RUNNING")
        self.assertGreater(seen["ends_at"], 0)
        self.assertEqual(self.pool.release("fast-1", seen["external"]), {"released": True})
        self.assertEqual(self.nodes(), {})
        self.assertEqual(self.google.left(), ([], [], [], []))
        self.assertEqual(
            self.pool.release("fast-1", seen["external"]), {"released": True}, "it is gone"
        )

    def test_a_lost_answer_makes_no_second_machine(self):
        self.google.once(is_insert, "lose")
        first = self.pool.want("fast-1", offer=OFFER)
        self.assertEqual(first["refused"], "no_answer")
        self.assertTrue(self.pool.want("fast-1", offer=OFFER, token="other")["ordered"])
        self.assertEqual(len(self.google.created), 1)

    def test_a_restarted_head_finds_its_order_again(self):
        self.assertTrue(self.pool.want("fast-1", offer=OFFER)["ordered"])
        self.pool.kill()
        self.google.by_request.clear()  # Google has forgotten the request, but not the name
        self.pool = self.driver()
        self.assertTrue(self.pool.want("fast-1", offer=OFFER)["ordered"])
        self.assertEqual(len(self.google.created), 1)

    def test_a_strangers_machine_of_the_same_name_is_not_taken(self):
        self.google.instances[("us-central1-a", "billow-ab12cd34-fast-1")] = {
            "name": "billow-ab12cd34-fast-1",
            "labels": {},
            "status": "RUNNING",
        }
        refused = self.pool.want("fast-1", offer=OFFER)
        self.assertEqual(refused["refused"], "settings")
        self.assertIn("not ours", refused["message"])
        self.assertEqual(self.nodes(), {})

    def test_a_late_refusal_is_listed_with_its_reason(self):
        for code, kind in (
            ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "capacity"),
            ("QUOTA_EXCEEDED", "quota"),
            ("SOMETHING_NEW", "capacity"),
        ):
            with self.subTest(code):
                machine = f"fast-{len(self.google.operations) + 1}"
                self.google.capacity["us-central1-a"] = (code, "no more of these")
                self.google.provision_s = 0.2
                self.assertTrue(self.pool.want(machine, offer=OFFER)["ordered"])
                self.google.provision_s = 0
                seen = until(lambda: self.nodes().get(machine), "the refusal")
                self.assertEqual(seen["failed"], kind)
                self.assertTrue(seen["ended"])
                self.assertIn("no more of these", seen["note"])

    def test_after_a_restart_the_same_order_meets_its_late_refusal(self):
        self.google.capacity["us-central1-a"] = ("RESOURCE_POOL_EXHAUSTED", "empty")
        self.google.provision_s = 0.1
        self.assertTrue(self.pool.want("fast-1", offer=OFFER)["ordered"])
        self.pool.kill()
        self.pool = self.driver()
        refused = until(lambda: self.pool.want("fast-1", offer=OFFER).get("refused"), "the refusal")
        self.assertEqual(refused, "capacity")
        self.assertEqual(self.google.created, [])

    def test_a_machine_that_ended_before_it_was_seen_is_a_refusal(self):
        self.assertTrue(self.pool.want("fast-1", offer=OFFER)["ordered"])
        self.google.instances.clear()
        self.nodes()
        self.assertEqual(self.nodes()["fast-1"]["failed"], "capacity")

    def test_errors_have_their_kinds(self):
        place = "The resource 'projects/p/zones/us-central1-a/machineTypes/a9' was not found"
        cases = [
            (403, "quotaExceeded", "Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0", "quota"),
            (503, "insufficientCapacity", "none", "capacity"),
            (404, "notFound", place, "not_offered"),
            (403, "rateLimitExceeded", "slow down", "no_answer"),
            (503, "backendError", "try again", "no_answer"),
            (400, "invalid", "Invalid value for field 'resource.disks'", "settings"),
            (403, "forbidden", "Required 'compute.instances.create' permission", "settings"),
        ]
        for status, reason, message, kind in cases:
            with self.subTest(reason):
                self.google.once(is_insert, problem(status, reason, message))
                answer = self.pool.want("fast-1", offer=OFFER)
                self.assertEqual(answer.get("refused"), kind, answer)
                self.assertIn(message, answer["message"])
        self.assertEqual(self.google.created, [])

    def test_after_429_google_is_left_alone(self):
        self.google.once(is_insert, Answer(429, None, retry_after=1))
        self.assertEqual(self.pool.want("fast-1", offer=OFFER)["refused"], "no_answer")
        before = len(self.google.requests)
        answer = self.pool.want("fast-1", offer=OFFER)
        self.assertIn("asked us to wait", answer["message"])
        self.assertEqual(len(self.google.requests), before)
        until(lambda: "ordered" in self.pool.want("fast-1", offer=OFFER), "an order")
        self.assertEqual(len(self.google.created), 1)

    def test_names_that_google_does_not_allow(self):
        self.pool = Driver(
            "gce",
            {"endpoint": self.google.url, "credentials": google_key(self.google.url + "/token")},
            name="My.Pool_X",
        )
        self.addCleanup(self.pool.close)
        answers = self.pool.ask(
            do="want", machines=["My.Pool_X-1", "My.Pool_X-2"], offer=dict(OFFER)
        )
        self.assertTrue(all(a.get("ordered") for a in answers), answers)
        self.assertEqual(set(self.nodes()), {"My.Pool_X-1", "My.Pool_X-2"})
        self.assertEqual(len(set(self.google.created)), 2)

    def test_a_hundred_orders_at_once(self):
        names = [f"fast-{i}" for i in range(1, 101)]
        answers = self.pool.ask(do="want", machines=names, offer=OFFER)
        self.assertTrue(all(a.get("ordered") for a in answers), answers)
        self.assertEqual(len(self.google.created), 100)
        self.assertEqual(
            len([r for r in self.google.requests if r.path == "/token"]), 1, "one token for all"
        )


class Lists(GoogleCase):
    options = {"zones": "us-central1-a,us-east4-b"}

    def test_all_pages_count(self):
        self.google.page = 2
        for i in range(1, 6):
            self.pool.want(f"fast-{i}", offer=OFFER)
        self.assertEqual(len(self.nodes()), 5)

    def test_a_silent_zone_makes_no_list(self):
        self.pool.want("fast-1", offer=OFFER)
        self.google.silent_zones = ["us-east4-b"]
        answer = self.pool.nodes()
        self.assertEqual(answer["error"], "unavailable")
        self.assertIn("us-east4-b", answer["message"])
        self.google.silent_zones = ["europe-west4-a"]  # not ours
        self.assertEqual(set(self.nodes()), {"fast-1"})

    def test_an_error_on_a_later_page_makes_no_list(self):
        self.google.page = 1
        self.pool.want("fast-1", offer=OFFER)
        self.pool.want("fast-2", offer=OFFER)
        for verdict in (Answer(500), Answer(200, b"<html>"), "drop"):
            self.google.faults = [
                lambda r: verdict if is_list(r) and "pageToken" in r.query else None
            ]
            answer = self.pool.nodes()
            self.assertEqual(answer["error"], "unavailable", answer)
        self.google.faults = []
        self.assertEqual(len(self.nodes()), 2)

    def test_machines_of_others_are_not_listed(self):
        self.pool.want("fast-1", offer=OFFER)
        for name, pool in (("other-1", "other"), ("fast-x", "fast")):
            self.google.instances[("us-central1-a", name)] = {
                "name": name,
                "zone": "zones/us-central1-a",
                "description": "billow machine " + name,
                "labels": {"billow-installation": "ab12cd34", "billow-pool": pool},
                "status": "RUNNING",
            }
        self.assertEqual(set(self.nodes()), {"fast-1"})

    def test_a_stopped_machine_has_failed(self):
        self.pool.want("fast-1", offer=OFFER)
        self.google.instances[("us-central1-a", "billow-ab12cd34-fast-1")]["status"] = "TERMINATED"
        seen = self.nodes()["fast-1"]
        self.assertEqual(seen["failed"], "capacity")
        self.assertFalse(seen["ended"], "its disk still costs money")

    def test_a_deletion_is_not_asked_for_every_second(self):
        self.pool.want("fast-1", offer=OFFER)
        self.google.delete_s = 60
        external = self.nodes()["fast-1"]["external"]
        for _ in range(5):
            self.assertEqual(self.pool.release("fast-1", external), {"released": True})
        self.assertEqual(len([r for r in self.google.requests if r.method == "DELETE"]), 1)

    def test_offers_are_what_the_zones_have_with_list_prices(self):
        kind = {"name": "a3-highgpu-8g", "guestCpus": 208, "memoryMb": 1916928}
        self.google.types = [
            ("us-central1-a", kind),
            ("europe-west4-b", kind),
            ("us-east4-b", dict(kind, name="a9-unknown")),
        ]
        for spot in (False, True):
            offers = self.driver(spot=spot, **self.options).ask(do="offers")
            self.assertEqual({o["zone"] for o in offers}, {"us-central1-a"})
            self.assertEqual({o["spot"] for o in offers}, {False, spot})
            for offer in offers:
                self.assertEqual((offer["gpu_type"], offer["gpus"]), ("H100", 8))
                self.assertGreater(offer["price"], 0)
        other = self.driver(
            gpu_types="L4,T4", attached="n1-standard-8+2xnvidia-tesla-t4", **self.options
        )
        offers = other.ask(do="offers")
        self.assertEqual({(o["gpu_type"], o["gpus"]) for o in offers}, {("T4", 2)})
        self.assertEqual({o["zone"] for o in offers}, {"us-central1-a", "us-east4-b"})


class Credentials(GoogleCase):
    def account(self, **driver):
        pool = self.driver(**driver)
        return pool.ask(do="account")

    def test_the_login_of_gcloud(self):
        login = file_of(
            "application_default_credentials.json",
            {
                "type": "authorized_user",
                "client_id": "c",
                "client_secret": "s",
                "refresh_token": "r/1",
                "quota_project_id": "my-project",
                "token_uri": self.google.url + "/token",
            },
        )
        account = self.account(credentials="", env={"CLOUDSDK_CONFIG": os.path.dirname(login)})
        self.assertEqual(account["identity"], "somebody@example.com")
        self.assertEqual(account["id"], "my-project")
        self.assertIn("gcloud", account["source"])
        sent = next(r for r in self.google.requests if r.path == "/token").form()
        self.assertEqual((sent["grant_type"], sent["refresh_token"]), ("refresh_token", "r/1"))

    def test_the_environment_names_a_key(self):
        key = google_key(self.google.url + "/token", "other.json")
        account = self.account(credentials="", env={"GOOGLE_APPLICATION_CREDENTIALS": key})
        self.assertEqual(account["identity"], "billow@my-project.iam.gserviceaccount.com")

    def test_the_metadata_server(self):
        account = self.account(credentials="", env={"GCE_METADATA_HOST": self.google.address})
        self.assertEqual(account["identity"], "machine@example.com")
        self.assertEqual(account["id"], "their-project")

    def test_none_at_all_says_what_to_do(self):
        account = self.account(credentials="", env={"GCE_METADATA_HOST": "127.0.0.1:1"})
        self.assertEqual(account["error"], "unauthorized")
        self.assertIn("GOOGLE_APPLICATION_CREDENTIALS", account["hint"])

    def test_a_revoked_key_is_a_matter_of_settings(self):
        gone = Answer(400, {"error": "invalid_grant", "error_description": "Invalid JWT"})
        self.google.once(lambda r: r.path == "/token", gone)
        answer = self.pool.want("fast-1", offer=OFFER)
        self.assertEqual(answer["refused"], "settings")
        self.assertIn("invalid_grant", answer["message"])
        self.google.once(lambda r: r.path == "/token", Answer(503))
        self.assertEqual(self.pool.want("fast-1", offer=OFFER)["refused"], "no_answer")

    def test_an_expired_token_is_replaced_once(self):
        self.assertEqual(self.nodes(), {})
        self.google.tokens.clear()
        self.assertEqual(self.nodes(), {})
        self.assertEqual(len([r for r in self.google.requests if r.path == "/token"]), 2)

    def test_a_token_endpoint_without_encryption_is_refused(self):
        key = google_key("http://192.0.2.1/token", "plain.json")
        account = self.account(credentials=key)
        self.assertIn("not encrypted", account["message"])

    def test_files_that_are_no_credentials(self):
        for name, content, words in (
            ("a.json", {"type": "external_account"}, "external_account"),
            ("b.json", ["x"], 'type ""'),
            ("c.json", {"type": "service_account", "private_key": "no key"}, "RSA"),
        ):
            account = self.account(credentials=file_of(name, content))
            self.assertEqual(account["error"], "unauthorized", account)
            self.assertIn(words, account["message"])


class Accounts(GoogleCase):
    options = {"regions": "us-central1"}

    def test_missing_rights_and_quotas_are_named(self):
        self.google.granted = ["compute.instances.list"]
        self.google.quotas = {
            "": [{"metric": "GPUS_ALL_REGIONS", "limit": 0.0, "usage": 0.0}],
            "us-central1": [
                {"metric": "NVIDIA_A100_GPUS", "limit": 0, "usage": 0},
                {"metric": "NVIDIA_L4_GPUS", "limit": 8, "usage": 0},
            ],
        }
        problems = "\n".join(self.pool.ask(do="account")["problems"])
        self.assertIn("compute.instances.create", problems)
        self.assertNotIn("compute.instances.list", problems)
        self.assertIn("GPUS_ALL_REGIONS", problems)
        self.assertIn("NVIDIA_A100_GPUS", problems)
        self.assertNotIn("NVIDIA_L4_GPUS", problems)

    def test_the_role_is_exactly_what_the_calls_need(self):
        account = self.pool.ask(do="account")
        self.assertEqual(account["problems"], [])
        self.pool.ask(do="offers")
        self.google.capacity["us-east4-b"] = ("QUOTA_EXCEEDED", "none")
        self.pool.want("fast-2", offer=dict(OFFER, zone="us-east4-b"))
        self.pool.want("fast-1", offer=OFFER)
        self.google.by_request.clear()
        self.pool.kill()
        self.pool = self.driver(**self.options)
        self.pool.want("fast-1", offer=OFFER)  # exists: looked at
        self.pool.want("fast-3", offer=dict(OFFER, zone="us-east4-b"))
        external = self.nodes()["fast-1"]["external"]
        self.pool.release("fast-1", external)
        with open(ROLE, encoding="utf-8") as file:
            role = {line.strip()[2:] for line in file if line.startswith("  - ")}
        self.pool.want("fast-9", offer=OFFER, nodes=2)
        for machine, seen in self.nodes().items():
            self.pool.release(machine, seen["external"])
        self.pool = self.driver(cache_gib=100)
        self.pool.ask(do="account")
        self.pool.want("fast-10", offer=OFFER)
        disk = "fast-cache-us-central1-a-1"
        self.pool.want(disk, offer=OFFER, disk_gib=100)
        self.pool.attach("fast-10", disk)
        for machine, seen in sorted(self.nodes().items()):
            self.pool.release(machine, seen["external"])
        self.assertEqual(role, self.google.used)
        asked = [r for r in self.google.requests if r.path.endswith(":testIamPermissions")]
        self.assertLess(set(asked[0].json()["permissions"]), role, "without caches")
        self.assertEqual(set(asked[-1].json()["permissions"]), role)


if __name__ == "__main__":
    unittest.main()
