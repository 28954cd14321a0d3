"""Gangs over several machines: ranks, the start barrier, everybody's output, and one that fails."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import unittest

from far import FarCase
from rig import BILLOW, poll


ALL_REDUCE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(x)
print("sum", int(x.item()), "of", dist.get_world_size(), flush=True)
"""

# The same in the standard library alone: everybody tells the first its number, and gets the sum of
# all.
SUM = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(("", where[1]), reuse_port=False)
    peers = [server.accept()[0] for _ in range(world - 1)]
    total = 1 + sum(int(p.recv(100)) for p in peers)
    for p in peers:
        p.sendall(str(total).encode())
else:
    deadline = time.monotonic() + 30
    while True:
        try:
            s = socket.create_connection(where, 5)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    s.sendall(str(rank + 1).encode())
    total = int(s.recv(100))
print("sum", total, "of", world, "local", os.environ["LOCAL_RANK"], "node", os.environ["NODE_RANK"], "of", os.environ["NNODES"], flush=True)
"""


# Over TCP alone: all the machines of this test are one, whose memory would carry it too.
MPI = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  int rank, size, mine, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d node %s sum %d\\n", rank, size, getenv("NODE_RANK"), sum);
  MPI_Finalize();
  return argc > 1 && rank == size - 1 ? 3 : 0;
}
"""


class Gangs(FarCase):
    def script(self, name, text):
        path = self.rig.file(name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def test_every_process_has_its_rank_and_all_of_them_meet(self):
        script = self.script("sum.py", SUM)
        done = self.rig.ok(
            "run", "--nodes", 2, "--gpus", 2, "--procs", 2, "--", sys.executable, script, timeout=90
        )
        lines = sorted(done.text.splitlines())
        self.assertEqual(len(lines), 4, done)
        for rank, line in enumerate(lines):
            self.assertEqual(line, f"[{rank}] sum 10 of 4 local {rank % 2} node {rank // 2} of 2")
        job = self.rig.json("ps", "-a")["jobs"][0]["id"]
        self.assertEqual(sorted(self.rig.ok("logs", job).text.splitlines()), lines)
        self.assertEqual(sorted(self.rig.ok("logs", "--rank", 1, job).text.splitlines()), lines[2:])

    def test_a_hostfile_names_the_nodes(self):
        done = self.rig.ok(
            "run",
            "--nodes",
            2,
            "--gpus",
            4,
            "--procs",
            4,
            "--",
            "sh",
            "-c",
            'if [ $RANK = 0 ]; then cat "$BILLOW_HOSTFILE"; echo path=$BILLOW_HOSTFILE; fi',
            timeout=60,
        )
        lines = [line.removeprefix("[0] ") for line in done.text.splitlines()]
        self.assertEqual(
            sorted(lines[:2]),
            [f"{self.net.address('a')} slots=4", f"{self.net.address('b')} slots=4"],
        )
        poll(
            lambda: not os.path.exists(lines[2].split("=", 1)[1]),
            "the hostfile gone with its task",
            20,
        )

    def test_one_rank_that_fails_stops_the_rest_and_says_why(self):
        done = self.rig.cli(
            "run",
            "--nodes",
            2,
            "--gpus",
            4,
            "--",
            "sh",
            "-c",
            "if [ $RANK = 1 ]; then echo giving up; exit 7; fi; sleep 600",
            timeout=90,
        )
        self.assertEqual(done.code, 7, done)
        self.assertIn("[1] giving up", done.text)
        job = self.rig.json("ps", "-a")["jobs"][0]["id"]
        self.assertIn("rank 1: exit code 7", self.rig.job(job)["reason"])

    def test_one_process_that_fails_stops_its_siblings(self):
        done = self.rig.cli(
            "run",
            "--gpus",
            1,
            "--procs",
            3,
            "--",
            "sh",
            "-c",
            "if [ $LOCAL_RANK = 2 ]; then exit 9; fi; sleep 600",
            timeout=60,
        )
        self.assertEqual(done.code, 9, done)

    def test_messages_number_ranks_as_the_output_does(self):
        done = self.rig.cli(
            "run",
            "--nodes",
            2,
            "--gpus",
            2,
            "--procs",
            2,
            "--",
            "sh",
            "-c",
            "if [ $RANK = 3 ]; then echo giving up; exit 7; fi; sleep 600",
            timeout=90,
        )
        self.assertEqual(done.code, 7, done)
        self.assertIn("[3] giving up", done.text)
        self.assertIn("ranks 2 to 3 on ", done.errors)
        job = self.rig.json("ps", "-a")["jobs"][0]["id"]
        self.assertIn("ranks 2 to 3: exit code 7", self.rig.job(job)["reason"])

    def test_no_rank_begins_before_all_have_come(self):
        # The second machine is out of reach when the job is placed: the first waits at the barrier,
        # and its command has not begun.
        mark = self.rig.file("begun")
        node = self.rig.nodes()
        self.assertEqual(sorted(node), ["a", "b"])
        job = None
        self.net.cut("b")
        try:
            job = self.rig.submit(
                "--nodes", 2, "--gpus", 4, "--", "sh", "-c", f"touch {mark}-$RANK; echo began"
            )
            self.rig.wait_for(job, "running", 20)
            poll(
                lambda: any("billow ranks" in line for line in self.rig.processes().values()),
                "somebody at the barrier",
                20,
            )
            self.assertFalse(os.path.exists(f"{mark}-0") or os.path.exists(f"{mark}-1"))
        finally:
            self.net.mend("b")
        self.assertEqual(self.rig.cli("wait", job, timeout=120).code, 0)
        self.assertTrue(os.path.exists(f"{mark}-0") and os.path.exists(f"{mark}-1"))

    def test_a_lost_member_of_an_elastic_gang_is_replaced_while_the_others_go_on(self):
        gate, begun = self.rig.file("elastic-gate"), self.rig.file("elastic-begun")
        job = self.rig.submit(
            "--nodes",
            2,
            "--gpus",
            4,
            "--elastic",
            "--",
            "sh",
            "-c",
            (
                f"echo $RANK.$BILLOW_REPAIRS >> {begun}; until [ -e {gate} ]; do sleep 0.05; done;"
                " echo done"
            ),
        )

        def begun_are(*expected):
            def look():
                with contextlib.suppress(OSError), open(begun, encoding="ascii") as f:
                    return sorted(f.read().split()) == sorted(expected)
                return False

            poll(look, f"ranks {expected}", 60)

        begun_are("0.0", "1.0")
        task = next(t for t in self.rig.job(job)["tasks"] if t["rank"] == 1)
        # Its supervisor dies: the task is lost, as if its machine were.
        os.kill(poll(lambda: self.supervisor_of(task), "the supervisor", 20), signal.SIGKILL)
        begun_are("0.0", "1.0", "1.1")
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        self.assertEqual(
            sorted(self.rig.ok("logs", job).text.splitlines()), ["[0] done", "[1] done"]
        )

    def test_a_failed_member_of_an_elastic_gang_is_replaced_as_often_as_there_are_retries(self):
        gate, begun = self.rig.file("failing-gate"), self.rig.file("failing-begun")
        command = (
            f"echo $RANK.$BILLOW_REPAIRS >> {begun}; [ $RANK = 0 ] || [ $BILLOW_REPAIRS -ge 1 ] ||"
            f" exit 5; until [ -e {gate} ]; do sleep 0.05; done; echo done"
        )
        job = self.rig.submit(
            "--nodes", 2, "--gpus", 4, "--elastic", "--retries", 1, "--", "sh", "-c", command
        )

        def look():
            with contextlib.suppress(OSError), open(begun, encoding="ascii") as f:
                return sorted(f.read().split()) == ["0.0", "1.0", "1.1"]
            return False

        poll(look, "a second rank 1 beside the first rank 0", 60)
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        # Without retries left it fails as any gang does.
        done = self.rig.cli(
            "run",
            "--nodes",
            2,
            "--gpus",
            4,
            "--elastic",
            "--retries",
            1,
            "--backoff",
            "100ms",
            "--",
            "sh",
            "-c",
            "[ $RANK = 0 ] || exit 6; sleep 600",
            timeout=90,
        )
        self.assertEqual(done.code, 6, done)

    def test_open_mpi_over_the_network(self):
        if not shutil.which("mpicc") or not shutil.which("mpirun"):
            self.skipTest("openmpi-bin or libopenmpi-dev is not installed")
        source, program = self.script("sum.c", MPI), self.rig.file("mpi_sum")
        subprocess.run(["mpicc", "-o", program, source], check=True, capture_output=True)
        over_tcp = [
            "--mca",
            "btl",
            "tcp,self",
            "--mca",
            "btl_tcp_if_include",
            "eth0",
            "--mca",
            "oob_tcp_if_include",
            "eth0",
            "--bind-to",
            "none",
        ]
        done = self.rig.ok(
            "run",
            "--nodes",
            2,
            "--gpus",
            2,
            "--procs",
            2,
            "--",
            "mpirun",
            *over_tcp,
            program,
            timeout=120,
        )
        lines = sorted(line for line in done.text.splitlines() if line.startswith("rank "))
        self.assertEqual([line.split()[1] for line in lines], ["0", "1", "2", "3"], done)
        for line in lines:
            self.assertTrue(line.endswith("sum 10"), done)
        self.assertEqual(
            {line.split()[5] for line in lines}, {"0", "1"}, done
        )  # in the tasks of both nodes
        # A rank that fails is mpirun's failure, and the job's; nothing is left on any node.
        done = self.rig.cli(
            "run",
            "--nodes",
            2,
            "--gpus",
            2,
            "--procs",
            1,
            "--",
            "mpirun",
            *over_tcp,
            program,
            "fail",
            timeout=120,
        )
        self.assertEqual(done.code, 3, done)
        poll(
            lambda: not any(
                "orted" in line or "mpi_sum" in line for line in self.rig.processes().values()
            ),
            "nothing of it left",
            20,
        )

    def test_a_command_on_another_node_of_the_gang(self):
        script = self.script(
            "ask.sh",
            """
for host in $(echo $BILLOW_NODES | tr , ' '); do
  [ $host = $(echo $BILLOW_NODES | cut -d, -f1) ] && continue
  "$1" rsh $host 'echo node $NODE_RANK; echo oops >&2; exit 4'
  echo code $?
done
"$1" rsh nosuch true
echo code $?
""",
        )
        done = self.rig.ok(
            "run",
            "--nodes",
            2,
            "--gpus",
            4,
            "--env-var",
            "BILLOW_LAUNCH=first",
            "--",
            "sh",
            script,
            BILLOW,
            timeout=90,
        )
        self.assertEqual(done.text.splitlines(), ["node 1", "code 4", "code 255"], done)
        self.assertIn("oops", done.errors)
        # Outside of such a job there is nobody to ask.
        self.assertEqual(self.rig.cli("rsh", "b", "true").code, 1)

    def supervisor_of(self, task):
        where = f"{self.rig.node_dir(task['node'])}/node/tasks/{task['id']}"
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as f:
                if f.read().split(b"\0")[:2] == [b"billow-supervise", where.encode()]:
                    return int(name)
        return None

    def torch(self):
        """The system's Python: Debian's torch is installed there."""
        if (
            subprocess.run(
                ["/usr/bin/python3", "-c", "import torch.distributed.run"],
                capture_output=True,
                check=False,
            ).returncode
            != 0
        ):
            self.skipTest("python3-torch is not installed")
        return self.script("all_reduce.py", ALL_REDUCE)

    def test_torch_over_gloo(self):
        script = self.torch()
        done = self.rig.ok(
            "run",
            "--nodes",
            2,
            "--gpus",
            2,
            "--procs",
            2,
            "--env-var",
            "GLOO_SOCKET_IFNAME=eth0",
            "--",
            "/usr/bin/python3",
            script,
            timeout=200,
        )
        self.assertEqual(
            sorted(line for line in done.text.splitlines() if "sum" in line),
            [f"[{rank}] sum 10 of 4" for rank in range(4)],
        )

    def test_torchrun_over_gloo(self):
        script = self.torch()
        # torch 1.13 on Python 3.11 cannot read its own default of --redirects and --tee (0 is no
        # member of a Flag any more): 1 is stdout.
        launch = (
            "exec /usr/bin/python3 -m torch.distributed.run --redirects 1 --tee 1 --nnodes $NNODES"
            " --node_rank $NODE_RANK --nproc_per_node 2 --master_addr $MASTER_ADDR --master_port"
            f" $MASTER_PORT {script}"
        )
        done = self.rig.ok(
            "run",
            "--nodes",
            2,
            "--gpus",
            2,
            "--env-var",
            "GLOO_SOCKET_IFNAME=eth0",
            "--env-var",
            "OMP_NUM_THREADS=1",
            "--",
            "sh",
            "-c",
            launch,
            timeout=200,
        )
        lines = [line for line in done.text.splitlines() if line.endswith("sum 10 of 4")]
        self.assertEqual(
            sorted(line.split()[0] for line in lines), ["[0]", "[0]", "[1]", "[1]"], done
        )


if __name__ == "__main__":
    unittest.main()
