"""Packages as people install them: what is in them, install.sh and its signatures, upgrade and uninstall, and from a
package to the first job on a bare Debian."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from rig import BIN, SOURCE

BUILD = os.path.abspath(os.path.join(BIN, ".."))
VERSION = re.search(
    r"^project\(billow VERSION ([0-9.]+)", open(f"{SOURCE}/CMakeLists.txt").read(), re.M
)[1]
MACHINE = os.uname().machine
BUNDLE = f"billow-{VERSION}-linux-{MACHINE}.tar.gz"


os.environ["BILLOW_DEB_COMPRESSION"] = "-Zgzip -z1"  # a release takes xz, which is slow


def run(*args, **options):
    return subprocess.run(
        [str(a) for a in args], capture_output=True, text=True, check=False, **options
    )


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def make_packages(out, key=None, version=VERSION):
    """The packages of the programs that this build made, stripped as a release is."""
    stage = os.path.join(out, "stage")
    for folder in ("bin", "lib", "share/man/man1"):
        os.makedirs(os.path.join(stage, folder))
    for name in ("billow", "billow-supervise", "billow-gpumem"):
        if os.path.exists(f"{BUILD}/bin/{name}"):
            run("strip", "-o", f"{stage}/bin/{name}", f"{BUILD}/bin/{name}")
    for name in ("libbillow-nvml-sim.so", "libbillow-cuda.so"):
        if os.path.exists(f"{BUILD}/lib/{name}"):
            run("strip", "-o", f"{stage}/lib/{name}", f"{BUILD}/lib/{name}")
    for folder in ("system", "user"):
        os.makedirs(f"{stage}/lib/systemd/{folder}")
    for folder, _, names in os.walk(f"{SOURCE}/packaging/systemd"):
        kind = "user" if folder.endswith("/user") else "system"
        for name in names:
            shutil.copy(os.path.join(folder, name), f"{stage}/lib/systemd/{kind}/{name}")
    made = run(f"{stage}/bin/billow", "help", "--man-dir", f"{stage}/share/man/man1")
    assert made.returncode == 0, made
    packages = os.path.join(out, "dist")
    made = run(
        f"{SOURCE}/packaging/make_packages.sh",
        stage,
        version,
        MACHINE,
        packages,
        *([key] if key else []),
    )
    assert made.returncode == 0, made
    shutil.rmtree(stage)
    return packages


@unittest.skipUnless(shutil.which("dpkg-deb"), "needs dpkg-deb")
class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="billow-package-")
        cls.key = f"{cls.root}/key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", cls.key)
        cls.dist = make_packages(cls.root, cls.key)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def setUp(self):
        self.home = tempfile.mkdtemp(dir=self.root)
        self.prefix = f"{self.home}/.local"
        self.environment = {"HOME": self.home, "PATH": os.environ["PATH"]}
        for kind in ("DATA", "STATE", "CONFIG"):  # root's data would be the machine's own
            self.environment[f"XDG_{kind}_HOME"] = f"{self.home}/{kind.lower()}"
        self.copied = shutil.copytree(self.dist, f"{self.home}/dist")

    def install(self, *args):
        return run(
            "sh", f"{self.copied}/install.sh", "--prefix", self.prefix, *args, env=self.environment
        )

    def billow(self, *args):
        return run(f"{self.prefix}/bin/billow", *args, env=self.environment)

    def test_the_debian_package_holds_what_people_need(self):
        deb = [n for n in os.listdir(self.dist) if n.endswith(".deb")]
        self.assertEqual(len(deb), 1, deb)
        listed = run("dpkg-deb", "-c", f"{self.dist}/{deb[0]}").stdout
        for path in (
            "./usr/bin/billow",
            "./usr/bin/billow-supervise",
            "./usr/lib/systemd/system/billow.service",
            "./usr/lib/systemd/system/billow-head.service",
            "./usr/lib/systemd/system/billow-node.service",
            "./usr/lib/systemd/system/billow-gateway.service",
            "./usr/lib/systemd/user/billow.service",
            "./usr/share/man/man1/billow-run.1.gz",
        ):
            self.assertIn(f" {path}\n", listed)
        self.assertNotIn("root/root 0 ", listed.replace("drwx", ""))
        control = run("dpkg-deb", "-I", f"{self.dist}/{deb[0]}").stdout
        self.assertIn("Depends: libc6 (>= 2.36)", control)

    @unittest.skipUnless(os.path.exists(f"{SOURCE}/.git"), "the sources come from git")
    def test_the_formula_names_the_sources_of_the_release(self):
        with open(f"{self.dist}/billow.rb", encoding="utf-8") as f:
            formula = f.read()
        with open(f"{self.dist}/billow-{VERSION}-source.tar.gz", "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        self.assertIn(f'sha256 "{digest}"', formula)
        self.assertIn(f"/v{VERSION}/billow-{VERSION}-source.tar.gz", formula)
        self.assertNotRegex(formula, "@[A-Z0-9]+@", "something was not filled in")
        # What it installs is in the sources.
        listed = run("tar", "-tzf", f"{self.dist}/billow-{VERSION}-source.tar.gz").stdout
        for path in re.findall(r'"(packaging/[^"]+)"', formula):
            self.assertIn(f"billow-{VERSION}/{path}\n", listed)

    def test_the_same_programs_make_the_same_packages(self):
        again = make_packages(f"{self.home}/again", self.key)

        def digests(folder):
            names = [n for n in os.listdir(folder) if n.endswith((".deb", ".tar.gz", "SUMS"))]
            return {name: sha256(os.path.join(folder, name)) for name in names}

        self.assertEqual(digests(again), digests(self.dist))

    def test_the_bill_of_materials_lists_what_is_in_the_programs(self):
        out = f"{self.home}/sbom.json"
        made = run(sys.executable, f"{SOURCE}/tools/dev/sbom.py", SOURCE, BUILD, out)
        self.assertEqual(made.returncode, 0, made)
        with open(out, encoding="utf-8") as f:
            bill = json.load(f)
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.5"))
        found = {one["bom-ref"]: one for one in bill["components"]}
        program = found["file/billow"]["hashes"][0]
        self.assertEqual(program, {"alg": "SHA-256", "content": sha256(f"{BUILD}/bin/billow")})
        self.assertTrue([ref for ref in found if "libssl" in ref], found.keys())
        with open(f"{SOURCE}/web/package-lock.json", encoding="utf-8") as f:
            locked = json.load(f)["packages"]
        for path, entry in locked.items():
            if path and not entry.get("dev"):
                self.assertIn("npm/" + path.split("node_modules/")[-1], found)
        for ref, one in found.items():
            if ref.split("/")[0] not in ("file", "pypi"):
                self.assertTrue(one.get("licenses"), one)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "needs systemd-analyze")
    def test_units_are_confined_as_far_as_their_work_allows(self):
        # Units that start jobs of other accounts are root, and jobs inherit what they restrict:
        # SECURITY.md says what remains and why.
        for unit, most in (
            ("billow-head", 1.2),
            ("billow-gateway", 1.2),
            ("billow-node", 6.7),
            ("billow", 6.7),
        ):
            with self.subTest(unit):
                path = f"{SOURCE}/packaging/systemd/{unit}.service"
                rated = run("systemd-analyze", "security", "--offline=true", path).stdout
                found = re.search(rf"exposure level for {unit}.service: ([0-9.]+)", rated)
                self.assertLessEqual(float(found[1]), most, rated)

    def test_a_signed_bundle_is_installed_without_root(self):
        done = self.install()
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("the signature is good", done.stderr)
        self.assertIn(VERSION, self.billow("version").stdout)
        self.assertTrue(os.path.exists(f"{self.prefix}/share/man/man1/billow.1"))

    def sign_as_somebody_else(self):
        key = f"{self.home}/other"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        os.remove(f"{self.copied}/SHA256SUMS.sig")
        sums = f"{self.copied}/SHA256SUMS"
        run("ssh-keygen", "-Y", "sign", "-f", key, "-n", "billow-release", sums)

    def test_a_bundle_whose_name_is_a_pattern_is_not_taken_for_the_signed_one(self):
        other = f"{self.copied}/{BUNDLE.replace('0', '[0-9]', 1)}"
        self.assertNotEqual(other, f"{self.copied}/{BUNDLE}")
        shutil.copy(f"{self.copied}/{BUNDLE}", other)
        with open(other, "ab") as f:
            f.write(b"x")
        self.assertIn("several bundles", self.install().stderr)
        done = self.install("--from", other)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("is not the file that was signed", done.stderr)
        self.assertFalse(os.path.exists(self.prefix))

    def test_a_bundle_that_was_changed_is_refused(self):
        with open(f"{self.copied}/{BUNDLE}", "ab") as f:
            f.write(b"x")
        done = self.install()
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("is not the file that was signed", done.stderr)
        self.assertFalse(os.path.exists(self.prefix))
        # Nor do new checksums help: they are signed by nobody, or by somebody else.
        run("sh", "-c", f"cd {self.copied} && sha256sum {BUNDLE} > SHA256SUMS")
        self.assertIn("not by a key", self.install().stderr)
        self.sign_as_somebody_else()
        self.assertIn("not by a key", self.install().stderr)
        os.remove(f"{self.copied}/SHA256SUMS.sig")
        self.assertIn("cannot be checked", self.install().stderr)
        self.assertFalse(os.path.exists(self.prefix))

    def test_upgrade_trusts_the_keys_of_the_installation(self):
        self.assertEqual(self.install().returncode, 0)
        done = self.billow("upgrade", f"{self.copied}/{BUNDLE}")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("is installed", done.stderr)
        # A release of somebody else brings its own list of keys, which does not count.
        self.sign_as_somebody_else()
        with open(f"{self.home}/other.pub", encoding="ascii") as key:
            with open(f"{self.copied}/release-signers", "w", encoding="ascii") as f:
                f.write("release@billow " + key.read())
        done = self.billow("upgrade", f"{self.copied}/{BUNDLE}")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("not by a key", done.stderr)

    def test_a_job_goes_on_while_its_program_is_replaced(self):
        self.assertEqual(self.install().returncode, 0)
        self.environment["BILLOW_SIM"] = "1xL4"
        go = f"{self.home}/go"
        script = f"echo begun; until test -e {go}; do sleep 0.1; done; echo ended"
        self.assertEqual(
            self.billow("submit", "--name", "long", "--", "sh", "-c", script).returncode, 0
        )
        done = self.billow("upgrade", f"{self.copied}/{BUNDLE}")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("still runs the earlier version; restart it when it suits", done.stderr)
        self.assertIn("(jobs continue)", done.stderr)
        self.assertNotIn("try it:", done.stderr)
        self.assertEqual(self.billow("down").returncode, 0)
        self.assertEqual(self.billow("up", "--background").returncode, 0)
        with open(go, "w", encoding="ascii"):
            pass
        done = self.billow("wait", "long")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.billow("logs", "long").stdout, "begun\nended\n")
        self.assertEqual(self.billow("down", "--stop-jobs").returncode, 0)

    def test_uninstall_names_data_wherever_it_is(self):
        self.assertEqual(self.install().returncode, 0)
        self.environment["BILLOW_SIM"] = "1xL4"
        self.environment["XDG_CACHE_HOME"] = f"{self.home}/cache"
        elsewhere = f"{self.home}/elsewhere"
        done = self.billow("up", "--background", "--data", elsewhere)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.billow("run", "--sync", "--", "true").returncode, 0)
        self.assertEqual(self.billow("down", "--stop-jobs").returncode, 0)
        done = self.billow("uninstall")
        self.assertEqual(done.returncode, 0, done)
        for stays in (elsewhere, f"{self.home}/cache/billow", f"{self.home}/state/billow"):
            self.assertIn(f"  rm -r {stays}\n", done.stdout)
        left = [path for path, folders, files in os.walk(self.prefix) if not folders and not files]
        self.assertEqual(
            [os.path.relpath(path, self.prefix) for path in left if path.count("/share/")], []
        )
        # Installed and removed again with everything.
        self.assertEqual(self.install().returncode, 0)
        done = self.billow("uninstall", "--purge")
        self.assertIn("nothing of it stays", done.stdout)
        self.assertFalse(os.path.exists(elsewhere))

    def test_uninstall_says_what_stays(self):
        self.assertEqual(self.install().returncode, 0)
        self.environment["BILLOW_SIM"] = "1xL4"
        done = self.billow("run", "--gpus", 1, "--", "nvidia-smi", "-L")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("L4", done.stdout)
        refused = self.billow("uninstall")
        self.assertEqual(refused.returncode, 1, refused)
        self.assertIn("billow down --stop-jobs", refused.stderr)
        self.assertEqual(self.billow("down", "--stop-jobs").returncode, 0)
        done = self.billow("uninstall")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("these stay", done.stdout)
        self.assertFalse(os.path.exists(f"{self.prefix}/bin/billow"))
        self.assertFalse(os.path.exists(f"{self.prefix}/share/billow"))


# With a job that runs: another version over this one, a restart, a removal that is refused, one that is not, a purge.
UPGRADED = """
exec 2>&1
export HOME=/root BILLOW_SIM=1xL4
dpkg -i /tmp/0.deb >/dev/null
billow submit --name long -- sleep 600
until billow ps | grep -q running; do :; done
echo "<upgrade>"; dpkg -i /tmp/1.deb; echo "</upgrade>"
echo "<after>"; billow ps; echo "</after>"
billow down; billow up --background
echo "<restarted>"; billow ps; echo "</restarted>"
echo "<refused>"; dpkg -r billow; echo "</refused>"
billow ps || exit 1
billow down --stop-jobs
echo "<removed>"; dpkg -r billow; echo "</removed>"
echo "<stays>"; ls -d /usr/bin/billow* /var/lib/billow* 2>/dev/null; echo "</stays>"
dpkg --purge billow
echo "<purged>"; ls -d /var/lib/billow* /run/billow* /tmp/billow-* /var/tmp/billow-* 2>/dev/null; echo "</purged>"
"""
# Two people with accounts, and a head for the machine.
SHARED = """
exec 2>&1
export HOME=/root
dpkg -i /tmp/0.deb >/dev/null
useradd -m -s /bin/sh ana; useradd -m -s /bin/sh bob
billow up --system --background --sim 1xL4 || exit 1
echo "<ana>"; su - ana -c 'billow run --gpus 1 -- sh -c "id -un; pwd; umask 077; echo private > mine"; echo $?'
echo "</ana>"
echo "<bob>"; su - bob -c 'billow run --gpus 1 -- cat /home/ana/mine /var/lib/billow/token'; echo "</bob>"
echo "<status>"; su - bob -c 'billow status'; echo "</status>"
echo "<heads>"; cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -cx up; echo "</heads>"
echo "<own>"; ls -d /home/*/.local/share/billow 2>/dev/null; echo "</own>"
billow down --stop-jobs
"""


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("mmdebstrap"), "needs root and mmdebstrap")
class BareDebian(unittest.TestCase):
    """A Debian 12 with nothing but apt: from the package to the first job in one command and at most 60 s, and the
    container image."""

    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="billow-bare-", dir="/var/tmp")
        cls.tar = os.environ.get("BILLOW_DEBIAN_TAR", f"{cls.root}/debian.tar")
        if not os.path.exists(cls.tar):
            made = run("mmdebstrap", "--variant=apt", "--mode=root", "bookworm", cls.tar)
            if made.returncode != 0:
                raise unittest.SkipTest("no Debian can be fetched: " + made.stderr[-300:])
        cls.dist = make_packages(cls.root)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def inside(self, name, script, *packages):
        """Runs a script as root of a fresh Debian. No network, its own processes and mounts, as on a machine of its
        own."""
        system = f"{self.root}/{name}"
        os.makedirs(system)
        self.assertEqual(run("tar", "-C", system, "-xf", self.tar).returncode, 0)
        for at, package in enumerate(packages):
            shutil.copy(package, f"{system}/tmp/{at}.deb")
        with open(f"{system}/tmp/script", "w", encoding="utf-8") as f:
            f.write(script)
        outside = (
            f"ip link set lo up; mount -t proc proc {system}/proc; mount -t sysfs sysfs"
            f" {system}/sys; mount -t tmpfs run {system}/run; mount --bind /dev {system}/dev; exec"
            f" chroot {system} sh /tmp/script"
        )
        own = ("--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child")
        return run(
            "unshare",
            *own,
            "sh",
            "-c",
            outside,
            timeout=300,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"},
        )

    def deb(self, folder=None):
        folder = folder or self.dist
        (name,) = [n for n in os.listdir(folder) if n.endswith(".deb")]
        return f"{folder}/{name}"

    def test_from_package_to_first_job(self):
        began = time.monotonic()
        done = self.inside(
            "first",
            "dpkg -i /tmp/0.deb >/dev/null && BILLOW_SIM=8xH100 billow run --gpus 1 -- nvidia-smi"
            " -L; code=$?; billow down --stop-jobs; exit $code",
            self.deb(),
        )
        took = time.monotonic() - began
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, r"(?m)^GPU 0: NVIDIA H100")
        print(f"from the package to the first job: {took:.1f} s")
        self.assertLess(took, 60)

    def test_jobs_outlive_an_upgrade_and_nothing_is_removed_under_them(self):
        newer = make_packages(f"{self.root}/newer", version=VERSION + ".1")
        done = self.inside("upgraded", UPGRADED, self.deb(), self.deb(newer))
        self.assertEqual(done.returncode, 0, done)
        said = dict(re.findall(r"(?s)<(\w+)>(.*?)</\1>", done.stdout + done.stderr))
        self.assertIn("a head still runs the earlier version; its jobs continue", said["upgrade"])
        self.assertRegex(said["after"], "long .* running")
        self.assertRegex(said["restarted"], "long .* running")
        self.assertIn("jobs still run here (1 tasks)", said["refused"])
        self.assertIn("billow down --stop-jobs", said["refused"])
        self.assertIn("the data in /var/lib/billow stays", said["removed"])
        self.assertEqual(said["stays"].split(), ["/var/lib/billow"])
        self.assertEqual(said["purged"].split(), [])

    def test_every_account_uses_the_head_of_the_machine(self):
        done = self.inside("shared", SHARED, self.deb())
        self.assertEqual(done.returncode, 0, done)
        said = dict(re.findall(r"(?s)<(\w+)>(.*?)</\1>", done.stdout))
        self.assertEqual(said["ana"].split(), ["ana", "/home/ana", "0"])
        self.assertIn("Permission denied", said["bob"])
        self.assertNotIn("private", said["bob"])
        self.assertIn("you  bob (member)", said["status"])
        self.assertEqual(said["heads"].split(), ["1"])
        self.assertEqual(said["own"].split(), [])

    def test_the_container_image(self):
        """The recipe as it is, on a base made here: no registry is asked."""
        if not shutil.which("podman") or os.getuid() != 0:
            self.skipTest("needs podman and root")
        podman = ["podman", "--root", f"{self.root}/images", "--runroot", f"{self.root}/run"]
        podman += ["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]
        recipe = f"{SOURCE}/packaging/container/Dockerfile"
        with open(recipe, encoding="utf-8") as f:
            base = re.search(r"^FROM (\S+)", f.read(), re.M)[1]
        self.assertEqual(run(*podman, "import", self.tar, base).returncode, 0)
        build = ("build", "--pull=never", "--isolation=chroot", "--network=host")
        made = run(*podman, *build, "-t", "localhost/billow", "-f", recipe, self.dist, timeout=600)
        if "Could not resolve" in made.stderr + made.stdout:
            self.skipTest("Debian's packages cannot be fetched")
        self.assertEqual(made.returncode, 0, made)
        about = run(*podman, "image", "inspect", "localhost/billow", "--format", "{{json .Config}}")
        config = json.loads(about.stdout)
        self.assertEqual((config["User"], config["Entrypoint"]), ("1000", ["billow"]))
        self.assertIn("/var/lib/billow", config["Volumes"])
        # The root of a container, entered without a container runtime: what is in it works for its user.
        place = run(*podman, "image", "mount", "localhost/billow").stdout.strip()
        first = (
            "set -e; export HOME=/tmp/home; mkdir $HOME; billow version; test ! -e"
            " /tmp/billow_*.deb; billow up --background --no-agent --listen 127.0.0.1:0 --data"
            " /var/lib/billow >/dev/null; billow status --data /var/lib/billow; billow down --data"
            " /var/lib/billow >/dev/null; ls -ld /var/lib/billow"
        )
        enter = (
            f"ip link set lo up; mount -t tmpfs tmp {place}/tmp; chmod 1777 {place}/tmp; mount -t"
            f" proc proc {place}/proc; exec chroot --userspec=1000:1000 {place} sh -c '{first}'"
        )
        done = run(
            "unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", enter
        )
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(VERSION, done.stdout)
        self.assertRegex(done.stdout, r"drwx------ .* /var/lib/billow")
        run(*podman, "image", "umount", "localhost/billow")


if __name__ == "__main__":
    unittest.main()
