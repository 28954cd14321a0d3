"""Machines of the clouds in tests: each runs its own start-up script below a directory of its own."""
import os
import subprocess
import threading

from processes import contents, kill_at_once
from rig import BIN, MARK


class Machines:
    """`inside`: what to put before a command so that it runs on that machine, by the number of machines so far."""

    def __init__(self, root, mark="", environment=None, inside=lambda number: []):
        self.root, self.inside, self.started = root, inside, 0
        self.environment = environment or {
            MARK: mark,
            "PATH": os.path.abspath(BIN) + ":" + os.environ["PATH"],
            "BILLOW_BOOT_TICK": "1",  # a second instead of a minute
            "BILLOW_DATA": "",
            "BILLOW_SIM": "",
        }
        self.lock, self.closed = threading.Lock(), False
        self.homes = {}
        self.disks = {}  # machine → device

    def start(self, name, script, rank=0):
        """Power on. Returns the machine's directory; the file `off` in it says that it ended itself."""
        home = os.path.join(self.root, name)
        os.makedirs(home)
        path = os.path.join(home, "user-data")
        with open(path, "w", encoding="utf-8") as f:
            f.write(script)
        self.homes[name] = home
        before = self.inside(self.started)
        self.started += 1
        with open(os.path.join(home, "boot.log"), "wb") as log, self.lock:
            if self.closed:  # an order on a connection that outlived its server
                return home
            subprocess.Popen(  # pylint: disable=consider-using-with
                [*before, "sh", path],
                env={
                    **os.environ,
                    **self.environment,
                    "BILLOW_BOOT_ROOT": home,
                    "BILLOW_BOOT_PLAIN": "1",
                    "BILLOW_BOOT_RANK": str(rank),
                    "BILLOW_BOOT_END": f"touch {home}/off",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return home

    # ---- cache disks: files behind loop devices
    def attach(self, name, volume, gib):
        """Plugs a disk in. It stays what it was when its last machine ended."""
        home = self.homes.get(name)
        if not home:
            return
        image = os.path.join(self.root, volume + ".img")
        if not os.path.exists(image):
            with open(image, "wb") as f:
                f.truncate(min(gib, 10) << 30)
        device = subprocess.run(
            ["losetup", "--find", "--show", image], check=True, capture_output=True, text=True
        ).stdout.strip()
        self.disks[name] = device
        os.makedirs(os.path.join(home, "dev/disk/by-id"), exist_ok=True)
        number = volume.replace("-", "")
        link = f"dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{number}"
        os.symlink(device, os.path.join(home, link))

    def unplug(self, name):
        device = self.disks.pop(name, None)
        if device:
            subprocess.run(["umount", "-l", device], check=False, capture_output=True)
            subprocess.run(["losetup", "-d", device], check=False, capture_output=True)

    def drop_disk(self, volume):
        image = os.path.join(self.root, volume + ".img")
        if os.path.exists(image):
            os.unlink(image)

    def is_off(self, name):
        return os.path.exists(os.path.join(self.root, name, "off"))

    def stop(self, name):
        """Power off: every process of this machine ends at once."""
        home = self.homes.pop(name, None)
        if not home:
            return
        mark = f"BILLOW_BOOT_ROOT={home}".encode()
        # Supervisors outlive their agent; jobs have another environment.
        kill_at_once(
            lambda pid: mark in contents(pid, "environ").split(b"\0")
            or home.encode() + b"/" in contents(pid, "cmdline")
        )
        self.unplug(name)

    def close(self):
        with self.lock:
            self.closed = True
        for name in list(self.homes):
            self.stop(name)
