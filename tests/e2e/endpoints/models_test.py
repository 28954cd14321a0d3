"""One address for all models: requests to /v1/… go to the endpoint that they name as their model."""
import json
import os
import subprocess
import time
import unittest

from endpoints_test import EndpointTest
from rig import SOURCE, poll

SERVER = """
import http.server, json, os
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        auth = self.headers.get("Authorization")
        if "DIES" in os.environ:
            os._exit(1)
        if "REFUSES" in os.environ:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if body.get("stream"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for word in ("one", "two"):
                part = {"choices": [{"index": 0, "delta": {"content": word}}], "object": "chat.completion.chunk"}
                self.wfile.write(b"data: " + json.dumps(part).encode() + b"\\n\\n")
                self.wfile.flush()
            self.wfile.write(b"data: [DONE]\\n\\n")
            self.close_connection = True
            return
        out = json.dumps({"id": "1", "object": "chat.completion", "model": body["model"], "path": self.path, "auth": auth, "served_by": os.environ["BILLOW_ENDPOINT"], "size": len(json.dumps(body)), "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello from " + body["model"]}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)
    do_GET = lambda self: (self.send_response(200), self.send_header("Content-Length", "0"), self.end_headers())
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


class Models(EndpointTest):
    def setUp(self):
        super().setUp()
        with open(self.rig.file("serve.py"), "w", encoding="utf-8") as f:
            f.write(SERVER)
        self.keys = {}
        for name in ("llama", "qwen"):
            self.deploy(name, "--access", "key", "--env-var", f"BILLOW_ENDPOINT={name}")
            self.keys[name] = self.rig.ok("endpoint-key", name, "--name", "ci").text.strip()
        for name in self.keys:
            poll(lambda: self.models(name) == [name], "the key to be known")

    def ask(self, key, path, body=None, method="POST"):
        status, _, text = self.call(
            None,
            path,
            method,
            json.dumps(body) if body is not None else None,
            {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        )
        return status, json.loads(text)

    def models(self, name):
        status, answer = self.ask(self.keys[name], "/v1/models", method="GET")
        return [model["id"] for model in answer["data"]] if status == 200 else status

    def test_a_request_goes_to_the_endpoint_that_it_names(self):
        for name, key in self.keys.items():
            status, answer = self.ask(
                key,
                "/v1/chat/completions",
                {"messages": [{"role": "user", "content": "x" * 200_000}], "model": name},
            )
            self.assertEqual((status, answer["served_by"]), (200, name))
            self.assertEqual(answer["path"], "/v1/chat/completions")
            self.assertIsNone(answer["auth"], "the key is for the gateway, not for the replica")
            self.assertGreater(answer["size"], 200_000)
        poll(lambda: self.figure("llama", "tokens_out") == 3, "the answer's tokens counted")

    def test_what_a_key_does_not_open_does_not_exist(self):
        status, answer = self.ask(self.keys["llama"], "/v1/chat/completions", {"model": "qwen"})
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))
        same, other = self.ask(self.keys["llama"], "/v1/chat/completions", {"model": "nosuch"})
        self.assertEqual(
            (same, other["error"]["message"].replace("nosuch", "qwen")),
            (status, answer["error"]["message"]),
        )
        self.assertEqual(self.ask("wrong", "/v1/chat/completions", {"model": "qwen"})[0], 401)
        self.assertEqual(self.ask(self.keys["qwen"], "/v1/models/llama", method="GET")[0], 404)
        status, model = self.ask(self.keys["qwen"], "/v1/models/qwen", method="GET")
        self.assertEqual(status, 200)
        made = self.endpoint("qwen")["revisions"][-1]["made_at"]
        self.assertEqual(time.strftime("%FT%T", time.gmtime(model["created"])), made[:19])

    def test_a_key_does_not_reach_a_model_that_asks_for_none(self):
        self.deploy("open", "--access", "open", "--env-var", "BILLOW_ENDPOINT=open")
        poll(lambda: "open" in (self.models("llama") or []), "the open one among the models")
        status, answer = self.ask(self.keys["llama"], "/v1/chat/completions", {"model": "open"})
        self.assertEqual((status, answer["served_by"]), (200, "open"))
        self.assertIsNone(answer["auth"])
        status, _, body = self.call(
            "open",
            "/v1/chat/completions",
            "POST",
            json.dumps({"model": "x"}),
            {"Authorization": f"Bearer {self.keys['llama']}"},
        )
        self.assertIsNone(json.loads(body)["auth"], "not by its own path either")

    def test_bad_requests(self):
        key = self.keys["llama"]
        for body in ({}, {"model": 7}, ["llama"]):
            self.assertEqual(self.ask(key, "/v1/chat/completions", body)[0], 400, body)
        status, answer = self.ask(
            key, "/v1/embeddings", {"model": "llama", "input": "x" * (9 << 20)}
        )
        self.assertEqual(status, 413, answer)

    def test_streams(self):
        status, _, body = self.call(
            None,
            "/v1/chat/completions",
            "POST",
            json.dumps({"model": "qwen", "stream": True}),
            {"Authorization": f"Bearer {self.keys['qwen']}"},
        )
        self.assertEqual(status, 200)
        self.assertTrue(body.endswith(b"data: [DONE]\n\n"), body)

    def test_openais_own_client(self):
        folder = os.path.join(SOURCE, "tests/openai")
        if not os.path.isdir(os.path.join(folder, "node_modules/openai")):
            self.skipTest("the packages of tests/openai are not installed")
        host, port = self.gateway()
        self.rig.ok("model", "set", "org/gpt-4o-mini", "--to", "llama")
        self.addCleanup(self.rig.cli, "model", "rm", "org/gpt-4o-mini")
        for model in ("llama", "org/gpt-4o-mini"):
            done = subprocess.run(
                ["node", "ask.mjs", f"http://{host}:{port}/v1", self.keys["llama"], model],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(
                json.loads(done.stdout),
                {
                    "models": ["llama", "org/gpt-4o-mini"],
                    "retrieved": model,
                    "content": f"hello from {model}",
                    "usage": {"prompt_tokens": 5, "completion_tokens": 3},
                    "words": ["one", "two"],
                    "missing": {"status": 404, "code": "model_not_found"},
                },
            )

    def test_a_sleeping_model_wakes(self):
        self.deploy("nap", "--idle", "1s", "--access", "key", "--env-var", "BILLOW_ENDPOINT=nap")
        key = self.keys["nap"] = self.rig.ok("endpoint-key", "nap", "--name", "ci").text.strip()
        poll(lambda: self.models("nap") == ["nap"], "the key to be known")
        poll(lambda: self.figure("nap", "ready") == 0, "sleep", 60)
        self.assertEqual(self.ask(key, "/v1/completions", {"model": "nap"})[0], 200)


if __name__ == "__main__":
    unittest.main()


class Routes(Models):
    """Names of models that lead to several endpoints."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.forget_routes)

    def forget_routes(self):
        for model in self.rig.json("model", "list")["models"]:
            self.rig.ok("model", "rm", model["name"])

    def served_by(self, key, model, times=1):
        answers = []
        for _ in range(times):
            status, answer = self.ask(key, "/v1/chat/completions", {"model": model})
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["model"], model, "the answer's model is untouched")
            answers.append(answer["served_by"])
        return answers

    def test_an_alias_is_a_model(self):
        self.rig.ok("model", "set", "org/gpt-4o-mini", "--to", "llama")
        key = self.keys["llama"]
        self.assertEqual(self.served_by(key, "org/gpt-4o-mini"), ["llama"])
        self.assertEqual(self.models("llama"), ["llama", "org/gpt-4o-mini"])
        self.assertEqual(self.models("qwen"), ["qwen"], "its key opens no endpoint of the route")
        status, answer = self.ask(
            self.keys["qwen"], "/v1/chat/completions", {"model": "org/gpt-4o-mini"}
        )
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))
        self.rig.ok("model", "rm", "org/gpt-4o-mini")
        self.assertEqual(self.models("llama"), ["llama"])

    def test_weights_and_a_key_of_one_of_them(self):
        self.rig.ok("model", "set", "gpt", "--to", "llama=3", "--to", "qwen=1")
        before = {name: self.figure(name, "requests") for name in ("llama", "qwen")}
        answers = self.served_by(self.keys["llama"], "gpt", 8)
        self.assertEqual((answers.count("llama"), answers.count("qwen")), (6, 2))
        for name, more in (("llama", 6), ("qwen", 2)):
            poll(
                lambda: self.figure(name, "requests") == before[name] + more,
                f"the requests that {name} has served",
            )
        # What a key has used counts where its limits are, whoever served.
        self.assertIn("75 %", self.rig.ok("model", "list").text)

    def test_a_fallback_serves_what_an_endpoint_cannot(self):
        self.deploy(
            "sick", "--access", "key", "--env-var", "BILLOW_ENDPOINT=sick", "--env-var", "REFUSES=1"
        )
        self.rig.ok("model", "set", "gpt", "--to", "sick", "--fallback", "llama")
        self.assertEqual(self.served_by(self.keys["llama"], "gpt", 3), ["llama"] * 3)
        self.rig.ok("model", "set", "gpt", "--to", "sick")
        status, _ = self.ask(self.keys["llama"], "/v1/chat/completions", {"model": "gpt"})
        self.assertEqual(status, 404, "this key opens no endpoint of the route any more")

    def test_a_fallback_serves_when_a_replica_dies(self):
        self.deploy(
            "dies", "--access", "key", "--env-var", "BILLOW_ENDPOINT=dies", "--env-var", "DIES=1"
        )
        self.rig.ok("model", "set", "gpt", "--to", "dies", "--fallback", "qwen")
        self.assertEqual(self.served_by(self.keys["qwen"], "gpt"), ["qwen"])

    def test_projects_keep_their_names(self):
        self.rig.ok("project", "create", "rival")
        self.deploy(
            *("rival-chat", "--project", "rival", "--access", "open"),
            *("--env-var", "BILLOW_ENDPOINT=rival-chat"),
        )
        for name in ("llama", "LLAMA"):
            refused = self.rig.cli("model", "set", name, "--to", "rival-chat")
            self.assertNotEqual(refused.code, 0, name)
            self.assertIn("another project's endpoint", refused.errors)
        self.rig.ok("model", "set", "phi", "--to", "rival-chat")
        for name, why in (("phi", "is a model of another project"), ("Llama", "only in case")):
            refused = self.rig.cli("deploy", name, "--", "python3", self.rig.file("serve.py"))
            self.assertNotEqual(refused.code, 0, name)
            self.assertIn(why, refused.errors)
        self.assertEqual(self.served_by(self.keys["llama"], "llama"), ["llama"])

    def test_wrong_routes(self):
        for words in (["--to", "nosuch"], [], ["--to", "llama=0"], ["--to", "llama=x"]):
            self.assertNotEqual(self.rig.cli("model", "set", "gpt", *words).code, 0, words)
        self.assertNotEqual(self.rig.cli("model", "rm", "never-there").code, 0)
        self.assertEqual(self.rig.json("model", "list")["models"], [])
        self.rig.ok("model", "set", "gpt", "--to", "llama")
        kinds = [
            event["kind"]
            for event in self.rig.api("GET", "/v1/events?limit=1000").json.get("events", [])
        ]
        self.assertIn("model_route_set", kinds)


# Each case once: the other class has those of its base.
for name in [name for name in dir(Models) if name.startswith("test_")]:
    setattr(Routes, name, None)
