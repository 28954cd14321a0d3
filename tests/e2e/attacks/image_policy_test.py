"""Which images a node uses, by its owner's policy: names, digests, and signatures as cosign makes
them, checked against a real registry."""
import http.server
import os
import subprocess
import threading
import unittest
import urllib.error
import urllib.request

import images
from box_test import ImageTest

USUAL = "allow 0-4294967294\n"


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


@unittest.skipIf(images.missing(), images.missing())
class Policy(ImageTest):
    def setUp(self):
        self.addCleanup(self.rig.node_policy, USUAL)

    def key(self, name):
        """A key as `cosign generate-key-pair` makes it; the paths of both its parts."""
        private, public = (os.path.join(self.rig.root, name + end) for end in (".key", ".pub"))
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private)
        openssl("ec", "-in", private, "-pubout", "-out", public)
        return private, public

    def refused(self, image, why):
        done = self.run_in("--", "true", image=image)
        self.assertIn(done.code, (125, 126), done)
        self.assertIn("this node's policy", done.errors)
        self.assertIn(why, done.errors)

    def runs(self, image, text="from the image"):
        done = self.run_in("--", "cat", "/etc/hello", image=image)
        self.assertEqual((done.code, done.text.strip()), (0, text), done)

    def pinned(self, image):
        repository, tag = image.split(":")
        return f"{self.registry.name(repository)}@{images.manifest_digest(self.registry, repository, tag)}"

    def test_only_the_named_images(self):
        other = self.registry.push("other/tools:1", images.root_tar())
        self.rig.node_policy(USUAL + f"images {self.registry.name('other/*')}")
        self.refused(self.image, "may not be used here")
        self.runs(other)
        self.rig.node_policy(USUAL + "images none")
        self.refused(other, "may not use images here")
        self.assertEqual(self.rig.cli("run", "--", "true").code, 0, "jobs without an image")

    def config_of_root(self, name, text):
        """A file of podman's in the home directory of the jobs' user, as long as the test runs."""
        path = os.path.join(os.path.expanduser("~root"), ".config/containers", name)
        made = path
        while not os.path.exists(os.path.dirname(made)):
            made = os.path.dirname(made)
        self.assertFalse(os.path.exists(made), made)
        self.addCleanup(subprocess.run, ["rm", "-rf", made], check=True)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def test_the_users_own_registry_settings_lead_nowhere_else(self):
        self.registry.push("evil/tools:1", images.root_tar({"etc/evil": b"other"}))
        self.registry.push("good/tools:1", images.root_tar({"etc/good": b"named"}))
        host = self.registry.name("")
        self.rig.node_policy(USUAL + f"images {host}good/*")
        self.config_of_root(
            "registries.conf.d/50-mirror.conf",
            f'[[registry]]\nprefix = "{host}good"\nlocation = "{host}evil"\ninsecure = true\n',
        )
        done = self.run_in("--", "ls", "/etc", image=host + "good/tools:1")
        self.assertEqual(done.code, 0, done)
        self.assertIn("good", done.text.split())
        self.assertNotIn("evil", done.text.split())

    def test_an_image_of_the_users_own_podman_has_no_name_that_counts(self):
        named = self.registry.push("named/tools:1", images.root_tar({"etc/named": b"pulled"}))
        other = self.registry.push("built/tools:1", images.root_tar({"etc/built": b"own"}))

        def podman(*words):
            subprocess.run(["podman", *words], check=True, capture_output=True)

        podman("pull", "--tls-verify=false", other)
        self.addCleanup(podman, "rmi", "--force", other)
        podman("tag", other, named)
        # Without a policy, the user's own image wins. It leaves nothing under the name.
        done = self.run_in("--", "ls", "/etc", image=named)
        self.assertIn("built", done.text.split(), done)
        self.rig.node_policy(USUAL + f"images {self.registry.name('named/*')}")
        done = self.run_in("--", "ls", "/etc", image=named)
        self.assertEqual(done.code, 0, done)
        self.assertIn("named", done.text.split())
        self.assertNotIn("built", done.text.split())

    def test_only_digests(self):
        self.rig.node_policy(USUAL + "images pinned")
        self.refused(self.image, "is not named by its digest")
        self.runs(self.pinned("tools:1"))

    def test_only_signed_images(self):
        private, public = self.key("ours")
        stranger, _ = self.key("stranger")
        image = self.registry.push("signed:1", images.root_tar())
        self.runs(image)  # it is in the store from now on
        self.rig.node_policy(USUAL + f"images signed {public}")
        self.refused(image, "has no signature")
        self.registry.sign("signed:1", stranger)
        self.refused(image, "has no signature of a key")
        self.registry.sign("signed:1", private, claims="sha256:" + "a" * 64)
        self.refused(image, "has no signature of a key")
        self.registry.sign("signed:1", private)
        self.runs(image)
        self.runs(self.pinned("signed:1"))
        # The name is given to another image, which nobody has signed.
        self.registry.push("signed:1", images.root_tar({"etc/other": b"x"}))
        self.refused(image, "has no signature")
        self.refused("localhost/signed:1", "is in no registry")

    def test_names_and_keys_on_one_line(self):
        private, public = self.key("one")
        second, other = self.key("two")
        image = self.registry.push("oneline:1", images.root_tar())
        name = self.registry.name("oneline")
        self.rig.node_policy(USUAL + f"images {name} signed {public} signed {other}")
        self.refused(image, "has no signature")
        for key in (private, second):
            self.registry.push("oneline:1", images.root_tar({"etc/key": key.encode()}))
            self.refused(image, "has no signature")
            self.registry.sign("oneline:1", key)
            self.runs(image)
        self.refused(self.image, "may not be used here")

    def test_a_policy_that_cannot_be_read_lets_nothing_run(self):
        self.rig.node_policy(USUAL + f"images signed {self.rig.root}/none.pub")
        done = self.run_in("--", "true")
        self.assertEqual(done.code, 126, done)
        self.assertIn("none.pub", done.errors)

    def test_a_registry_that_gives_tokens_and_stores_blobs_elsewhere(self):
        private, public = self.key("far")
        self.registry.push("far:1", images.root_tar())
        self.registry.sign("far:1", private)
        with Front(self.registry.port) as front:
            self.rig.node_policy(USUAL + f"images signed {public}")
            self.runs(f"127.0.0.1:{front.port}/far:1")
            self.assertIn("/token", front.asked)
            self.assertEqual(front.leaked, [], "the token was shown to another server")


class Front:
    """A registry as the large ones are: it wants a token, and sends readers of blobs elsewhere."""

    def __init__(self, behind):
        self.behind, self.asked, self.leaked = behind, [], []
        servers = (self.registry, self.store)
        self.servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), h()) for h in servers]
        self.port, self.other = (server.server_port for server in self.servers)

    def __enter__(self):
        for server in self.servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def pass_on(self, handler):
        request = urllib.request.Request(f"http://127.0.0.1:{self.behind}{handler.path}")
        if "Accept" in handler.headers:
            request.add_header("Accept", handler.headers["Accept"])
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                self.answer(handler, 200, answer.read(), dict(answer.headers))
        except urllib.error.HTTPError as error:
            self.answer(handler, error.code, error.read(), {})

    def answer(self, handler, status, body, headers):
        handler.send_response(status)
        for name in ("Content-Type", "Docker-Content-Digest", "Location", "WWW-Authenticate"):
            if name in headers:
                handler.send_header(name, headers[name])
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    def registry(self):
        front = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                front.asked.append(self.path.split("?")[0])
                if self.path.startswith("/token"):
                    return front.answer(self, 200, b'{"token": "pass"}', {})
                if self.headers.get("Authorization") != "Bearer pass":
                    realm = f'Bearer realm="http://127.0.0.1:{front.port}/token",service="here"'
                    return front.answer(self, 401, b"{}", {"WWW-Authenticate": realm})
                if "/blobs/" in self.path:
                    place = f"http://127.0.0.1:{front.other}{self.path}"
                    return front.answer(self, 307, b"", {"Location": place})
                return front.pass_on(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        return Handler

    def store(self):
        front = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                # Podman ("containers/…") shows its token to other ports of the same host.
                podman = self.headers.get("User-Agent", "").startswith("containers/")
                if "Authorization" in self.headers and not podman:
                    front.leaked.append(self.path)
                return front.pass_on(self)

            def log_message(self, *_):
                pass

        return Handler


if __name__ == "__main__":
    unittest.main()
