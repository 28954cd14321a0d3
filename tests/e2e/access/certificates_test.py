"""Certificates of nodes and gateways (ADR 22): a head with TLS, a node that joins it, and everything
that must be refused in the handshake or after it."""
import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

from node_key import Key
from ports import free_port
from rig import BILLOW, MARK, Rig, poll

LIFE = 12  # seconds of a certificate in these tests


def openssl(*args, stdin=None):
    return subprocess.run(
        ["openssl", *map(str, args)], input=stdin, check=True, capture_output=True, text=True
    ).stdout


def make_authority(path, name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", path + ".key", "-out", path + ".pem", "-days", "2", "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip


def make_certificate(authority, path, name, days="1", uri=None):
    """A client certificate, as somebody with that authority's key would make it."""
    names = f"subjectAltName=DNS:{name}" + (f",URI:{uri}" if uri else "")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
            path + ".key", "-out", path + ".csr", "-subj", f"/CN={name}")  # fmt: skip
    with open(path + ".ext", "w", encoding="ascii") as f:
        f.write(f"{names}\nextendedKeyUsage=clientAuth\nbasicConstraints=critical,CA:FALSE\n")
    openssl("x509", "-req", "-in", path + ".csr", "-CA", authority + ".pem", "-CAkey",
            authority + ".key", "-out", path + ".pem", "-days", days, "-extfile",
            path + ".ext")  # fmt: skip


class TlsRig(Rig):
    """A head with TLS at a fixed port of this machine."""

    def __init__(self, *args, **options):
        self.port = free_port()
        super().__init__(sim="1xH100", args=("--tls", "--no-agent", *args), **options)

    def up(self, *more, **_):
        return super().up(*more, listen=f"127.0.0.1:{self.port}")

    @property
    def url(self):
        return f"https://127.0.0.1:{self.port}"

    def node_dir(self, name):
        return os.path.join(self.root, name)

    def join_command(self, name, *options):
        return [BILLOW, "join", "--data", self.node_dir(name), *map(str, options)]

    def join(self, name, *options, token=None):
        """An agent, as a process of its own. It joins unless it has joined before."""
        if not os.path.exists(os.path.join(self.node_dir(name), "node/credential")):
            token = token or self.ok("token", "create", "--node").text.strip()
            options = (self.url, "--token", token, "--node-name", name, *options)
        with open(os.path.join(self.root, name + ".log"), "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                self.join_command(name, "--sim", "1xH100", *options),
                stdout=log,
                stderr=log,
                env={**self.environment, MARK: self.data},
            )
        self.started.append(process)
        return process

    def log_of(self, name):
        with open(os.path.join(self.root, name + ".log"), encoding="utf-8") as f:
            return f.read()

    def node(self, name):
        nodes = self.api("GET", "/v1/nodes").json["nodes"]
        return next((n for n in nodes if n["name"] == name), {})

    def here(self, name):
        try:
            poll(lambda: self.node(name).get("state") == "ready", f"node {name}", 40)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.log_of(name)}\n{self.head_log()[-2000:]}") from None

    def hellos(self, name):
        return self.head_log().count(f"node {name} connected")

    def join_again(self, name):
        """A new agent process on a machine that has joined."""
        before = self.hellos(name)
        process = self.join(name)
        poll(lambda: self.hellos(name) > before, f"another hello of {name}", 40)
        return process

    def end(self, job):
        self.ok("stop", job)
        poll(lambda: self.job(job)["state"] not in ("queued", "running"), "the job's end")

    def certificate(self, name):
        """The text of the file in which an agent keeps its certificate; empty: it has none."""
        try:
            with open(os.path.join(self.node_dir(name), "node/certificate.pem"), "rb") as f:
                return f.read().decode()
        except OSError:
            return ""

    def request(self, path, headers, cert=None, key=None):
        """One HTTPS request; its status, or the words of the handshake's end."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if cert:
            context.load_cert_chain(cert, key or cert)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=20, context=context
        )
        try:
            connection.request("GET", path, None, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (ssl.SSLError, ConnectionError):
            # The reason is lost if it comes while we send: so ask for it without a request.
            return 0, self.end_of_handshake(context)
        finally:
            connection.close()

    def end_of_handshake(self, context):
        """What the head says when it does not like the certificate. With TLS 1.3 a client hears of
        it when it reads."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 20) as plain:
                with context.wrap_socket(plain) as secure:
                    secure.recv(1)
        except (ssl.SSLError, ConnectionError) as refused:
            return str(refused).lower()
        return "the handshake went well"

    def ask_as(self, name, cert=None, key=None):
        """Whether the head speaks with the node's credential over a connection with that
        certificate: `billow join --check`'s question."""
        credential = Key(os.path.join(self.node_dir(name), "node/credential"))
        headers = {"Authorization": credential.authorization()}
        return self.request("/v1/agent", headers, cert, key)


class Certificates(unittest.TestCase):
    """A head that requires them, with short lives."""

    @classmethod
    def setUpClass(cls):
        cls.rig = TlsRig("--require-client-certificates", "--certificate-life", f"{LIFE}s")
        cls.rig.join("a")
        cls.rig.here("a")

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def copy_of_certificate(self, name="a"):
        """As it is now; the agent's own file is replaced."""
        path = self.rig.file(f"copy-{time.time_ns()}.pem")
        with open(path, "w", encoding="ascii") as f:
            f.write(self.rig.certificate(name))
        return path

    def test_a_node_gets_one_without_anybody_typing_anything(self):
        kept = os.path.join(self.rig.node_dir("a"), "node/certificate.pem")
        self.assertEqual(os.stat(kept).st_mode & 0o777, 0o600)
        text = openssl("x509", "-in", kept, "-noout", "-text")
        self.assertIn("CN = a", text)
        self.assertRegex(text, r"URI:billow:credential:\d+")
        self.assertIn("TLS Web Client Authentication", text)
        self.assertNotIn("TLS Web Server Authentication", text)
        status, _ = self.rig.ask_as("a", self.copy_of_certificate())
        self.assertIn(status, (400, 426), "known, but it did not ask for a WebSocket")
        job = self.rig.ok("run", "--gpus", 1, "--", "echo", "over a certificate")
        self.assertIn("over a certificate", job.text)

    def test_without_a_certificate_the_credential_alone_is_refused(self):
        status, text = self.rig.ask_as("a")
        self.assertEqual(status, 403, text)
        self.assertIn("only with a certificate", text)
        # People have none, and need none.
        headers = {"Authorization": f"Bearer {self.rig.token()}"}
        self.assertEqual(self.rig.request("/v1/status", headers)[0], 200)

    def test_a_certificate_of_another_authority_ends_the_handshake(self):
        other = self.rig.file("other")
        make_authority(other, "somebody")
        make_certificate(other, other + "-node", "a", uri="billow:credential:2")
        status, text = self.rig.ask_as("a", other + "-node.pem", other + "-node.key")
        self.assertEqual(status, 0, text)
        self.assertIn("alert", text)
        said = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{self.rig.port}", "-cert",
             other + "-node.pem", "-key", other + "-node.key", "-ign_eof"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("alert", (said.stdout + said.stderr).lower())

    def test_an_expired_certificate_ends_the_handshake(self):
        own = self.rig.file("authority")
        for kind in ("pem", "key"):
            with open(os.path.join(self.rig.data, f"tls/ca.{kind}"), "rb") as f:
                text = f.read()
            with open(f"{own}.{kind}", "wb") as f:
                f.write(text)
        uri = re.search(
            r"URI:(\S+)", openssl("x509", "-text", "-noout", stdin=self.rig.certificate("a"))
        ).group(1)
        # Right in everything but its dates, and the same with right dates.
        make_certificate(own, own + "-good", "a", uri=uri)
        status, text = self.rig.ask_as("a", own + "-good.pem", own + "-good.key")
        self.assertNotEqual(status, 0, text)
        stale = self.copy_of_certificate()
        poll(lambda: self.rig.ask_as("a", stale)[0] == 0, "its end", LIFE + 20)
        self.assertIn("expired", self.rig.ask_as("a", stale)[1])

    def test_a_certificate_is_of_use_to_its_own_credential_only(self):
        self.rig.join("b")
        self.rig.here("b")
        status, text = self.rig.ask_as("a", self.copy_of_certificate("b"))
        self.assertEqual(status, 403, text)
        self.assertIn("not issued for node a", text)

    def test_a_revoked_credential_is_refused_at_once_and_so_is_a_removed_node(self):
        agent = self.rig.join("gone")
        self.rig.here("gone")
        kept = self.copy_of_certificate("gone")
        self.assertNotEqual(self.rig.ask_as("gone", kept)[0], 0)
        tokens = self.rig.json("token", "list")["tokens"]
        number = next(t["id"] for t in tokens if t.get("node") == "gone" and t["scope"] == "node")
        self.rig.ok("token", "revoke", number)
        status, text = self.rig.ask_as("gone", kept)
        self.assertEqual(status, 0, text)
        self.assertIn("revoked", text)
        # Its open connection has ended too, and the agent learns why.
        poll(lambda: "does not know this node" in self.rig.log_of("gone"), "the agent's words", 20)
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        agent = self.rig.join("left")
        self.rig.here("left")
        kept = self.copy_of_certificate("left")
        agent.terminate()
        agent.wait()
        poll(lambda: self.rig.cli("node", "rm", "left").code == 0, "the removal", 40)
        status, text = self.rig.ask_as("left", kept)
        self.assertEqual(status, 0, text)
        self.assertRegex(text, "revoked|expired")

    def test_it_is_renewed_in_time_and_the_connection_stays(self):
        first = self.rig.certificate("a")
        job = self.rig.submit("--gpus", 0, "--", "sleep", 300)
        self.rig.wait_for(job, "running")
        connected = self.rig.hellos("a")
        poll(lambda: self.rig.certificate("a") not in ("", first), "a renewal", LIFE + 10)
        second = self.rig.certificate("a")
        poll(lambda: self.rig.certificate("a") not in ("", first, second), "another", LIFE + 10)
        key = lambda text: text[text.index("-----BEGIN PRIVATE") :]
        self.assertNotEqual(key(first), key(second), "each has a key of its own")
        # Longer than the first one was valid, on the connection that it opened.
        self.assertEqual(self.rig.hellos("a"), connected)
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.rig.end(job)

    def test_kill_9_of_the_head_during_renewals_loses_nothing(self):
        self.rig.here("a")
        job = self.rig.submit("--gpus", 0, "--", "sh", "-c", "sleep 20; echo survived")
        self.rig.wait_for(job, "running")
        for _ in range(3):
            # The moment in which the agent's next request is on its way.
            before = self.rig.certificate("a")
            deadline = time.time() + LIFE * 2 / 3 - 1
            poll(lambda: time.time() > deadline or self.rig.certificate("a") != before, "the time",
                 LIFE + 10)  # fmt: skip
            seen = self.rig.hellos("a")
            self.rig.kill(self.rig.head_pid())
            self.rig.up()
            poll(lambda: self.rig.hellos("a") > seen, "the node", 40)  # noqa: B023
        self.rig.wait_for(job, "succeeded", 60)
        self.assertIn("survived", self.rig.ok("logs", job).text)

    def test_a_machine_that_was_off_for_longer_than_its_certificate_comes_back(self):
        agent = self.rig.join("asleep")
        self.rig.here("asleep")
        agent.terminate()
        agent.wait()
        old = self.copy_of_certificate("asleep")
        poll(lambda: self.rig.ask_as("asleep", old)[0] == 0, "its end", LIFE + 20)
        self.rig.join_again("asleep")

    def test_a_node_gets_a_new_key_while_it_runs(self):
        self.rig.join("rekeyed")
        self.rig.here("rekeyed")
        path = os.path.join(self.rig.node_dir("rekeyed"), "node/credential")
        old = Key(path)
        done = subprocess.run(
            self.rig.join_command("rekeyed", "--rotate-key"),
            capture_output=True, text=True, timeout=30, check=False,
            env=self.rig.environment)  # fmt: skip
        self.assertEqual(done.returncode, 0, done)
        self.assertNotEqual(Key(path).public, old.public)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        # The agent goes on with it, also after the head has forgotten its connection.
        seen = self.rig.hellos("rekeyed")
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        poll(lambda: self.rig.hellos("rekeyed") > seen, "the node with its new key", 40)
        events = self.rig.api("GET", "/v1/events?kind=token_rotated").body.decode()
        self.assertIn("token_rotated", events)


class Authority(unittest.TestCase):
    """The head's own keys are replaced while it runs."""

    @classmethod
    def setUpClass(cls):
        cls.rig = TlsRig("--require-client-certificates", "--certificate-life", "6s")

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def served(self):
        return ssl.get_server_certificate(("127.0.0.1", self.rig.port))

    def test_the_authority_is_replaced_and_nodes_follow(self):
        agent = self.rig.join("a")
        self.rig.here("a")
        first = self.rig.json("authority")["fingerprints"]
        self.assertEqual(self.rig.cli("authority", "rotate", "--finish").code, 1)
        self.rig.ok("authority", "rotate")
        both = self.rig.json("authority")["fingerprints"]
        self.assertTrue(both.startswith(first + ","), both)
        early = self.rig.cli("authority", "rotate", "--finish")
        self.assertIn("may still have certificates", early.errors)
        # A crash between the steps changes nothing.
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        self.assertEqual(self.rig.json("authority")["fingerprints"], both)
        poll(lambda: f"# trusted: {both}" in self.rig.certificate("a"), "the node's knowledge", 20)
        job = self.rig.submit("--gpus", 0, "--", "sleep", 300)
        self.rig.wait_for(job, "running")
        served = self.served()
        poll(lambda: self.rig.cli("authority", "rotate", "--finish").code == 0, "the change", 20)
        self.assertNotEqual(self.served(), served)
        now = self.rig.json("authority")["fingerprints"]
        self.assertEqual(now, both.split(",")[1])
        # The agent connects again, and a new agent process too: nobody typed a fingerprint.
        seen = self.rig.hellos("a")
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        poll(lambda: self.rig.hellos("a") > seen, "the node", 40)
        poll(lambda: f"# trusted: {now}\n" in self.rig.certificate("a"), "the old one's end", 20)
        agent.terminate()
        agent.wait()
        self.rig.join_again("a")
        self.assertEqual(self.rig.job(job)["state"], "running")
        self.rig.end(job)
        # The old authority's key is gone from the head's disk.
        self.assertFalse(os.path.exists(os.path.join(self.rig.data, "tls/next.pem")))


class ExternalAuthority(unittest.TestCase):
    """The operator's own authority, and the operator's own certificate for the head."""

    def test_nodes_show_certificates_of_the_operators_authority(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        site = os.path.join(folder, "site")
        make_authority(site, "site")
        for name in ("good", "other"):
            make_certificate(site, os.path.join(folder, name), name)
        rig = TlsRig("--require-client-certificates", "--client-ca", site + ".pem")
        try:
            files = lambda name: [os.path.join(folder, f"{name}.{kind}") for kind in ("pem", "key")]
            cert, key = files("good")
            rig.join("good", "--client-cert", cert, "--client-key", key)
            rig.here("good")
            self.assertEqual(rig.certificate("good"), "", "the head issues none")
            # Right authority, wrong name; and no certificate at all.
            self.assertEqual(rig.ask_as("good", *files("other"))[0], 403)
            self.assertEqual(rig.ask_as("good")[0], 403)
            # Its own authority counts for nothing here.
            own = os.path.join(rig.data, "tls/ca")
            make_certificate(own, os.path.join(folder, "own"), "good", uri="billow:credential:2")
            self.assertEqual(rig.ask_as("good", *files("own"))[0], 0)
            # A new file is used without a restart, on the next connection.
            make_certificate(site, os.path.join(folder, "good"), "good")
            poll(lambda: "using the new client certificate" in rig.log_of("good"), "the file", 30)
            seen = rig.hellos("good")
            rig.kill(rig.head_pid())
            rig.up()
            poll(lambda: rig.hellos("good") > seen, "the node", 40)
        finally:
            rig.close()

    def test_the_heads_certificate_is_read_again_when_it_changes(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        site, head = os.path.join(folder, "site"), os.path.join(folder, "head")
        make_authority(site, "site")
        make_certificate(site, head, "127.0.0.1")
        rig = TlsRig("--tls-cert", head + ".pem", "--tls-key", head + ".key")
        try:
            served = lambda: ssl.get_server_certificate(("127.0.0.1", rig.port))
            before, pid = served(), rig.head_pid()
            with open(head + ".pem", "a", encoding="ascii") as f:
                f.write("\n")  # half of a change, or none: it still fits
            make_certificate(site, head, "127.0.0.1")
            poll(lambda: served() != before, "the new certificate", 20)
            self.assertEqual(rig.head_pid(), pid)
        finally:
            rig.close()


class Gateways(unittest.TestCase):
    """A gateway that connects over TLS gets a certificate too."""

    def test_a_gateway_gets_one_and_loses_it_with_its_token(self):
        rig = TlsRig("--require-client-certificates", "--certificate-life", f"{LIFE}s")
        try:
            created = rig.ok("token", "create", "eu", "--scope", "gateway").text.strip()
            token, _, pin = created.partition(".")
            path = rig.file("gateway-token")
            with open(path, "w", encoding="ascii") as f:
                f.write(token)
            refused = rig.request("/v1/gateway", {"Authorization": f"Bearer {token}"})
            self.assertEqual(refused[0], 403, refused)
            data = rig.file("gateway")
            gateway = rig.start(
                "gateway", "--head", rig.url, "--token-file", path, "--fingerprint", pin, "--data",
                data, "--listen", "127.0.0.1:0", "--region", "eu",
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            kept = os.path.join(data, "head-certificate.pem")
            poll(lambda: os.path.exists(kept), "its certificate", 20)
            self.assertEqual(os.stat(kept).st_mode & 0o777, 0o600)
            self.assertIn("CN = eu", openssl("x509", "-in", kept, "-noout", "-text"))
            copy = rig.file("copy.pem")
            with open(kept, "rb") as a, open(copy, "wb") as b:
                b.write(a.read())
            headers = {"Authorization": f"Bearer {token}"}
            self.assertNotIn(rig.request("/v1/gateway", headers, copy)[0], (0, 403))
            number = next(t["id"] for t in rig.json("token", "list")["tokens"]
                          if t["name"] == "eu")  # fmt: skip
            rig.ok("token", "revoke", number)
            status, text = rig.request("/v1/gateway", headers, copy)
            self.assertEqual(status, 0, text)
            self.assertIn("revoked", text)
            gateway.terminate()
            gateway.wait()
        finally:
            rig.close()


if __name__ == "__main__":
    unittest.main()
