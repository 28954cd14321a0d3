"""The HTTP API by itself: pages, problems, idempotency, events, and the OpenAPI file held against
the real routes and answers."""
import json
import os
import subprocess
import unittest

from json_schema import Schemas
from rig import RigTest, poll, sse_events


class Pages(RigTest):
    def test_walk_through_250_jobs_each_once(self):
        numbers = [
            self.rig.api("POST", "/v1/jobs", self.rig.spec("true", name="page")).json["id"]
            for _ in range(250)
        ]
        poll(lambda: not self.rig.api("GET", "/v1/jobs").json["jobs"], "the end of them all", 60)
        seen, cursor, pages = [], "", 0
        while True:
            answer = self.rig.api(
                "GET", f"/v1/jobs?state=all&name=page&limit=40&cursor={cursor}"
            ).json
            pages += 1
            self.assertLessEqual(len(answer["jobs"]), 40)
            seen += [j["id"] for j in answer["jobs"]]
            cursor = answer["next"]
            if not cursor:
                break
        self.assertEqual(seen, sorted(numbers, reverse=True))
        self.assertEqual(pages, 7)
        listed = self.rig.json("ps", "-a", "--name", "page", "--limit", 250)["jobs"]
        self.assertEqual([j["id"] for j in listed], seen)

    def test_of_events_follow_the_journal(self):
        self.rig.ok("run", "--", "true")
        events, after = [], 0
        while True:
            page = self.rig.api("GET", f"/v1/events?after={after}&limit=7").json
            events += page["events"]
            if not page["events"]:
                break
            after = page["next"]
        self.assertEqual([e["seq"] for e in events], list(range(1, len(events) + 1)))
        kinds = [e["kind"] for e in events]
        for wanted in ("job_placed", "task_ended", "job_ended"):
            self.assertIn(wanted, kinds)
        self.assertTrue(all(e["actor"] for e in events))
        submitted = next(e for e in events if e["kind"] == "jobs_submitted")
        self.assertEqual(submitted["actor"], "user:root")


class Problems(RigTest):
    def check(self, answer, status, code, words=""):
        self.assertEqual(answer.status, status, answer)
        self.assertTrue(
            answer.headers["content-type"].startswith("application/problem+json"), answer.headers
        )
        document = answer.json
        self.assertEqual((document["status"], document["code"]), (status, code))
        for field in ("type", "title", "detail", "request_id"):
            self.assertTrue(document[field], field)
        self.assertEqual(answer.headers["x-request-id"], document["request_id"])
        self.assertIn(words, document["detail"] + document.get("hint", ""))

    def test_have_one_shape(self):
        api = self.rig.api
        self.check(api("GET", "/v1/jobs/999999"), 404, "not_found", "999999")
        self.check(api("GET", "/v1/jobs/abc"), 400, "invalid", "abc")
        self.check(api("GET", "/v1/nowhere"), 404, "not_found", "/v1/nowhere")
        self.check(api("GET", "/v1/jobs?state=happy"), 400, "invalid", "happy")
        self.check(api("GET", "/v1/jobs?limit=0"), 400, "invalid")
        self.check(api("GET", "/v1/jobs?cursor=xyz"), 400, "invalid", "cursor")
        self.check(api("POST", "/v1/jobs", b"{"), 400, "invalid")
        self.check(api("POST", "/v1/jobs", b"[]"), 400, "invalid", "object")
        self.check(api("POST", "/v1/jobs", {"spec": {"argv": []}}), 400, "invalid")
        self.check(
            api("POST", "/v1/jobs", {"spec": {"argv": ["true"], "colour": "blue"}}),
            400,
            "invalid",
            "colour",
        )
        self.check(api("POST", "/v1/jobs", {"spec": {"argv": "true"}}), 400, "invalid", "argv")
        self.check(
            api("POST", "/v1/jobs", {"spec": {"argv": ["true"]}, "project": "defalt"}),
            404,
            "not_found",
            "default",
        )
        self.check(api("GET", "/v1/status", token=""), 401, "unauthorized", "token")
        self.check(api("GET", "/v1/status", token="bw_wrong"), 401, "unauthorized")
        self.check(api("POST", "/v1/users", {"name": "bad name!"}), 400, "invalid", "bad name!")
        self.assertEqual(api("PATCH", "/v1/jobs").status // 100, 4)
        self.assertEqual(api("DELETE", "/v1/status").status, 405)
        self.assertEqual(api("GET", "/v1/jobs").json["jobs"], [])

    def test_carry_the_callers_request_id(self):
        answer = self.rig.api("GET", "/v1/jobs/4711", headers={"X-Request-Id": "mine-42"})
        self.assertEqual(
            (answer.json["request_id"], answer.headers["x-request-id"]), ("mine-42", "mine-42")
        )


class Streams(RigTest):
    def test_logs_resume_by_offset(self):
        # Not by `submit`, which asks for both streams as one.
        job = self.rig.api(
            "POST",
            "/v1/jobs",
            self.rig.spec("sh", "-c", "echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three"),
        ).json["id"]
        self.rig.ok("wait", job)
        events = sse_events(self.rig.api("GET", f"/v1/jobs/{job}/logs?format=sse").body)
        self.assertEqual([e[0] for e in events], ["out", "err", "out", "end"])
        self.assertEqual(json.loads(events[-1][2])["id"], job)
        rest = sse_events(
            self.rig.api(
                "GET", f"/v1/jobs/{job}/logs?format=sse", headers={"Last-Event-ID": events[0][1]}
            ).body
        )
        self.assertEqual(rest, events[1:])
        self.assertEqual(self.rig.api("GET", f"/v1/jobs/{job}/logs").body, b"one\ntwo\nthree\n")

    def test_idempotency_over_the_api(self):
        first = self.rig.api(
            "POST", "/v1/jobs", self.rig.spec("true"), headers={"Idempotency-Key": "k"}
        )
        again = self.rig.api(
            "POST", "/v1/jobs", self.rig.spec("true"), headers={"Idempotency-Key": "k"}
        )
        self.assertEqual((first.status, first.json["id"]), (201, again.json["id"]))
        self.assertEqual(
            self.rig.api(
                "POST", "/v1/jobs", self.rig.spec("true"), headers={"Idempotency-Key": "x" * 300}
            ).status,
            400,
        )


class OpenApi(RigTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.document = cls.rig.api("GET", "/v1/openapi.json", token="").json
        cls.schemas = Schemas(cls.document)

    def test_names_exactly_the_routes_there_are(self):
        printed = subprocess.run(
            [os.environ["BILLOW_ROUTES"]], capture_output=True, check=True, text=True
        ).stdout
        real = {tuple(line.split(" ", 1)) for line in printed.splitlines()}
        described = {
            (method.upper(), path)
            for path, item in self.document.get("paths", {}).items()
            for method in item
            if method in ("get", "put", "post", "delete", "patch", "head", "options")
        }
        self.assertEqual(sorted(real - described - {("GET", "/")}), [], "not described")
        self.assertEqual(sorted(described - real), [], "described, but not there")
        self.assertTrue(self.document["openapi"].startswith("3.1"))

    def operation(self, method, path):
        return self.document["paths"][path][method.lower()]

    def hold(self, method, pattern, answer):
        """The answer against the schema that its status and content type have in the file."""
        responses = self.operation(method, pattern)["responses"]
        response = (
            responses.get(str(answer.status))
            or responses.get(f"{answer.status // 100}XX")
            or responses.get("default")
        )
        self.assertTrue(response, f"{method} {pattern}: {answer.status} is not described")
        response = self.schemas.resolve(response)
        kind = answer.headers["content-type"].split(";")[0]
        self.assertIn(kind, response.get("content", {}), f"{method} {pattern} {answer.status}")
        self.assertEqual(
            self.schemas.problems(response["content"][kind]["schema"], answer.json),
            [],
            f"{method} {pattern} {answer.status}",
        )

    def test_real_answers_fit_its_schemas(self):
        rig = self.rig
        node = rig.json("nodes")["nodes"][0]["name"]
        gpu_job = rig.submit("--gpus", 2, "--label", "a=b", "--", "sleep", "600")
        rig.wait_for(gpu_job, "running")
        blocked = rig.submit("--gpus", 8, "--", "true")
        failed = rig.submit("--", "sh", "-c", "exit 3")
        array = rig.submit("--array", "0-2", "--", "true")
        rig.cli("wait", failed)
        rig.cli("wait", array)
        calls = [("GET", "/healthz", "/healthz", None), ("GET", "/v1/status", "/v1/status", None)]
        for job in (gpu_job, blocked, failed, array, array + 1):
            calls += [
                ("GET", "/v1/jobs/{id}", f"/v1/jobs/{job}", None),
                ("GET", "/v1/jobs/{id}/wait", f"/v1/jobs/{job}/wait?timeout_s=0", None),
                ("GET", "/v1/jobs/{id}/explain", f"/v1/jobs/{job}/explain", None),
            ]
        calls += [
            ("GET", "/v1/jobs", "/v1/jobs", None),
            ("GET", "/v1/jobs", "/v1/jobs?state=all&expand=1", None),
            ("GET", "/v1/jobs", "/v1/jobs?state=odd", None),
            ("GET", "/v1/nodes", "/v1/nodes", None),
            ("GET", "/v1/nodes/{name}", f"/v1/nodes/{node}", None),
            ("GET", "/v1/nodes/{name}", "/v1/nodes/none", None),
            ("POST", "/v1/nodes/{name}/drain", f"/v1/nodes/{node}/drain", {"reason": "test"}),
            ("POST", "/v1/nodes/{name}/undrain", f"/v1/nodes/{node}/undrain", {}),
            ("DELETE", "/v1/nodes/{name}", f"/v1/nodes/{node}", None),
            ("GET", "/v1/events", "/v1/events?limit=1000", None),
            ("POST", "/v1/projects", "/v1/projects", {"name": "vision", "weight": 5}),
            ("GET", "/v1/projects", "/v1/projects", None),
            (
                "POST",
                "/v1/users",
                "/v1/users",
                {"name": "ana", "unix_name": "nobody", "role": "member"},
            ),
            ("GET", "/v1/users", "/v1/users", None),
            (
                "PUT",
                "/v1/projects/{project}/members/{user}",
                "/v1/projects/vision/members/ana",
                {"role": "viewer"},
            ),
            (
                "DELETE",
                "/v1/projects/{project}/members/{user}",
                "/v1/projects/vision/members/ana",
                None,
            ),
            ("POST", "/v1/tokens", "/v1/tokens", {"name": "t", "scope": "read"}),
            (
                "POST",
                "/v1/users/{user}/tokens",
                "/v1/users/ana/tokens",
                {"name": "t", "scope": "read"},
            ),
            ("PUT", "/v1/users/{user}", "/v1/users/ana", {"role": "viewer"}),
            ("GET", "/v1/tokens", "/v1/tokens", None),
            ("DELETE", "/v1/tokens/{id}", "/v1/tokens/999", None),
            (
                "POST",
                "/v1/schedules",
                "/v1/schedules",
                {"name": "s", "cron": "0 3 * * *", "spec": {"argv": ["true"]}},
            ),
            ("GET", "/v1/schedules", "/v1/schedules", None),
            ("DELETE", "/v1/schedules/{name}", "/v1/schedules/s", None),
            ("POST", "/v1/jobs", "/v1/jobs", rig.spec("true")),
            (
                "POST",
                "/v1/jobs",
                "/v1/jobs",
                rig.spec("true", resources={"gpus": 9, "share": {"milli": 1000}}),
            ),
            ("POST", "/v1/jobs", "/v1/jobs", b"{"),
            ("POST", "/v1/jobs/{id}/signal", f"/v1/jobs/{gpu_job}/signal", {"signal": 28}),
            ("POST", "/v1/jobs/{id}/signal", f"/v1/jobs/{failed}/signal", {"signal": 15}),
            ("POST", "/v1/jobs/{id}/stop", f"/v1/jobs/{gpu_job}/stop", {"force": True}),
            ("POST", "/v1/jobs/{id}/stop", f"/v1/jobs/{blocked}/stop", {}),
        ]
        for method, pattern, target, body in calls:
            with self.subTest(f"{method} {target}"):
                self.hold(method, pattern, rig.api(method, target, body))

    def test_its_own_examples_and_references_hold(self):
        text = json.dumps(self.document)
        for reference in {part.split('"')[0] for part in text.split('"$ref": "')[1:]}:
            self.assertTrue(self.schemas.resolve({"$ref": reference}), reference)


class Validator(unittest.TestCase):
    def test_can_fail(self):
        schemas = Schemas({"components": {"schemas": {"N": {"type": "integer", "minimum": 3}}}})
        schema = {
            "type": "object",
            "required": ["n"],
            "additionalProperties": False,
            "properties": {"n": {"$ref": "#/components/schemas/N"}},
        }
        self.assertEqual(schemas.problems(schema, {"n": 3}), [])
        for wrong in ({}, {"n": 2}, {"n": "3"}, {"n": 3, "m": 1}, [], None):
            self.assertTrue(schemas.problems(schema, wrong), wrong)
        with self.assertRaises(AssertionError):
            schemas.problems({"notAKeyword": 1}, 1)
