"""The requests of our pools equal those of the providers' own clients from npm, recorded by the
same server: method, path, parameters, body. Signed statements are verified with their code."""
import base64
import json
import os
import subprocess
import unittest

from cloud_keys import certificate, google_key
from cloud_server import Answer, Driver
from fake_azure import FakeAzure
from fake_google import FakeGoogle

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "google_azure")
MISSING = (
    None
    if os.path.isdir(os.path.join(HERE, "node_modules"))
    else "the clients are not installed: run npm ci in tests/clouds/google_azure"
)


def run_sdk(script, parameters, **env):
    done = subprocess.run(
        ["node", os.path.join(HERE, script)],
        input=json.dumps(parameters).encode(),
        capture_output=True,
        env={**os.environ, **env},
        timeout=240,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode())
    return json.loads(done.stdout)


def normal(document):
    """Google's client also writes maps without entries."""
    if isinstance(document, dict):
        return {k: normal(v) for k, v in document.items() if v != {} or k.startswith("/")}
    if isinstance(document, list):
        return [normal(item) for item in document]
    return document


class ParityCase(unittest.TestCase):
    maxDiff = None

    def compare(self, ours, theirs, kind, ignored=()):
        """Each of our requests of this kind was also sent by their client."""
        ours = [r for r in ours if kind(r)]
        self.assertTrue(ours, "we sent none")
        for mine in ours:
            twins = [r for r in theirs if (r.method, r.path) == (mine.method, mine.path)]
            self.assertTrue(twins, f"{mine} is not in {theirs}")
            self.assertIn(
                {k: v for k, v in mine.query.items() if k not in ignored},
                [{k: v for k, v in r.query.items() if k not in ("$alt", "key")} for r in twins],
                mine,
            )
            if mine.method in ("PUT", "POST"):
                self.assertEqual(normal(mine.json()), normal(twins[-1].json()))
                self.assertEqual(
                    mine.headers["content-type"], twins[-1].headers["content-type"].split(";")[0]
                )
            self.assertEqual(
                mine.headers.get("if-none-match"), twins[-1].headers.get("if-none-match")
            )


@unittest.skipIf(MISSING, MISSING)
class Google(ParityCase):
    def check(self, offer, options, **parameters):
        google = FakeGoogle()
        self.addCleanup(google.close)
        key = google_key(google.url + "/token")
        settings = {"endpoint": google.url, "credentials": key, "regions": "us-central1"}
        pool = Driver("gce", {**settings, **options}, cache_gib=100)
        self.addCleanup(pool.close)
        self.assertEqual(pool.ask(do="account")["problems"], [])
        pool.ask(do="offers")
        google.provision_s = 60
        self.assertTrue(pool.want("fast-1", offer=offer)["ordered"])
        google.instances, instances = {}, google.instances
        pool.nodes()  # asks for the operation
        google.instances = instances
        google.by_request.clear()
        google.operations.clear()
        self.assertTrue(pool.want("fast-1", offer=offer)["ordered"])  # exists: looks at it
        external = next(n for n in pool.nodes())["external"]
        pool.release("fast-1", external)
        google.provision_s = 0
        self.assertTrue(pool.want("fast-2", offer=offer, nodes=2)["ordered"])
        gang = next(n for n in pool.nodes() if n["machine"] == "fast-2")["external"]
        pool.release("fast-2", gang)
        disk = f"fast-cache-{offer['zone']}-1"
        self.assertTrue(pool.want("fast-3", offer=offer)["ordered"])
        self.assertTrue(pool.want(disk, offer=offer, disk_gib=100)["ordered"])
        self.assertEqual(pool.attach("fast-3", disk), {"done": True})
        pool.release("fast-3", f"{offer['zone']}/billow-ab12cd34-fast-3")
        pool.release(disk, f"{offer['zone']}/disk:billow-ab12cd34-{disk}")
        ours = [r for r in google.requests if "fast-3" not in r.path or "attachDisk" in r.path]
        ours = [r for r in ours if b"fast-3" not in r.body or "attachDisk" in r.path]
        named = [r for r in ours if "/disks" in r.path]
        google.requests.clear()
        bulk = next(r for r in ours if r.path.endswith("/bulkInsert"))
        policies = [r for r in ours if r.method == "POST" and r.path.endswith("Policies")]
        properties = bulk.json()["instanceProperties"]
        gang_data = {i["key"]: i["value"] for i in properties["metadata"]["items"]}["user-data"]
        google.policies.clear()
        insert = next(r for r in ours if r.method == "POST" and r.path.endswith("/instances"))
        delete = next(r for r in ours if r.method == "DELETE")
        operation = next(r for r in ours if "/operations/" in r.path).path.split("/")[-1]
        items = {i["key"]: i["value"] for i in insert.json()["metadata"]["items"]}
        google.instances, google.operations[operation] = dict(instances), {"status": "DONE"}
        google.by_request.clear()
        google.instances.clear()
        google.provision_s = google.delete_s = 60
        google.tokens.add("ya29.theirs")
        asked = {
            "port": int(google.address.split(":")[1]),
            "url": google.url,
            "token": "ya29.theirs",
            "keyFile": key,
            "assertion": next(r for r in ours if r.path == "/token").form()["assertion"],
            "project": "my-project",
            "region": "us-central1",
            "zone": offer["zone"],
            "installation": "ab12cd34",
            "pool": "fast",
            "machine": "fast-1",
            "name": "billow-ab12cd34-fast-1",
            "requestId": insert.query["requestId"],
            "deleteId": delete.query["requestId"],
            "operation": operation,
            "gang": {
                "name": "billow-ab12cd34-fast-2",
                "requestId": bulk.query["requestId"],
                "policyId": policies[0].query["requestId"] if policies else "",
                "userData": gang_data,
                "deletes": {
                    r.path.split("/")[-1]: r.query["requestId"]
                    for r in ours
                    if r.method == "DELETE" and "fast-2-n" in r.path
                },
                "policyDelete": next(
                    (
                        r.query["requestId"]
                        for r in ours
                        if r.method == "DELETE" and "resourcePolicies" in r.path
                    ),
                    "",
                ),
            },
            "disk": {
                "disk": disk,
                "name": f"billow-ab12cd34-{disk}",
                "instance": "billow-ab12cd34-fast-3",
                "requestId": next(r for r in named if r.method == "POST").query["requestId"],
                "attachId": next(r for r in ours if "attachDisk" in r.path).query["requestId"],
                "deleteId": next(r for r in named if r.method == "DELETE").query["requestId"],
            },
            "userData": items["user-data"],
            "type": offer["instance"],
            "image": (
                "projects/deeplearning-platform-release/global/images/family/"
                "common-cu129-ubuntu-2204-nvidia-580"
            ),
            "diskType": "pd-balanced",
            "spot": offer.get("spot", False),
            **parameters,
        }
        statement = run_sdk("sdk_google.js", asked)
        theirs = list(google.requests)
        # Their client cannot ask for parts of a list.
        self.compare(ours, theirs, lambda r: r.path.startswith("/compute/"), ignored=("fields",))
        return statement, theirs

    def test_spot_machines_with_gpus_of_their_type(self):
        offer = {"instance": "a3-highgpu-8g", "zone": "us-central1-a", "gpus": 8, "spot": True}
        statement, theirs = self.check(offer, {})
        self.assertTrue(statement["verified"])
        self.assertEqual(statement["header"]["alg"], "RS256")
        ours, reference = statement["ours"], statement["theirs"]
        self.assertEqual(set(ours), set(reference))
        self.assertEqual(ours["exp"] - ours["iat"], reference["exp"] - reference["iat"])
        self.assertEqual((ours["iss"], ours["scope"]), (reference["iss"], reference["scope"]))
        refresh = next(r for r in theirs if r.path == "/token")
        self.assertEqual(
            refresh.form(),
            {
                "refresh_token": "r/1",
                "client_id": "c",
                "client_secret": "s",
                "grant_type": "refresh_token",
            },
        )

    def test_machines_with_attached_gpus_a_reservation_and_an_account(self):
        offer = {
            "instance": "n1-standard-8+2xnvidia-tesla-t4",
            "zone": "us-central1-b",
            "gpus": 2,
            "reservation": "our-block",
        }
        account = "nodes@my-project.iam.gserviceaccount.com"
        self.check(
            offer,
            {"service_account": account},
            type="n1-standard-8",
            accelerator="nvidia-tesla-t4",
            serviceAccount=account,
            reservation="our-block",
        )

    def test_newest_machines_take_other_disks(self):
        offer = {"instance": "a4-highgpu-8g", "zone": "us-central1-b", "gpus": 8}
        self.check(offer, {}, diskType="hyperdisk-balanced")


@unittest.skipIf(MISSING, MISSING)
class Azure(ParityCase):
    def check(self, offer, options, **parameters):
        azure = FakeAzure(certificate())
        self.addCleanup(azure.close)
        discovery = {
            "token_endpoint": azure.url + "/tenant-1/oauth2/v2.0/token",
            "issuer": azure.url + "/tenant-1/v2.0",
            "authorization_endpoint": azure.url + "/tenant-1/oauth2/v2.0/authorize",
            "jwks_uri": azure.url + "/tenant-1/discovery/v2.0/keys",
        }
        azure.faults.append(
            lambda r: Answer(200, discovery) if "openid-configuration" in r.path else None
        )
        env = {
            "AZURE_TENANT_ID": "tenant-1",
            "AZURE_CLIENT_ID": "client-1",
            "SSL_CERT_FILE": certificate(),
        }
        settings = {
            "endpoint": azure.url,
            "authority": azure.url,
            "subscription": "sub-1",
            "regions": "eastus",
            **options,
        }
        by_secret = Driver("azure", settings, env=dict(env, AZURE_CLIENT_SECRET="s3cret/+"))
        self.addCleanup(by_secret.close)
        by_secret.ask(do="offers")
        env["AZURE_CLIENT_CERTIFICATE_PATH"] = certificate()
        pool = Driver("azure", settings, env=env, cache_gib=100)
        self.addCleanup(pool.close)
        pool.ask(do="account")
        self.assertEqual(pool.want("fast-1", offer=offer).get("ordered"), True)
        self.assertTrue(pool.want("fast-1", offer=offer)["ordered"])  # exists: looks at it
        azure.machines["billow-ab12cd34-fast-1"]["properties"]["provisioningState"] = "Failed"
        seen = pool.nodes()[0]  # looks at its view
        pool.release("fast-1", seen["external"])
        self.assertTrue(pool.want("fast-2", offer=offer, nodes=2)["ordered"])
        self.assertTrue(pool.want("fast-2", offer=offer, nodes=2)["ordered"])
        pool.release("fast-2", pool.nodes()[-1]["external"])
        disk = f"fast-cache-{offer['zone'] or offer['region']}-1"
        self.assertTrue(pool.want("fast-3", offer=offer)["ordered"])
        self.assertTrue(pool.want(disk, offer=offer, disk_gib=100)["ordered"])
        self.assertEqual(pool.attach("fast-3", disk), {"done": True})
        pool.release("fast-3", "billow-ab12cd34-fast-3")
        pool.release(disk, f"disk:billow-ab12cd34-{disk}")
        ours = [r for r in azure.requests if "fast-3" not in r.path or "attach" in r.path]
        azure.requests.clear()
        azure.groups.pop("billow-ab12cd34")
        azure.groups["billow-ab12cd34"] = {"location": "eastus"}
        create = next(r for r in ours if r.method == "PUT" and "/virtualMachines/" in r.path)
        profile = create.json()["properties"]["osProfile"]
        self.assertIn("billow join", base64.b64decode(profile["customData"]).decode())
        gang = next(r for r in ours if r.method == "PUT" and "ScaleSets" in r.path).json()
        gang = gang["properties"]["virtualMachineProfile"]["osProfile"]
        tokens = [r.form() for r in ours if "oauth2" in r.path]
        azure.tokens.add("theirs")
        asked = {
            "url": azure.url,
            "token": "theirs",
            "tenant": "tenant-1",
            "client": "client-1",
            "secret": "s3cret/+",
            "certificate": certificate(),
            "assertion": tokens[1]["client_assertion"],
            "subscription": "sub-1",
            "group": "billow-ab12cd34",
            "region": "eastus",
            "installation": "ab12cd34",
            "pool": "fast",
            "machine": "fast-1",
            "name": "billow-ab12cd34-fast-1",
            "size": offer["instance"],
            "spot": offer.get("spot", False),
            "customData": profile["customData"],
            "gang": {"name": "billow-ab12cd34-fast-2", "customData": gang["customData"]},
            "disk": {
                "name": f"billow-ab12cd34-{disk}",
                "disk": disk,
                "machine": "billow-ab12cd34-fast-3",
            },
            "sshKey": profile["linuxConfiguration"]["ssh"]["publicKeys"][0]["keyData"],
            **parameters,
        }
        statement = run_sdk("sdk_azure.js", asked, NODE_EXTRA_CA_CERTS=certificate())
        theirs = list(azure.requests)
        # No client of these four has the rights and the subscription; the addresses of operations
        # are the server's.
        no_twin = ("/permissions", "/subscriptions/sub-1")
        self.compare(
            ours,
            theirs,
            lambda r: (r.path.startswith("/subscriptions/sub-1") and not r.path.endswith(no_twin)),
        )
        self.compare_tokens(tokens, theirs, statement)

    def compare_tokens(self, ours, theirs, statement):
        reference = [r.form() for r in theirs if r.path.endswith("/oauth2/v2.0/token")]
        by_secret = {"client_id", "scope", "grant_type", "client_secret"}
        self.assertEqual(set(ours[0]), by_secret)
        self.assertEqual(ours[0], {k: reference[0][k] for k in by_secret})
        by_certificate = set(ours[1]) - {"client_assertion"}
        self.assertEqual(
            {k: ours[1][k] for k in by_certificate}, {k: reference[1][k] for k in by_certificate}
        )
        header, claims = (
            json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
            for part in reference[1]["client_assertion"].split(".")[:2]
        )
        self.assertEqual(statement["header"], header)
        self.assertEqual(set(statement["claims"]), set(claims) - {"iat"})
        for name in ("aud", "iss", "sub"):
            self.assertEqual(statement["claims"][name], claims[name])

    def test_a_spot_machine_in_a_zone(self):
        offer = {
            "instance": "Standard_ND96isr_H100_v5",
            "region": "eastus",
            "zone": "eastus-2",
            "gpus": 8,
            "spot": True,
        }
        self.check(offer, {}, zone="2")

    def test_a_machine_with_an_identity(self):
        offer = {"instance": "Standard_NC24ads_A100_v4", "region": "eastus", "zone": "", "gpus": 1}
        identity = (
            "/subscriptions/sub-1/resourceGroups/g/providers/Microsoft.ManagedIdentity/"
            "userAssignedIdentities/nodes"
        )
        self.check(offer, {"identity": identity}, identity=identity)


if __name__ == "__main__":
    unittest.main()
