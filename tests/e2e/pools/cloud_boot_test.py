"""How a rented machine becomes a node: each is in a network namespace of its own, has nothing of Billow on it, and runs only
the user data that the cloud was given."""
import os
import socket
import stat
import subprocess
import tempfile
import threading
import unittest

import net
from aws_server import KEY, SECRET, AwsServer
from booted import Machines
from far import FarRig
from rig import BIN, MARK, SOURCE, poll

PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class BootRig(FarRig):
    def __init__(self, network):
        listening = net.socket_in(
            network.hosts["head"][0], lambda: socket.create_server(("127.0.0.1", 0), backlog=128)
        )
        self.aws = AwsServer(boots=True, listening=listening)
        super().__init__(network, up=False)
        self.environment.update(
            AWS_ACCESS_KEY_ID=KEY,
            AWS_SECRET_ACCESS_KEY=SECRET,
            AWS_EC2_METADATA_DISABLED="true",
            HOME=self.root,
        )
        self.aws.machines = Machines(
            os.path.join(self.root, "instances"),
            environment={
                MARK: self.data,
                "PATH": PLAIN_PATH,
                "BILLOW_BOOT_TICK": "1",
                "BILLOW_DATA": "",
                "BILLOW_SIM": "",
                "BILLOW_NODE_POLICY": self.environment["BILLOW_NODE_POLICY"],
            },
            inside=lambda number: network.inside("ab"[number % 2]),
        )
        self.up()

    def add(self, *options):
        return self.ok(
            *("cloud", "add", "aws", "--region", "us-east-1", "--gpu-type", "L4", "--max", 2),
            *("--idle", "2s", "--sim", "1xL4", "--option", f"endpoint={self.aws.url}"),
            *("--head-url", self.url, *options),
            timeout=120,
        )

    def home_of(self, number=0):
        return poll(
            lambda: len(self.aws.instances) > number
            and list(self.aws.instances.values())[number].get("home"),
            "a machine",
            60,
        )

    def node_log(self, home):
        path = os.path.join(home, "var/lib/billow/node.log")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def close(self):
        try:
            super().close()
        finally:
            self.aws.close()


class Boot(unittest.TestCase):
    def setUp(self):
        why = net.usable()
        if why:
            self.skipTest(why)
        self.net = net.Net("head", "a", "b")
        try:
            self.rig = BootRig(self.net)
        except BaseException:
            self.net.close()
            raise

    def tearDown(self):
        try:
            self.rig.close()
        finally:
            self.net.close()

    def test_a_machine_fetches_the_program_checks_its_hash_and_joins(self):
        rig = self.rig
        rig.add()
        done = rig.ok("run", "--gpus", 1, "--", "cat", "/proc/self/exe", timeout=240)
        self.assertTrue(done.out.startswith(b"\x7fELF"))
        home = rig.home_of()
        fetched = os.path.join(home, "opt/billow/bin/billow")
        with open(fetched, "rb") as there, open(os.path.join(BIN, "billow"), "rb") as here:
            self.assertEqual(there.read(), here.read(), "the head's own program")
        self.assertTrue(os.stat(fetched).st_mode & stat.S_IXUSR)
        one = next(iter(rig.aws.instances.values()))
        self.assertIn("sha256sum -c", one["data"])
        poll(lambda: not rig.aws.alive(), "the machine ended", 60)
        self.assertEqual(rig.aws.created, 1)

    def test_a_program_with_another_hash_is_not_run(self):
        rig = self.rig
        rig.add()
        start = rig.aws.start_machine

        def tampered(one):
            lines = one["data"].splitlines()
            at = next(i for i, line in enumerate(lines) if "sha256sum -c" in line)
            word = lines[at].split('"')[1].split()[0]
            lines[at] = lines[at].replace(word, "0" * 64)
            one["data"] = "\n".join(lines) + "\n"
            start(one)

        rig.aws.start_machine = tampered
        job = rig.submit("--gpus", 1, "--", "true")
        home = rig.home_of()
        # It never joins, and ends itself: twelve ticks of a second instead of a minute.
        poll(lambda: os.path.exists(home + "/off"), "power off", 120)
        self.assertFalse(os.path.exists(home + "/opt/billow/bin/billow"))
        self.assertNotIn("has joined", rig.node_log(home))
        rig.ok("stop", job)
        rig.aws.powered_off()
        poll(lambda: not rig.aws.alive(), "every machine ended", 60)

    def test_a_machine_reaches_the_head_only_through_a_proxy(self):
        rig = self.rig
        proxy = Proxy(self.net.hosts["head"][0])
        self.addCleanup(proxy.close)
        head = rig.url.split("//")[1]
        host = head.rsplit(":", 1)[0]
        done = rig.add("--no-public-address", "--proxy", f"http://{host}:{proxy.port}")
        self.assertIn("problems  none", done.text)
        ran = rig.ok("run", "--gpus", 1, "--", "echo", "through", timeout=240)
        self.assertEqual(ran.out, b"through\n")
        asked = next(
            r[3] for r in rig.aws.requests if r[2] == "RunInstances" and "DryRun" not in r[3]
        )
        self.assertEqual(asked["NetworkInterface.1.AssociatePublicIpAddress"], "false")
        # The program, the join, and the agent's own connection.
        self.assertGreaterEqual(len(proxy.asked), 3, proxy.asked)
        self.assertEqual(set(proxy.asked), {f"CONNECT {head}"})
        poll(lambda: not rig.aws.alive(), "the machine ended", 60)

    def test_strangers_do_not_get_the_program(self):
        for token in ("bwj_wrong", ""):
            done = subprocess.run(
                [*self.net.inside("a"), "curl", "-sk", "-H", f"Authorization: Bearer {token}"]
                + ["-o", "/dev/null", "-w", "%{http_code}", f"{self.rig.url}/v1/program"],
                capture_output=True,
                check=False,
            )
            self.assertEqual(done.stdout, b"401")


class Proxy:
    """Carries connections (CONNECT) between machines of a Net, and counts them."""

    def __init__(self, namespace):
        self.namespace, self.asked = namespace, []
        self.listening = net.socket_in(
            namespace, lambda: socket.create_server(("0.0.0.0", 0), backlog=64)
        )
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = client.recv(1)
            if not byte:
                return
            head += byte
        method, to, _ = head.split(b"\r\n")[0].decode().split()
        self.asked.append(f"{method} {to}")
        host, port = to.rsplit(":", 1)
        server = net.socket_in(
            self.namespace, lambda: socket.create_connection((host, int(port)), timeout=10)
        )
        server.settimeout(None)
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for a, b in ((client, server), (server, client)):
            threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    @staticmethod
    def carry(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
        except OSError:
            pass
        for one in (a, b):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listening.close()


class LocalDisks(unittest.TestCase):
    """The part of the start-up script that uses the machine's own disks, with tools that only note what they are asked."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="billow-disks-")
        self.tools = os.path.join(self.folder.name, "tools")
        os.makedirs(self.tools)
        os.makedirs(self.folder.name + "/opt/billow")
        self.disks = ""

    def tearDown(self):
        self.folder.cleanup()

    def tool(self, name, text):
        path = os.path.join(self.tools, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\necho "{name} $*" >> {self.folder.name}/asked\n{text}\n')
        os.chmod(path, 0o755)

    def run_script(self, models, mounted=(), need_gib=0, size_gib=250):
        with open(self.folder.name + "/opt/billow/disk-kib", "w", encoding="ascii") as f:
            f.write(f"{need_gib << 20}\n")
        with open(os.path.join(SOURCE, "src/pool/boot.cpp")) as f:
            text = f.read()
        begin = text.index("disks.sh\" <<'END'\n") + len("disks.sh\" <<'END'\n")
        script = text[begin : text.index("\nEND\n", begin)]
        script = script.replace("{{", "{").replace("}}", "}")
        listed = "\\n".join(f"/dev/{name} {model}" for name, model in models)
        answers = "".join(f'[ "$3" = /dev/{name} ] && echo /mnt\n' for name in mounted)
        sizes = f"shift 2; for disk; do echo {size_gib << 30}; done; exit"
        answers = f"[ $1 = -bdno ] && {{ {sizes}; }}\n{answers}"
        self.tool("lsblk", f"[ $1 = -dpno ] && printf '{listed}\\n'\n{answers}true")
        self.tool("mountpoint", "false")
        made = f"{self.folder.name}/made"
        self.tool("blkid", f"[ -e {made} ] && cat {made}")
        self.tool("mkfs.ext4", f'for last; do :; done; echo "$last" > {made}')
        for name in ("mdadm", "mount", "flock"):
            self.tool(name, "true")
        subprocess.run(
            ["sh", "-c", script],
            env={"PATH": self.tools + ":" + PLAIN_PATH, "BILLOW_BOOT_ROOT": self.folder.name},
            check=True,
            timeout=20,
        )
        with open(self.folder.name + "/asked", encoding="utf-8") as f:
            return f.read()

    def test_several_are_striped_and_hold_the_nodes_data(self):
        asked = self.run_script(
            [
                ("nvme0n1", "Amazon Elastic Block Store              "),
                ("nvme1n1", "Amazon EC2 NVMe Instance Storage        "),
                ("nvme2n1", "Amazon EC2 NVMe Instance Storage        "),
            ]
        )
        self.assertIn("--level=0 --raid-devices=2 --force --run /dev/nvme1n1 /dev/nvme2n1", asked)
        self.assertIn(f"mount -o noatime /dev/md/billow {self.folder.name}/var/lib/billow", asked)
        self.assertNotIn("nvme0n1", asked.replace("lsblk", ""), "the boot disk is left alone")

    def test_one_is_used_as_it_is_and_googles_and_azures_are_known(self):
        for model in ("nvme_card", "Microsoft NVMe Direct Disk v2"):
            with self.subTest(model):
                asked = self.run_script([("sda", "PersistentDisk"), ("nvme0n1", model)])
                self.assertIn("-L billow-local /dev/nvme0n1", asked)
                self.assertNotIn("mdadm", asked)
                self.tearDown()
                self.setUp()

    def test_disks_that_are_too_small_for_the_job_are_left_alone(self):
        disks = [(f"nvme{i}n1", "Amazon EC2 NVMe Instance Storage") for i in (1, 2)]
        for need, used in ((400, True), (500, False)):
            with self.subTest(need=need):
                asked = self.run_script(disks, need_gib=need)
                self.assertEqual("mkfs" in asked, used, asked)
                self.tearDown()
                self.setUp()

    def test_a_disk_in_use_and_a_persistent_one_are_left_alone(self):
        asked = self.run_script(
            [("nvme0n1", "nvme_card-pd"), ("nvme1n1", "nvme_card")], mounted=["nvme1n1"]
        )
        self.assertNotIn("mkfs", asked)
        self.assertNotIn("mount -o", asked)


if __name__ == "__main__":
    unittest.main()
