"""People and CI jobs sign in with the accounts of a real OpenID provider: every way there is, and
every forgery that is known."""

import base64
import hashlib
import hmac
import http.server
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse

import oidc
from rig import Rig, poll

WHY_NOT = oidc.usable()


def url64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class WithProvider(unittest.TestCase):
    """One head and one provider for all cases of a class."""

    @classmethod
    def setUpClass(cls):
        if WHY_NOT:
            raise unittest.SkipTest(WHY_NOT)
        cls.rig = Rig()
        cls.addClassCleanup(cls.rig.close)
        cls.head = "http://{}:{}".format(*cls.rig.address())
        cls.provider = oidc.Provider(cls.rig.root, [cls.head + "/v1/auth/callback"])
        cls.addClassCleanup(cls.provider.close)
        cls.rig.ok("project", "create", "vision")
        cls.rig.ok("project", "create", "speech")
        cls.add()

    @classmethod
    def add(cls, *more):
        cls.rig.ok(
            "auth",
            "add",
            "oidc",
            "--name",
            "company",
            "--issuer",
            cls.provider.issuer,
            "--client-id",
            "billow",
            "--client-secret-file",
            cls.provider.secret_file,
            "--map",
            "ml=vision:member",
            "--map",
            "leads=vision:admin",
            "--map",
            "cn=voice,ou=x=speech:viewer",
            "--map",
            "ops=*:admin",
            *more,
        )

    def login(self, name, *options, config=None):
        """`billow login` in a browser: how it ended, and where its context is kept."""
        config = config or tempfile.mkdtemp(dir=self.rig.root)
        process = self.rig.start(
            "login", self.head, "--no-browser", *options, env={"XDG_CONFIG_HOME": config}
        )
        lines = []
        while True:
            line = process.stderr.readline().decode()
            lines.append(line)
            if "http" in line and "?" in line:
                break
            if not line:
                raise AssertionError("".join(lines))
        back = []

        def stop(url):
            if "/callback?" in url:
                back.append(url)
            return bool(back)

        browser = oidc.Browser()
        browser.sign_in(line.strip(), name, stop)
        browser.request("GET", back[0])
        out, err = process.communicate(timeout=60)
        return process.returncode, out.decode() + err.decode(), config

    def context(self, config):
        with open(os.path.join(config, "billow/contexts.json"), encoding="utf-8") as f:
            contexts = json.load(f)
        return contexts[contexts["current"]]["token"]

    def projects(self, user):
        listed = self.rig.json("project", "list")["projects"]
        return {p["name"]: p["members"][user] for p in listed if user in p["members"]}


class People(WithProvider):
    def test_by_browser(self):
        self.provider.person("ana", groups=["ml", "cn=voice,ou=x"])
        code, text, config = self.login("ana")
        self.assertEqual(code, 0, text)
        self.assertIn("as ana", text)
        self.assertEqual(self.projects("ana"), {"vision": "member", "speech": "viewer"})
        token = self.context(config)
        mine = self.rig.api("GET", "/v1/status", token=token).json["you"]
        self.assertEqual(mine["user"], "ana")
        # Nothing secret in the logs.
        log = self.rig.head_log()
        self.assertNotIn(token, log)
        self.assertNotIn("a secret of the client", log)
        listed = [t for t in self.rig.json("token", "list")["tokens"] if t["user"] == "ana"]
        self.assertEqual(listed[0]["name"], "login.company")
        self.assertIn("last_used_at", listed[0])
        # Other groups, other rights, at the next sign-in.
        self.provider.person("ana", groups=["leads"])
        code, text, _ = self.login("ana")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.projects("ana"), {"vision": "admin"})

    def test_by_device_code(self):
        self.provider.person("dora", groups=["ml"])
        config = tempfile.mkdtemp(dir=self.rig.root)
        process = self.rig.start("login", self.head, "--device", env={"XDG_CONFIG_HOME": config})
        line = process.stderr.readline().decode()
        where, code = re.search(r"open (\S+) and enter the code (\S+)", line).groups()
        oidc.Browser().sign_in(where, "dora", lambda url: False, user_code=code)
        out, err = process.communicate(timeout=90)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertEqual(self.projects("dora"), {"vision": "member"})

    def test_ctrl_c_while_a_code_is_waited_for(self):
        config = tempfile.mkdtemp(dir=self.rig.root)
        process = self.rig.start("login", self.head, "--device", env={"XDG_CONFIG_HOME": config})
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, -signal.SIGINT, err)
        self.assertIn(b"you are not signed in", err)
        self.assertEqual(os.listdir(config), [])

    def test_in_the_dashboard(self):
        self.provider.person("bea", groups=["ml"])
        browser = oidc.Browser()
        at = browser.sign_in(
            self.head + "/v1/auth/login?provider=company", "bea", lambda url: "#code=" in url
        )
        self.assertTrue(at.startswith(self.head + "/#code="), at)
        code = at.split("#code=")[1]
        answer = self.rig.api("POST", "/v1/session", {"code": code}, token="", tcp=True)
        self.assertEqual(answer.status, 201, answer)
        # Once.
        answer = self.rig.api("POST", "/v1/session", {"code": code}, token="", tcp=True)
        self.assertEqual(answer.status, 401, answer)

    def test_without_a_mapped_group_nobody_gets_in(self):
        for groups in (["ML"], ["ml "], ["ml\n"], ["ml=vision:admin"], ["*"], [""], [], "ml2"):
            self.provider.person("mallory", groups=groups)
            code, text, _ = self.login("mallory")
            self.assertNotEqual(code, 0, (groups, text))
            self.assertIn("gives you access", text)
        names = [u["name"] for u in self.rig.json("user", "list")["users"]]
        self.assertNotIn("mallory", names)

    def test_nobody_becomes_somebody_else_by_a_name(self):
        self.rig.ok("user", "create", "carl", "--unix-name", "games")
        for name in ("carl", "games", "root", "daemon", "nobody", "../carl", "carl/x"):
            self.provider.person("thief", groups=["ml"], preferred_username=name)
            code, text, _ = self.login("thief")
            self.assertNotEqual(code, 0, (name, text))
        # Until an admin says so.
        self.rig.ok("user", "set", "carl", "--login", "company/thief")
        code, text, _ = self.login("thief")
        self.assertEqual(code, 0, text)
        self.assertIn("as carl", text)
        founder = self.rig.json("status")["you"]["user"]
        done = self.rig.cli("user", "set", founder, "--login", "company/thief")
        self.assertNotEqual(done.code, 0, done)

    def test_a_disabled_user_stays_out(self):
        self.provider.person("gus", groups=["ml"])
        code, text, config = self.login("gus")
        self.assertEqual(code, 0, text)
        self.rig.ok("user", "set", "gus", "--disable")
        answer = self.rig.api("GET", "/v1/status", token=self.context(config))
        self.assertEqual(answer.status, 401)
        code, text, _ = self.login("gus")
        self.assertNotEqual(code, 0, text)
        self.assertIn("disabled", text)


class Renewal(WithProvider):
    def test_what_the_provider_takes_away_ends(self):
        self.add("--check", "1s", "--life", "1m")
        self.provider.person("ana", groups=["ml", "ops"])
        code, text, config = self.login("ana")
        self.assertEqual(code, 0, text)
        token = self.context(config)
        made = self.rig.api("POST", "/v1/tokens", {"name": "own"}, token=token).json["token"]
        first = self.rig.api("GET", "/v1/tokens", token=token).json["tokens"]
        ends = {t["name"]: t["expires_at"] for t in first}

        def look(secret=token):
            return self.rig.api("GET", "/v1/tokens", token=secret)

        # Used, it lasts longer.
        poll(
            lambda: {t["name"]: t["expires_at"] for t in look().json["tokens"]}["login.company"]
            > ends["login.company"],
            "the token is renewed",
            60,
        )
        # A group less.
        self.provider.person("ana", groups=["ml"])
        poll(
            lambda: self.rig.api("GET", "/v1/status", token=token).json["you"]["role"] == "member",
            "no admin any more",
            60,
        )
        # Disabled at the provider: the token ends, with all that was made with it.
        self.provider.person("ana", groups=["ml"], disabled=True)
        poll(lambda: look().status == 401, "the token has ended", 60)
        self.assertEqual(look(made).status, 401)

    def test_a_provider_that_is_removed_takes_its_tokens_along(self):
        self.add()
        self.provider.person("rita", groups=["ml"])
        code, text, config = self.login("rita")
        self.assertEqual(code, 0, text)
        self.rig.ok("auth", "rm", "company")
        answer = self.rig.api("GET", "/v1/status", token=self.context(config))
        self.assertEqual(answer.status, 401)
        self.assertEqual(self.rig.json("auth", "list")["providers"], [])
        self.add()


class Attacks(WithProvider):
    """Against the sign-in itself."""

    def start(self, **changes):
        body = {
            "provider": "company",
            "redirect": "http://127.0.0.1:9/callback",
            "challenge": "c" * 43,
            **changes,
        }
        return self.rig.api("POST", "/v1/auth/start", body, token="", tcp=True)

    def finish(self, **body):
        body = {"state": "", "code": "", "verifier": "", **body}
        return self.rig.api("POST", "/v1/auth/finish", body, token="", tcp=True)

    def code_for(self, name, challenge):
        begun = self.start(challenge=challenge).json
        at = oidc.Browser().sign_in(begun["url"], name, lambda url: "/callback?" in url)
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(at).query))
        return begun, query

    def test_the_browser_is_sent_nowhere_else(self):
        for redirect in (
            "https://evil.example/callback",
            "http://127.0.0.1:9@evil.example/callback",
            "http://127.0.0.1.evil.example:9/callback",
            "http://127.0.0.1:9/other",
            "http://127.0.0.1:99999/callback",
            "http://localhost:9/callback",
            "javascript:alert(1)//callback",
            "",
        ):
            self.assertEqual(self.start(redirect=redirect).status, 400, redirect)
        answer = self.rig.api(
            "GET",
            "/v1/auth/login?provider=company&redirect=https://evil.example",
            token="",
            tcp=True,
        )
        self.assertEqual(answer.status, 302)
        self.assertTrue(answer.headers["location"].startswith(self.provider.issuer))
        self.assertNotIn("evil", answer.headers["location"])
        self.assertEqual(self.start(provider="nobody").status, 404)

    def test_a_code_works_once_and_only_for_the_program_that_began(self):
        self.provider.person("ana", groups=["ml"])
        verifier = "v" * 64
        challenge = url64(hashlib.sha256(verifier.encode()).digest())
        begun, query = self.code_for("ana", challenge)
        # Another state, another verifier, another provider's answer.
        self.assertEqual(self.finish(state="x" * 32, code=query["code"]).status, 401)
        wrong = self.finish(
            state=begun["state"], code=query["code"], verifier="w" * 64, iss=self.provider.issuer
        )
        self.assertEqual(wrong.status, 401, wrong)
        begun, query = self.code_for("ana", challenge)
        mixed = self.finish(
            state=begun["state"], code=query["code"], verifier=verifier, iss="https://evil.example"
        )
        self.assertEqual(mixed.status, 401, mixed)
        begun, query = self.code_for("ana", challenge)
        good = {"state": begun["state"], "code": query["code"], "verifier": verifier}
        self.assertEqual(self.finish(**good, iss=query.get("iss", "")).status, 201)
        self.assertEqual(self.finish(**good).status, 401)
        # The same code with a new state: the provider has used it up, and the nonce is another.
        begun = self.start(challenge=challenge).json
        again = self.finish(**{**good, "state": begun["state"]}, iss=self.provider.issuer)
        self.assertEqual(again.status, 401, again)

    def test_a_browser_is_signed_in_by_nobody_else(self):
        self.provider.person("ana", groups=["ml"])
        attacker = oidc.Browser()
        at = attacker.sign_in(
            self.head + "/v1/auth/login?provider=company", "ana", lambda url: "/callback?" in url
        )
        # The victim's browser has no cookie of this sign-in.
        status, _, text = oidc.Browser().request("GET", at)
        self.assertEqual(status, 401, text)
        self.assertNotIn("<", text)

    def test_only_addresses_that_are_safe_can_be_trusted(self):
        for issuer in ("http://id.example", "ftp://x", "https://user@id.example", "id.example", ""):
            body = {"issuer": issuer, "client_id": "x", "map": ["a=vision:member"]}
            answer = self.rig.api("PUT", "/v1/auth/providers/bad", body)
            self.assertEqual(answer.status, 400, (issuer, answer))
        # Another admin's provider leads only outwards.
        self.rig.ok("user", "create", "ines", "--role", "admin")
        token = self.rig.token_for("ines")
        body = {"issuer": self.provider.issuer, "client_id": "x", "map": ["a=vision:member"]}
        answer = self.rig.api("PUT", "/v1/auth/providers/bad", body, token=token)
        self.assertEqual(answer.status, 400, answer)
        for bad in ("a=vision", "=vision:member", "a=vision:owner", "a=none:member", "a"):
            body = {"issuer": self.provider.issuer, "client_id": "x", "map": [bad]}
            answer = self.rig.api("PUT", "/v1/auth/providers/bad", body)
            self.assertIn(answer.status, (400, 404), (bad, answer))
        members = self.rig.token_for("ines", scope="read")
        self.assertEqual(
            self.rig.api("PUT", "/v1/auth/providers/bad", body, token=members).status, 403
        )


class CiSystem:
    """An issuer of ID tokens for CI jobs, with keys of its own (made by the openssl program)."""

    def __init__(self, directory):
        self.directory, self.keys = directory, {}
        self.make("one")
        system = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path.startswith("/token"):
                    body = {"value": system.token()}
                    if self.headers.get("Authorization") != "Bearer key of the job":
                        body = {}
                elif self.path.endswith("openid-configuration"):
                    body = {"issuer": system.issuer, "jwks_uri": system.issuer + "/jwks"}
                else:
                    body = {"keys": [system.jwk(name) for name in system.keys]}
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def path(self, name):
        return os.path.join(self.directory, f"ci-{name}.pem")

    def make(self, name, publish=True):
        options = ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self.path(name)]
        subprocess.run(["openssl", "genpkey", *options], check=True, capture_output=True)
        if publish:
            self.keys[name] = True

    def jwk(self, name):
        text = subprocess.run(
            ["openssl", "rsa", "-in", self.path(name), "-noout", "-modulus"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        modulus = bytes.fromhex(text.strip().split("=")[1])
        return {"kty": "RSA", "kid": name, "alg": "RS256", "n": url64(modulus), "e": "AQAB"}

    def token(self, key="one", alg="RS256", kid=None, signature=None, **claims):
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": "billow",
            "sub": "repo:org/name:ref:refs/heads/main",
            "iat": now,
            "exp": now + 300,
            **claims,
        }
        head = url64(json.dumps({"alg": alg, "kid": kid or key}).encode())
        data = head + "." + url64(json.dumps(claims).encode())
        if signature is None:
            signature = subprocess.run(
                ["openssl", "dgst", "-sha256", "-sign", self.path(key)],
                input=data.encode(),
                check=True,
                capture_output=True,
            ).stdout
        return data + "." + url64(signature)


class Workloads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig()
        cls.addClassCleanup(cls.rig.close)
        cls.head = "http://{}:{}".format(*cls.rig.address())
        cls.ci = CiSystem(cls.rig.root)
        cls.addClassCleanup(cls.ci.close)
        cls.rig.ok("project", "create", "vision")
        cls.rig.ok("user", "create", "ci", "--unix-name", "games")
        cls.rig.ok(
            "auth",
            "add",
            "workload",
            "--name",
            "actions",
            "--user",
            "ci",
            "--issuer",
            cls.ci.issuer,
            "--map",
            "repo:org/name:ref:refs/heads/main=vision:member",
            "--map",
            "repo:org/docs:*=vision:viewer",
        )

    def exchange(self, token):
        return self.rig.api("POST", "/v1/auth/exchange", {"token": token}, token="", tcp=True)

    def test_a_ci_job_gets_a_short_token_of_its_project(self):
        answer = self.exchange(self.ci.token())
        self.assertEqual(answer.status, 201, answer)
        self.assertEqual(answer.json["user"], "ci")
        token = answer.json["token"]
        job = self.rig.api("POST", "/v1/jobs", self.rig.spec("true"), token=token)
        self.assertEqual(job.status, 201, job)
        self.assertEqual(self.rig.api("POST", "/v1/tokens", {"name": "x"}, token=token).status, 403)
        reads = self.exchange(self.ci.token(sub="repo:org/docs:ref:refs/heads/x")).json["token"]
        self.assertEqual(self.rig.api("GET", "/v1/jobs", token=reads).status, 200)
        answer = self.rig.api("POST", "/v1/jobs", self.rig.spec("true"), token=reads)
        self.assertEqual(answer.status, 403)

    def test_billow_login_in_a_ci_job(self):
        for environment in (
            {
                "ACTIONS_ID_TOKEN_REQUEST_URL": self.ci.issuer + "/token?x=1",
                "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "key of the job",
            },
            {"BILLOW_ID_TOKEN": self.ci.token()},
        ):
            config = tempfile.mkdtemp(dir=self.rig.root)
            environment = {**environment, "XDG_CONFIG_HOME": config}
            done = self.rig.cli("login", self.head, "--workload", env=environment)
            self.assertEqual(done.code, 0, done)
            self.assertIn("as ci", done.text)
        done = self.rig.cli("login", self.head, "--workload")
        self.assertNotEqual(done.code, 0)
        self.assertIn("not a CI job", done.errors)

    def test_forged_tokens_are_refused(self):
        ci, now = self.ci, int(time.time())
        ci.make("stranger", publish=False)
        public = ci.jwk("one")["n"].encode()

        def hs256():
            head = url64(json.dumps({"alg": "HS256", "kid": "one"}).encode())
            body = ci.token().split(".")[1]
            return f"{head}.{body}." + url64(
                hmac.new(public, f"{head}.{body}".encode(), hashlib.sha256).digest()
            )

        whole = ci.token()
        forged = {
            "another audience": ci.token(aud="other"),
            "several audiences": ci.token(aud=["billow", "other"]),
            "another issuer": ci.token(iss="https://evil.example"),
            "an issuer that looks alike": ci.token(iss=ci.issuer + "/"),
            "expired": ci.token(exp=now - 60),
            "never expires": ci.token(exp=None),
            "from the future": ci.token(iat=now + 600),
            "not yet": ci.token(nbf=now + 600),
            "no signature": ci.token(alg="none", signature=b""),
            "any signature": ci.token(alg="none", signature=b"x"),
            "public key as secret": hs256(),
            "a key of a stranger": ci.token(key="stranger"),
            "a stranger under a known number": ci.token(key="stranger", kid="one"),
            "cut off": whole[:-4],
            "two parts": whole.rsplit(".", 1)[0],
            "nothing": "",
            "other text": "a.b.c",
        }
        for what, token in forged.items():
            with self.subTest(what):
                answer = self.exchange(token)
                self.assertEqual(answer.status, 401, answer)
        for subject in (
            "repo:org/name:ref:refs/heads/main2",
            "repo:org/name:ref:refs/heads/mai",
            "repo:org/name-evil:ref:refs/heads/main",
            "repo:org/docs-evil:ref:refs/heads/main",
            "",
        ):
            answer = self.exchange(ci.token(sub=subject))
            self.assertEqual(answer.status, 403, (subject, answer))

    def test_keys_can_be_replaced(self):
        self.assertEqual(self.exchange(self.ci.token()).status, 201)
        self.ci.make("two")
        # A number that is not known makes the head look again, but not for every call.
        poll(lambda: self.exchange(self.ci.token(key="two")).status == 201, "the new key", 30)

    def test_ci_jobs_are_no_admins(self):
        founder = self.rig.json("status")["you"]["user"]
        for words in (
            ["--user", founder, "--map", "a=vision:member"],
            ["--user", "ci", "--map", "a=vision:admin"],
            ["--user", "ci", "--map", "a=*:admin"],
            ["--user", "stranger", "--map", "a=vision:member"],
        ):
            done = self.rig.cli(
                "auth", "add", "workload", "--name", "bad", "--issuer", self.ci.issuer, *words
            )
            self.assertNotEqual(done.code, 0, done)


class Lists(unittest.TestCase):
    def test_users_become_as_a_list_says(self):
        rig = Rig()
        self.addCleanup(rig.close)
        for name in ("vision", "speech"):
            rig.ok("project", "create", name)
        for name in ("old", "bob"):
            rig.ok("user", "create", name)
        rig.ok("project", "member", "speech", "bob", "--role", "viewer")
        gone = rig.token_for("old")
        with open(rig.file("users.csv"), "w", encoding="utf-8") as f:
            f.write("name,unix_name,role,state,projects\n")
            f.write('"ana",games,member,active,"vision:member speech:viewer"\n')
            f.write("bob,,viewer,,vision:admin\n")
        sync = ["user", "sync", "--from", rig.file("users.csv"), "--disable-others"]
        would = rig.ok(*sync, "--dry-run").text
        self.assertIn("would create user ana", would)
        self.assertEqual(len(rig.json("user", "list")["users"]), 3, "a dry run changes nothing")
        rig.ok(*sync, "--jobs", "keep")
        users = {u["name"]: u for u in rig.json("user", "list")["users"]}
        self.assertEqual(users["ana"]["unix_name"], "games")
        self.assertEqual(users["bob"]["role"], "viewer")
        self.assertEqual(users["old"]["state"], "disabled")
        self.assertEqual(rig.api("GET", "/v1/status", token=gone).status, 401)
        members = {p["name"]: p["members"] for p in rig.json("project", "list")["projects"]}
        self.assertEqual(members["vision"], {"ana": "member", "bob": "admin"})
        self.assertEqual(members["speech"], {"ana": "viewer"})
        self.assertEqual(rig.ok(*sync).text, "nothing to change\n")
        with open(rig.file("users.csv"), "w", encoding="utf-8") as f:
            f.write("# exported\nname,unix_name,role,state,projects\nana,ana,admin,,\n")
        other = rig.cli(*sync)
        self.assertEqual(other.code, 1, other)
        self.assertIn(b"the list says that ana runs as ana, but ana runs as games", other.err)
        role = {u["name"]: u["role"] for u in rig.json("user", "list")["users"]}["ana"]
        self.assertEqual(role, "member", "nothing was changed")
        for bad in ("", "ana,x,owner,,\n", "ana,,,,\nana,,,,\n", "{", '{"users": [{}]}'):
            with open(rig.file("users.csv"), "w", encoding="utf-8") as f:
                f.write(bad)
            self.assertNotEqual(rig.cli(*sync).code, 0, bad)


if __name__ == "__main__":
    unittest.main()
