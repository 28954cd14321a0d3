"""Values of secrets that other servers have, the key of those that the head stores, and what logs
show of both."""
import base64
import hashlib
import os
import random
import re
import threading
import time
import unittest

import cloud_keys
from aws_server import KEY, SECRET, AwsServer
from cloud_server import Answer
from fake_google import FakeGoogle, problem
from fake_vault import FakeVault
from rig import Rig, RigTest, poll
from secrets_test import files_with

VALUE = "vault-Value-" + os.urandom(8).hex()


class SecretManager(FakeGoogle):
    """Google's token endpoint with Secret Manager behind it."""

    stored = {"hf-token": b"google-value-1234"}

    def serve(self, request):
        found = re.fullmatch(
            r"/v1/projects/my-project/secrets/([^/]+)/versions/([^/]+):access", request.path
        )
        if not found:
            return super().serve(request)
        if request.headers.get("authorization", "")[7:] not in self.tokens:
            return problem(401, "authError", "Request had invalid authentication credentials.")
        name, version = found.groups()
        if request.method != "GET" or name not in self.stored or version not in ("latest", "7"):
            return problem(404, "notFound", f"Secret [{name}] not found")
        data = base64.b64encode(self.stored[name]).decode()
        return Answer(200, {"name": request.path, "payload": {"data": data}})


class Backends(RigTest):
    def setUp(self):
        super().setUp()
        self.vault = FakeVault()
        self.addCleanup(self.vault.close)
        self.vault.secrets = {
            "secret/apps/train": {"token": VALUE, "other": "x"},
            "secret/apps/one": {"only": VALUE},
            "secret/apps/gone": None,
        }

    def file(self, name, text):
        path = self.rig.file(name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def add_vault(self, *more, token="hvs.good"):
        self.rig.ok(
            "secret-backend",
            "add",
            "vault",
            "team",
            "--address",
            self.vault.url,
            "--token-file",
            self.file("token", token + "\n"),
            *more,
        )

    def length_in_job(self, name):
        """The length of the value that a job gets: its log shows no values."""
        done = self.rig.cli("run", "--secret", name, "--", "sh", "-c", f"echo ${{#{name}}}")
        return done.text.strip() or done.errors

    def test_vault_is_asked_when_a_job_starts_and_nothing_is_stored(self):
        self.add_vault()
        self.assertIn("token-billow", self.rig.ok("secret-backend", "check", "team").text)
        checked = self.rig.ok("secret-backend", "check", "team", "--path", "apps/train#token").text
        self.assertIn(f"{len(VALUE)} bytes", checked)
        before = self.vault.asked_for()
        self.rig.ok("secret", "set", "T", "--from", "team:apps/train#token")
        self.assertEqual(self.vault.asked_for(), before, "nothing is fetched yet")
        self.assertEqual(self.length_in_job("T"), str(len(VALUE)))
        self.assertEqual(self.vault.asked_for()[-1], "/v1/secret/data/apps/train")
        # A new value counts from the next job on.
        self.vault.secrets["secret/apps/train"]["token"] = VALUE + "-new"
        self.assertEqual(self.length_in_job("T"), str(len(VALUE) + 4))
        self.rig.ok("secret", "set", "ONE", "--from", "team:apps/one")
        self.assertEqual(self.length_in_job("ONE"), str(len(VALUE)))
        listed = self.rig.json("secret", "list")["secrets"]
        self.assertEqual({s["name"]: s["from"] for s in listed}["T"], "team:apps/train#token")
        self.assertEqual(files_with(VALUE, self.rig.data), [])
        self.assertEqual(files_with("hvs.good", self.rig.data), [])
        self.assertEqual(self.vault.mistakes, [])
        refused = self.rig.cli("secret-backend", "remove", "team")
        self.assertIn("T of project default", refused.errors)
        for name in ("T", "ONE"):
            self.rig.ok("secret", "rm", name)
        self.rig.ok("secret-backend", "remove", "team")

    def test_a_token_of_vault_is_renewed_before_it_expires(self):
        self.vault.let_expire("hvs.good", 4)
        self.add_vault()
        poll(lambda: self.vault.renewals >= 3, "three renewals", 40)
        # Longer than the token would have lived, and a restart of the head changes nothing.
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        seen = self.vault.renewals
        poll(lambda: self.vault.renewals > seen, "a renewal by the next head", 40)
        self.rig.ok("secret", "set", "T", "--from", "team:apps/train#token")
        self.assertEqual(self.length_in_job("T"), str(len(VALUE)))
        self.assertEqual(self.vault.mistakes, [])
        self.rig.ok("secret", "rm", "T")
        self.rig.ok("secret-backend", "remove", "team")

    def test_what_vault_refuses_the_job_says(self):
        self.add_vault()
        for name, path, why in (
            ("NONE", "apps/nothing#x", "Vault has nothing at apps/nothing"),
            ("GONE", "apps/gone#x", "Vault has nothing at apps/gone"),
            ("KEY", "apps/train#missing", "has no text named"),
            ("MANY", "apps/train", "has 2 keys"),
        ):
            self.rig.ok("secret", "set", name, "--from", f"team:{path}")
            job = self.rig.submit("--secret", name, "--", "true")
            self.rig.wait_for(job, "failed")
            self.assertIn(why, str(self.rig.job(job)), name)
        # Outside the token's policy, and with a token that has ended.
        self.vault.tokens = {"hvs.good": ("kv/data/",)}
        self.rig.ok("secret", "set", "T", "--from", "team:apps/train#token")
        job = self.rig.submit("--secret", "T", "--", "true")
        self.rig.wait_for(job, "failed")
        self.assertIn("permission denied", str(self.rig.job(job)))
        self.vault.tokens = {}
        self.assertIn("403", self.rig.cli("secret-backend", "check", "team").errors)

    def test_a_short_outage_of_vault_is_waited_for_and_a_long_one_told(self):
        self.add_vault()
        self.rig.ok("secret", "set", "T", "--from", "team:apps/train#token")
        self.vault.once(lambda r: True, Answer(503, {"errors": ["Vault is sealed"]}))
        self.assertEqual(self.length_in_job("T"), str(len(VALUE)))
        self.vault.sealed = True
        job = self.rig.submit("--secret", "T", "--", "true")
        self.rig.wait_for(job, "failed")
        self.assertIn("sealed", str(self.rig.job(job)))

    def test_a_job_that_is_stopped_while_its_value_is_fetched_does_not_run(self):
        self.add_vault()
        self.rig.ok("secret", "set", "T", "--from", "team:apps/train#token")
        asked, go = threading.Event(), threading.Event()

        def slow(_):
            asked.set()
            go.wait(20)

        self.vault.faults.append(slow)
        ran = self.rig.file("ran")
        job = self.rig.submit("--secret", "T", "--", "touch", ran)
        self.assertTrue(asked.wait(20))
        self.rig.ok("stop", "--force", job)
        go.set()
        poll(lambda: self.rig.job(job)["final"], "the end of the job")
        self.vault.faults.clear()
        self.assertEqual(self.length_in_job("T"), str(len(VALUE)))
        self.assertFalse(os.path.exists(ran))

    def test_namespaces_mounts_and_who_may_refer_to_what(self):
        self.rig.ok("project", "create", "vision")
        self.vault.namespace = "ml/team"
        self.vault.tokens = {"hvs.good": ("kv/apps/data/",)}
        self.vault.secrets["kv/apps/vision/key"] = {"k": VALUE}
        self.add_vault("--namespace", "ml/team", "--mount", "kv/apps", "--allow", "vision=vision")
        self.rig.ok("user", "create", "ana", "--unix-name", "nobody")
        self.rig.ok("project", "member", "vision", "ana", "--role", "admin")
        token = self.rig.json("token", "create", "ana", "--user", "ana")["token"]
        for reference, status in (
            ("team:vision/key#k", 200),
            ("team:visionary/key#k", 403),
            ("team:apps/train#token", 403),
            ("team:vision/../apps/train#token", 400),
            ("nothing:vision/key#k", 404),
        ):
            answer = self.rig.api(
                "PUT", "/v1/secrets/K?project=vision", {"from": reference}, token=token
            )
            self.assertEqual(answer.status, status, (reference, answer))
        self.assertEqual(self.rig.api("GET", "/v1/secret-backends", token=token).status, 403)
        done = self.rig.ok("run", "-p", "vision", "--secret", "K", "--", "sh", "-c", "echo ${#K}")
        self.assertEqual(done.text.strip(), str(len(VALUE)))
        self.rig.ok("secret", "rm", "K", "-p", "vision")

    def test_a_narrower_allow_closes_references_that_were_made_before(self):
        self.rig.ok("project", "create", "sight")
        self.rig.ok("user", "create", "eve", "--unix-name", "nobody")
        self.rig.ok("project", "member", "sight", "eve", "--role", "admin")
        token = self.rig.token_for("eve")
        self.vault.secrets["secret/apps/vision/key"] = {"k": VALUE}
        self.add_vault("--allow", "sight=apps")
        for name, path in (("WIDE", "apps/train#token"), ("NARROW", "apps/vision/key#k")):
            body = {"from": f"team:{path}"}
            answer = self.rig.api("PUT", f"/v1/secrets/{name}?project=sight", body, token=token)
            self.assertEqual(answer.status, 200, answer)
        by_admin = ("secret", "set", "ADMINS", "-p", "sight", "--from", "team:apps/one#only")
        self.rig.ok(*by_admin)

        def end_of(name):
            words = ("run", "-p", "sight", "--secret", name, "--", "sh", "-c", f"echo ${{#{name}}}")
            done = self.rig.cli(*words)
            return done.text.strip() or done.errors

        for name in ("WIDE", "NARROW", "ADMINS"):
            self.assertEqual(end_of(name), str(len(VALUE)), name)
        asked = len(self.vault.asked_for())
        token_file = self.file("token", "hvs.good\n")
        words = ("secret-backend", "add", "vault", "team", "--address", self.vault.url)
        narrower = (*words, "--token-file", token_file, "--allow", "sight=apps/vision")
        said = self.rig.ok(*narrower).text
        self.assertIn("secret WIDE of project sight", said)
        self.assertNotIn("NARROW", said)
        self.assertNotIn("ADMINS", said)
        self.assertIn("--allow sight=apps/train", end_of("WIDE"))
        self.assertEqual(len(self.vault.asked_for()), asked, "it was fetched all the same")
        for name in ("NARROW", "ADMINS"):
            self.assertEqual(end_of(name), str(len(VALUE)), name)
        self.rig.ok(*words, "--token-file", token_file, "--allow", "sight=apps")
        self.assertEqual(end_of("WIDE"), str(len(VALUE)))
        for name in ("WIDE", "NARROW", "ADMINS"):
            self.rig.ok("secret", "rm", name, "-p", "sight")

    def test_aws_is_asked_with_signed_requests(self):
        aws = AwsServer()
        self.addCleanup(aws.close)
        aws.secrets = {"prod/hf": '{"token": "aws-value-12"}', "raw": b"raw-bytes-of-aws"}
        keys = self.file(
            "aws", f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
        )
        self.rig.ok(
            *("secret-backend", "add", "aws", "amazon", "--region", "us-east-1"),
            *("--address", aws.url, "--credentials-file", keys),
        )
        self.rig.ok("secret-backend", "check", "amazon", "--path", "prod/hf#token")
        self.rig.ok("secret", "set", "A", "--from", "amazon:prod/hf#token")
        self.assertEqual(self.length_in_job("A"), str(len("aws-value-12")))
        self.rig.ok("secret", "set", "R", "--from", "amazon:raw")
        self.assertEqual(self.length_in_job("R"), str(len("raw-bytes-of-aws")))
        self.assertIn(
            ("secretsmanager", "us-east-1", "secretsmanager.GetSecretValue", {"SecretId": "raw"}),
            aws.requests,
        )
        missing = self.rig.cli("secret-backend", "check", "amazon", "--path", "nothing")
        self.assertIn("nothing at nothing", missing.errors)
        aws.denied.add("GetSecretValue")
        denied = self.rig.cli("secret-backend", "check", "amazon", "--path", "raw")
        self.assertIn("AccessDeniedException", denied.errors)

    def test_google_is_asked_with_a_service_accounts_key(self):
        google = SecretManager()
        self.addCleanup(google.close)
        key = cloud_keys.google_key(google.url + "/token", "secrets-sa.json")
        self.rig.ok(
            *("secret-backend", "add", "google", "gcp", "--project", "my-project"),
            *("--address", google.url, "--credentials-file", key),
        )
        self.rig.ok("secret-backend", "check", "gcp", "--path", "hf-token")
        self.rig.ok("secret", "set", "G", "--from", "gcp:hf-token")
        self.assertEqual(self.length_in_job("G"), str(len("google-value-1234")))
        self.rig.ok("secret-backend", "check", "gcp", "--path", "hf-token/versions/7")
        missing = self.rig.cli("secret-backend", "check", "gcp", "--path", "nothing")
        self.assertIn("nothing at nothing", missing.errors)


class SlowVault(FakeVault):
    """Its first value is on the way until the test lets it arrive."""

    def __init__(self):
        super().__init__()
        self.asked, self.arrives = threading.Event(), threading.Event()

    def serve(self, request):
        answer = super().serve(request)
        if "/data/" in request.path:
            self.asked.set()
            self.arrives.wait(60)
        return answer


class NodeAway(unittest.TestCase):
    """The node disconnects while a value for one of its tasks is fetched."""

    def join(self):
        token = self.rig.ok("token", "create", "--node").text.strip()
        where = ("--data", os.path.join(self.rig.root, "node"), "--node-name", "far")
        address = self.rig.json("status")["addresses"][0]
        self.node = self.rig.start("join", address, "--token", token, *where, "--sim", "1xH100")

    def test_the_value_is_fetched_again_when_it_is_back(self):
        self.rig = Rig(args=("--no-agent",))
        self.addCleanup(self.rig.close)
        vault = SlowVault()
        self.addCleanup(vault.close)
        self.addCleanup(vault.arrives.set)
        vault.secrets = {"secret/apps/train": {"token": VALUE}}
        token_file = self.rig.file("token")
        with open(token_file, "w", encoding="ascii") as f:
            f.write("hvs.good\n")
        add = ("secret-backend", "add", "vault", "team", "--address", vault.url)
        self.rig.ok(*add, "--token-file", token_file)
        self.rig.ok("secret", "set", "T", "--from", "team:apps/train#token")
        self.join()
        poll(lambda: self.rig.json("nodes")["nodes"], "the node", 40)
        job = self.rig.submit("--secret", "T", "--", "sh", "-c", "echo ${#T}")
        self.assertTrue(vault.asked.wait(40))
        self.node.kill()
        self.node.wait()
        poll(lambda: "node far disconnected" in self.rig.head_log(), "its end", 40)
        vault.secrets["secret/apps/train"] = {"token": VALUE + "-new"}
        vault.arrives.set()  # what it was before
        self.join()
        poll(lambda: self.rig.job(job)["final"], "the end of the job", 60)
        self.assertEqual(self.rig.ok("logs", job).text.strip(), str(len(VALUE) + 4))


class Redacted(RigTest):
    def test_logs_do_not_show_values(self):
        value = "hf_" + os.urandom(12).hex()
        self.rig.ok("secret", "set", "TOKEN", stdin=value.encode())
        self.rig.ok("secret", "set", "PIN", stdin=b"12345")
        script = (
            'echo "out $TOKEN $PIN"; echo "err $TOKEN" >&2; printf "%s" "$TOKEN" | base64 -w0;'
            ' echo; printf "%.9s" "$TOKEN"; sleep 0.05; printf "%s\\n" "${TOKEN#?????????}";'
            ' cat "$TOKEN_FILE"; echo; python3 -c "import os, sys, time\n'
            "for c in os.environ['TOKEN']: sys.stdout.write(c); sys.stdout.flush()\""
        )
        done = self.rig.ok(
            *("run", "--secret", "TOKEN", "--secret", "TOKEN:file", "--secret", "PIN"),
            *("--", "bash", "-c", script),
        )
        lines = done.text.split("\n")
        self.assertEqual(lines, ["out *** 12345", "***", "***", "***", "***"], done)
        self.assertIn("err ***", done.errors)
        job = self.rig.json("ps", "-a")["jobs"][0]["id"]
        self.assertIn("out *** 12345", self.rig.ok("logs", job).text)
        self.assertEqual(files_with(value, self.rig.data), [])

    def test_output_that_may_begin_a_value_is_shown_after_a_pause(self):
        self.rig.ok("secret", "set", "TOKEN", stdin=b"abcdefghij")
        job = self.rig.submit(
            "--secret", "TOKEN", "--", "sh", "-c", "printf 'continue? abc'; sleep 1000"
        )
        poll(lambda: self.rig.ok("logs", job).text == "continue? abc", "the prompt")
        self.rig.ok("stop", "--force", "--wait", job)


class KeyRotation(RigTest):
    def key(self):
        with open(os.path.join(self.rig.data, "secrets.key"), encoding="ascii") as f:
            return f.read().split()

    def values(self):
        return {f"S{i}": f"value-{i}-" + "x" * (i % 7) for i in range(240)}

    def check_all(self, values):
        listed = self.rig.json("secret", "list")["secrets"]
        self.assertEqual({s["name"] for s in listed}, set(values))
        self.assertEqual([s for s in listed if "trouble" in s], [])

    def test_a_head_that_is_killed_while_the_key_changes_loses_nothing(self):
        values = self.values()
        for name, value in values.items():
            answer = self.rig.api("PUT", f"/v1/secrets/{name}", {"value": value})
            self.assertEqual(answer.status, 200, answer)
        first = self.key()
        self.assertEqual(len(first), 1)
        seed = random.randrange(10**6)
        chance = random.Random(seed)
        for round in range(6):
            before = self.key()[0]
            ask = threading.Thread(
                target=lambda: self.rig.cli("secret", "rotate-key", timeout=30), daemon=True
            )
            ask.start()
            poll(lambda: self.key()[0] != before or not ask.is_alive(), "the new key")
            time.sleep(chance.random() * 0.1)
            self.rig.kill(self.rig.head_pid())
            ask.join(40)
            self.rig.up()
            with self.subTest(round=round, seed=seed):
                self.check_all(values)
        name, value = chance.choice(sorted(values.items()))
        digest = self.rig.ok(
            "run", "--secret", name, "--", "sh", "-c", f'printf %s "${name}" | sha256sum'
        ).text.split()[0]
        self.assertEqual(digest, hashlib.sha256(value.encode()).hexdigest())
        done = self.rig.json("secret", "rotate-key")
        self.assertEqual(done["lost"], 0)
        self.assertNotEqual(self.key()[0], first[0])
        self.check_all(values)
        # What was set before by whom has not changed.
        self.assertTrue(all(s["set_by"] for s in self.rig.json("secret", "list")["secrets"]))


if __name__ == "__main__":
    unittest.main()
