"""Attacks by container images and registries: neither is trusted by whoever runs a job with them."""
import json
import os
import socket
import stat
import subprocess
import unittest

import images
from attacks_network_test import PYTHON, Space
from box_test import ImageTest
from rig import BILLOW, Rig, poll


def read_proc(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as f:
            return f.read()
    except OSError:
        return b""


def words_of(pid):
    return read_proc(pid, "cmdline").split(b"\0")


def pids_of(program):
    """The processes that run a program of this name."""
    pids = filter(str.isdigit, os.listdir("/proc"))
    return [pid for pid in pids if os.path.basename(words_of(pid)[0]) == program.encode()]


# Leaves what gives its owner's rights to whoever executes it, in every way there is; prints what
# came of each.
LEAVE = """
import ctypes, errno, json, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    if libc.syscall(ctypes.c_long(number), *args) < 0:
        raise OSError(ctypes.get_errno(), "")
here, x86 = -100, platform.machine() == "x86_64"
def fresh(name):
    with open(name, "w") as f:
        f.write("#!/bin/sh")
    return name.encode()
def after_clone(body):
    # In a user namespace of its own a process has every capability.
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(0x10000000) != 0:
        raise OSError(ctypes.get_errno(), "")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open("/proc/self/" + name, "w") as f:
            f.write(text)
    body()
capability = struct.pack("<IIIII", 0x02000001, 0xffffffff, 0, 0xffffffff, 0)
how = struct.pack("<QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
tries = {
    "plain": lambda: os.chmod(fresh("a"), 0o755),
    "chmod": lambda: os.chmod(fresh("b"), 0o4755),
    "given": lambda: os.chmod("given", 0o4755),
    "setgid": lambda: os.chmod(fresh("c"), 0o2755),
    "fchmod": lambda: os.fchmod(os.open(fresh("d"), os.O_RDWR), 0o4755),
    "fchmodat2": lambda: call(452, here, fresh("e"), 0o4755, 0),
    "open": lambda: os.open("f", os.O_CREAT | os.O_WRONLY, 0o4755),
    "openat2": lambda: call(437, here, b"g", how, len(how)),
    "mknod": lambda: os.mknod("h", 0o104755),
    "device": lambda: os.mknod("i", 0o020666, os.makedev(1, 1)),
    "disk": lambda: os.mknod("j", 0o060666, os.makedev(8, 0)),
    "capability": lambda: os.setxattr(fresh("k"), "security.capability", capability),
    "fsetxattr": lambda: os.setxattr(os.open(fresh("l"), os.O_RDWR), "security.capability", capability),
    "setxattrat": lambda: call(463, here, fresh("m"), 0, b"security.capability", capability, 20),
    "io_uring": lambda: call(425, 8, ctypes.create_string_buffer(120)),
    "namespace": lambda: after_clone(
        lambda: os.setxattr(fresh("n"), "security.capability", capability)),
}
out = {}
for name, attempt in tries.items():
    try:
        attempt()
        out[name] = "done"
    except OSError as e:
        out[name] = errno.errorcode.get(e.errno, str(e.errno))
print(json.dumps(out))
"""


class ImagePython(ImageTest):
    """With the node's Python, for attacks that a shell cannot carry out."""

    def python_in(self, script, directory, *options, env=None):
        """What the node's Python prints in the container, in a directory of the node. `env`: whose
        job it is, if not root's."""
        machine = os.uname().machine
        name = f"usr-{os.getpid()}"
        self.rig.cli("volume", "add", name, "--path", "/usr", "--read-only")
        libraries = f"/host/lib/{machine}-linux-gnu"
        loader = f"{libraries}/ld-linux-{machine.replace('_', '-')}.so.*"
        run = (
            f"PYTHONHOME=/host $(ls {loader} | head -1) --library-path"
            f" {libraries} /host/bin/python3"
        )
        with open(os.path.join(directory, "try.py"), "w", encoding="ascii") as f:
            f.write(script)
        command = ("run", "--image", self.image, "--volume", f"{name}:/host:ro", *options)
        done = self.rig.cli(*command, "--", "sh", "-c", f"{run} try.py", cwd=directory, timeout=120, env=env)
        self.assertEqual(done.code, 0, done)
        return json.loads(done.text)


class Containers(ImagePython):
    """An image that root runs, as everybody does who follows the tour: what is in it is not
    trusted."""

    def test_it_kills_no_process_of_the_node(self):
        victim = subprocess.Popen(["sleep", "600"])
        try:
            self.sh(
                f"kill -9 {victim.pid}; kill -TERM {victim.pid}; echo 500 >"
                f" /proc/{victim.pid}/oom_score_adj; true"
            )
            self.assertIsNone(victim.poll(), "the image killed a process of the node")
            with open(f"/proc/{victim.pid}/oom_score_adj", encoding="ascii") as f:
                self.assertEqual(f.read().strip(), "0")
        finally:
            victim.kill()
            victim.wait()

    def test_it_sees_its_own_processes_alone(self):
        done = self.sh("ls /proc | grep -c '^[0-9]'; cat /proc/1/cmdline | tr '\\0' ' '")
        self.assertLess(int(done.text.split()[0]), 8, done)
        self.assertIn("init", done.text)

    def test_it_has_no_part_of_the_nodes_shared_memory(self):
        name = f"/dev/shm/billow-attack-{os.getpid()}"
        with open(name, "w", encoding="ascii") as f:
            f.write("of the node")
        self.addCleanup(os.remove, name)
        done = self.sh(f"ls /dev/shm | wc -l; echo mine > {name}; cat {name}")
        self.assertEqual(done.text, "0\nmine\n", done)
        with open(name, encoding="ascii") as f:
            self.assertEqual(f.read(), "of the node")

    def test_root_inside_is_an_unprivileged_user_outside(self):
        long = str(10**6 + os.getpid())
        job = self.rig.submit("--image", self.image, "--", "sh", "-c", f"echo up; sleep {long}; :")
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        poll(lambda: "up" in self.rig.cli("logs", job).text, "the job", 60)

        def users():
            found = set()
            for name in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{name}/cmdline", "rb") as f:
                        if f.read() == f"sleep\0{long}\0".encode():
                            found.add(os.stat(f"/proc/{name}").st_uid)
                except OSError:
                    pass
            return found

        poll(users, "its process")
        self.assertGreaterEqual(min(users()), 65536)

    def test_what_it_writes_belongs_to_its_user(self):
        done = self.sh("echo out > written; mkdir -p made; cat /proc/self/uid_map; id -u")
        self.assertEqual(done.code, 0, done)
        inside, outside, count = done.text.split()[:3]
        self.assertEqual((inside, count), ("0", "1"))
        self.assertGreaterEqual(int(outside), 65536)
        for name in ("written", "made"):
            self.assertEqual(os.stat(self.rig.file(name)).st_uid, 0, name)

    def test_it_leaves_no_privileged_file_on_the_node(self):
        directory = self.rig.file("privileged")
        os.makedirs(directory)
        with open(f"{directory}/given", "wb") as f:
            f.write(b"#!/bin/sh")
        tries = self.python_in(LEAVE, directory)
        self.assertEqual(tries.pop("plain"), "done", "ordinary files can be written")
        self.assertNotIn("done", tries.values(), tries)
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            info = os.lstat(path)
            self.assertEqual(info.st_mode & 0o6000, 0, f"{name}: {info.st_mode:o}")
            self.assertTrue(stat.S_ISREG(info.st_mode), f"{name}: {info.st_mode:o}")
            self.assertNotIn("security.capability", os.listxattr(path), name)

    def test_volumes_have_no_privileged_programs_inside(self):
        shown = self.sh("cat /proc/self/mounts").text.splitlines()
        options = next(
            line.split()[3].split(",") for line in shown if line.split()[1] == self.rig.files
        )
        self.assertIn("nosuid", options)
        self.assertIn("nodev", options)

    def test_volumes_keep_the_options_of_the_node(self):
        """A volume without programs can be used, and stays without."""
        directory = self.rig.file("locked")
        os.makedirs(directory)
        mount = ["mount", "-t", "tmpfs", "-o", "noexec,noatime", "none", directory]
        if subprocess.run(mount, check=False).returncode != 0:
            self.skipTest("nothing can be mounted here")
        self.addCleanup(subprocess.run, ["umount", directory], check=True)
        self.rig.ok("volume", "add", "locked", "--path", directory)
        for how in ("locked:/v", "locked:/v:ro"):
            done = self.run_in("--volume", how, "--", "cat", "/proc/self/mounts")
            self.assertEqual(done.code, 0, done)
            options = next(
                line.split()[3] for line in done.text.splitlines() if line.split()[1] == "/v"
            )
            for option in ("noexec", "nosuid", "nodev", "noatime"):
                self.assertIn(option, options.split(","))

    def test_nor_does_what_enters_it_later(self):
        """A hook, like a session of ssh, runs in the container of the job."""
        left = self.rig.file("hooked")
        chmod = "/bin/busybox chmod"
        hook = f"cat /bin/sh > {left}; {chmod} 755 {left}; {chmod} 4755 {left}; touch {left}.done"
        job = self.rig.submit(
            *("--image", self.image, "--spot", "--suspend-hook", hook, "--", "sh"),
            *("-c", "echo up; while :; do sleep 1; done"),
        )
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        poll(lambda: "up" in self.rig.cli("logs", job).text, "the job", 60)
        self.rig.cli("suspend", job)
        poll(lambda: os.path.exists(left + ".done"), "the hook", 60)
        self.assertEqual(os.stat(left).st_mode & 0o7777, 0o755)

    def test_billows_own_files_cannot_be_changed(self):
        done = self.sh("echo x > /run/billow-as-user; echo code $?")
        self.assertIn("Read-only", done.text + done.errors)
        self.assertNotIn("code 0", done.text)


# A registry that asks whoever pulls from it for a token from somewhere else.
REALM = """
import http.server
class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Bearer realm="http://169.254.169.254/role",service="x"')
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_HEAD = do_GET
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 5000), Registry)
print("ready", flush=True)
server.serve_forever()
"""


@unittest.skipIf(images.missing(), images.missing())
class Pulling(unittest.TestCase):
    """A job names an image of a registry that is the attacker's: what fetches it is no way out."""

    def test_a_registry_sends_nobody_to_the_metadata_service(self):
        space = Space()
        self.addCleanup(space.close)
        if not space.usable:
            self.skipTest("no network of its own can be made here")
        rig = Rig(sim="1xH100", up=False)
        self.addCleanup(rig.close)
        rig.command = lambda *args: space.inside(BILLOW, *map(str, args))
        rig.up()
        if "metadata guard: not available" in rig.ok("doctor", "--json").text:
            self.skipTest("this kernel attaches no BPF programs to control groups")
        registry = subprocess.Popen(space.inside(PYTHON, "-c", REALM), stdout=subprocess.PIPE)
        self.addCleanup(lambda: (registry.kill(), registry.wait(), registry.stdout.close()))
        self.assertEqual(registry.stdout.readline(), b"ready\n")
        done = rig.cli("run", "--image", "127.0.0.1:5000/x:1", "--", "true", timeout=120)
        self.assertNotEqual(done.code, 0)
        self.assertIn("169.254.169.254", done.errors)
        self.assertIn("operation not permitted", done.errors)

    def test_it_is_fetched_in_groups_with_limits_and_without_the_users_settings(self):
        rig = Rig(sim="1xH100")
        self.addCleanup(rig.close)
        if "process tracking: cgroup v2" not in rig.ok("doctor", "--json").text:
            self.skipTest("this machine has no cgroup v2 of its own")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            image = f"127.0.0.1:{silent.getsockname()[1]}/x:1"
            job = rig.submit("--image", image, "--", "true")
            silent.settimeout(60)
            silent.accept()  # podman waits for an answer that never comes
            pulling = [pid for pid in pids_of("podman") if image.encode() in words_of(pid)]
            self.assertTrue(pulling)
            for pid in pulling:
                groups = read_proc(pid, "cgroup").decode().split("\n")
                fetches = [g for g in groups if "/billow/" in g and "-fetch-" in g]
                self.assertTrue([g for g in fetches if g.startswith("0::")], groups)
                if os.path.isdir("/sys/fs/cgroup/pids"):
                    self.assertTrue([g for g in fetches if ":pids:" in g], groups)
                self.assertIn(b"CONTAINERS_CONF=/dev/null", read_proc(pid, "environ").split(b"\0"))
            made = [g.split(":", 2)[2] for g in fetches]
            rig.ok("stop", "--force", "--wait", job)
        poll(lambda: not [p for p in pulling if image.encode() in words_of(p)], "podman is gone")
        tops = ("/sys/fs/cgroup", *(e.path for e in os.scandir("/sys/fs/cgroup") if e.is_dir()))
        poll(
            lambda: not [t for t in tops for g in made if os.path.exists(t + g)],
            "the groups are gone",
        )
