"""Jobs from Python, and the client below them."""
import asyncio
import io
import json
import os
import threading

from rig import poll
from sdk_rig import SdkTest, billow


class Jobs(SdkTest):
    def test_run_shows_output_and_exit_code(self):
        out, err = io.BytesIO(), io.BytesIO()
        job = billow.run("echo hello; echo trouble >&2; printf rest", out=out, err=err)
        self.assertEqual((out.getvalue(), err.getvalue()), (b"hello\nrest", b"trouble\n"))
        self.assertEqual((job.state, job.exit_code, job.done), ("succeeded", 0, True))
        with self.assertRaises(billow.JobFailed) as failed:
            billow.run("exit 3", quiet=True)
        self.assertEqual(failed.exception.exit_code, 3)
        self.assertIn(f"billow logs {failed.exception.job.id}", str(failed.exception))
        self.assertEqual(billow.run("exit 4", check=False, quiet=True).exit_code, 4)

    def test_submit_follow_stop(self):
        job = billow.submit(
            ["sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.1; done"], gpus=0.5, name="lines"
        )
        self.assertEqual(list(job.logs(follow=True)), ["line 1", "line 2", "line 3"])
        job.wait(30)
        self.assertEqual((job.name, job.document["gpu_milli"]), ("lines", 500))
        self.assertGreaterEqual(job.cost, 0)
        self.assertIn("leases", job.costs())
        self.assertIn("<table>", job._repr_html_())
        long = billow.submit("sleep 600")
        poll(lambda: long.state == "running", "it runs")
        with self.assertRaises(TimeoutError):
            long.wait(1)
        long.stop()
        self.assertEqual(long.wait(30, check=False).state, "stopped")

    def test_groups(self):
        group = billow.group(
            {
                "main": billow.role(
                    "echo $BILLOW_GROUP_ROLES $BILLOW_GROUP_SERVER_ADDRESSES $LR; sleep 0.5",
                    gpus=1,
                    env_vars={"LR": "3"},
                ),
                "server": billow.role("sleep 600", gpus=0.5, count=2, service=True, retries=1),
            },
            name="roles",
        )
        self.assertEqual(group.members(), ["main", "server.0", "server.1"])
        group.wait(60)
        self.assertEqual(group.state, "succeeded")
        (line,) = group.logs(role="main")
        names, addresses, rate = line.split()
        self.assertEqual((names, rate), ("main,server", "3"))
        self.assertEqual(len(set(addresses.split(","))), 2)
        self.assertEqual(set(group.cost_by_role), {"main", "server"})
        self.assertAlmostEqual(sum(group.cost_by_role.values()), group.cost, places=9)
        self.assertEqual(group.document["gpu_milli"], 2000)
        with self.assertRaisesRegex(billow.ApiError, "succeeded|has ended"):
            group.restart("server")
        with self.assertRaisesRegex(ValueError, "belong to the group"):
            billow.role("true", timeout="1h")
        with self.assertRaisesRegex(billow.ApiError, "role big"):
            billow.group({"big": billow.role("true", gpus=64)})

    def test_logs_of_all_members_of_a_group(self):
        group = billow.group(
            {
                "main": billow.role("echo one; sleep 0.5; echo two"),
                "side": billow.role("echo from $BILLOW_ROLE_INDEX", count=2),
            }
        )
        follow = list(group.logs(follow=True))
        expected = ["[main] one", "[main] two", "[side.0] from 0", "[side.1] from 1"]
        self.assertEqual(sorted(follow), expected)
        self.assertEqual(list(group.logs()), expected, "member by member")
        self.assertEqual(list(group.logs(role="side")), expected[2:])
        self.assertEqual(list(group.logs(role="side.1")), ["from 1"])
        self.assertEqual(list(group.logs(rank=0)), ["one", "two"])
        endless = billow.group(
            {name: billow.role("while echo x; do sleep 0.01; done") for name in ("a", "b")}
        )
        first = next(iter(endless.logs(follow=True)))
        self.assertIn(first, ("[a] x", "[b] x"), "left before its end")
        endless.stop(force=True)

    def test_outputs(self):
        job = billow.submit(
            "mkdir -p results/deep && echo model > results/deep/m.pt && echo x > results/n",
            outputs=["results"],
            cwd=self.rig.files,
        ).wait(60)
        self.assertEqual(sorted(job.outputs), ["results/deep/m.pt", "results/n"])
        self.assertEqual(job.outputs["results/n"], b"x\n")
        target = os.path.join(self.rig.root, "fetched")
        job.outputs.save(target)
        with open(os.path.join(target, "results/deep/m.pt"), encoding="ascii") as file:
            self.assertEqual(file.read(), "model\n")
        with self.assertRaises(KeyError):
            job.outputs["results/none"]
        with self.assertRaisesRegex(billow.NotFound, "outputs="):
            list(billow.submit("true").wait(30).outputs)

    def test_the_directory_follows(self):
        place = os.path.join(self.rig.root, "project")
        os.makedirs(os.path.join(place, "sub"))
        for name, text in (
            ("main.txt", "main"),
            ("sub/deep.txt", "deep"),
            (".gitignore", "*.log\nbuild/\n"),
            ("noise.log", "no"),
            (".env", "SECRET=1"),
        ):
            with open(os.path.join(place, name), "w", encoding="ascii") as file:
                file.write(text)
        os.makedirs(os.path.join(place, "build"))
        os.symlink("main.txt", os.path.join(place, "link"))
        os.symlink("/etc/passwd", os.path.join(place, "out"))
        job = billow.submit("ls -A . sub; cat link", cwd=place, sync=True).wait(60)
        self.assertEqual(
            job.text().split(),
            [".:", ".gitignore", "link", "main.txt", "sub", "sub:", "deep.txt", "main"],
        )

    def test_dependencies_and_grids(self):
        first = billow.submit("sleep 0.5")
        second = billow.submit("true", after=first)
        third = billow.submit("true", after=[f"any:{first.id}", second])
        third.wait(60)
        self.assertEqual((first.state, second.state), ("succeeded", "succeeded"))
        jobs = billow.grid(
            "echo {lr} $SEED {other} '${{x}}'",
            params={"lr": [0.1, "a b"], "seed": range(2)},
            gpus=0.25,
        ).wait(60)
        self.assertEqual(len(jobs), 4)
        self.assertEqual(jobs.parameters[3], {"lr": "a b", "seed": 1})
        self.assertEqual(jobs[3].text(), "a b 1 {other} ${{x}}\n")
        self.assertEqual(jobs.states(), {"succeeded": 4})
        self.assertGreaterEqual(jobs.cost, 0)

    def test_explain(self):
        full = billow.submit("sleep 600", gpus=8)
        poll(lambda: full.state == "running", "it runs")
        waiting = billow.submit("true", gpus=1)
        self.assertIn("No GPU is free", poll(waiting.explain, "a reason"))
        full.stop()
        waiting.wait(60)

    def test_schedules(self):
        billow.schedule("true", cron="0 6 * * *", name="nightly")
        names = [each["name"] for each in self.client.get("/v1/schedules")["schedules"]]
        self.assertIn("nightly", names)
        billow.unschedule("nightly")

    def test_scheduled_functions(self):
        @billow.function(gpus=0.5, timeout="5m", name="report")
        def report(kind, path):
            with open(path, "w", encoding="ascii") as file:
                file.write(kind)
            return f"wrote {kind}"

        path = self.rig.file("report")
        self.assertEqual(report.schedule("0 6 * * *", "daily", path=path), "report")
        (found,) = [each for each in billow.schedules() if each["name"] == "report"]
        self.assertEqual(found["cron"], "0 6 * * *")
        # The job that the schedule submits, run now.
        body = report._pool.deployment().as_job(billow._function.dumps((("now", path), {})))
        job = billow.Job(self.client.post("/v1/jobs", body)["id"]).wait(60)
        self.assertEqual(job.text(), "wrote now\n")
        self.assertEqual((job.document["gpu_milli"], job.document["time_limit_s"]), (500, 300))
        with open(path, encoding="ascii") as file:
            self.assertEqual(file.read(), "now")
        billow.unschedule("report")

    def test_asyncio(self):
        async def work():
            async with billow.AsyncClient() as client:
                jobs = [billow.submit("true") for _ in range(3)]
                await asyncio.gather(*(self.awaited(job) for job in jobs))
                return (await client.status())["you"]["role"], [job.state for job in jobs]

        self.assertEqual(asyncio.run(work()), ("admin", ["succeeded"] * 3))

    def test_groups_and_grids_with_asyncio(self):
        async def work():
            async with billow.AsyncClient() as client:
                group, runs = await asyncio.gather(
                    client.group(
                        {
                            "main": billow.role("echo one; sleep 0.3; echo two"),
                            "helper": billow.role("echo ready; sleep 600", service=True),
                        }
                    ),
                    client.grid("echo {n}", params={"n": [1, 2]}),
                )
                lines = [line async for line in group.alogs(follow=True, role="main")]
                self.assertIs(await group, group)
                await runs
                self.assertIn(int(group.id), [job["id"] for job in await client.jobs("all")])
                failing = await client.group({"bad": billow.role("exit 3")})
                with self.assertRaises(billow.JobFailed) as failed:
                    await failing
                return lines, group.state, runs.states(), failed.exception.exit_code

        self.assertEqual(asyncio.run(work()), (["one", "two"], "succeeded", {"succeeded": 2}, 3))

    def test_options_mean_what_they_mean_on_the_command_line(self):
        self.rig.ok("reserve", "--gpus", "1", "--for", "1h", "--name", "kept")
        first = billow.submit("sleep 600")
        same = {"cwd": self.rig.files, "inherit_env": False, "after": first}
        for words, options in (
            (["--cpus", "0.5", "--mem", "2G"], {"cpus": 0.5, "mem": "2G"}),
            (["--gpus", "0.25", "--strict"], {"gpus": 0.25, "strict": True}),
            (["--gpu-mem", "20G", "--gpu-type", "H100"], {"gpu_mem": "20G", "gpu_type": "H100"}),
            (["--gpus", "0.5", "--share", "time"], {"gpus": 0.5, "share": "time"}),
            (["--time", "90m", "--stop-grace", "3s"], {"timeout": "90m", "stop_grace": 3}),
            (["--retries", "2", "--backoff", "5s"], {"retries": 2, "backoff": "5s"}),
            (["--label", "a=b", "--spot"], {"labels": {"a": "b"}, "spot": True}),
            (["--topology", "rack:required"], {"topology": "rack:required"}),
            (["--max-price", "3.50"], {"max_price": 3.5}),
            (["--max-processes", "99"], {"max_processes": 99}),
            (["--isolation", "strict"], {"isolation": "strict"}),
            (["--seccomp", "strict"], {"seccomp": "strict"}),
            (["--suspendable", "no"], {"suspendable": False}),
            (["--suspend-hook", "sync"], {"suspend_hook": "sync"}),
            (["--reservation", "kept", "--gpus", "1"], {"reservation": "kept", "gpus": 1}),
            (
                [
                    "--checkpoint-every",
                    "10m",
                    "--checkpoint-signal",
                    "USR1",
                    "--checkpoint-dir",
                    "/t",
                ],
                {"checkpoint_every": "10m", "checkpoint_signal": "USR1", "checkpoint_dir": "/t"},
            ),
        ):
            with self.subTest(words):
                asked = self.rig.ok(
                    "submit", "-q", "--no-env", "--no-sync", "--cwd", self.rig.files,
                    "--after", first.id, *words, "--", "true",
                )  # fmt: skip
                there = billow.Job(asked.text.strip())
                here = billow.submit(["true"], **same, sync=False, **options)
                specs = [each.document["spec"] for each in (here, there)]
                for spec in specs:
                    spec.pop("env_digest", None)  # the command line passes PATH and HOME on
                self.assertEqual(specs[0], specs[1])
        sweep = billow.submit("true", array="0-3%2", after=first)
        self.assertEqual(sweep.document["elements"]["count"], 4)
        keyed = [billow.submit("true", after=first, idempotency_key="once").id for _ in range(2)]
        self.assertEqual(keyed[0], keyed[1])
        self.rig.ok("stop", "-q", *[str(job["id"]) for job in self.client.jobs(limit=500)])

    @staticmethod
    async def awaited(job):
        return await job

    def test_errors_say_what_to_do(self):
        with self.assertRaises(billow.NotFound) as missing:
            billow.Job(987654).state
        self.assertEqual(missing.exception.status, 404)
        with self.assertRaises(billow.ApiError) as refused:
            billow.submit("true", gpus=1, gpu_type="NOSUCH")
        self.assertIn("NOSUCH", str(refused.exception))

    def test_many_threads_share_a_client(self):
        errors = []

        def work():
            try:
                for _ in range(20):
                    self.client.status()
            except Exception as problem:
                errors.append(problem)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(errors, [])


class Restarts(SdkTest):
    def test_a_head_that_restarts(self):
        job = billow.submit("echo one; sleep 3; echo two")
        lines = job.logs(follow=True)
        self.assertEqual(next(lines), "one")
        self.rig.kill(self.rig.head_pid())
        threading.Timer(1.0, self.rig.up).start()
        self.assertEqual(list(lines), ["two"])
        self.assertEqual(job.wait(60).state, "succeeded")


class Contexts(SdkTest):
    """A head as on another machine: over TLS, with tokens and fingerprints."""

    options = {"args": ["--tls"]}

    def setUp(self):
        told = json.loads(self.rig.read("head.json"))
        self.url = told["addresses"][0]
        self.assertTrue(self.url.startswith("https://"))
        self.fingerprint = self.client.status()["fingerprint"]
        self.data = os.environ.pop("BILLOW_DATA")

    def tearDown(self):
        os.environ["BILLOW_DATA"] = self.data
        for name in ("BILLOW_HEAD", "BILLOW_TOKEN"):
            os.environ.pop(name, None)

    def role(self, *args):
        with billow.Client(*args) as client:
            for _ in range(3):  # on one connection, and from several at once
                client.status()
            return client.status()["you"]["role"]

    def test_contexts(self):
        config = os.path.join(os.environ["XDG_CONFIG_HOME"], "billow")
        os.makedirs(config, exist_ok=True)
        path = os.path.join(config, "contexts.json")
        token = self.rig.token().split(".")[0]
        context = {"token": token, "fingerprint": self.fingerprint}
        with open(path, "w", encoding="ascii") as file:
            json.dump({"current": self.url, self.url: context}, file)
        os.chmod(path, 0o644)
        with self.assertRaisesRegex(billow.ConnectionFailed, "chmod 600"):
            billow.Client()
        os.chmod(path, 0o600)
        self.assertEqual(self.role(), "admin")
        self.assertEqual(self.role(self.url), "admin")
        context["fingerprint"] = "00" * 32
        with open(path, "w", encoding="ascii") as file:
            json.dump({"current": self.url, self.url: context}, file)
        with self.assertRaisesRegex(billow.ConnectionFailed, "fingerprint"):
            self.role()
        os.unlink(path)
        with self.assertRaisesRegex(billow.ConnectionFailed, "no token"):
            self.role(self.url)

    def test_variables(self):
        os.environ["BILLOW_HEAD"] = self.url
        os.environ["BILLOW_TOKEN"] = self.rig.token().split(".")[0] + "." + self.fingerprint
        self.assertEqual(self.role(), "admin")
        os.environ["BILLOW_TOKEN"] = "wrong." + self.fingerprint
        with self.assertRaises(billow.ApiError) as refused:
            self.role()
        self.assertEqual(refused.exception.status, 401)
        os.environ["BILLOW_TOKEN"] = self.rig.token().split(".")[0]
        with self.assertRaisesRegex(billow.ConnectionFailed, "not trusted"):
            self.role()  # nobody vouches for a certificate that the head made itself

    def test_the_head_of_this_machine_is_found(self):
        self.assertEqual(self.role(), "admin", "by its pointer in the state directory")
        self.assertEqual(self.role(None, self.data), "admin")
        with self.assertRaisesRegex(billow.ConnectionFailed, "no head is running here"):
            self.role(None, self.rig.file("empty"))
