"""Attacks on what runs in front of a job's command, outside its container: Billow's own programs,
which fetch its files and make the container, and the agent's socket for files."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import images
from attacks_kernel_test import directory_of, token_of
from attacks_neighbour_test import NEEDS_ROOT
from attacks_strict_test import STRICT, Walled
from box_test import ImageTest
from rig import BILLOW, Rig, poll

# On the machine itself, without a container.
NO_CONTAINER = json.dumps({"key": "x", "store": "/tmp/x", "root": False})

EVIL = r"""
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void begin(void) {
  close(open(MARK, O_CREAT | O_WRONLY, 0666));
}
"""

ASK = """
import json, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["BILLOW_FILES_SOCKET"])
text = json.dumps({"url": sys.argv[1], "path": "got", "AWS_ENDPOINT_URL": sys.argv[2]})
s.sendall(f"input {len(text)}\\n{text}".encode())
answer = s.makefile().readline()
print(json.dumps({"answer": answer, "exists": os.path.exists("got")}))
"""


class Loaded:
    """A library that leaves a mark where it is loaded outside a container."""

    def __init__(self, case):
        self.where = tempfile.mkdtemp(prefix="loaded-", dir="/var/tmp")
        case.addCleanup(shutil.rmtree, self.where, True)
        os.chmod(self.where, 0o777)
        self.mark = f"{self.where}/mark"
        self.library = f"{self.where}/evil.so"
        subprocess.run(
            [
                *("gcc", "-shared", "-fPIC", f'-DMARK="{self.mark}"', "-o", self.library),
                *("-x", "c", "-"),
            ],
            input=EVIL,
            text=True,
            check=True,
        )
        env = {**os.environ, "LD_PRELOAD": self.library}
        subprocess.run(["/bin/true"], env=env, check=True)
        case.assertTrue(os.path.exists(self.mark), "the library must work at all")
        os.unlink(self.mark)


@NEEDS_ROOT
class Strict(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="1xH100")
        cls.addClassCleanup(cls.rig.close)
        cls.walled = Walled(cls.rig)

    def test_its_variables_do_not_replace_its_container(self):
        self.walled.try_the_wall(self, ("--env-var", f"BILLOW_BOX_PLAN={NO_CONTAINER}"))

    def test_its_libraries_are_not_loaded_outside(self):
        loaded = Loaded(self)
        where = self.walled.directory(self, given="x")
        done = self.walled.cli(
            *("run", *STRICT, "--env-var", f"LD_PRELOAD={loaded.library}", "--", "true"), cwd=where
        )
        self.assertEqual(done.code, 0, done)
        self.assertFalse(os.path.exists(loaded.mark), "the job's code ran outside its container")

    def test_it_has_its_variables_all_the_same(self):
        where = self.walled.directory(self, given="x")
        given = {"LD_BIND_NOW": "1", "TZ": "Asia/Tokyo", "GLIBC_TUNABLES": "", "RANK": "7"}
        options = (word for n, v in given.items() for word in ("--env-var", f"{n}={v}"))
        script = "import json, os; print(json.dumps(dict(os.environ)))"
        done = self.walled.cli(
            *("run", *STRICT, *options, "--", "/usr/bin/python3", "-c", script), cwd=where
        )
        got = json.loads(done.text)
        self.assertEqual({name: got.get(name) for name in given}, given)
        self.assertEqual([name for name in got if "HELD" in name or "PLAN" in name], [])

    def test_the_socket_for_files_is_no_way_to_the_network(self):
        asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for wanted in (f"{url}/secret-data", "s3://bucket/secret-data"):
            got = self.walled.python(self, ASK, wanted, url)
            self.assertIn("was not submitted with the job", got["answer"])
            self.assertFalse(got["exists"])
        self.assertEqual(asked, [])


@unittest.skipUnless(shutil.which("runc"), "needs runc")
class Container(unittest.TestCase):
    def test_follows_no_link_to_a_volume(self):
        """One that was put into the path since the agent followed the others."""
        where = os.path.realpath(tempfile.mkdtemp(prefix="volume-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, where, True)
        os.makedirs(f"{where}/a/data")
        with open(f"{where}/a/data/file", "w", encoding="ascii") as f:
            f.write("content")

        def shown():
            mount = {"source": f"{where}/a/data", "target": "/mnt/v", "exact": True}
            plan = {"key": "1", "store": f"{where}/store", "root": True, "node_root": True}
            plan["mounts"] = [{**mount, "read_only": True}]
            env = {**os.environ, "BILLOW_BOX_PLAN": json.dumps(plan)}
            command = [BILLOW, "box", "--", "cat", "/mnt/v/file"]
            return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

        done = shown()
        self.assertEqual(done.stdout, "content", done)
        os.rename(f"{where}/a", f"{where}/b")
        os.symlink("b", f"{where}/a")
        done = shown()
        self.assertEqual(done.stdout, "", done)
        self.assertIn("find the volume", done.stderr)


@unittest.skipIf(images.missing(), images.missing())
class FromAnImage(ImageTest):
    def test_its_libraries_are_not_loaded_outside(self):
        loaded = Loaded(self)
        for options in ((), ("--no-sync",), STRICT):
            with self.subTest(options=options):
                done = self.run_in(
                    *(*options, "--env-var", f"LD_PRELOAD={loaded.library}"), "--", "true"
                )
                self.assertEqual(done.code, 0, done)
                self.assertFalse(os.path.exists(loaded.mark), "its code ran outside its container")

    def test_its_secrets_do_not_reach_billows_programs(self):
        """OPENSSL_CONF names libraries to load, for example."""
        value = b"/var/tmp/" + os.urandom(8).hex().encode()
        asked = {"env": {"BILLOW_TOKEN": token_of(self.rig)}, "cwd": directory_of(self.rig)}
        self.rig.ok("secret", "set", "settings", "--project", "red", stdin=value)
        self.addCleanup(self.rig.ok, "secret", "rm", "settings", "--project", "red")
        options = ("--image", self.image, "--sync", "--secret", "settings=OPENSSL_CONF")
        done = self.rig.cli("run", *options, "--", "sh", "-c", 'echo "$OPENSSL_CONF"', **asked)
        self.assertEqual(done.text, "***\n", done)
        # That program stays beside a job that has outputs, which it sends when the job has ended.
        options += ("--output", "made")
        job = self.rig.ok("submit", "--json", *options, "--", "sleep", "600", **asked).json["id"]
        self.addCleanup(self.rig.cli, "stop", "--force", job)

        def in_front():
            """The variables of the program that fetches the job's files."""
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/environ", "rb") as f:
                        entries = f.read().split(b"\0")
                    program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
                except OSError:
                    continue
                if program == "billow" and any(e.endswith(b"=" + value) for e in entries):
                    return [e.split(b"=")[0] for e in entries]
            return None

        found = poll(in_front, "the program in front of the job", 60)
        self.assertIn(b"BILLOW_HELD_OPENSSL_CONF", found)
        self.assertNotIn(b"OPENSSL_CONF", found)

    def test_its_variables_do_not_replace_its_container(self):
        done = self.sh("cat /etc/hello", "--env-var", f"BILLOW_BOX_PLAN={NO_CONTAINER}")
        self.assertEqual(done.text, "from the image\n", done)

    def test_ranks_have_their_numbers_and_the_jobs_variables(self):
        done = self.sh(
            'echo "$RANK $LOCAL_RANK $COLOUR $PATH"',
            *("--procs", "2", "--env-var", "RANK=9", "--env-var", "COLOUR=blue"),
        )
        lines = sorted(done.text.splitlines())
        self.assertEqual([line[:14] for line in lines], ["[0] 0 0 blue /", "[1] 1 1 blue /"], done)


if __name__ == "__main__":
    unittest.main()
