"""What a job finds in its room: secrets, users, networks, limits; and what a node keeps of images.
"""
import hashlib
import json
import os
import shutil
import socket
import subprocess
import unittest

import images
from box_test import ImageTest
from rig import BILLOW, poll


class Rooms(ImageTest):
    def test_secrets_are_files_inside(self):
        value = "s3cret-" + os.urandom(8).hex()
        self.rig.ok("secret", "set", "KEY", stdin=value.encode())
        look = (
            'busybox sha256sum < "$KEY_FILE"; echo $KEY_FILE; stat -c %a:%u $KEY_FILE; busybox'
            " sha256sum < /etc/app/token; busybox sha256sum < /root/.netrc; echo x > /etc/app/token"
        )
        done = self.sh(
            look + " 2>&1; true",
            "--secret",
            "KEY:file",
            "--secret",
            "KEY:/etc/app/token",
            "--secret",
            "KEY:/root/.netrc",
        )
        self.assertEqual(done.code, 0, done)
        lines = done.text.split("\n")
        shown = hashlib.sha256(value.encode()).hexdigest() + "  -"  # logs do not show values
        self.assertEqual(lines[:1] + lines[2:5], [shown, "400:0", shown, shown], done)
        self.assertIn("Read-only", done.text + done.errors)
        described = self.rig.json("describe", self.last())
        self.assertEqual(
            described["secrets"],
            [
                {"name": "KEY", "file": "/run/secrets/KEY"},
                {"name": "KEY", "file": "/etc/app/token"},
                {"name": "KEY", "file": "/root/.netrc"},
            ],
        )
        self.assertNotIn(value, json.dumps(described))
        self.assertIn("KEY as the file /etc/app/token", self.rig.ok("describe", self.last()).text)
        # Gone with the job: neither in the image, nor in what the next one sees.
        self.assertEqual(
            self.sh("ls /etc/app /root/.netrc /run/secrets 2>&1 | grep -c 'No such'").text, "3\n"
        )

    def test_the_images_own_user(self):
        named = self.registry.push(
            "named:1",
            images.root_tar({"etc/group": b"root:x:0:\nstaff:x:50:app\n"}),
            "USER app:staff",
        )
        done = self.sh(
            (
                "id -u; id -g; echo $HOME; stat -c %u:%g /home/app; touch /home/app/mine here.txt"
                " && echo wrote; grep CapEff /proc/self/status; exit 5"
            ),
            image=named,
        )
        self.assertEqual(done.code, 5, done)
        self.assertEqual(
            done.text.split("\n")[:5], ["1000", "50", "/home/app", "1000:50", "wrote"], done
        )
        self.assertRegex(done.text, "CapEff:\t0+\n")
        self.assertEqual(
            os.stat(self.rig.file("here.txt")).st_uid, 0
        )  # the job's own user, outside
        number = self.registry.push("number:1", images.root_tar(), "USER 4321")
        self.assertEqual(self.sh("id -u; id -g", image=number).text, "4321\n0\n")
        gone = self.run_in("--", "no-such-command", image=number)
        self.assertEqual(gone.code, 127, gone)
        self.assertIn("command not found in the image", gone.errors + gone.text)
        unknown = self.registry.push("unknown:1", images.root_tar(), "USER stranger")
        done = self.sh("true", image=unknown)
        self.assertEqual(done.code, 125, done)
        self.assertIn('as user "stranger"', done.errors + done.text)

    def test_the_network_is_the_nodes_or_none(self):
        devices = "grep -c : /proc/net/dev"
        with open("/proc/net/dev", encoding="ascii") as f:
            ours = sum(":" in line for line in f)
        self.assertEqual(self.sh(devices).text, f"{ours}\n")
        done = self.sh(devices, "--network", "none")
        self.assertEqual((done.code, done.text), (0, "1\n"), done)
        self.assertEqual(self.rig.json("describe", self.last())["network"], "none")
        # In an environment: its own loopback works, and nothing of the node's is there.
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        self.rig.ok("env", "save", "nothing", self.rig.files, timeout=120)
        program = (
            "import socket\ns = socket.create_server(('127.0.0.1', 0));"
            " socket.create_connection(s.getsockname(), 5); print('loopback')\ntry:"
            f" socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5);"
            " print('reached')\nexcept OSError as e: print('refused')\n"
        )
        for options, words in (
            ((), "loopback\nreached\n"),
            (("--network", "none"), "loopback\nrefused\n"),
        ):
            done = self.rig.cli(
                "run", "--env", "nothing", *options, "--", "python3", "-c", program, timeout=120
            )
            self.assertEqual((done.code, done.text), (0, words), done)
        for args, word in (
            (("run", "--network", "none", "--", "true"), "needs an image, an environment or"),
            (
                ("run", "--network", "bridge", "--image", self.image, "--", "true"),
                "must be host|none|internet|project",
            ),
            (
                ("run", "--network", "none", "--nodes", "2", "--image", self.image, "--", "true"),
                "a gang needs the network",
            ),
            (
                ("deploy", "lonely", "--network", "none", "--image", self.image, "--", "true"),
                "needs the network",
            ),
        ):
            refused = self.rig.cli(*args)
            self.assertIn(refused.code, (1, 2), refused)
            self.assertIn(word, refused.errors)

    def test_processes_are_limited(self):
        if "not available" in next(
            (line for line in self.rig.cli("doctor").text.splitlines() if "process limits" in line),
            "not available",
        ):
            self.skipTest("this machine has no control group for processes")
        script = "for i in $(seq 300); do sleep 30 & done; echo all"
        done = self.sh(script, "--max-processes", "100", "--stop-grace", "1s")
        self.assertNotIn("all\n", done.text)
        self.assertIn("fork", done.errors)
        self.assertIn(
            "all\n",
            self.sh(
                "for i in $(seq 300); do true & done; echo all", "--max-processes", "4000"
            ).text,
        )
        for few in ("0", "5", "99999999"):
            self.assertIn(self.rig.cli("run", "--max-processes", few, "--", "true").code, (1, 2))

    def test_the_usual_limit_of_processes_holds_for_every_job(self):
        if "not available" in next(
            (line for line in self.rig.cli("doctor").text.splitlines() if "process limits" in line),
            "not available",
        ):
            self.skipTest("this machine has no control group for processes")
        look = (
            "for d in $(sed -n 's/^[0-9]*:pids:/\\/sys\\/fs\\/cgroup\\/pids/p;"
            " s/^0::/\\/sys\\/fs\\/cgroup/p' /proc/self/cgroup); do cat $d/pids.max 2>/dev/null;"
            " done; true"
        )
        done = self.rig.cli("run", "--", "sh", "-c", look)  # which asks for no limit at all
        self.assertIn("4096", done.text.split(), done)

    def test_what_images_take_is_shown(self):
        self.assertEqual(self.sh("true").code, 0)
        node = self.rig.json("nodes")["nodes"][0]["name"]
        shown = poll(
            lambda: (lambda images: images["bytes"] > 100_000 and images)(
                self.rig.json("nodes", node).get("images", {"bytes": 0})
            ),
            "what images take",
            60,
        )
        self.assertEqual(shown["bytes_max_per_user"], 100 << 30)
        self.assertRegex(
            self.rig.ok("nodes", node).text, r"images [0-9.]+ [KMG]iB, at most 100 GiB per user"
        )

    def test_images_are_kept_up_to_a_limit(self):
        store = os.path.join(self.rig.root, "store")
        os.mkdir(store)
        names = [
            self.registry.push(f"large{n}:1", images.root_tar({f"etc/{n}": b"x"}, size=4_000_000))
            for n in range(4)
        ]

        def bring(name, key="k", limit=16_000_000):
            done = subprocess.run(
                [
                    BILLOW,
                    "box",
                    "--store",
                    store,
                    "--image",
                    name,
                    "--key",
                    key,
                    "--limit",
                    str(limit),
                ],
                capture_output=True,
                check=False,
                timeout=120,
            )
            said = [json.loads(line) for line in done.stdout.splitlines()]
            return next((s for s in said if "image" in s or "error" in s), said)

        kept = lambda: {
            i["names"][0].split("/")[-1]
            for i in json.load(
                open(os.path.join(store, "storage/overlay-images/images.json"), encoding="utf-8")
            )
        }
        first = bring(names[0], "task0")  # which a task uses from now on
        self.assertIn("image", first)
        bring(names[1], "ended")
        shutil.rmtree(os.path.join(store, "scratch/ended"))
        self.assertEqual(kept(), {"large0:1", "large1:1"})
        bring(names[2], "task2")
        self.assertEqual(kept(), {"large0:1", "large2:1"})  # the one that nobody uses went
        bring(names[3], "task3")
        self.assertEqual(
            kept(), {"large0:1", "large2:1", "large3:1"}
        )  # nothing that is used goes, though it is too much
        for key in ("task0", "task2"):
            shutil.rmtree(os.path.join(store, "scratch", key))
        bring(names[0], "again")  # was here: the longest unused is another one now
        bring(names[1], "more")
        self.assertNotIn("large2:1", kept())
        self.assertIn("large1:1", kept())
        refused = bring(names[2], "small", 1_000_000)
        self.assertIn("keeps at most 1 MB", refused["error"]["message"])
        self.assertNotIn("large2:1", kept())


if __name__ == "__main__":
    unittest.main()
