"""A real Slurm of four nodes on this machine, for comparison: one slurmctld, four slurmd, munge. Started and ended by the caller."""
import os
import shutil
import subprocess
import time

CONF = """ClusterName=local
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool.%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.%n.log
SlurmctldPort=16817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MaxArraySize=100001
MaxJobCount=200000
NodeName=n[1-4] NodeHostname=localhost Port=17001-17004 CPUs={cpus}
PartitionName=all Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    def __init__(self, directory):
        self.dir = directory
        self.processes = []
        self.env = dict(os.environ, SLURM_CONF=f"{directory}/slurm.conf")

    @staticmethod
    def installed():
        return all(shutil.which(p) for p in ("slurmctld", "slurmd", "srun", "munged"))

    def start(self, cpus=64):
        os.makedirs(f"{self.dir}/state", exist_ok=True)
        for i in range(1, 5):
            os.makedirs(f"{self.dir}/spool.n{i}", exist_ok=True)
        with open(f"{self.dir}/slurm.conf", "w", encoding="utf-8") as f:
            f.write(CONF.format(dir=self.dir, host=os.uname().nodename, cpus=cpus))
        if subprocess.run(["munge", "-n"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            os.makedirs("/run/munge", exist_ok=True)
            subprocess.run(["chown", "munge:munge", "/run/munge"], check=True)
            subprocess.run(["runuser", "-u", "munge", "--", "munged"], check=True)
        log = open(f"{self.dir}/out.log", "w", encoding="utf-8")
        self.processes.append(subprocess.Popen(["slurmctld", "-D"], env=self.env, stdout=log, stderr=log))
        for i in range(1, 5):
            self.processes.append(subprocess.Popen(["slurmd", "-D", "-N", f"n{i}"], env=self.env, stdout=log, stderr=log))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            out = self.run(["sinfo", "-h", "-o", "%T %D"]).stdout
            if any(line.startswith("idle") and line.endswith("4") for line in out.splitlines()):
                return
            time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"Slurm did not come up; see {self.dir}/*.log")

    def run(self, argv, **kw):
        return subprocess.run(argv, env=self.env, text=True, capture_output=True, **kw)

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
