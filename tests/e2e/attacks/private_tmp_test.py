"""Plain jobs: what they see of /tmp and /dev/shm, which are their own unless the node's policy says
otherwise."""
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

from attacks_neighbour_test import NEEDS_ROOT
from rig import Rig, poll

# Exchanges a directory and a link without a pause.
SWAPS = """
import ctypes, os, sys
a, b = (os.fsencode(sys.argv[1]) + name for name in (b"/s", b"/t"))
call = ctypes.CDLL(None).renameat2
while True:
    call(-100, a, -100, b, 2)
"""

# Ways of a job into the directories of another one.
TRIES = """
read_it() { { cat "$1"; ls "$(dirname "$1")"; echo planted > "$1"; } 2>/dev/null; }
for d in /tmp /dev/shm; do
  read_it $d/open/billow-mine
  for p in $1 [0-9]*; do
    read_it /proc/$p/root$d/open/billow-mine
    read_it /proc/$p/cwd$d/open/billow-mine
  done
done
cd /proc && for p in [0-9]*; do read_it /proc/$p/root/tmp/open/billow-mine; done; cd /
read_it $2/billow-mine
read_it $2/open/billow-mine
ls -R /var/tmp /tmp /dev/shm 2>/dev/null | grep billow-mine
mkdir /tmp/x /tmp/open 2>/dev/null; ln -s $2 /tmp/x/link; read_it /tmp/x/link/billow-mine
unshare -m sh -c "umount /tmp; cat /tmp/open/billow-mine" 2>/dev/null
umount /tmp 2>/dev/null; umount /dev/shm 2>/dev/null; cat /tmp/open/billow-mine 2>/dev/null
nsenter -t $1 -m cat /tmp/open/billow-mine 2>/dev/null
echo tried
"""


def pids_of_job(job):
    """Of all processes that have the job's number in their variables."""
    out = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as f:
                    if f"BILLOW_JOB_ID={job}".encode() in f.read().split(b"\0"):
                        out.append(int(name))
            except OSError:
                pass
    return out


def state_and_parent(pid):
    """Of a process; empty if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            state, parent = f.read().rsplit(")", 1)[1].split()[:2]
    except OSError:
        return "", 0
    return state, int(parent)


def words_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
            return f.read().split("\0")
    except OSError:
        return []


POLICY = "allow 0-4294967294"


@NEEDS_ROOT
class PrivateTmp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="1xH100")
        cls.addClassCleanup(cls.rig.close)
        cls.rig.node_policy(POLICY)
        cls.rig.ok("user", "create", "bo", "--unix-name", "nobody")
        cls.rig.ok("project", "member", "default", "bo")
        cls.token = cls.rig.token_for("bo")
        cls.rig.ok("user", "create", "cy", "--unix-name", "games")
        cls.rig.ok("project", "member", "default", "cy")
        cls.others = {"the same account": cls.token, "another account": cls.rig.token_for("cy")}
        cls.mark = f"/tmp/billow-seen-by-all-{os.getpid()}"
        with open(cls.mark, "w", encoding="ascii"):
            pass
        cls.addClassCleanup(os.remove, cls.mark)

    def cli(self, *words, cwd="/"):
        return self.rig.cli(*words, cwd=cwd, env={"BILLOW_TOKEN": self.token}, timeout=60)

    def shell(self, script, *options, cwd="/"):
        words = ("run", "--gpus", "0", "--no-sync", *options, "--", "sh", "-c", script)
        done = self.cli(*words, cwd=cwd)
        self.assertEqual(done.code, 0, done)
        return done.text

    def submit(self, script, *options):
        words = ("submit", "--json", "--gpus", "0", "--no-sync", *options)
        job = self.cli(*words, "--", "sh", "-c", script).json["id"]
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        poll(lambda: "begun" in self.rig.cli("logs", job).text, "its start", 60)
        return job

    def test_it_begins_empty_and_is_seen_by_nobody_else(self):
        job = self.submit(
            "umask 0; echo mine > /tmp/mine; echo mine > /dev/shm/mine; echo begun; sleep 600"
        )
        self.assertFalse(os.path.exists("/tmp/mine"))
        self.assertFalse(os.path.exists("/dev/shm/mine"))
        seen = self.shell(f"ls {self.mark} /tmp/mine /dev/shm/mine 2>/dev/null; echo end")
        self.assertEqual(seen, "end\n")
        self.assertEqual(self.rig.job(job)["state"], "running")

    def test_other_jobs_do_not_get_into_it(self):
        job = self.submit(
            "umask 0; for d in /tmp /dev/shm; do mkdir $d/open; echo the secret >"
            " $d/open/billow-mine; done; echo begun; exec sleep 600"
        )
        held = next(p for p in pids_of_job(job) if os.path.exists(f"/proc/{p}/root/tmp/open"))
        place = os.path.dirname(self.found("billow-mine"))
        for who, token in self.others.items():
            body = self.rig.spec("sh", "-c", TRIES, "sh", str(held), place, cwd="/")
            attack = self.rig.api("POST", "/v1/jobs", body, token=token).json["id"]
            poll(lambda: self.rig.job(attack)["state"] in ("succeeded", "failed"), "its end", 60)
            log = self.rig.cli("logs", attack).text
            with self.subTest(who):
                self.assertIn("tried", log)
                self.assertNotIn("secret", log)
                self.assertNotIn("billow-mine", log)
        with open(f"/proc/{held}/root/tmp/open/billow-mine", encoding="ascii") as f:
            self.assertEqual(f.read(), "the secret\n")

    def test_it_can_be_used(self):
        got = self.shell(
            "mktemp && echo x > /dev/shm/x && mkfifo /tmp/f && cat /dev/shm/x && test -w /tmp"
            " && stat -f -c %T /dev/shm"
        )
        self.assertIn("x\ntmpfs", got)

    def test_directories_that_the_job_was_given_stay(self):
        top = tempfile.mkdtemp(prefix="billow-given-", dir="/tmp")
        self.addCleanup(shutil.rmtree, top)
        shutil.chown(top, "nobody")
        os.mkdir(f"{top}/..data")  # a name that begins with dots is an ordinary one
        shutil.chown(f"{top}/..data", "nobody")
        got = self.shell("mktemp; pwd", "--env-var", f"TMPDIR={top}", cwd=f"{top}/..data")
        self.assertIn(f"{top}/tmp.", got)
        self.assertTrue(got.endswith(f"{top}/..data\n"), got)
        body = self.rig.spec("pwd", cwd=f"{top}/..data/../..data")
        job = self.rig.api("POST", "/v1/jobs", body, token=self.token).json["id"]
        poll(lambda: self.rig.job(job)["state"] in ("succeeded", "failed"), "its end", 60)
        self.assertEqual(self.rig.job(job)["state"], "succeeded", self.rig.cli("logs", job))

    def test_it_goes_with_the_job(self):
        job = self.submit("echo secret > /tmp/left-behind; echo begun; sleep 600")
        self.rig.ok("stop", "--force", job)
        poll(lambda: not self.found("left-behind"), "its removal", 30)

    def supervisor_of(self, job):
        """Other tests on this machine have jobs of the same number."""
        for pid in pids_of_job(job):
            while pid > 1:
                words = words_of(pid)
                if len(words) > 1 and words[1].startswith(self.rig.data + "/agent/tasks/"):
                    return pid
                pid = state_and_parent(pid)[1]
        raise AssertionError(f"no supervisor of job {job}")

    def gate(self):
        """A file that does not exist yet, and how a job waits for it."""
        where = tempfile.mkdtemp(prefix="gate-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, where)
        os.chmod(where, 0o755)
        return where + "/gate", f"until [ -e {where}/gate ]; do sleep 0.05; done"

    def ends_while_the_agent_is_away(self, job, gate):
        supervisor = self.supervisor_of(job)
        agent = self.rig.agent_pid()
        os.kill(agent, signal.SIGSTOP)  # killed at once, the next one would see the end
        try:
            with open(gate, "w", encoding="ascii"):
                pass
            poll(lambda: state_and_parent(supervisor)[0] in ("Z", ""), "its supervisor's end", 30)
        finally:
            os.kill(agent, signal.SIGKILL)
        poll(lambda: self.rig.job(job)["state"] == "succeeded", "the job's end", 60)

    def test_it_goes_with_a_job_that_ends_while_the_agent_is_away(self):
        gate, waits = self.gate()
        job = self.submit(f"echo secret > /tmp/ends-alone-{os.getpid()}; echo begun; {waits}")
        self.assertTrue(self.found(f"ends-alone-{os.getpid()}"))
        self.ends_while_the_agent_is_away(job, gate)
        poll(lambda: not self.found(f"ends-alone-{os.getpid()}"), "its removal", 30)

    def test_the_directory_of_checkpoints_and_the_hostfile_go_with_the_job(self):
        kept = tempfile.mkdtemp(prefix="kept-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, kept, True)
        shutil.chown(kept, "nobody")
        options = ("--procs", "2", "--checkpoint-every", "1h", "--checkpoint-cmd", "true")
        for away in (False, True):
            with self.subTest(away=away):
                gate, waits = self.gate()
                script = (
                    "cd $BILLOW_CHECKPOINT_DIR && mkdir -p x && echo w > x/model-$RANK;"
                    f" echo at=$BILLOW_CHECKPOINT_DIR,$BILLOW_HOSTFILE; echo begun; {waits}"
                )
                job = self.submit(script, *options, "--checkpoint-dir", kept)
                log = self.rig.cli("logs", job).text
                places = log.split("at=")[1].split()[0].split(",")
                self.assertTrue(all(map(os.path.exists, places)), places)
                if away:
                    self.ends_while_the_agent_is_away(job, gate)
                else:
                    with open(gate, "w", encoding="ascii"):
                        pass
                poll(
                    lambda: not any(map(os.path.exists, places))
                    and not [n for n in os.listdir(os.path.dirname(places[0])) if "gone" in n],
                    f"the removal of {places}",
                    60,
                )

    def test_what_a_killed_agent_left_is_in_nobodys_way(self):
        """It may be killed between making the directory and recording the task, and then the head
        repeats the start."""
        cache = self.shell("echo $BILLOW_CACHE").strip()
        place = os.path.dirname(os.path.dirname(cache))
        agent = self.rig.agent_pid()
        os.kill(agent, signal.SIGSTOP)
        for task in range(1, 200):
            os.makedirs(f"{place}/{task}.tmp/tmp", exist_ok=True)
        os.kill(agent, signal.SIGKILL)
        self.assertEqual(self.shell("mktemp > /dev/null && echo ran"), "ran\n")
        poll(lambda: not [n for n in os.listdir(place) if n.startswith("gone.")], "the removal", 30)

    def test_it_goes_with_a_job_whose_supervisor_was_killed(self):
        job = self.submit(f"echo x > /tmp/lost-one-{os.getpid()}; echo begun; exec sleep 600")
        os.kill(self.supervisor_of(job), signal.SIGKILL)
        poll(lambda: not self.found(f"lost-one-{os.getpid()}"), "its removal", 30)

    @staticmethod
    def found(name):
        """Below the places where agents keep jobs' files."""
        for top in ("/var/tmp", "/tmp"):
            for entry in os.scandir(top):  # other tests' directories may vanish meanwhile
                if entry.name.startswith("billow-") and entry.is_dir(follow_symlinks=False):
                    for folder, _, files in os.walk(entry.path):
                        if name in files:
                            return folder
        return None

    def test_processes_of_one_task_share_it(self):
        script = (
            'if [ "$RANK" = 0 ]; then echo shared > /dev/shm/r; echo shared > /tmp/r; fi;'
            " for i in $(seq 100); do [ -s /dev/shm/r ] && [ -s /tmp/r ] && break; sleep 0.1; done;"
            " cat /dev/shm/r /tmp/r"
        )
        self.assertEqual(self.shell(script, "--procs", "2").count("shared"), 4)

    def test_a_working_directory_below_tmp_stays(self):
        where = tempfile.mkdtemp(prefix="work-", dir="/tmp")
        self.addCleanup(shutil.rmtree, where, True)
        os.chmod(where, 0o777)
        self.shell("pwd; echo kept > out", cwd=where)
        with open(where + "/out", encoding="ascii") as f:
            self.assertEqual(f.read(), "kept\n")

    def victim(self, top):
        """A directory that is open to all below one that is closed."""
        where = tempfile.mkdtemp(prefix="victim-", dir=top)
        self.addCleanup(shutil.rmtree, where, True)
        os.makedirs(where + "/home/project")
        with open(where + "/home/project/key", "w", encoding="ascii") as f:
            f.write("the secret of the victim\n")
        for path, mode in (("", 0o755), ("/home", 0o700), ("/home/project", 0o755)):
            os.chmod(where + path, mode)
        return where + "/home/project"

    def own(self):
        """A directory of the attacker."""
        where = tempfile.mkdtemp(prefix="own-", dir="/tmp")
        self.addCleanup(shutil.rmtree, where, True)
        os.chown(where, 65534, 65534)
        return where

    def log_of(self, script, cwd, **env):
        body = self.rig.spec("sh", "-c", script, cwd=cwd)
        body["env"].update(env)
        job = self.rig.api("POST", "/v1/jobs", body, token=self.token).json["id"]
        poll(lambda: self.rig.job(job)["state"] in ("succeeded", "failed"), "the job's end", 60)
        return self.rig.cli("logs", job).text

    def test_it_does_not_open_what_other_directories_close(self):
        below_tmp, elsewhere = self.victim("/tmp"), self.victim("/var/tmp")
        link = self.own() + "/link"
        os.symlink(elsewhere, link)
        read = f"cat key {below_tmp}/key {elsewhere}/key {link}/key; echo end"
        for cwd, env in (
            (below_tmp, {}),
            (link, {}),
            ("/var/tmp", {"BILLOW_CHECKPOINT": below_tmp}),
            ("/var/tmp", {"BILLOW_CHECKPOINT_DIR": below_tmp}),
            ("/var/tmp", {"BILLOW_CACHE": below_tmp}),
            ("/var/tmp", {"BILLOW_CHECKPOINT": link}),
        ):
            with self.subTest(cwd=cwd, env=env):
                self.assertNotIn("secret of the victim", self.log_of(read, cwd, **env))

    def test_the_gateways_token_stays_its_own(self):
        link = self.own() + "/link"
        os.symlink(self.rig.data + "/for-gateway", link)
        self.assertNotIn("bw_", self.log_of("cat token; echo end", link))
        found = os.stat(self.rig.data + "/for-gateway/token")
        self.assertEqual(stat.S_IMODE(found.st_mode), 0o600)

    def test_root_makes_nothing_through_a_directory_of_the_user(self):
        top, target = self.own(), tempfile.mkdtemp(prefix="target-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, target, True)
        os.chmod(target, 0o755)
        os.makedirs(top + "/s/made")
        os.symlink(target, top + "/t")
        for path in ("/s", "/s/made", "/t"):
            os.lchown(top + path, 65534, 65534)
        swap = subprocess.Popen(
            ["/usr/bin/python3", "-c", SWAPS, top], user=65534, group=65534, extra_groups=[]
        )
        self.addCleanup(lambda: (swap.kill(), swap.wait()))
        for _ in range(12):
            self.log_of("true", top, BILLOW_CHECKPOINT=top + "/s/made")
            self.assertEqual(os.listdir(target), [])

    def test_a_directory_inside_another_one_is_visible(self):
        top = self.own()
        os.makedirs(top + "/inner/work")
        for path in ("/inner", "/inner/work"):
            os.chown(top + path, 65534, 65534)
        got = self.log_of(
            f"echo kept > out; ls {top}/inner", top + "/inner/work", BILLOW_CHECKPOINT=top
        )
        self.assertIn("work", got)
        with open(top + "/inner/work/out", encoding="ascii") as f:
            self.assertEqual(f.read(), "kept\n")

    def test_it_is_the_owners_choice(self):
        self.addCleanup(self.rig.node_policy, POLICY)
        self.rig.node_policy("allow 0-4294967294\ntmp shared")
        self.assertEqual(self.shell(f"ls {self.mark}").strip(), self.mark)


if __name__ == "__main__":
    unittest.main()
