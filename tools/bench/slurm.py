"""A real Slurm of four nodes on this machine: one slurmctld, four slurmd, munge, and GPUs as far as Slurm looks at them (device files).
For comparison in benches and for the Slurm pool's tests. Started and ended by the caller."""
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/support"))
from ports import free_port  # noqa: E402

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
SlurmctldPort={port}
{more}ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MaxArraySize=100001
MaxJobCount=200000
NodeName=n[1-4] NodeHostname=localhost Port={first}-{last} CPUs={cpus} RealMemory=1024{gres}
PartitionName=all Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    def __init__(self, directory, gpus=0, gpu_type="h100"):
        self.dir = directory
        self.port, self.gpus, self.gpu_type = free_port(184, 185, 186, 187), gpus, gpu_type
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
            f.write(
                CONF.format(
                    dir=self.dir,
                    host=os.uname().nodename,
                    cpus=cpus,
                    port=self.port,
                    first=self.port + 184,
                    last=self.port + 187,
                    more="GresTypes=gpu\n" if self.gpus else "",
                    gres=f" Gres=gpu:{self.gpu_type}:{self.gpus}" if self.gpus else "",
                )
            )
        if self.gpus:
            # Slurm wants a file for each card, and looks no further than at its kind.
            os.makedirs(f"{self.dir}/dev", exist_ok=True)
            for i in range(self.gpus):
                os.mknod(f"{self.dir}/dev/nvidia{i}", 0o666 | 0o020000, os.makedev(1, 3))
            with open(f"{self.dir}/gres.conf", "w", encoding="utf-8") as f:
                f.write(
                    "NodeName=n[1-4] Name=gpu"
                    f" Type={self.gpu_type} File={self.dir}/dev/nvidia[0-{self.gpus - 1}]\n"
                )
        if (
            subprocess.run(
                ["munge", "-n"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ).returncode
            != 0
        ):
            os.makedirs("/run/munge", exist_ok=True)
            subprocess.run(["chown", "munge:munge", "/run/munge"], check=True)
            subprocess.run(["runuser", "-u", "munge", "--", "munged"], check=True)
        self.log = open(f"{self.dir}/out.log", "w", encoding="utf-8")
        log = self.log
        self.start_controller()
        for i in range(1, 5):
            self.processes.append(
                subprocess.Popen(
                    ["slurmd", "-D", "-N", f"n{i}"], env=self.env, stdout=log, stderr=log
                )
            )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            out = self.run(["sinfo", "-h", "-o", "%T %D"]).stdout
            if any(line.startswith("idle") and line.endswith("4") for line in out.splitlines()):
                return
            time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"Slurm did not come up; see {self.dir}/*.log")

    def start_controller(self):
        self.controller = subprocess.Popen(
            ["slurmctld", "-D"], env=self.env, stdout=self.log, stderr=self.log
        )
        self.processes.append(self.controller)

    def stop_controller(self):
        # it saves its state; killed, it may forget jobs, and then kills them itself
        self.controller.terminate()
        self.controller.wait(30)
        self.processes.remove(self.controller)

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
