"""The working directory follows a job to another machine, and what it leaves comes back."""
import hashlib
import json
import os
import re
import struct
import subprocess
import time
import unittest

from far import FarCase
from rig import BILLOW, MARK, poll

MAGIC = b"billow-tree-1\n"

# Takes every connection that a job may have, and sends a byte of a long list now and then.
DAWDLE = """
import os, socket, sys, time
name = os.environ["BILLOW_FILES_SOCKET"]
open_ones = []
for _ in range(8):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(name)
        s.sendall(b"put 1000000\\n")
    except OSError:
        continue  # more than a job may have
    open_ones.append(s)
open(sys.argv[1], "w").close()
while True:
    for s in open_ones:
        try:
            s.sendall(b"b")
        except OSError:
            pass
    time.sleep(1)
"""
ASK = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["BILLOW_FILES_SOCKET"])
s.sendall(b"get " + sys.argv[1].encode() + b"\\n")
print(s.makefile().readline())
"""


def tree(*entries):
    """The list of a tree, made by hand as somebody with bad intentions would."""
    out = MAGIC + struct.pack("<I", len(entries))
    for kind, path, size, target, pieces in entries:
        out += (
            kind
            + struct.pack("<HQH", 0o644, size, len(path))
            + path
            + struct.pack("<H", len(target))
            + target
            + b"".join(pieces)
        )
    return out


class Files(FarCase):
    hosts = ("head", "a", "b", "c", "laptop")

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.user = cls.rig.ok("token", "create", "laptop").text.strip()
        done = cls.rig.on("laptop", "login", cls.rig.url, stdin=cls.user + "\n")
        if done.returncode != 0:
            raise AssertionError(done)

    def project(self, name, **files):
        root = os.path.join(self.rig.root, "laptop-files", name)
        for path, text in files.items():
            full = os.path.join(root, path.replace("__", "/"))
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
        return root

    def laptop(self, cwd, *args, timeout=120):
        """A command typed on the laptop, in a directory that its user is in."""
        command = 'cd "$0" && exec "$@"'
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("BILLOW_", "XDG_"))}
        environment.update({MARK: self.rig.data, "HOME": self.rig.home("laptop")})
        return subprocess.run(
            [*self.net.inside("laptop"), "sh", "-c", command, cwd, BILLOW, *map(str, args)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment,
            check=False,
        )

    def start_on_laptop(self, cwd, *args):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("BILLOW_", "XDG_"))}
        environment.update({MARK: self.rig.data, "HOME": self.rig.home("laptop")})
        return subprocess.Popen(
            [
                *self.net.inside("laptop"),
                "sh",
                "-c",
                'cd "$0" && exec "$@"',
                cwd,
                BILLOW,
                *map(str, args),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def kept(self, host):
        directory = os.path.join(self.rig.node_dir(host), "node/files/packs")
        return (
            sum(os.path.getsize(os.path.join(directory, name)) for name in os.listdir(directory))
            if os.path.isdir(directory)
            else 0
        )

    def test_the_directory_follows_and_outputs_come_back(self):
        root = self.project(
            "first",
            **{
                "train.py": "print(open('data/x.txt').read())",
                "data__x.txt": "weights",
                "build__big": "no",
                ".gitignore": "build/\n",
                ".env": "SECRET=1",
            },
        )
        os.symlink("data/x.txt", os.path.join(root, "link"))
        done = self.laptop(
            root,
            "run",
            "--gpus",
            1,
            "--output",
            "results",
            "--",
            "sh",
            "-c",
            (
                "cat train.py link; ls -A; pwd; mkdir -p results/deep; echo model >"
                " results/deep/m.pt; echo scratch > other; exit 3"
            ),
        )
        self.assertEqual(done.returncode, 3, done)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "print(open('data/x.txt').read())weights.gitignore")
        self.assertEqual(lines[1:-1], ["data", "link", "train.py"])
        self.assertNotEqual(lines[-1], root)
        self.assertIn(".env may contain secrets and is left out", done.stderr)
        poll(lambda: not os.path.exists(lines[-1]), "the directory gone with its task", 20)
        job = self.rig.json("ps", "-a")["jobs"][0]["id"]
        back = os.path.join(self.rig.root, "back")
        done = self.laptop("/", "cp", f"{job}:", back)
        self.assertEqual(done.returncode, 0, done)
        with open(os.path.join(back, "results/deep/m.pt"), encoding="ascii") as f:
            self.assertEqual(f.read(), "model\n")
        self.assertFalse(os.path.exists(os.path.join(back, "other")))
        done = self.laptop(
            "/", "cp", f"{job}:results/deep/m.pt", os.path.join(self.rig.root, "one")
        )
        self.assertEqual(done.returncode, 0, done)
        # As cp does: under the name that is given, into a directory that is there under its own,
        # and a directory likewise.
        with open(os.path.join(self.rig.root, "one"), encoding="ascii") as f:
            self.assertEqual(f.read(), "model\n")
        os.makedirs(os.path.join(self.rig.root, "there"))
        for source, place, comes in (
            ("results/deep/m.pt", "there", "there/m.pt"),
            ("results/deep/m.pt", "made/", "made/m.pt"),
            ("results/deep", "renamed", "renamed/m.pt"),
            ("results/deep/", "there", "there/deep/m.pt"),
        ):
            done = self.laptop(self.rig.root, "cp", f"{job}:{source}", place)
            self.assertEqual(done.returncode, 0, done)
            self.assertTrue(os.path.isfile(os.path.join(self.rig.root, comes)), (source, place))
        for source, place, word in (
            ("results", "one/", "is not a directory"),
            ("", "one", "is not a directory"),
            ("results/deep/m.pt", "absent/x", "directory absent does not exist"),
        ):
            done = self.laptop(self.rig.root, "cp", f"{job}:{source}", place)
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(word, done.stderr)
        done = self.laptop("/", "cp", f"{job}:nothing", back)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("among the outputs", done.stderr)

    def test_only_what_changed_travels_and_a_node_fetches_it_once(self):
        root = self.project("second", **{f"f{i}": str(i) * 20000 for i in range(50)})
        run = lambda: self.laptop(
            root, "run", "--nodes", 2, "--gpus", 1, "--", "sh", "-c", "cat f* | sha256sum"
        )
        first = run()
        self.assertEqual(first.returncode, 0, first)
        self.assertIn("uploaded", first.stderr)
        sizes = [self.kept(host) for host in "ab"]
        self.assertTrue(all(size > 1_000_000 for size in sizes), sizes)
        again = run()
        self.assertEqual(sorted(again.stdout.splitlines()), sorted(first.stdout.splitlines()))
        self.assertNotIn("uploaded", again.stderr)
        self.assertEqual([self.kept(host) for host in "ab"], sizes)
        with open(os.path.join(root, "f7"), "a", encoding="ascii") as f:
            f.write("more")
        changed = run()
        self.assertNotEqual(changed.stdout, first.stdout)
        grown = [self.kept(host) - size for host, size in zip("ab", sizes)]
        self.assertTrue(all(0 < more < 60_000 for more in grown), grown)

    def test_two_runs_do_not_see_each_other(self):
        root = self.project("third", a="1")
        for _ in range(2):
            done = self.laptop(root, "run", "--", "sh", "-c", "ls; touch mine; rm a")
            self.assertEqual((done.returncode, done.stdout), (0, "a\n"), done)
        self.assertTrue(os.path.exists(os.path.join(root, "a")))

    def test_home_is_not_uploaded_by_accident(self):
        home = self.rig.home("laptop")
        with open(os.path.join(home, "private"), "w", encoding="ascii") as f:
            f.write("x")
        done = self.laptop(home, "run", "--", "ls", "-A")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done)
        self.assertIn("is not copied", done.stderr)

    def test_a_job_does_not_begin_without_its_files(self):
        # A digest that nobody ever uploaded is refused at once.
        body = {
            "spec": {"argv": ["touch", self.rig.file("ran")], "cwd": "/"},
            "env": {"BILLOW_FILES": "ab" * 32},
        }
        answer = self.rig.api("POST", "/v1/jobs", body)
        self.assertEqual(answer.status, 404, answer)
        self.assertIn("does not have the tree", answer.body.decode())
        # One that the head has lost since ends the job before it began.
        root = self.project("lost", only_here="lost")
        body["env"]["BILLOW_FILES"] = digest = self.tree_of(root)
        os.unlink(os.path.join(self.rig.data, "files/trees", digest))
        job = self.rig.api("POST", "/v1/jobs", body).json["id"]
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 125)
        self.assertIn("could not be fetched", self.rig.ok("logs", job).text)
        self.assertFalse(os.path.exists(self.rig.file("ran")))

    def octets(self, method, path, body=b"", token=None):
        return self.rig.api(
            method, path, body, token=token, headers={"Content-Type": "application/octet-stream"}
        )

    def tree_of(self, root):
        """Uploads a directory of one level by hand, as the head's owner; the tree's digest."""
        entries, pack = [], b""
        for name in sorted(os.listdir(root)):
            with open(os.path.join(root, name), "rb") as f:
                content = f.read()
            digest = hashlib.sha256(content).digest()
            entries.append((b"f", name.encode(), len(content), b"", [digest]))
            pack += digest + struct.pack("<Q", len(content)) + content
        self.assertEqual(self.octets("POST", "/v1/files/packs", pack).status, 200)
        self.assertEqual(self.octets("POST", "/v1/files/trees", tree(*entries)).body, b"")
        return hashlib.sha256(tree(*entries)).hexdigest()

    def test_what_one_has_nobody_else_learns_of(self):
        root = self.project("mine", secret="nobody knows this")
        digest = self.tree_of(root)
        self.rig.ok("user", "create", "eve", "--unix-name", "nobody")
        self.rig.ok("project", "create", "elsewhere")
        self.rig.ok("project", "member", "elsewhere", "eve")
        eve = self.rig.json("token", "create", "eve-token", "--user", "eve")["token"]
        piece = hashlib.sha256(b"nobody knows this").digest()
        listed = tree((b"f", b"secret", 17, b"", [piece]))
        self.assertEqual(hashlib.sha256(listed).hexdigest(), digest)
        # Who knows a digest learns neither whether it is there, nor what is in it, nor gets it by
        # way of a job.
        self.assertEqual(self.octets("POST", "/v1/files/trees", listed, token=eve).body, piece)
        for method, path, body in (
            ("GET", f"/v1/files/trees/{digest}", b""),
            ("POST", f"/v1/files/pieces?tree={digest}", piece),
            ("GET", f"/v1/files/trees/{'cd' * 32}", b""),
        ):
            answer = self.octets(method, path, body, token=eve)
            self.assertEqual(answer.status, 404, (path, answer))
        own = tree((b"f", b"own", 3, b"", [hashlib.sha256(b"own").digest()]))
        self.octets(
            "POST",
            "/v1/files/packs",
            hashlib.sha256(b"own").digest() + struct.pack("<Q", 3) + b"own",
            token=eve,
        )
        self.assertEqual(self.octets("POST", "/v1/files/trees", own, token=eve).body, b"")
        mine = hashlib.sha256(own).hexdigest()
        self.assertEqual(
            self.octets("POST", f"/v1/files/pieces?tree={mine}", piece, token=eve).status, 404
        )
        answer = self.rig.api(
            "POST",
            "/v1/jobs",
            {"spec": {"argv": ["cat", "secret"], "cwd": "/"}, "env": {"BILLOW_FILES": digest}},
            token=eve,
        )
        self.assertEqual(answer.status, 404, answer)
        # Who has the content brings it, and it is kept once all the same.
        packs = os.path.join(self.rig.data, "files/packs")
        before = len(os.listdir(packs))
        self.assertEqual(
            self.octets(
                "POST",
                "/v1/files/packs",
                piece + struct.pack("<Q", 17) + b"nobody knows this",
                token=eve,
            ).status,
            200,
        )
        self.assertEqual(len(os.listdir(packs)), before)
        self.assertEqual(self.octets("POST", "/v1/files/trees", listed, token=eve).body, b"")

    def test_files_go_into_and_out_of_a_running_job(self):
        outside = os.path.join(self.rig.root, "outside")
        os.makedirs(outside, exist_ok=True)
        with open(os.path.join(outside, "x"), "w", encoding="ascii") as f:
            f.write("precious")
        root = self.project("live", **{"data__x.csv": "1,2,3", "one": "hello"})
        script = (
            "mkdir -p making sub; echo first > making/a; ln -s /etc/passwd making/escape; ln -s"
            f" {outside} trap; mv making out; until [ -e in/go ]; do sleep 0.05; done; cat in/go"
            " in/deep/x.csv > out/b; echo ready; sleep 300"
        )
        done = self.laptop(root, "submit", "--json", "--", "sh", "-c", script)
        self.assertEqual(done.returncode, 0, done)
        job = json.loads(done.stdout)["id"]
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        self.rig.wait_for(job, "running")
        back = os.path.join(self.rig.root, "live-back")
        done = poll(
            lambda: (lambda d: d if d.returncode == 0 else None)(
                self.laptop("/", "cp", f"{job}:out", back)
            ),
            "what the job has so far",
            60,
        )
        self.assertEqual(os.listdir(back), ["a"])  # a link that leads out stays there
        for arguments in (("data", f"{job}:in/deep"), ("one", f"{job}:in/go")):
            done = self.laptop(root, "cp", *arguments)
            self.assertEqual(done.returncode, 0, done)
        poll(lambda: "ready" in self.rig.cli("logs", job).text, "the job goes on", 60)
        done = self.laptop("/", "cp", f"{job}:out/b", back)
        self.assertEqual(done.returncode, 0, done)
        with open(os.path.join(back, "b"), encoding="ascii") as f:
            self.assertEqual(f.read(), "hello1,2,3")
        done = self.laptop(root, "cp", "one", f"{job}:sub/")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.laptop("/", "cp", f"{job}:sub/one", back).returncode, 0)
        # Nothing leaves the directory, either way, and who may not touch the job may not touch its
        # files.
        for arguments, word in (
            ((f"{job}:nothing", back), "No such file"),
            ((f"{job}:../x", back), "not a path inside"),
            ((f"{job}:trap/x", back), "is not a directory"),
            (("one", f"{job}:trap/x"), "trap"),
            (("one", f"{job}:/etc/x"), "not a path inside"),
            (("one", "two"), "cp needs"),
            (("absent", f"{job}:x"), "No such file"),
        ):
            done = self.laptop(root, "cp", *arguments)
            self.assertNotEqual(done.returncode, 0, (arguments, done))
            self.assertIn(word, done.stderr)
        self.assertEqual(os.listdir(outside), ["x"])
        with open(os.path.join(outside, "x"), encoding="ascii") as f:
            self.assertEqual(f.read(), "precious")
        self.assertFalse(os.path.exists(os.path.join(back, "x")))
        self.rig.cli("user", "create", "mallory", "--unix-name", "nobody")
        self.rig.cli("project", "create", "far-away")
        self.rig.ok("project", "member", "far-away", "mallory")
        mallory = self.rig.json("token", "create", "mallory-token", "--user", "mallory")["token"]
        self.assertIn(
            self.rig.api("POST", f"/v1/jobs/{job}/files", {"path": "out"}, token=mallory).status,
            (403, 404),
        )
        self.rig.ok("stop", "--force", job)
        self.rig.cli("wait", job, timeout=60)
        done = self.laptop(root, "cp", "one", f"{job}:late")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("is not running", done.stderr)

    def test_an_upload_that_broke_off_goes_on_where_it_was(self):
        root = self.project("large", small="x")
        for i in range(24):
            with open(os.path.join(root, f"f{i}"), "wb") as f:
                f.write(os.urandom(8 << 20))
        packs = os.path.join(self.rig.data, "files/packs")
        size = lambda: sum(
            entry.stat().st_size for entry in os.scandir(packs) if entry.name.endswith(".pack")
        )
        before = size()
        first = self.start_on_laptop(root, "submit", "--", "true")
        deadline = time.monotonic() + 60
        while size() - before < 30 << 20 and time.monotonic() < deadline:
            pass  # the moment is short
        first.kill()
        first.wait()
        kept = size() - before
        self.assertLess(kept, 24 * 8 << 20, "it was over before it could be broken off")
        done = self.laptop(root, "run", "--", "true")
        self.assertEqual(done.returncode, 0, done)
        sent = re.search(r"([\d.]+) MiB of ([\d.]+) MiB uploaded", done.stderr)
        self.assertTrue(sent, done)
        # A pack for each of the four connections may have been on its way.
        self.assertLess(float(sent[1]), 192 - (kept >> 20) + 1, done.stderr)

    def test_a_node_keeps_no_more_than_its_limit(self):
        process = self.rig.join(
            "c", self.rig.join_token(), "--files-max", "3M", "--label", "small=yes"
        )
        try:
            self.rig.node_here("c")
            for i in range(3):
                root = self.project(
                    f"limit{i}", **{f"f{k}": os.urandom(500_000).hex() for k in range(2)}
                )
                done = self.laptop(
                    root, "run", "--node-label", "small=yes", "--", "sh", "-c", "cat f0 f1 | wc -c"
                )
                self.assertEqual((done.returncode, done.stdout.strip()), (0, "2000000"), done)
                self.assertLessEqual(self.kept("c"), 3 << 20)
            self.assertGreater(self.kept("c"), 1 << 20)
        finally:
            process.terminate()
            process.wait(30)
            poll(lambda: self.rig.cli("node", "rm", "c").code == 0, "the node gone", 60)

    def test_one_bad_output_costs_only_itself(self):
        root = self.project("outputs", a="1")
        done = self.laptop(
            root,
            "run",
            "--output",
            "good",
            "--output",
            "odd",
            "--output",
            "absent",
            "--",
            "sh",
            "-c",
            (
                'mkdir good odd && echo kept > good/x && echo x > "odd/$(head -c 300 /dev/zero |'
                " tr '\\0' n | cut -c1-200)\" && truncate -s 70G odd/huge"
            ),
        )
        self.assertEqual(done.returncode, 125, done)
        self.assertIn("an output could not be kept: odd: ", done.stderr)
        self.assertIn("the job did not create its output absent", done.stderr)
        job = self.rig.json("ps", "-a")["jobs"][0]["id"]
        done = self.laptop("/", "cp", f"{job}:good/", os.path.join(self.rig.root, "good-back"))
        self.assertEqual(done.returncode, 0, done)
        self.assertTrue(os.path.exists(os.path.join(self.rig.root, "good-back/x")))

    def test_a_job_that_dawdles_holds_up_nobody(self):
        root = self.project("slow", **{"dawdle.py": DAWDLE})
        begun = self.rig.file("dawdling")
        slow = [
            self.start_on_laptop(root, "run", "--", "python3", "dawdle.py", f"{begun}{i}")
            for i in range(3)
        ]
        try:
            for i in range(3):
                poll(lambda i=i: os.path.exists(f"{begun}{i}"), "connections that say nothing", 60)
            done = self.laptop(
                root,
                "run",
                "--output",
                "out",
                "--",
                "sh",
                "-c",
                "echo x > out; ls dawdle.py",
                timeout=60,
            )
            self.assertEqual((done.returncode, done.stdout), (0, "dawdle.py\n"), done)
            # And a job gets its own files, not what its node may read.
            other = self.tree_of(self.project("others", s="not yours"))
            done = self.laptop(root, "run", "--", "python3", "-c", ASK, other)
            self.assertEqual(
                (done.returncode, done.stdout.strip()),
                (0, "error these are not this job's files"),
                done,
            )
        finally:
            for process in slow:
                process.terminate()
                process.wait(30)

    def test_bad_trees_and_packs_are_refused(self):
        digest = hashlib.sha256(b"x").digest()
        file = lambda path, size=1, pieces=(digest,): (b"f", path, size, b"", pieces)
        cases = {
            "contains": tree(file(b"../../etc/cron.d/x")),
            "absolute": tree(file(b"/etc/passwd")),
            "links out": tree((b"l", b"a", 0, b"../../..", ())),
            "p/q/y": tree(
                (b"d", b"p", 0, b"", ()),
                (b"d", b"p/q", 0, b"", ()),
                (b"l", b"p/q/x", 0, b"../..", ()),
                (b"l", b"p/q/y", 0, b"x/../../..", ()),
            ),
            "not in a directory": tree((b"l", b"a", 0, b"b", ()), file(b"a/x")),
            "exceed": tree(file(b"bomb", 1 << 50)),
            "damaged": MAGIC + b"\xff\xff\x00\x00",
            "list of files": b"PK\x03\x04 a zip",
        }
        for word, body in cases.items():
            answer = self.rig.api(
                "POST",
                "/v1/files/trees",
                body,
                headers={"Content-Type": "application/octet-stream"},
            )
            self.assertIn(answer.status, (400, 413, 422), (word, answer))
            self.assertIn(word, answer.body.decode(), answer)
        answer = self.rig.api(
            "POST",
            "/v1/files/packs",
            digest + struct.pack("<Q", 1) + b"y",
            headers={"Content-Type": "application/octet-stream"},
        )
        self.assertIn(answer.status, (400, 422), answer)
        self.assertIn("does not match its digest", answer.body.decode())
        # Nobody without a token, and a join token is none.
        self.assertEqual(
            self.rig.api(
                "POST",
                "/v1/files/trees",
                tree(),
                token="bw_wrong",
                headers={"Content-Type": "application/octet-stream"},
            ).status,
            401,
        )
        done = self.laptop("/", "submit", "--sync", "--output", "../x", "--", "true")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("inside the working directory", done.stderr)


if __name__ == "__main__":
    unittest.main()
