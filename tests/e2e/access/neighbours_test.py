"""What of other projects a person can find out: history, metrics, names, priorities."""
import json
import os
import time
import unittest

from rig import poll
from rights_test import TwoPeople


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
class Neighbours(TwoPeople):
    def test_a_neighbour_hides_no_history(self):
        mine = []
        for _ in range(3):
            mine.append(self.submit("bob", "true"))
        for _ in range(8):
            self.submit("alice", "true")
        poll(lambda: not self.rig.json("ps")["jobs"], "all ended")
        seen, cursor = [], ""
        for _ in range(20):
            page = self.ask(
                "bob", "GET", f"/v1/jobs?state=succeeded,failed&limit=2&cursor={cursor}"
            ).json
            seen += [j["id"] for j in page["jobs"]]
            cursor = page["next"]
            if not cursor:
                break
        self.assertEqual(seen, mine[::-1])
        # The same for somebody of two projects, for whom no single index serves.
        self.rig.ok("project", "create", "pc")
        self.rig.ok("project", "member", "pc", "bob")
        page = self.ask("bob", "GET", "/v1/jobs?state=succeeded,failed&limit=5").json
        self.assertEqual(([j["id"] for j in page["jobs"]], page["next"]), (mine[::-1], ""))

    def test_metrics_are_of_ones_own_projects(self):
        for project in ("pa", "pb"):
            self.assertEqual(
                self.rig.api(
                    "PUT",
                    "/v1/budgets",
                    {
                        "scope": "project",
                        "of": project,
                        "period": "total",
                        "limit_nano_usd": 10**12,
                    },
                ).status,
                200,
            )
        job = self.submit("alice", "true", resources={"gpus": 1, "share": {"milli": 1000}})
        self.ask("alice", "GET", f"/v1/jobs/{job}/wait?timeout_s=30")
        bob = self.ask("bob", "GET", "/metrics").body.decode()
        self.assertIn('billow_spend_usd_per_second{project="pb"}', bob)
        self.assertIn('budget="project pb"', bob)
        self.assertNotIn('"pa"', bob)
        self.assertNotIn("project pa", bob)
        for token in (self.rig.token(), self.make(user="root", scope="read")["token"]):
            everything = self.rig.api("GET", "/metrics", token=token).body.decode()
            for project in ("pa", "pb"):
                self.assertIn(f'billow_spend_usd_per_second{{project="{project}"}}', everything)
                self.assertIn(f'budget="project {project}"', everything)
        for project in ("pa", "pb"):
            self.rig.api("DELETE", f"/v1/budgets/project/{project}/total")

    def reserve(self, who, **fields):
        return self.ask(
            who,
            "POST",
            "/v1/reservations",
            {"resources": {"gpus": 1, "share": {"milli": 1000}}, **fields},
        )

    def test_names_are_of_their_project_and_no_numbers(self):
        now = time.time_ns()
        span = {"from_ns": now + 3600 * 10**9, "until_ns": now + 7200 * 10**9}
        refused = self.reserve("bob", name="1", **span)
        self.assertEqual(refused.status, 400, refused)
        first = self.reserve("alice", name="demo", **span)
        self.assertEqual(first.status, 201, first)
        second = self.reserve("bob", name="demo", **span)
        self.assertEqual(second.status, 201, second)
        self.assertEqual(self.reserve("bob", name="demo", **span).status, 409)
        self.assertEqual(
            self.rig.api("DELETE", "/v1/reservations/demo").status, 409, "root sees both"
        )
        self.same(
            self.ask("bob", "DELETE", f"/v1/reservations/{first.json['id']}"),
            self.ask("bob", "DELETE", "/v1/reservations/77"),
            f'{first.json["id"]}',
            "77",
        )
        self.assertEqual(self.ask("alice", "DELETE", "/v1/reservations/demo").status, 200)
        self.assertEqual(
            [r["id"] for r in self.rig.api("GET", "/v1/reservations").json["reservations"]],
            [second.json["id"]],
        )
        self.assertEqual(
            self.rig.api("DELETE", f"/v1/reservations/{second.json['id']}").status, 200
        )
        job = {"cron": "0 3 * * *", "spec": {"argv": ["true"], "cwd": "/"}}
        self.assertEqual(
            self.ask("bob", "POST", "/v1/schedules", {"name": "12", **job}).status, 400
        )
        for who in ("alice", "bob"):
            self.assertEqual(
                self.ask(who, "POST", "/v1/schedules", {"name": "nightly", **job}).status, 201
            )
        self.assertEqual(self.ask("bob", "DELETE", "/v1/schedules/nightly").status, 200)
        self.assertEqual(
            [s["user"] for s in self.rig.api("GET", "/v1/schedules").json["schedules"]], ["alice"]
        )
        self.same(
            self.ask("bob", "DELETE", "/v1/schedules/nightly"),
            self.ask("bob", "DELETE", "/v1/schedules/nothing"),
            "nightly",
            "nothing",
        )
        self.assertEqual(self.ask("alice", "DELETE", "/v1/schedules/nightly").status, 200)

    def test_what_is_anothers_is_not_there(self):
        live = self.submit(
            "alice", "sleep", "1000", resources={"gpus": 1, "share": {"milli": 1000}}, spot=True
        )
        ended = self.submit("alice", "false")
        array = self.submit("alice", "sleep", "1000", array={"first": 0, "last": 3, "step": 1})
        self.ask("alice", "GET", f"/v1/jobs/{ended}/wait?timeout_s=30")
        self.rig.wait_for(live, "running")
        nothing = 987654
        spec = {"argv": ["true"], "cwd": "/"}
        for there in (live, ended, array):
            for method, path, body in (
                ("GET", "/v1/jobs/{}", None),
                ("POST", "/v1/jobs/{}/stop", {}),
                ("POST", "/v1/jobs/{}/signal", {"signal": 10}),
                ("GET", "/v1/jobs/{}/explain", None),
                ("POST", "/v1/jobs/{}/keepalive", {"for_s": 60}),
                ("POST", "/v1/jobs/{}/suspend", {}),
                ("POST", "/v1/jobs/{}/rerun", {}),
                ("GET", "/v1/jobs/{}/logs", None),
                ("GET", "/v1/jobs/{}.1", None),
                ("GET", "/v1/jobs/{}.99", None),
                ("POST", "/v1/jobs/{}/files", {"path": "x"}),
                ("DELETE", "/v1/budgets/job/{}/total", None),
            ):
                with self.subTest(path=path, job=there):
                    self.same(
                        self.ask("bob", method, path.format(there), body),
                        self.ask("bob", method, path.format(nothing), body),
                        str(there),
                        str(nothing),
                    )
            for kind in ("ok", "any", "failed"):

                def after(job):
                    return self.ask(
                        "bob",
                        "POST",
                        "/v1/jobs",
                        {"spec": {**spec, "after": [{"job": job, "kind": kind}]}},
                    )

                if after(nothing).status != 404:
                    continue  # no such kind
                self.same(after(there), after(nothing), str(there), str(nothing))
        for method, path, body in (
            ("GET", "/v1/jobs?project={}", None),
            ("GET", "/v1/cost?project={}", None),
            ("PUT", "/v1/projects/{}/members/bob", {"role": "viewer"}),
            ("PUT", "/v1/projects/{}/tags/a", {"value": "b"}),
            ("PUT", "/v1/budgets", {"scope": "project", "of": "{}", "limit_nano_usd": 10**9}),
        ):
            with self.subTest(path=path):

                def ask(name):
                    return self.ask(
                        "bob",
                        method,
                        path.format(name),
                        json.loads(json.dumps(body).replace("{}", name)) if body else None,
                    )

                self.same(ask("pa"), ask("pz"), "pa", "pz")
        self.same(
            *(
                self.ask("bob", "POST", "/v1/jobs", {"spec": spec, "project": name})
                for name in ("pa", "pz")
            ),
            "pa",
            "pz",
        )
        # Whoever reserves hears that there is somebody, not who.
        now = time.time_ns()
        made = self.ask(
            "bob",
            "POST",
            "/v1/reservations",
            {
                "resources": {"gpus": 8, "share": {"milli": 1000}},
                "from_ns": now + 3600 * 10**9,
                "until_ns": now + 7200 * 10**9,
            },
        )
        self.assertEqual(made.status, 201, made)
        self.assertEqual((made.json["asked_to_leave"], made.json["others_asked_to_leave"]), ([], 1))
        self.assertEqual(
            self.ask("bob", "DELETE", f"/v1/reservations/{made.json['id']}").status, 200
        )
        for job in (live, array):
            self.rig.ok("stop", "--wait", "-f", job)

    def test_priority_has_bounds_for_all_but_admins(self):
        for priority in (1001, -1001, 2147483647):
            answer = self.ask(
                "bob",
                "POST",
                "/v1/jobs",
                {"spec": {"argv": ["true"], "cwd": "/", "priority": priority}},
            )
            self.assertEqual(answer.status, 403, answer)
        self.submit("bob", "true", priority=1000)
        self.assertEqual(
            self.rig.api(
                "POST", "/v1/jobs", {"spec": {"argv": ["true"], "cwd": "/", "priority": 2000}}
            ).status,
            201,
        )
        self.assertEqual(
            self.ask(
                "bob",
                "POST",
                "/v1/schedules",
                {
                    "name": "rude",
                    "cron": "0 3 * * *",
                    "spec": {"argv": ["true"], "cwd": "/", "priority": 5000},
                },
            ).status,
            403,
        )
