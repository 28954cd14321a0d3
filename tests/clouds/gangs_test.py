"""Gangs on Google and Azure: all nodes or none, close together, and nothing of them stays behind."""
import base64
import unittest

import azure_test
import google_test
from cloud_server import until


def is_bulk(request):
    return request.path.endswith("/bulkInsert")


class Google(google_test.GoogleCase):
    options = {"regions": "us-central1"}

    def gang(self, name="fast-1", **more):
        return self.pool.want(name, offer=google_test.OFFER, nodes=3, **more)

    def end(self, name="fast-1"):
        """Releases it as the head does: until the list lacks it."""

        def gone():
            seen = self.nodes().get(name)
            return (
                not seen or seen["ended"] or (self.pool.release(name, seen["external"]), False)[1]
            )

        until(gone, "nothing of it is listed")

    def test_all_nodes_are_one_request_with_one_placement_policy(self):
        self.assertTrue(self.gang()["ordered"])
        body = next(r for r in self.google.requests if is_bulk(r)).json()
        self.assertEqual((body["count"], body["minCount"]), ("3", "3"))
        names = [f"billow-ab12cd34-fast-1-n{rank}" for rank in range(3)]
        self.assertEqual(list(body["perInstanceProperties"]), names)
        self.assertEqual(body["instanceProperties"]["machineType"], "a3-highgpu-8g")
        policy = self.google.policies[("us-central1", "billow-ab12cd34-fast-1")]
        self.assertEqual(
            policy["groupPlacementPolicy"], {"collocation": "COLLOCATED", "vmCount": 3}
        )
        seen = self.nodes()["fast-1"]
        self.assertEqual(
            seen["external"],
            f"us-central1-a/{','.join(names)},policy:billow-ab12cd34-fast-1",
        )
        self.end()
        self.assertEqual(self.google.left(), ([], [], [], []))

    def test_too_few_machines_are_none_and_leave_no_policy(self):
        self.google.room["us-central1-a"] = 2
        self.google.provision_s = 0.1
        self.assertTrue(self.gang()["ordered"])
        seen = until(
            lambda: next((n for n in self.nodes().values() if "failed" in n), None), "the refusal"
        )
        self.assertEqual(seen["failed"], "capacity")
        self.assertFalse(seen["ended"], "its policy is left")
        self.end()
        self.assertEqual(self.google.left(), ([], [], [], []))

    def test_a_refusal_at_once_leaves_no_policy(self):
        refused = google_test.problem(403, "quotaExceeded", "Quota exceeded")
        self.google.once(is_bulk, refused)
        self.assertEqual(self.gang()["refused"], "quota")
        self.assertEqual(self.google.policies, {})
        self.assertEqual(len(self.google.policies_made), 1)

    def test_a_policy_that_a_killed_head_left_is_found_and_ended(self):
        self.google.once(is_bulk, "drop")
        self.assertEqual(self.gang()["refused"], "no_answer")
        self.assertEqual(len(self.google.policies), 1)
        self.assertEqual(self.nodes(), {}, "its order is repeated")
        self.pool.kill()
        self.pool = self.driver(**self.options)
        self.assertEqual(self.nodes(), {}, "it is young")
        for policy in self.google.policies.values():
            policy["creationTimestamp"] = "2026-01-01T00:00:00.000-00:00"
        self.assertEqual(
            self.nodes()["fast-1"]["external"], "us-central1/policy:billow-ab12cd34-fast-1"
        )
        self.end()
        self.assertEqual(self.google.left(), ([], [], [], []))

    def test_a_lost_answer_makes_no_second_gang(self):
        self.google.once(is_bulk, "lose")
        self.assertEqual(self.gang()["refused"], "no_answer")
        self.assertTrue(self.gang(token="other")["ordered"])
        self.assertEqual(len(self.google.created), 3)
        self.assertEqual(len(self.google.policies_made), 1)

    def test_a_long_name_keeps_its_rank(self):
        name = "a-pool-with-a-rather-long-name-that-goes-on-1"
        self.pool = self.driver(**self.options)
        self.assertTrue(self.gang(name)["ordered"])
        self.assertEqual(len(set(self.google.created)), 3)
        self.assertTrue(all(n[:-1].endswith("-n") for n in self.google.created))

    def test_machines_alone_ask_for_no_policies(self):
        self.pool.want("fast-1", offer=google_test.OFFER)
        self.nodes()
        before = len([r for r in self.google.requests if "resourcePolicies" in r.path])
        self.assertEqual(before, 1, "an earlier head may have left some")
        self.nodes()
        self.assertEqual(
            len([r for r in self.google.requests if "resourcePolicies" in r.path]), before
        )

    def test_a_disk_is_as_large_as_the_jobs_need(self):
        self.pool.want("fast-1", offer=google_test.OFFER, disk_mib=500 * 1024)
        self.pool.want("fast-2", offer=google_test.OFFER, disk_mib=1024)
        sizes = [
            r.json()["disks"][0]["initializeParams"]["diskSizeGb"]
            for r in self.google.requests
            if google_test.is_insert(r)
        ]
        self.assertEqual(sizes, ["600", "200"])


class Azure(azure_test.AzureCase):
    def gang(self, name="fast-1", **more):
        return self.pool.want(name, offer=azure_test.OFFER, nodes=3, **more)

    def test_all_nodes_are_one_scale_set_in_one_placement_group(self):
        self.assertTrue(self.gang()["ordered"])
        body = next(
            r for r in self.azure.requests if r.method == "PUT" and "ScaleSets" in r.path
        ).json()
        self.assertEqual(body["sku"]["capacity"], 3)
        self.assertEqual(body["tags"]["billow-machine"], "fast-1")
        profile = body["properties"]["virtualMachineProfile"]
        self.assertIn(
            "metadata/instance/compute/name",
            base64.b64decode(profile["osProfile"]["customData"]).decode(),
        )
        seen = self.nodes()["fast-1"]
        self.assertEqual(seen["external"], "scale-set:billow-ab12cd34-fast-1")
        self.assertEqual([len(kind) for kind in self.azure.left()], [0, 3, 3, 3, 1])
        self.pool.release("fast-1", seen["external"])
        self.assertEqual(self.nodes(), {})
        self.assertEqual(self.azure.left(), ([], [], [], [], []))

    def test_a_set_of_which_only_a_part_was_made_is_refused_and_ended(self):
        self.azure.capacity["eastus"] = ("ZonalAllocationFailed", "no more of these")
        for restart in (False, True):
            with self.subTest(restart=restart):
                self.assertTrue(self.gang()["ordered"])
                if restart:
                    self.azure.operations.clear()
                    self.pool.kill()
                    self.pool = self.driver()
                seen = self.nodes()["fast-1"]
                self.assertEqual((seen["failed"], seen["ended"]), ("capacity", False))
                self.pool.release("fast-1", seen["external"])
                self.assertEqual(self.nodes(), {})
                self.assertEqual(self.azure.left(), ([], [], [], [], []))

    def test_a_lost_answer_makes_no_second_set(self):
        self.pool.want("fast-9", offer=azure_test.OFFER)  # makes the network
        self.azure.once(lambda r: r.method == "PUT" and "ScaleSets" in r.path, "lose")
        self.gang()
        self.assertTrue(self.gang(token="other")["ordered"])
        self.assertEqual(self.azure.created.count("billow-ab12cd34-fast-1"), 1)

    def test_machines_alone_ask_for_no_sets(self):
        self.pool.want("fast-1", offer=azure_test.OFFER)
        for _ in range(3):
            self.nodes()
        self.assertEqual(len([r for r in self.azure.requests if "ScaleSets" in r.path]), 1)

    def test_a_disk_is_as_large_as_the_jobs_need(self):
        self.pool.want("fast-1", offer=azure_test.OFFER, disk_mib=500 * 1024)
        body = next(r for r in self.azure.requests if azure_test.is_create(r)).json()
        self.assertEqual(body["properties"]["storageProfile"]["osDisk"]["diskSizeGB"], 600)


if __name__ == "__main__":
    unittest.main()
