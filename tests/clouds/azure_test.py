"""An azure pool against a server that plays Azure: orders, refusals, lists, credentials, rights."""
import json
import os
import stat
import unittest

from cloud_keys import certificate, file_of, path
from cloud_server import Answer, Driver, until
from fake_azure import FakeAzure, problem

ROLE = os.path.join(os.path.dirname(__file__), "../../packaging/clouds/azure-role.json")
SIZE = "Standard_ND96isr_H100_v5"
OFFER = {"instance": SIZE, "region": "eastus", "zone": "eastus-1", "gpus": 8}
SECRET = {
    "AZURE_TENANT_ID": "tenant-1",
    "AZURE_CLIENT_ID": "client-1",
    "AZURE_CLIENT_SECRET": "s3cret/+",
}


def is_create(request):
    return request.method == "PUT" and "/virtualMachines/" in request.path


def is_list(request):
    return request.method == "GET" and request.path.endswith("/virtualMachines")


class AzureCase(unittest.TestCase):
    options = {}

    def setUp(self):
        self.azure = FakeAzure()
        self.addCleanup(self.azure.close)
        self.pool = self.driver(**self.options)

    def driver(self, spot=False, env=None, cache_gib=0, **options):
        given = {
            "endpoint": self.azure.url,
            "authority": self.azure.url,
            "subscription": "sub-1",
            "regions": "eastus,westus",
            **options,
        }
        env = SECRET if env is None else env
        driver = Driver("azure", given, spot=spot, env=env, cache_gib=cache_gib)
        self.addCleanup(lambda: driver.process.poll() is None and driver.kill())
        return driver

    def nodes(self):
        listed = self.pool.nodes()
        self.assertIsInstance(listed, list, listed)
        return {node["machine"]: node for node in listed}


class Caches(AzureCase):
    options = {"cache_gib": 100}
    disk = "fast-cache-eastus-1-1"

    def test_a_disk_stays_when_its_machine_ends_and_goes_to_the_next(self):
        for name in ("fast-1", "fast-2"):
            self.pool.want(name, offer=OFFER, cache=self.disk)
            self.pool.want(self.disk, offer=OFFER, disk_gib=100)
            self.assertEqual(self.pool.attach(name, self.disk), {"done": True})
            seen = self.nodes()
            self.assertTrue(seen[self.disk]["attached"])
            self.assertNotEqual(
                self.pool.release(self.disk, seen[self.disk]["external"]), {"released": True}
            )
            self.pool.release(name, seen[name]["external"])
            self.assertNotIn("attached", self.nodes()[self.disk])
        self.assertEqual(len(self.azure.caches), 1)
        self.assertEqual(next(iter(self.azure.caches.values()))["zones"], ["1"])
        self.pool.release(self.disk, self.nodes()[self.disk]["external"])
        self.assertEqual((self.nodes(), self.azure.caches), ({}, {}))

    def test_disks_of_others_are_not_listed(self):
        self.pool.want("fast-1", offer=OFFER)
        self.pool.want(self.disk, offer=OFFER, disk_gib=100)
        only = next(iter(self.azure.caches.values()))
        for key, other in (("billow-installation", "x"), ("billow-pool", "y")):
            kept = dict(only["tags"])
            only["tags"][key] = other
            self.assertNotIn(self.disk, self.nodes())
            only["tags"] = kept
        self.assertIn(self.disk, self.nodes())


class Orders(AzureCase):
    def test_an_order_its_list_and_its_end_leave_nothing(self):
        self.assertEqual(self.nodes(), {}, "there is no resource group yet")
        self.assertEqual(
            self.pool.want("fast-1", offer=dict(OFFER, spot=True)),
            {"machine": "fast-1", "ordered": True},
        )
        body = next(r for r in self.azure.requests if is_create(r)).json()
        properties = body["properties"]
        self.assertEqual(body["zones"], ["1"])
        self.assertEqual(properties["evictionPolicy"], "Delete")
        self.assertNotIn("userData", json.dumps(body))
        self.assertEqual(list(self.azure.groups), ["billow-ab12cd34"])
        self.assertEqual(self.azure.security["billow-eastus"]["properties"]["securityRules"], [])
        seen = self.nodes()["fast-1"]
        self.assertEqual((seen["external"], seen["note"]), ("billow-ab12cd34-fast-1", "Succeeded"))
        self.assertEqual([len(kind) for kind in self.azure.left()], [1, 1, 1, 1, 0])
        self.assertEqual(self.pool.release("fast-1", seen["external"]), {"released": True})
        self.assertEqual(self.nodes(), {})
        self.assertEqual(self.azure.left(), ([], [], [], [], []))

    def test_a_lost_answer_makes_no_second_machine(self):
        self.pool.want("fast-1", offer=OFFER)  # makes the network
        self.azure.once(is_create, "lose")
        answer = self.pool.want("fast-2", offer=OFFER)
        # The client repeats a PUT by itself if a kept connection broke.
        self.assertTrue(answer.get("ordered") or answer["refused"] == "no_answer", answer)
        self.assertTrue(self.pool.want("fast-2", offer=OFFER, token="other")["ordered"])
        self.assertEqual(len(self.azure.created), 2)

    def test_a_strangers_machine_of_the_same_name_is_not_taken(self):
        self.pool.want("fast-1", offer=OFFER)
        self.azure.machines["billow-ab12cd34-fast-2"] = {
            "name": "billow-ab12cd34-fast-2",
            "location": "eastus",
            "properties": {"provisioningState": "Succeeded"},
        }
        refused = self.pool.want("fast-2", offer=OFFER)
        self.assertEqual(refused["refused"], "settings")
        self.assertIn("not ours", refused["message"])
        self.assertEqual(set(self.nodes()), {"fast-1"})

    def test_a_late_refusal_leaves_a_failed_machine_that_is_listed_with_its_reason(self):
        self.azure.capacity["eastus"] = ("ZonalAllocationFailed", "no more of these")
        self.azure.provision_s = 0.2
        self.assertTrue(self.pool.want("fast-1", offer=OFFER)["ordered"])
        self.assertEqual(self.nodes()["fast-1"]["note"], "Creating")
        seen = until(
            lambda: next((n for n in self.pool.nodes() if "failed" in n), None), "the refusal"
        )
        self.assertEqual(seen["failed"], "capacity")
        self.assertFalse(seen["ended"], "its card and address are still there")
        self.assertIn("no more of these", seen["note"])
        self.assertEqual(self.pool.release("fast-1", seen["external"]), {"released": True})
        self.assertEqual(self.nodes(), {})
        self.assertEqual(self.azure.left(), ([], [], [], [], []))

    def test_a_late_refusal_is_found_after_a_restart(self):
        self.azure.capacity["eastus"] = ("SkuNotAvailable", "not for you")
        self.assertTrue(self.pool.want("fast-1", offer=OFFER)["ordered"])
        self.pool.kill()
        self.azure.operations.clear()
        self.pool = self.driver()
        self.assertEqual(self.nodes()["fast-1"]["failed"], "not_offered")
        self.assertTrue(self.pool.want("fast-1", offer=OFFER)["ordered"], "it exists")
        self.assertEqual(len(self.azure.created), 1)

    def test_a_late_refusal_that_left_nothing(self):
        self.azure.capacity["eastus"] = ("AllocationFailed", "no more of these")
        self.azure.leaves_corpse = False
        self.assertTrue(self.pool.want("fast-1", offer=OFFER)["ordered"])
        seen = self.nodes()["fast-1"]
        self.assertEqual((seen["failed"], seen["ended"]), ("capacity", True))

    def test_a_running_machine_whose_last_change_failed_has_not_failed(self):
        self.pool.want("fast-1", offer=OFFER)
        self.nodes()
        machine = self.azure.machines["billow-ab12cd34-fast-1"]
        machine["properties"]["provisioningState"] = "Failed"
        self.assertNotIn("failed", self.nodes()["fast-1"])

    def test_errors_have_their_kinds(self):
        self.pool.want("fast-1", offer=OFFER)
        details = {
            "code": "DeploymentFailed",
            "message": "At least one failed.",
            "details": [{"code": "OverconstrainedAllocationRequest", "message": "too much"}],
        }
        quota = "Operation could not be completed as it results in exceeding approved Cores quota."
        cases = [
            (problem(409, "SkuNotAvailable", "none"), False, "not_offered"),
            (problem(409, "SkuNotAvailable", "none"), True, "capacity"),
            (problem(409, "OperationNotAllowed", quota), False, "quota"),
            (problem(409, "OperationNotAllowed", "the disk is locked"), False, "settings"),
            (problem(403, "AuthorizationFailed", "no"), False, "settings"),
            (problem(409, "AnotherOperationInProgress", "wait"), False, "no_answer"),
            (problem(500, "InternalServerError", "oops"), False, "no_answer"),
            (Answer(409, {"error": details}), False, "capacity"),
            (Answer(502, b"<html>bad gateway</html>"), False, "no_answer"),
        ]
        for answer, spot, kind in cases:
            with self.subTest(answer.body):
                self.azure.once(is_create, answer)
                refused = self.pool.want("fast-2", offer=dict(OFFER, spot=spot))
                self.assertEqual(refused.get("refused"), kind, refused)
        self.assertEqual(len(self.azure.created), 1)

    def test_the_network_takes_a_while(self):
        self.azure.network_s = 6
        first = self.pool.want("fast-1", offer=OFFER)
        self.assertEqual(first["refused"], "no_answer")
        self.assertIn("network", first["message"])
        until(lambda: self.pool.want("fast-1", offer=OFFER).get("ordered"), "an order")
        puts = [r.path for r in self.azure.requests if r.method == "PUT" and "Network" in r.path]
        self.assertEqual(len(puts), 2, "asked for once")

    def test_many_at_once_share_one_network_and_one_token(self):
        names = [f"fast-{i}" for i in range(1, 101)]
        answers = self.pool.ask(do="want", machines=names, offer=OFFER)
        self.assertTrue(all(a.get("ordered") for a in answers), answers)
        self.assertEqual(len(self.azure.created), 100)
        self.assertEqual(len([r for r in self.azure.requests if "oauth2" in r.path]), 1)
        self.assertEqual(
            len([r for r in self.azure.requests if r.method == "PUT" and "Network" in r.path]), 2
        )

    def test_a_deleted_resource_group_is_made_again(self):
        self.pool.want("fast-1", offer=OFFER)
        self.azure.groups.clear()
        self.azure.networks.clear()
        self.azure.machines.clear()
        self.assertEqual(self.pool.want("fast-2", offer=OFFER)["refused"], "no_answer")
        self.assertTrue(self.pool.want("fast-2", offer=OFFER)["ordered"])


class Lists(AzureCase):
    def test_all_pages_count(self):
        self.azure.page = 2
        for i in range(1, 6):
            self.pool.want(f"fast-{i}", offer=OFFER)
        self.assertEqual(len(self.nodes()), 5)

    def test_an_error_on_a_later_page_makes_no_list(self):
        self.azure.page = 1
        self.pool.want("fast-1", offer=OFFER)
        self.pool.want("fast-2", offer=OFFER)
        for verdict in (Answer(500), Answer(200, b"<html>"), Answer(200, {}), "drop"):
            self.azure.faults = [
                lambda r: verdict if is_list(r) and "$skiptoken" in r.query else None
            ]
            answer = self.pool.nodes()
            self.assertEqual(answer["error"], "unavailable", answer)
        self.azure.faults = []
        self.assertEqual(len(self.nodes()), 2)

    def test_the_token_goes_to_no_other_server(self):
        other = FakeAzure()
        self.addCleanup(other.close)
        self.pool.want("fast-1", offer=OFFER)
        page = {"value": [], "nextLink": other.url + "/subscriptions/x?api-version=1"}
        self.azure.once(is_list, Answer(200, page))
        answer = self.pool.nodes()
        self.assertIn("another server", answer["message"])
        self.assertEqual(other.requests, [])

    def test_machines_of_others_are_not_listed(self):
        self.pool.want("fast-1", offer=OFFER)
        for name, owner in (("fast-9", "other"), ("slow-1", "ab12cd34")):
            self.azure.machines[name] = {
                "name": name,
                "location": "eastus",
                "tags": {"billow-installation": owner, "billow-machine": name},
                "properties": {"provisioningState": "Succeeded"},
            }
        self.assertEqual(set(self.nodes()), {"fast-1"})

    def test_offers_are_what_the_subscription_may_have_with_list_prices(self):
        size = {
            "resourceType": "virtualMachines",
            "name": SIZE,
            "locationInfo": [{"location": "eastus", "zones": ["1", "2", "3"]}],
            "capabilities": [
                {"name": "GPUs", "value": "8"},
                {"name": "vCPUs", "value": "96"},
                {"name": "MemoryGB", "value": "1900"},
                {"name": "LowPriorityCapable", "value": "True"},
            ],
            "restrictions": [
                {"type": "Zone", "restrictionInfo": {"zones": ["2"]}, "reasonCode": "x"}
            ],
        }
        barred = dict(size, restrictions=[{"type": "Location", "restrictionInfo": {}}])
        disk = dict(size, resourceType="disks")
        self.azure.sizes = {"eastus": [size, disk], "westus": [barred]}
        offers = self.pool.ask(do="offers")
        self.assertEqual({o["zone"] for o in offers}, {"eastus-1", "eastus-3"})
        for offer in offers:
            self.assertEqual((offer["gpu_type"], offer["gpus"]), ("H100", 8))
            self.assertGreater(offer["price"], 0)


class Credentials(AzureCase):
    def account(self, **driver):
        return self.driver(**driver).ask(do="account")

    def token_request(self):
        return next(r for r in self.azure.requests if "oauth2" in r.path)

    def test_a_client_secret(self):
        self.assertEqual(self.account()["identity"], "application client-1")
        request = self.token_request()
        self.assertEqual(request.path, "/tenant-1/oauth2/v2.0/token")
        self.assertEqual(request.form()["client_secret"], "s3cret/+")
        self.assertEqual(request.form()["scope"], self.azure.url + "/.default")

    def test_a_file_of_the_cli(self):
        document = {"appId": "a", "password": "p", "tenant": "t", "displayName": "billow"}
        account = self.account(env={}, credentials=file_of("sp.json", document))
        self.assertEqual(account["identity"], "application a")
        self.assertEqual(self.token_request().form()["client_secret"], "p")
        broken = self.account(env={}, credentials=file_of("sp2.json", {"appId": "a"}))
        self.assertIn("lacks tenant", broken["message"])

    def test_a_federated_token_is_read_anew(self):
        with open(path("federated"), "w", encoding="utf-8") as file:
            file.write("subject-token\n")
        env = dict(SECRET, AZURE_FEDERATED_TOKEN_FILE=path("federated"))
        del env["AZURE_CLIENT_SECRET"]
        self.account(env=env)
        self.assertEqual(self.token_request().form()["client_assertion"], "subject-token")

    def test_a_certificate(self):
        env = dict(SECRET, AZURE_CLIENT_CERTIFICATE_PATH=certificate())
        del env["AZURE_CLIENT_SECRET"]
        self.assertEqual(self.account(env=env)["problems"], [])
        self.assertEqual(len(self.token_request().form()["client_assertion"].split(".")), 3)

    def test_a_managed_identity(self):
        account = self.account(env={"AZURE_POD_IDENTITY_AUTHORITY_HOST": self.azure.url})
        self.assertEqual(account["source"], "the managed identity of this machine")
        self.assertEqual(self.token_request().query["resource"], self.azure.url)

    def test_the_login_of_the_cli(self):
        self.azure.tokens.add("h.e30.s")
        folder = path("bin")
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/az", "w", encoding="utf-8") as file:
            file.write(
                "#!/bin/sh\n"
                'echo "$@" > "$0.args"\n'
                'echo \'{"accessToken": "h.e30.s", "expires_on": 4000000000,\n'
                '"subscription": "cli-subscription"}\'\n'
            )
        os.chmod(folder + "/az", stat.S_IRWXU)
        env = {
            "PATH": folder + ":/usr/bin:/bin",
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:1",
        }
        account = self.account(env=env, subscription="")
        self.assertEqual(account["id"], "cli-subscription", account)
        with open(folder + "/az.args", encoding="utf-8") as file:
            words = "account get-access-token --output json --resource " + self.azure.url
            self.assertEqual(file.read().strip(), words)

    def test_none_at_all_says_what_to_do(self):
        env = {"PATH": "/nonexistent", "AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:1"}
        account = self.account(env=env)
        self.assertEqual(account["error"], "unauthorized")
        self.assertIn("AZURE_TENANT_ID", account["hint"])

    def test_a_wrong_secret_is_a_matter_of_settings(self):
        wrong = Answer(401, {"error": "invalid_client", "error_description": "AADSTS7000215"})
        self.azure.once(lambda r: "oauth2" in r.path, wrong)
        answer = self.pool.want("fast-1", offer=OFFER)
        self.assertEqual(answer["refused"], "settings")
        self.assertIn("AADSTS7000215", answer["message"])


class Accounts(AzureCase):
    def test_missing_rights_and_quotas_are_named(self):
        self.azure.permissions = [
            {
                "actions": ["Microsoft.Compute/*", "*/read"],
                "notActions": ["Microsoft.Compute/virtualMachines/delete"],
            }
        ]
        self.azure.usages["westus"] = [
            {"name": {"value": "standardNDSH100v5Family"}, "limit": "0", "currentValue": 0},
            {"name": {"value": "standardDFamily"}, "limit": "0", "currentValue": 0},
        ]
        problems = "\n".join(self.pool.ask(do="account")["problems"])
        self.assertIn("Microsoft.Compute/virtualMachines/delete", problems)
        self.assertIn("Microsoft.Network/virtualNetworks/write", problems)
        self.assertNotIn("Microsoft.Compute/virtualMachines/write", problems)
        self.assertNotIn("virtualNetworks/read", problems)
        self.assertIn("westus: standardNDSH100v5Family", problems)
        self.assertNotIn("standardDFamily", problems)

    def test_the_role_is_exactly_what_the_calls_need(self):
        with open(ROLE, encoding="utf-8") as file:
            role = json.load(file)
        self.azure.permissions = [{"actions": role["Actions"], "notActions": []}]
        self.assertEqual(self.pool.ask(do="account")["problems"], [])
        self.pool.ask(do="offers")
        self.azure.provision_s = 0.1
        self.azure.capacity["westus"] = ("AllocationFailed", "none")
        self.pool.want("fast-1", offer=OFFER)
        self.pool.want("fast-2", offer=dict(OFFER, region="westus", zone=""))
        until(lambda: "failed" in self.nodes()["fast-2"], "the refusal")
        for machine, seen in self.nodes().items():
            self.pool.release(machine, seen["external"])
        self.assertEqual(self.nodes(), {})
        self.pool.want("fast-9", offer=OFFER, nodes=2)
        self.pool.release("fast-9", self.nodes()["fast-9"]["external"])
        self.pool = self.driver(cache_gib=100)
        self.assertEqual(self.pool.ask(do="account")["problems"], [])
        self.pool.want("fast-10", offer=OFFER)
        disk = "fast-cache-eastus-1-1"
        self.pool.want(disk, offer=OFFER, disk_gib=100)
        until(lambda: self.nodes()["fast-10"]["note"] == "Succeeded", "the machine runs")
        self.pool.attach("fast-10", disk)
        for machine, seen in sorted(self.nodes().items()):
            self.pool.release(machine, seen["external"])
        self.assertEqual(set(role["Actions"]), self.azure.used)


if __name__ == "__main__":
    unittest.main()
