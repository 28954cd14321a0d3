"""Containers of different users, and slices of a GPU in containers."""
import os
import pwd
import unittest

import images
from box_test import SIM_CUDA, WHY_NOT
from rig import SOURCE, Rig, poll


@unittest.skipIf(WHY_NOT, WHY_NOT)
@unittest.skipUnless(
    os.path.exists(SIM_CUDA + "/libcuda.so.1"), "the simulated driver is not built"
)
class Slices(unittest.TestCase):
    """A CUDA program in an image, on a simulated driver, behind the real shim and the real GPU
    memory service."""

    def test_the_shim_keeps_the_slice_and_suspends_it(self):
        rig = Rig(sim="1xH100", BILLOW_CUDA=SIM_CUDA + "/libcuda.so.1")
        registry = images.Registry(rig.root)
        try:
            image = registry.push(
                "cuda:1",
                images.python_tar(
                    {
                        "/usr/lib/libcuda.so.1": SIM_CUDA + "/libcuda.so.1",
                        "/srv/cuda_loop.py": os.path.join(SOURCE, "tests/support/cuda_loop.py"),
                    }
                ),
                "ENV LD_LIBRARY_PATH=/usr/lib",
            )
            done, count = rig.file("done"), rig.file("count")
            job = rig.submit(
                "--image",
                image,
                "--gpu-mem",
                "1G",
                "--",
                "python3",
                "/srv/cuda_loop.py",
                done,
                count,
                64,
            )

            def number():
                with open(count, encoding="ascii") as f:
                    return int(f.read() or 0)

            poll(
                lambda: os.path.exists(count) and number() > 2 or rig.job(job)["final"],
                "the slice to run",
                90,
            )
            self.assertIn("total 1024 MiB", rig.ok("logs", job).text)
            rig.ok("suspend", job)
            self.assertGreaterEqual(
                rig.wait_for(job, "suspended", 60)["tasks"][0]["ram_mib"], 64
            )  # its device memory lies in the GPU memory service
            before = number()
            rig.ok("resume", job)
            rig.wait_for(job, "running", 60)
            poll(lambda: number() > before, "it to count on")
            open(done, "w", encoding="ascii").close()
            rig.wait_for(job, "succeeded", 60)
        finally:
            registry.close()
            rig.close()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class OtherUsers(unittest.TestCase):
    def test_a_job_is_its_user_outside_and_root_inside(self):
        try:
            user = pwd.getpwnam("nobody")
        except KeyError:
            self.skipTest("there is no user nobody")
        rig = Rig(sim="1xH100")
        registry = images.Registry(rig.root)
        try:
            image = registry.push("tools:1", images.root_tar())
            rig.ok("user", "create", "worker", "--unix-name", "nobody")
            rig.ok("project", "create", "red")
            rig.ok("project", "member", "red", "worker")
            token = rig.json("token", "create", "worker-token", "--user", "worker")["token"]
            work = os.path.join(rig.root, "work")
            os.mkdir(work)
            os.chown(work, user.pw_uid, user.pw_gid)
            done = rig.cli(
                "run",
                "--cwd",
                work,
                "--image",
                image,
                "--",
                "sh",
                "-c",
                "id -u; touch made; cat /etc/hello; cat /proc/self/uid_map",
                env={"BILLOW_TOKEN": token},
                timeout=120,
            )
            self.assertEqual(done.code, 0, done)
            lines = done.text.split("\n")
            self.assertEqual(lines[0], "0")
            self.assertEqual(lines[2].split(), ["0", str(user.pw_uid), "1"])
            self.assertEqual(os.stat(os.path.join(work, "made")).st_uid, user.pw_uid)
        finally:
            registry.close()
            rig.close()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Ordinary(unittest.TestCase):
    def test_an_agent_without_any_privilege(self):
        """Head, agent, image and environment, all as nobody."""
        rig = Rig(sim="1xH100", up=False, HOME="/nonexistent")
        uid = pwd.getpwnam("nobody").pw_uid
        registry = images.Registry(rig.root)
        try:
            image = registry.push("tools:1", images.root_tar())
            place = os.path.join(rig.files, "tools")
            os.makedirs(os.path.join(place, "bin"))
            with open(os.path.join(place, "bin/greet"), "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\necho saved\n")
            os.chmod(os.path.join(place, "bin/greet"), 0o755)
            os.makedirs(rig.data)
            for path in (
                rig.data,
                rig.files,
                place,
                os.path.join(place, "bin"),
                os.path.join(place, "bin/greet"),
            ):
                os.chown(path, uid, -1)
            done = rig.cli(
                "run",
                "--gpus",
                "1",
                "--image",
                image,
                "--",
                "sh",
                "-c",
                "id -u; cat /etc/hello; exit 6",
                user=uid,
                timeout=120,
            )
            self.assertEqual((done.code, done.text), (6, "0\nfrom the image\n"), done)
            self.assertEqual(
                rig.cli(
                    "env",
                    "save",
                    "tools",
                    place,
                    user=uid,
                    env={"XDG_CACHE_HOME": rig.data},
                    timeout=120,
                ).code,
                0,
            )
            os.remove(os.path.join(place, "bin/greet"))
            done = rig.cli(
                "run",
                "--env",
                "tools",
                "--",
                "sh",
                "-c",
                f"greet; id -un; echo mine > {place}/bin/new; ls {place}/bin",
                user=uid,
                timeout=120,
            )
            self.assertEqual((done.code, done.text), (0, "saved\nnobody\ngreet\nnew\n"), done)
            self.assertEqual(os.listdir(os.path.join(place, "bin")), [])
            self.assertEqual(rig.cli("down", "--stop-jobs", user=uid).code, 0)
        finally:
            registry.close()
            rig.close()


if __name__ == "__main__":
    unittest.main()
