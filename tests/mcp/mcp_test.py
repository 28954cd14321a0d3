"""`billow mcp` as the official client sees it: its tools, a job from submission to logs, the budget of
its token to the cent, and what waits for a person."""
import http.client
import json
import os
import shutil
import subprocess
import unittest

from rig import BILLOW, Rig, poll

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = {
    "advise",
    "price",
    "run",
    "submit",
    "status",
    "explain",
    "logs",
    "outputs",
    "deploy",
    "stop",
    "costs",
    "list",
}
USD = 1_000_000_000


class McpCase(unittest.TestCase):
    def setUp(self):
        if not shutil.which("node") or not os.path.isdir(os.path.join(HERE, "node_modules")):
            self.skipTest("the npm packages of tests/mcp are not installed")
        self.rig = Rig()
        self.addCleanup(self.rig.close)
        # $0.10 for a second of a GPU.
        self.rig.ok("price", "set", "H100", "--cost", "360")

    def token(self, name="helper", **options):
        given = {"budget": "3", "gpus": "2", "expires": "1h"} | options
        args = [
            word for key, value in given.items() for word in ("--" + key.replace("_", "-"), value)
        ]
        return self.rig.ok("token", "create", "--agent", name, *args).text.split()[0]

    def drive(self, agent_token, *steps, elicit=None, **plan):
        plan = {"command": BILLOW, "args": ["mcp"], "steps": steps, "elicit": elicit} | plan
        environment = self.rig.environment | {
            "BILLOW_TOKEN": agent_token,
            "BILLOW_DATA": self.rig.data,
        }
        done = subprocess.run(
            ["node", os.path.join(HERE, "drive.mjs"), json.dumps(plan)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def one(self, token, tool, arguments, **more):
        return self.drive(token, {"tool": tool, "arguments": arguments}, **more)["results"][0]

    def limits(self, name="helper"):
        tokens = self.rig.api("GET", "/v1/tokens").json["tokens"]
        return next(t["agent"] for t in tokens if t["name"] == name)

    def charged(self, jobs):
        """What the ledger has charged for these jobs, in nano-dollars."""
        total = 0
        for job in jobs:
            total += self.rig.job(job)["cost_nano_usd"]
        return total


class Tools(McpCase):
    def test_the_official_client_lists_tools_runs_a_job_and_reads_its_log(self):
        token = self.token(budget="30")
        done = self.drive(
            token,
            {"list": True},
            {
                "tool": "run",
                "arguments": {
                    "command": ["sh", "-c", "echo hello from $BILLOW_JOB_ID; seq 1 2000"],
                    "options": {"gpus": "1", "time": "60s"},
                    "wait_s": 50,
                },
            },
            {"tool": "list", "arguments": {"all": True}},
            {"tool": "price", "arguments": {"gpu_type": "H100", "gpus": 2, "hours": 0.5}},
            {"tool": "costs", "arguments": {}},
        )
        listed, ran, jobs, price, costs = done["results"]
        self.assertEqual({tool["name"] for tool in listed["tools"]}, TOOLS)
        submit = next(t for t in listed["tools"] if t["name"] == "submit")
        self.assertIn("gpu-type", submit["inputSchema"]["properties"]["options"]["properties"])
        job = ran["structuredContent"]
        self.assertFalse(ran["isError"], ran)
        self.assertEqual(job["state"], "succeeded", job)
        self.assertIn("2000", job["output"])
        self.assertEqual(json.loads(ran["content"][0]["text"]), job)
        self.assertEqual(jobs["structuredContent"]["jobs"][0]["id"], job["id"])
        rate = next(r for r in price["structuredContent"]["rates"] if r["class"] == "on-demand")
        self.assertAlmostEqual(rate["usd"], 360)
        self.assertEqual(costs["structuredContent"]["budget"], "$30.00")
        head, tail, missing = self.drive(
            token,
            {"tool": "logs", "arguments": {"job": job["id"], "offset": 0, "max_bytes": 6}},
            {"tool": "logs", "arguments": {"job": job["id"], "max_bytes": 5}},
            {"tool": "status", "arguments": {"job": 999999}},
        )["results"]
        self.assertEqual(
            head["structuredContent"], {"text": "hello ", "cut": True, "next_offset": 6}
        )
        self.assertEqual(tail["structuredContent"]["text"], "2000\n")
        self.assertTrue(missing["isError"])
        self.assertIn("there is no job 999999", missing["content"][0]["text"])
        events = self.rig.ok("events", "--json").text
        self.assertRegex(events, r'"actor": ?"agent:[^"/]+/helper"')

    def test_streamable_http_asks_for_the_token_and_refuses_other_sites(self):
        token = self.token(budget="30")
        secret = token.split(".")[0]
        env = self.rig.environment | {"BILLOW_TOKEN": token, "BILLOW_DATA": self.rig.data}
        server = subprocess.Popen(
            [BILLOW, "mcp", "--http", "127.0.0.1:0"], env=env, stderr=subprocess.PIPE, text=True
        )
        try:
            url = server.stderr.readline().split()[-1]
            done = self.drive(
                token,
                {"list": True},
                {"tool": "list", "arguments": {}},
                transport="http",
                url=url,
                token=secret,
            )
            self.assertEqual({t["name"] for t in done["results"][0]["tools"]}, TOOLS)
            self.assertFalse(done["results"][1]["isError"])
            at = url.split("/")[2]

            def post(headers, body=b"{}"):
                connection = http.client.HTTPConnection(at, timeout=20)
                connection.request("POST", "/mcp", body, headers)
                return connection.getresponse().status

            bearer = {"Authorization": "Bearer " + secret}
            self.assertEqual(post({}), 401)
            self.assertEqual(post({"Authorization": "Bearer wrong"}), 401)
            self.assertEqual(post(bearer | {"Origin": "https://evil.example"}), 403)
            self.assertEqual(post(bearer | {"Host": "evil.example"}), 403)
            self.assertEqual(post(bearer | {"Origin": "http://localhost:3000"}), 200)
            self.assertEqual(post(bearer | {"MCP-Protocol-Version": "1999-01-01"}), 400)
        finally:
            server.kill()
            server.communicate()
        refused = self.rig.cli("mcp", "--http", "0.0.0.0:0", env={"BILLOW_TOKEN": token})
        self.assertNotEqual(refused.code, 0)

    def test_hostile_input_never_ends_it(self):
        token = self.token()
        lines = [
            b"",
            b"{",
            b"[]",
            b"null",
            b'"x"',
            b"\xff\xfe",
            b'{"jsonrpc":"2.0"}',
            b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
            b'{"jsonrpc":"2.0","id":1,"method":7}',
            b"[" * 5000,
            b"A" * (5 << 20),
            b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"nothing"}}',
            b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"logs","arguments":{"job":"../x"}}}',
            b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"submit","arguments":{"command":[{}]}}}',
            b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[]}',
            b'{"jsonrpc":"2.0","id":"x","result":{}}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}',
            b'{"jsonrpc":"2.0","id":99,"method":"ping"}',
        ]
        env = self.rig.environment | {"BILLOW_TOKEN": token, "BILLOW_DATA": self.rig.data}
        with subprocess.Popen(
            [BILLOW, "mcp"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server:
            server.stdin.write(b"\n".join(lines) + b"\n")
            server.stdin.flush()
            answers = {}
            while 99 not in answers or not {3, 4} <= set(answers):
                answer = json.loads(server.stdout.readline())
                answers[answer.get("id")] = answer
            server.stdin.close()
            self.assertEqual(server.wait(timeout=30), 0)
        self.assertEqual(answers[99]["result"], {})
        self.assertEqual(answers[2]["error"]["code"], -32602)
        self.assertTrue(answers[3]["result"]["isError"])
        self.assertTrue(answers[4]["result"]["isError"])

    def test_a_token_without_limits_is_refused(self):
        refused = self.rig.cli("mcp", stdin=b"")
        self.assertEqual(refused.code, 1)
        self.assertIn("billow token create --agent", refused.errors)


class Budget(McpCase):
    def test_a_job_is_stopped_so_that_it_ends_within_the_budget(self):
        token = self.token(budget="3")  # 30 seconds of one GPU
        made, second = self.drive(
            token,
            {
                "tool": "submit",
                "arguments": {
                    "command": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
                    "options": {"gpus": "1", "time": "30s", "stop-grace": "2s"},
                },
            },
            {
                "tool": "submit",
                "arguments": {"command": ["true"], "options": {"gpus": "1", "time": "10s"}},
            },
        )["results"]
        self.assertFalse(made["isError"], made)
        self.assertTrue(second["isError"], "everything is committed")
        self.assertIn("$0.00 of its $3.00 left", second["content"][0]["text"])
        job = made["structuredContent"]["id"]
        ended = poll(
            lambda: self.rig.job(job) if self.rig.job(job)["final"] else None, "the job ends", 90
        )
        self.assertEqual(ended["state"], "stopped", ended)
        self.assertIn("$3.00", ended["reason"])
        limits = self.limits()
        charged = self.charged([job])
        self.assertEqual(limits["committed_nano_usd"], 0)
        self.assertEqual(limits["spent_nano_usd"], charged, "the token's sum is the ledger's")
        self.assertLessEqual(charged, 3 * USD)
        self.assertGreaterEqual(charged, 2 * USD)
        print(f"charged {charged / USD:.9f} of 3.00 USD", flush=True)

    def test_fifty_submissions_at_once_commit_no_more_than_the_budget(self):
        token = self.token(budget="20", per_job="5", gpus="1")
        step = {
            "tool": "submit",
            "parallel": 8,
            "arguments": {"command": ["sleep", "600"], "options": {"gpus": "1", "time": "40s"}},
        }
        results = self.drive(token, *([step] * 6))["results"]
        accepted = [
            r["structuredContent"]["id"] for part in results for r in part if not r["isError"]
        ]
        self.assertIn(len(accepted), (3, 4), "$4.00 and the time to stop it, of $20.00")
        limits = self.limits()
        self.assertLessEqual(limits["spent_nano_usd"] + limits["committed_nano_usd"], 20 * USD)
        running = [j for j in accepted if self.rig.job(j)["state"] == "running"]
        self.assertLessEqual(len(running), 1, "one GPU at once")
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        again = self.limits()
        self.assertLessEqual(again["spent_nano_usd"] + again["committed_nano_usd"], 20 * USD)
        self.rig.ok("token", "revoke", str(self.number("helper")))
        for job in accepted:
            poll(lambda j=job: self.rig.job(j)["final"], "its jobs end with the token", 60)

    def number(self, name):
        tokens = self.rig.api("GET", "/v1/tokens").json["tokens"]
        return next(t["id"] for t in tokens if t["name"] == name)


class Approvals(McpCase):
    DEAR = {"command": ["true"], "options": {"gpus": "1", "time": "60s"}}  # $6.00

    def test_a_dear_job_waits_for_a_person(self):
        token = self.token(budget="20", per_job="5")
        asked = self.one(token, "submit", self.DEAR)
        self.assertTrue(asked["isError"])
        self.assertIn("A person was asked", asked["content"][0]["text"])
        number = asked["structuredContent"]["error"]["approval"]["id"]
        listed = self.rig.json("approvals", "list")["approvals"]
        self.assertEqual([a["id"] for a in listed], [number])
        mine = self.rig.cli("approvals", "approve", str(number), env={"BILLOW_TOKEN": token})
        self.assertEqual(mine.code, 1, "an agent cannot approve its own request")
        self.rig.ok("approvals", "approve", str(number))
        first, second = self.drive(
            token,
            {"tool": "submit", "arguments": self.DEAR},
            {"tool": "submit", "arguments": self.DEAR},
        )["results"]
        self.assertFalse(first["isError"], first)
        self.assertTrue(second["isError"], "the approval was for one job")

    def test_elicitation_tells_the_person_and_the_head_decides(self):
        token = self.token(budget="20", per_job="5")
        lies = self.drive(
            token, {"tool": "submit", "arguments": self.DEAR}, elicit={"action": "accept"}
        )
        self.assertIn("billow approvals approve 1", lies["asked"][0])
        self.assertTrue(lies["results"][0]["isError"], "a confirmation alone approves nothing")
        approve = [BILLOW, "approvals", "approve", "1", "--data", self.rig.data]
        run = ["env", "-u", "BILLOW_TOKEN"] + approve
        done = self.drive(
            token,
            {"tool": "submit", "arguments": self.DEAR},
            elicit={"action": "accept", "run": run},
        )
        self.assertFalse(done["results"][0]["isError"], done["results"])

    def test_stopping_a_persons_job_and_public_endpoints_wait_for_a_person(self):
        token = self.token(budget="20")
        job = self.rig.submit("--", "sleep", "600")
        stop = {"tool": "stop", "arguments": {"job": job}}
        deploy = {
            "tool": "deploy",
            "arguments": {"name": "web", "command": ["true"], "access": "open"},
        }
        for result in self.drive(token, stop, deploy)["results"]:
            self.assertTrue(result["isError"])
            self.assertIn("approval", result["structuredContent"]["error"])
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.rig.ok("approvals", "approve", "1")
        self.rig.ok("approvals", "deny", "2")
        stopped, refused = self.drive(token, stop, deploy)["results"]
        self.assertFalse(stopped["isError"], stopped)
        self.assertTrue(refused["isError"])
        poll(lambda: self.rig.job(job)["final"], "the job is stopped", 30)


class Attacks(McpCase):
    def test_files_of_the_servers_user_are_out_of_reach(self):
        token = self.token(budget="20", per_job="5")
        with open(self.rig.file("private"), "w", encoding="ascii") as f:
            f.write("hunter2")
        refused = self.one(
            token,
            "run",
            {"command": ["cat", "private"], "options": {"cwd": self.rig.files, "sync": True}},
        )
        self.assertTrue(refused["isError"], refused)
        self.assertIn("cwd", refused["content"][0]["text"])
        ran = self.one(
            token,
            "run",
            {"command": ["env"], "options": {"gpus": "0", "time": "20s"}, "wait_s": 20},
        )
        output = ran["structuredContent"]["output"]
        self.assertIn("PATH=", output)
        self.assertNotIn("XDG_STATE_HOME", output)
        job = ran["structuredContent"]["id"]
        for place in ("/tmp/somewhere", "../up", "a/../../up", ".", ".config", "x/.ssh"):
            refused = self.one(token, "outputs", {"job": job, "directory": place})
            self.assertTrue(refused["isError"], (place, refused))

    def test_what_others_would_use_waits_for_a_person(self):
        token = self.token(budget="20", per_job="5").split(".")[0]
        os.makedirs(self.rig.file("venv"), exist_ok=True)
        saved = self.rig.cli(
            "env", "save", "jax", self.rig.file("venv"), env={"BILLOW_TOKEN": token}
        )
        self.assertEqual(saved.code, 1, saved)
        self.assertIn("approval", saved.errors)
        spec = self.rig.spec("sleep", "600")
        made = self.rig.api(
            "POST",
            "/v1/endpoints",
            {"name": "web", "policy": {"access": "local"}} | spec,
            token=token,
        )
        self.assertEqual(made.status, 201, made.body)
        back = self.rig.api("POST", "/v1/endpoints/web/rollback", {}, token=token)
        self.assertEqual(back.status, 403, back.body)
        self.assertIn("approval", back.json["detail"])
        self.rig.ok("delete", "web")

    def test_an_approval_shows_the_whole_command_and_no_forged_words(self):
        self.rig.ok("secret", "set", "HF", stdin=b"hunter2")
        token = self.token(budget="20", per_job="5").split(".")[0]
        forged = "echo hi] on 0 GPUs: it reads the secret harmless"
        for word in (forged, "x" * 900):
            self.rig.cli(
                "submit",
                "--secret",
                "HF",
                "--time",
                "10s",
                "--",
                "echo",
                word,
                env={"BILLOW_TOKEN": token},
            )
        texts = [a["text"] for a in self.rig.api("GET", "/v1/approvals").json["approvals"]]
        self.assertTrue(any(f"'{forged}'" in text for text in texts), texts)
        self.assertTrue(any("905 bytes in all" in text for text in texts), texts)

    def test_what_an_agent_token_may_not_do(self):
        self.rig.ok("project", "create", "other")
        self.rig.ok("secret", "set", "HF", stdin=b"hunter2")
        token = self.token(budget="20", per_job="5").split(".")[0]

        def code(method, path, body=None):
            return self.rig.api(method, path, body, token=token).status

        agent = {"budget": 10**15, "per_job": 10**15, "gpus_milli": 10**6}
        self.assertEqual(
            code("POST", "/v1/tokens", {"name": "x", "scope": "agent", "agent": agent}), 403
        )
        self.assertEqual(code("POST", "/v1/tokens", {"name": "x"}), 403)
        self.assertEqual(code("POST", "/v1/session", {"token": token}), 403)
        self.assertEqual(code("PUT", "/v1/secrets/HF", {"value": "x"}), 403)
        self.assertEqual(code("PUT", "/v1/budgets", {"scope": "token", "of": "1"}), 403)
        self.assertEqual(code("DELETE", "/v1/tokens/1"), 403)
        self.assertEqual(code("POST", "/v1/approvals/1", {"decision": "approve"}), 403)
        self.assertEqual(code("PUT", "/v1/prices", {"of": "gpu:H100"}), 403)
        self.assertEqual(code("POST", "/v1/reservations", {}), 403)
        self.assertEqual(code("GET", "/v1/events"), 403)
        body = self.rig.spec("true") | {"project": "other"}
        self.assertEqual(code("POST", "/v1/jobs", body), 403)
        tokens = self.rig.api("GET", "/v1/tokens", token=token).json["tokens"]
        self.assertEqual([t["name"] for t in tokens], ["helper"])
        mine = self.rig.submit("--", "sleep", "600")
        for path in ("suspend", "signal", "keepalive", "rerun", "files"):
            status = code(
                "POST", f"/v1/jobs/{mine}/{path}", {"signal": 9} if path == "signal" else {}
            )
            self.assertIn(status, (403, 404), path)
        self.assertNotEqual(code("GET", f"/v1/jobs/{mine}/tunnel"), 101)
        secret = self.rig.cli(
            "submit", "--secret", "HF", "--time", "10s", "--", "env", env={"BILLOW_TOKEN": token}
        )
        self.assertEqual(secret.code, 1)
        self.assertIn("approval", secret.errors)
        raised = self.rig.cli(
            "submit", "--priority", "5", "--", "true", env={"BILLOW_TOKEN": token}
        )
        self.assertEqual(raised.code, 1)

    def test_arrays_gangs_and_schedules_stay_within_the_budget(self):
        token = self.token(budget="10", per_job="10", gpus="2")

        def submit(*args):
            return self.rig.cli("submit", *args, env={"BILLOW_TOKEN": token}).code

        self.assertEqual(
            submit("--gpus", "1", "--time", "30s", "--array", "0-9", "--", "sleep", "600"), 1
        )
        self.assertEqual(submit("--gpus", "2", "--nodes", "2", "--time", "9s", "--", "true"), 1)
        self.assertEqual(
            submit("--gpus", "1", "--time", "30s", "--array", "0-1", "--", "sleep", "600"), 0
        )
        self.assertEqual(submit("--gpus", "1", "--time", "90s", "--", "true"), 1)
        path = self.rig.file("group.toml")
        with open(path, "w", encoding="ascii") as file:
            file.write(
                '[job]\ncommand = "sleep 600"\ntime = "30s"\n[[role]]\nname = "a"\ngpus = 1\n'
                '[[role]]\nname = "b"\ngpus = 1\ncount = 2\n'
            )
        self.assertEqual(submit(path), 1, "three members for 30 s cost $9.00, and less is left")
        limits = self.limits()
        self.assertLessEqual(limits["spent_nano_usd"] + limits["committed_nano_usd"], 10 * USD)


if __name__ == "__main__":
    unittest.main()
