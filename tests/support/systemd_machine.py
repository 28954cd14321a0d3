"""A machine that systemd starts: a real systemd as the first process of namespaces of its own, with
this machine's programs.

Its root is an overlay of this machine's, without `/etc/billow`, homes and `/var`; what it writes
stays in memory. It has the units in WANTED and those that a test adds, no devices of hardware, no
network but its own, and control groups below one that is removed with it. It cannot change settings
of the kernel. When its first process is killed, the kernel ends the others and unmounts what they
mounted.
"""
import os
import re
import shutil
import subprocess
import tempfile

from rig import alive, poll

SYSTEMD = "/lib/systemd/systemd"
UNITS = "/usr/lib/systemd/system"
WANTED = {
    "": "basic.target sysinit.target sockets.target paths.target timers.target slices.target"
    " shutdown.target umount.target multi-user.target network.target network-online.target"
    " local-fs.target local-fs-pre.target",
    "sysinit.target.wants": "systemd-journald.service",
    "sockets.target.wants": "systemd-journald.socket systemd-journald-dev-log.socket",
}
ADDRESS = "10.78.0.2"  # of the machine, on a cable that leads nowhere
TOOLS = ("ip", "unshare", "nsenter", "setpriv", "mount", "pivot_root", "systemctl", "journalctl")
NAME = "billow-systemd-"
BOOT_SECONDS = 20
# $1: an empty directory. /proc/sys is read-only because systemd changes some settings there, many
# of them of this machine; capabilities are dropped so that nothing sets its clock or loads modules.
# Mounts are shared because systemd needs that for credentials of units, and leaves it to whoever
# starts it in a container.
BOOT = """
set -e
at=$1 r=$1/root
mount -t tmpfs -o mode=755,size=1g none "$at"
mkdir "$at/upper" "$at/work" "$r"
mount -t overlay -o "lowerdir=/,upperdir=$at/upper,workdir=$at/work" none "$r"
mount -t proc proc "$r/proc"
mount --bind -o ro "$r/proc/sys" "$r/proc/sys"
mount -t sysfs -o ro sysfs "$r/sys"
mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup"
mount -t tmpfs -o mode=755 none "$r/dev"
for device in null zero full random urandom tty; do cp -a "/dev/$device" "$r/dev"; done
mkdir "$r/dev/pts" "$r/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$r/dev/pts"
ln -s pts/ptmx "$r/dev/ptmx"
touch "$r/dev/console"
mount --bind /dev/null "$r/dev/console"
for place in run tmp dev/shm var root home usr/lib/systemd/system-generators; do
  mount -t tmpfs -o mode=755 none "$r/$place"
done
mkdir -p "$r/var/lib" "$r/var/log" "$r/var/tmp"
ln -s /run "$r/var/run"
chmod 1777 "$r/tmp" "$r/var/tmp" "$r/dev/shm"
rm -rf "$r/etc/systemd/system" "$r/etc/billow"
mkdir "$r/etc/systemd/system"
mkdir "$at/units"
cp -r "$at.units/." "$at/units"
mount --bind "$at/units" "$r/usr/lib/systemd/system"
while read -r from to; do
  mkdir -p "$(dirname "$r$to")"
  touch "$r$to"
  mount --bind "$from" "$r$to"
done < "$at.programs"
ip link set lo up
ip link add eth0 type veth peer name cable
ip addr add ADDRESS/24 dev eth0
ip link set eth0 up
ip link set cable up
cd "$r"
pivot_root . .
umount -l .
mount --make-rshared /
exec env -i container=other PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  setpriv --bounding-set -sys_time,-sys_module,-sys_boot \
  /lib/systemd/systemd --unit=multi-user.target --log-target=journal --show-status=no
""".replace(
    "ADDRESS", ADDRESS
)


def own_groups():
    """Where control groups of version 2 are mounted; empty: nowhere."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        for line in f:
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 ") and before.split()[3] == "/":
                return before.split()[4]
    return ""


def missing():
    """Why no systemd can be started here; empty: nothing is known against it."""
    if os.geteuid() != 0:
        return "starting systemd needs root"
    if not os.access(SYSTEMD, os.X_OK):
        return f"systemd is not installed ({SYSTEMD})"
    without = [tool for tool in TOOLS if not shutil.which(tool)]
    if without:
        return f"not installed: {', '.join(without)}"
    with open("/proc/filesystems", encoding="ascii") as f:
        if "overlay" not in f.read().split():
            return "the kernel has no overlayfs"
    return "" if own_groups() else "no cgroup v2 hierarchy is mounted"


def remove_group(group):
    """Whether it is gone now."""
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:  # a process in it is still ending
            pass
    return not os.path.exists(group)


def remove_leftovers():
    """Of tests that were killed, and their machines with them."""
    for parent, remove in ((own_groups(), remove_group), (tempfile.gettempdir(), shutil.rmtree)):
        for name in os.listdir(parent):
            if name.startswith(NAME) and not alive(int(name.removeprefix(NAME).split("-")[0])):
                remove(os.path.join(parent, name))


class SystemdMachine:
    """`programs`: path here → path there."""

    def __init__(self, programs):
        remove_leftovers()
        self.root = tempfile.mkdtemp(prefix=f"{NAME}{os.getpid()}-")
        self.group = f"{own_groups()}/{os.path.basename(self.root)}"
        self.process, self.first = None, 0
        try:
            self._boot(programs)
        except BaseException:
            self.close()
            raise

    def _boot(self, programs):
        at = os.path.join(self.root, "at")
        os.makedirs(at)
        for folder, units in WANTED.items():
            os.makedirs(os.path.join(at + ".units", folder), exist_ok=True)
            for unit in units.split():
                shutil.copy(f"{UNITS}/{unit}", f"{at}.units/{unit}")
                if folder:
                    os.symlink(f"../{unit}", f"{at}.units/{folder}/{unit}")
        with open(at + ".programs", "w", encoding="utf-8") as f:
            f.writelines(f"{here} {there}\n" for here, there in programs.items())
        os.mkdir(self.group)
        # Its root of control groups is the group that it is in when the namespace is made.
        enter = f'echo $$ > "{self.group}/cgroup.procs" && exec "$@"'
        with open(at + ".log", "wb") as log:
            self.process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL", "sh", "-c", enter, "enter"),
                    *("unshare", "-m", "-p", "-u", "-i", "-n", "-C", "--fork", "--kill-child"),
                    *("sh", "-c", BOOT, "boot", at),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            poll(self._has_started, "systemd has started", BOOT_SECONDS)
        except AssertionError as e:
            with open(at + ".log", encoding="utf-8", errors="replace") as f:
                raise RuntimeError(f"systemd does not start here: {e}\n{f.read()[-2000:]}") from e

    def _has_started(self):
        if self.process.poll() is not None:
            raise AssertionError(f"it ended with {self.process.returncode}")
        pid = self.process.pid
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                self.first = int((f.read().split() or ["0"])[0])
            with open(f"/proc/{self.first}/comm", encoding="ascii") as f:
                if f.read() != "systemd\n":
                    return False
        except OSError:
            return False
        return self.run("systemctl", "is-active", "-q", "multi-user.target").returncode == 0

    def run(self, *args, timeout=20, stdin=None, **environment):
        """A command there, as root."""
        return subprocess.run(
            ["nsenter", "-t", str(self.first), "-a", "--", *map(str, args)],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd="/",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **environment},
            check=False,
        )

    def ok(self, *args, **options):
        done = self.run(*args, **options)
        if done.returncode != 0:
            raise AssertionError(f"{done!r}\n{self.journal()[-4000:]}")
        return done.stdout

    def path(self, there):
        """How a file there is reached from here."""
        return f"/proc/{self.first}/root{there}"

    def put(self, there, text, mode=0o644):
        os.makedirs(os.path.dirname(self.path(there)), exist_ok=True)
        with open(self.path(there), "w", encoding="utf-8") as f:
            os.fchmod(f.fileno(), mode)
            f.write(text)

    def show(self, unit):
        """What systemd says about a unit, and the number that its main process has here."""
        lines = self.ok("systemctl", "show", unit).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def process_of(self, unit):
        """The number that its main process has on this machine; 0: none."""
        there = self.show(unit)["MainPID"]
        groups = f"{self.group}/system.slice/{unit}.service/cgroup.procs"
        with open(groups, encoding="ascii") as f:
            for pid in f.read().split():
                with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
                    if re.search(rf"(?m)^NSpid:.*\t{there}$", status.read()):
                        return int(pid)
        return 0

    def journal(self, *options):
        return self.run("journalctl", "--no-pager", "-o", "cat", *options).stdout

    def close(self):
        if self.process:  # its end is that of systemd
            self.process.kill()
            self.process.wait()
        try:
            poll(lambda: remove_group(self.group), f"{self.group} is empty", 15)
        finally:
            shutil.rmtree(self.root)
