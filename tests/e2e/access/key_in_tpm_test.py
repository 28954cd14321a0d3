"""A node that shows a certificate of the operator's authority, and keeps its key in a TPM: a
simulated one (swtpm), through OpenSSL's provider tpm2."""
import os
import shutil
import subprocess
import unittest

from certificates_test import TlsRig, make_authority, openssl
from rig import poll

TOOLS = ("openssl", "swtpm", "tpm2_createprimary", "tpm2_create", "tpm2_load", "tpm2_evictcontrol")


def missing():
    """Why these tests cannot run here; empty: they can."""
    without = [tool for tool in TOOLS if not shutil.which(tool)]
    if without:
        return f"not installed: {', '.join(without)}"
    modules = openssl("version", "-m").partition('"')[2].rstrip().rstrip('"')
    absent = not os.path.exists(os.path.join(modules, "tpm2.so"))
    return f"OpenSSL's provider tpm2 is not in {modules}" if absent else ""


class Chip:
    """A TPM in a process, on a Unix socket."""

    def __init__(self, folder):
        self.folder = folder
        state, path = os.path.join(folder, "state"), os.path.join(folder, "tpm")
        os.makedirs(state)
        channels = ["--server", f"type=unixio,path={path}"]
        channels += ["--ctrl", f"type=unixio,path={path}.ctrl"]
        flags = ["--flags", "not-need-init,startup-clear"]
        self.process = subprocess.Popen(
            ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}", *channels, *flags],
            stderr=subprocess.DEVNULL,  # a line for each client that leaves
        )
        poll(lambda: os.path.exists(path + ".ctrl"), "the TPM")
        self.environment = {"TPM2OPENSSL_TCTI": f"swtpm:path={path}"}
        self.tools = {**os.environ, **self.environment, "TPM2TOOLS_TCTI": f"swtpm:path={path}"}

    def run(self, *command):
        done = subprocess.run(
            command, env=self.tools, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise AssertionError(f"{command}: {done.stdout}{done.stderr}")

    def make_key(self, kind, handle):
        """A key that never leaves the chip, at a handle that outlives a restart."""
        for command in (
            "tpm2_createprimary -Q -C o -G ecc -c primary",
            f"tpm2_create -Q -C primary -G {kind} -u public -r private",
            "tpm2_load -Q -C primary -u public -r private -c key",
            f"tpm2_evictcontrol -Q -C o -c key {handle}",
        ):
            self.run(*command.split())
            self.run("tpm2_flushcontext", "-t")  # the chip holds three objects

    def make_certificate(self, handle, authority, path, name):
        self.run("openssl", "req", "-new", "-provider", "tpm2", "-provider", "default",
                 "-propquery", "?provider=tpm2", "-key", f"handle:{handle}", "-subj",
                 f"/CN={name}", "-out", f"{path}.csr")  # fmt: skip
        with open(f"{path}.ext", "w", encoding="ascii") as f:
            f.write("extendedKeyUsage=clientAuth\nbasicConstraints=critical,CA:FALSE\n")
        openssl("x509", "-req", "-in", f"{path}.csr", "-CA", f"{authority}.pem", "-CAkey",
                f"{authority}.key", "-out", path, "-days", "1", "-extfile",
                f"{path}.ext")  # fmt: skip

    def close(self):
        self.process.terminate()
        self.process.wait()


@unittest.skipIf(missing(), missing())
class KeyInTpm(unittest.TestCase):
    def setUp(self):
        self.rig = TlsRig(up=False)
        self.addCleanup(self.rig.close)
        self.chip = Chip(os.path.join(self.rig.root, "chip"))
        self.addCleanup(self.chip.close)
        self.rig.environment.update(self.chip.environment)
        self.site = os.path.join(self.rig.root, "site")
        make_authority(self.site, "site")
        self.rig.args += ["--require-client-certificates", "--client-ca", self.site + ".pem"]
        self.rig.up()

    def certificate(self, handle, name):
        path = os.path.join(self.rig.root, f"{name}.pem")
        self.chip.make_certificate(handle, self.site, path, name)
        return path

    def restart_head(self):
        self.rig.kill(self.rig.head_pid())
        self.rig.up()

    def check_node(self, kind):
        handle = "0x81000001"
        self.chip.make_key(kind, handle)
        certificate = self.certificate(handle, "good")
        self.rig.join("good", "--client-cert", certificate, "--client-key", f"handle:{handle}")
        self.rig.here("good")
        # The node fetches the directory over connections of its own, which come and go.
        directory = os.path.join(self.rig.root, "work")
        os.makedirs(directory)
        with open(os.path.join(directory, "large"), "wb") as f:
            f.write(os.urandom(1 << 20))
        command = ("run", "--gpus", 1, "--sync", "--", "wc", "-c", "large")
        self.assertIn(str(1 << 20), self.rig.ok(*command, cwd=directory).text)

    def test_every_connection_needs_the_chip(self):
        self.check_node("ecc")
        self.certificate("0x81000001", "good")  # the next one, for the same key
        used = "using the new client certificate"
        poll(lambda: used in self.rig.log_of("good"), "the file", 40)
        seen = self.rig.hellos("good")
        self.restart_head()
        poll(lambda: self.rig.hellos("good") > seen, "the node again", 40)
        seen = self.rig.hellos("good")
        before = len(self.rig.log_of("good"))
        self.chip.close()
        self.restart_head()
        failed = "cannot reach the head"
        poll(lambda: failed in self.rig.log_of("good")[before:], "the failure", 40)
        self.assertEqual(self.rig.hellos("good"), seen)

    def test_an_rsa_key_signs_too(self):
        self.check_node("rsa2048")

    def test_a_handle_without_the_certificates_key_is_refused(self):
        self.chip.make_key("ecc", "0x81000001")
        self.chip.make_key("ecc", "0x81000002")
        certificate = self.certificate("0x81000001", "wrong")
        asked = ("--client-cert", certificate, "--client-key")
        self.assertNotEqual(self.rig.join("wrong", *asked, "handle:0x81000002").wait(30), 0)
        self.assertIn("must match the certificate", self.rig.log_of("wrong"))
        self.assertNotEqual(self.rig.join("none", *asked, "handle:0x81000009").wait(30), 0)
        self.assertIn("no key at handle:0x81000009", self.rig.log_of("none"))


if __name__ == "__main__":
    unittest.main()
