"""The first week of somebody who knows Slurm: what they type, and that nothing is misread or left unexplained."""
import datetime
import json
import os
import re
import stat

from rig import RigTest, poll


class Numbers(RigTest):
    """A number without a unit has two likely meanings, and is refused with both."""

    options = {"sim": "2xH100"}

    def refused(self, *args, likely):
        done = self.rig.cli(*args)
        self.assertEqual(done.code, 2, done)
        self.assertIn("has no unit", done.errors)
        for meaning in likely:
            self.assertIn(meaning, done.errors)

    def test_on_every_command_line(self):
        sizes, times = ("20G for gigabytes", "20M for megabytes"), ("60s", "60m")
        for command in (("run",), ("submit",), ("deploy", "x")):
            for option in ("--mem", "--gpu-mem"):
                self.refused(*command, option, "20", "--", "true", likely=sizes)
            self.refused(*command, "--time", "60", "--", "true", likely=times)
        self.refused("submit", "--checkpoint-every", "60", "--", "true", likely=times)
        self.refused("advise", "--model", "8B", "--ttft", "500", likely=("500ms", "500s"))
        self.refused("reserve", "--gpus", 1, "--for", "60", likely=times)
        self.refused("wait", "1", "--timeout", "60", likely=times)
        self.refused("ps", "--since", "60", likely=times)
        self.assertNotEqual(self.rig.cli("cost", "--since", "7").code, 0)

    def test_in_files(self):
        path = self.rig.file("bare.toml")
        for line, unit in (("mem = 20", "20G"), ("time = 60", "60m"), ('gpu-mem = "20"', "20M")):
            with open(path, "w", encoding="ascii") as f:
                f.write(f'[job]\ncommand = ["true"]\n{line}\n')
            done = self.rig.cli("submit", path)
            self.assertEqual(done.code, 2, done)
            self.assertIn("bare.toml:3:", done.errors)
            self.assertIn(unit, done.errors)
        path = self.rig.file("bare.sh")
        with open(path, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n#BILLOW --mem 20\ntrue\n")
        done = self.rig.cli("submit", path)
        self.assertEqual(done.code, 2, done)
        self.assertIn("bare.sh:2", done.errors)
        self.assertIn("20G", done.errors)


class FromSlurm(RigTest):
    options = {"sim": "4xH100"}

    def script(self, *lines, name="job.sh"):
        path = self.rig.file(name)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + "\n".join(lines) + "\n")
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)  # sbatch needs no x bit either
        return name

    def test_a_script_is_kept_as_it_was_submitted(self):
        gate = self.rig.file("script-gate")
        blocker = self.rig.submit(
            "--gpus", 4, "--", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done"
        )
        self.rig.wait_for(blocker, "running")
        name = self.script("#SBATCH --gres=gpu:1", 'echo "one $0 $1"', name="kept.sh")
        job = self.rig.ok("submit", "--json", name, "x").json["id"]
        self.script("echo two", name="kept.sh")
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
        self.assertEqual(self.rig.ok("logs", "kept").text, "one kept.sh x\n")

    def test_commands_name_their_counterpart(self):
        for words, ours in (
            (["sbatch", "job.sh"], "billow submit"),
            (["srun", "hostname"], "billow run"),
            (["squeue"], "billow ps"),
            (["sacct"], "billow ps -a"),
            (["salloc"], "billow shell"),
            (["scancel", "3"], "billow stop"),
            (["sinfo"], "billow nodes"),
            (["scontrol"], "billow describe"),
            (["scontrol", "show", "job", "12"], "billow describe 12"),
            (["scontrol", "show", "nodes"], "billow nodes"),
            (["scontrol", "requeue", "12"], "billow rerun"),
            (["sacctmgr", "list"], "billow project"),
        ):
            done = self.rig.cli(*words)
            self.assertEqual(done.code, 2, done)
            self.assertIn(ours, done.errors, words)

    def test_options_name_their_counterpart(self):
        for words, ours in (
            (["--account=vision"], "--project vision"),
            (["-A", "vision"], "--project vision"),
            (["--dependency=afterok:12:13"], "--after 12 --after 13"),
            (["--dependency=afterany:12"], "--after any:12"),
            (["--dependency=singleton"], "no counterpart"),
            (["--cpus-per-task=4"], "--cpus 4"),
            (["--ntasks=8"], "--procs 8"),
            (["--ntasks-per-node", "8"], "--procs 8"),
            (["--gres=gpu:2"], "--gpus 2"),
            (["--gres=gpu:h100:2"], "--gpus 2 --gpu-type H100"),
            (["-G", "2"], "--gpus 2"),
            (["--mem-per-cpu=4G"], "--mem 4G"),
            (["--partition=gpu"], "no partitions"),
            (["--error=e.txt"], "billow logs"),
            (["-o", "out.txt"], "billow logs"),
            (["-J", "train"], "--name train"),
            (["-t", "90"], "--time 90m"),
            (["--qos=high"], "--priority"),
            (["--requeue"], "--rerun-if-lost"),
            (["--export=NONE"], "--no-env"),
            (["--chdir=/tmp"], "--cwd /tmp"),
            (["--mail-type=END"], "billow webhook"),
            (["--wrap=make"], "after --"),
            (["--begin=now+1hour"], "billow schedule"),
            (["--nodelist=n1"], "--node-label"),
            (["--container-image=a"], "--image a"),
            (["--signal=USR1@60"], "--checkpoint-signal"),
        ):
            done = self.rig.cli("submit", *words, "--", "true")
            self.assertEqual(done.code, 2, done)
            self.assertIn(ours, done.errors, words)
        done = self.rig.cli("submit", "--output=slurm-%j.out", "--", "true")
        self.assertIn("billow logs", done.errors)

    def test_a_batch_script_runs_and_says_what_each_line_means(self):
        name = self.script(
            "#SBATCH --job-name=train",
            "#SBATCH --gres=gpu:1",
            "#SBATCH --ntasks=1 --cpus-per-task=1",
            "#SBATCH --mem=2000",
            "#SBATCH --time=00:30:00",
            "#SBATCH --partition=gpu",
            "#SBATCH -o slurm-%j.out",
            'echo "on $CUDA_VISIBLE_DEVICES" $SLURM_JOB_ID',
        )
        done = self.rig.ok("submit", name)
        for text in (
            "job.sh:2: --job-name=train → --name train",
            "job.sh:3: --gres=gpu:1 → --gpus 1",
            "job.sh:5: --mem=2000 → --mem 2000M",
            "job.sh:6: --time=00:30:00 → --time 30m",
            "job.sh:7: --partition=gpu → not needed",
            "job.sh:8: -o slurm-%j.out → not needed",
        ):
            self.assertIn(text, done.errors)
        self.assertNotIn("warning", done.errors)
        job = self.rig.job("train")
        self.assertEqual((job["gpus"], job["mem_mib"]), (1, 2000), job)
        self.rig.ok("wait", job["id"])
        self.assertRegex(self.rig.ok("logs", job["id"]).text, rf"^on \S+ {job['id']}\n$")

    def test_variables_and_srun_of_a_batch_script_work(self):
        name = self.script(
            "#SBATCH --array=4,3%1",
            "set -eu",
            'test "$SLURM_ARRAY_TASK_MIN-$SLURM_ARRAY_TASK_MAX" = 3-4',
            "srun python3 -c \"import os; print('in python', os.environ['SLURM_ARRAY_TASK_ID'])\"",
            'echo "$SLURM_ARRAY_JOB_ID" "$SLURM_JOB_NAME" "$SLURM_RESTART_COUNT"',
            'echo "in $SLURM_SUBMIT_DIR"',
            name="vars.sh",
        )
        done = self.rig.ok("submit", "--json", name)
        self.assertNotIn("warning", done.errors)
        array = done.json["id"]
        self.assertEqual(self.rig.cli("wait", array).code, 0, self.rig.cli("logs", array))
        for index in (3, 4):
            self.assertEqual(
                self.rig.ok("logs", f"{array}.{index}").text,
                f"in python {index}\n{array} vars 0\nin {self.rig.files}\n",
            )
        name = self.script(
            "#SBATCH --mem=0",
            "#SBATCH --wait",
            'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            'test "$first" = "$SLURM_JOB_NODELIST" || exit 3',
            "srun --kill-on-bad-exit=1 -l --mpi=pmix echo plain",
            "exit 5",
            name="common.sh",
        )
        done = self.rig.cli("submit", name)
        self.assertEqual(done.code, 5, done)  # of the job, which was waited for
        self.assertNotIn("warning", done.errors)
        self.assertIn("--exclusive gets it all", done.errors)
        self.assertEqual(self.rig.ok("logs", "common").text, "plain\n")
        shown = self.rig.ok("describe", "common").text
        self.assertRegex(shown, r"command +/bin/sh \S*common.sh \(the script as it was submitted")
        self.assertNotIn("SLURM_", shown)
        name = self.script("#SBATCH --time=5", "srun -n 4 hostname", "echo $SLURM_NO_SUCH")
        done = self.rig.ok("submit", name)
        self.assertIn("the script uses srun; here: the command itself", done.errors)
        self.assertIn("the script uses SLURM_NO_SUCH; here: not set", done.errors)

    def test_lines_without_a_counterpart_are_an_error(self):
        name = self.script(
            "#SBATCH --begin=noon", "#SBATCH --licenses=x", "#SBATCH --time=5", "true"
        )
        done = self.rig.cli("submit", name)
        self.assertEqual(done.code, 2, done)
        self.assertIn("line 2: --begin=noon", done.errors)
        self.assertIn("line 3: --licenses=x", done.errors)
        self.assertNotIn("--time", done.errors.split("hint")[0])

    def test_own_lines_win(self):
        name = self.script("#SBATCH --gres=gpu:4", "#BILLOW --gpus 1 --name own", "true")
        done = self.rig.ok("submit", name)
        self.assertIn("the #BILLOW lines are used", done.errors)
        self.assertEqual(self.rig.job("own")["gpus"], 1)

    def test_what_slurm_would_show_is_found(self):
        for words, ours in (
            (["squeue", "-j", "12"], "billow describe 12"),
            (["squeue", "-u", "ana", "-t", "PD"], "billow ps -u ana -s queued,held"),
            (["hold", "12"], "billow suspend"),
            (["release", "12"], "billow resume"),
            (["scontrol", "hold", "12"], "a waiting job cannot be held"),
            (["ps", "-s", "PD,R"], "-s queued,held,running"),
            (["describe", "3_5"], "3.5"),
            (["logs", "sweep_5"], "sweep.5"),
            (["run", "--array", "0-3", "--", "true"], "billow submit --array 0-3"),
            (["submit", "-p", "gpu", "--", "true"], "there are no partitions"),
        ):
            done = self.rig.cli(*words)
            self.assertIn(done.code, (1, 2), done)
            self.assertIn(ours, done.errors, words)

    def test_days_before_the_hours(self):
        for text, seconds in (("1-00:00:00", 86400), ("2-12", 216000), ("0-01:30", 5400)):
            job = self.rig.submit("--time", text, "--", "true")
            self.assertEqual(self.rig.job(job)["time_limit_s"], seconds)
        self.assertEqual(self.rig.cli("submit", "--time", "1-", "--", "true").code, 2)

    def test_a_script_that_is_not_there_is_refused(self):
        for words in (("nofile.sh",), ("./nofile.py", "-x"), ("sub/train.py",)):
            for command in ("submit", "run"):
                done = self.rig.cli(command, *words)
                self.assertEqual(done.code, 2, done)
                self.assertIn(f"there is no file {words[0]} here", done.errors)
                self.assertIn("hint: check its name", done.errors)
        done = self.rig.ok("submit", "--", "./nofile.sh")
        self.assertIn("warning: ./nofile.sh is not on this machine", done.errors)
        self.assertIn("warning:", self.rig.ok("submit", "/nosuch/train.sh").errors)
        self.assertNotIn("warning", self.rig.ok("submit", "/bin/true").errors)

    def test_exclusive_is_shown(self):
        job = self.rig.submit("--exclusive", "--", "true")
        self.assertIn("a whole node (exclusive)", self.rig.ok("describe", job).text)

    def test_a_script_needs_neither_path_nor_x_bit(self):
        name = self.script("echo plain", name="plain.sh")
        self.assertEqual(self.rig.ok("run", name).text, "plain\n")


class Waiting(RigTest):
    """`explain` is true, and names the remedy."""

    options = {"sim": "2xH100", "args": ("--node-name", "box")}

    def tearDown(self):
        self.rig.ok("undrain", "box")
        jobs = [job["id"] for job in self.rig.json("ps")["jobs"]]
        if jobs:
            self.rig.ok("stop", "--force", "--wait", *jobs)

    def refused(self, *args, why, remedy):
        done = self.rig.cli("submit", *args, "--", "true")
        self.assertEqual(done.code, 1, done)
        self.assertIn(why, done.errors)
        self.assertIn(remedy, done.errors)

    def test_what_can_never_start_is_refused_with_the_remedy(self):
        self.refused("--cpus", 64, why="no node has 64 CPUs", remedy="use at most --cpus")
        self.refused("--mem", "9000G", why="of memory", remedy="use at most --mem")
        self.refused(
            "--gpus", 1, "--gpu-mem", "200G", why="of memory", remedy="use at most --gpu-mem"
        )
        self.refused("--gpus", 1, "--gpu-type", "H10", why="unknown GPU type", remedy="mean H100")
        self.refused("--gpus", 4, why="no node has 4 GPUs", remedy="use at most --gpus 2")
        self.refused("--nodes", 2, why="only 1 could run", remedy="use at most --nodes 1")
        self.refused("--zone", "nosuch", why="no node matches --zone nosuch", remedy="values here")
        self.refused("--pool", "nosuch", why="no node matches --pool nosuch", remedy="values here")
        self.refused("--node-label", "nosuch=1", why='label "nosuch"', remedy="labels here")
        # The same is said while the only node is drained.
        self.rig.ok("drain", "box")
        self.refused("--gpus", 4, why="no node has 4 GPUs", remedy="use at most --gpus 2")

    def test_limits_of_a_project_and_its_users(self):
        self.rig.ok("project", "create", "small")
        self.rig.ok("project", "set", "small", "--max", 1)
        self.refused("-p", "small", "--gpus", 2, why="may use 1 at once", remedy="raise the limit")
        self.rig.ok("project", "set", "small", "--max", "none", "--user-max", 1)
        self.refused("-p", "small", "--gpus", 2, why="one user of project", remedy="--user-max")

    def test_types_in_any_case(self):
        job = self.rig.submit("--gpus", 1, "--gpu-type", "h100", "--", "true")
        self.rig.ok("wait", job)

    def test_a_drained_node(self):
        self.rig.ok("drain", "box")
        job = self.rig.submit("--gpus", 1, "--", "true")
        text = self.rig.ok("explain", job).text
        self.assertIn("because every node that could run it is closed to new jobs", text)
        self.assertIn("box (drained)", text)
        self.assertIn("billow undrain box", text)
        self.assertNotIn("time limit", text)

    def test_gpus_that_are_used_in_part(self):
        for _ in range(2):
            self.rig.wait_for(
                self.rig.submit("--gpus", 0.6, "--time", "10m", "--", "sleep", 600), "running"
            )
        whole = self.rig.submit("--gpus", 1, "--", "true")
        text = self.rig.ok("explain", whole).text
        self.assertIn("Only 0.8 of 2 GPUs are free; the job needs 1.", text)
        self.assertRegex(text.splitlines()[0], r"should start in \d+ min")
        part = self.rig.submit("--gpus", 0.5, "--", "true")
        self.assertIn("No single GPU has a free share of 0.5", self.rig.ok("explain", part).text)

    def test_gpu_memory_alone(self):
        self.rig.wait_for(self.rig.submit("--gpus", 2, "--", "sleep", 600), "running")
        job = self.rig.submit("--gpu-mem", "20G", "--", "true")
        text = self.rig.ok("explain", job).text
        self.assertIn("No GPU is free: all 2 are in use.", text)
        self.assertRegex(
            text.splitlines()[0], r"because job \d+, which runs before it, has no time limit"
        )

    def test_a_budget_counts_the_time_of_the_job(self):
        self.rig.ok("project", "create", "poor")
        self.rig.ok("budget", "set", "0.14", "--project", "poor", "--total")
        short = self.rig.submit("-p", "poor", "--gpus", 1, "--time", "1m", "--", "true")
        self.assertEqual(self.rig.cli("wait", short).code, 0)
        long = self.rig.submit("-p", "poor", "--gpus", 1, "--", "true")
        self.rig.wait_for(long, "held")
        text = self.rig.ok("explain", long).text
        self.assertRegex(text, r"10m at \$[\d.]+/h needs")
        self.assertRegex(
            text, r"what would help: raise it with `billow budget set`, or submit .*--time [12]m"
        )

    def test_a_start_that_no_budget_pays_for_is_not_promised(self):
        self.rig.ok("project", "create", "limited")
        self.rig.ok("budget", "set", "5", "--project", "limited", "--total")
        long = ("-p", "limited", "--gpus", 2, "--time", "30m", "--", "sleep", 600)
        self.rig.wait_for(self.rig.submit(*long), "running")
        waits = self.rig.submit(*long)
        why = self.rig.json("explain", waits)
        self.assertIsNone(why["earliest_start"], why)
        text = self.rig.ok("explain", waits).text
        self.assertIn("because a budget does not pay for it", text.splitlines()[0])
        self.assertRegex(text, r"\(in about (29|30)m.*\), it cannot start: the total budget of")
        self.assertIn("billow budget set", text)
        self.rig.ok("budget", "set", "50", "--project", "limited", "--total")
        self.assertIsNotNone(self.rig.json("explain", waits)["earliest_start"])

    def test_cores_are_counted(self):
        cores = self.rig.json("nodes")["nodes"][0]["cpu_milli"] // 1000
        self.rig.wait_for(self.rig.submit("--cpus", cores, "--", "sleep", 600), "running")
        text = self.rig.ok("explain", self.rig.submit("--cpus", 1, "--", "true")).text
        self.assertRegex(
            text, r"the job needs 1 CPU with .*; the most free on one node is 0 CPUs and \d"
        )

    def test_times_of_the_head_are_shown_in_local_time(self):
        self.rig.ok("reserve", "--gpus", 2, "--for", "1h", "--from", "+30m", "--name", "soon")
        try:
            job = self.rig.submit("--gpus", 1, "--", "sleep", 600)
            self.rig.wait_for(job, "queued")
            self.assertIn("UTC", json.dumps(self.rig.json("explain", job)["reasons"]))
            self.assertNotIn("UTC", self.rig.ok("explain", job, env={"TZ": "XST-5"}).text)
        finally:
            self.rig.ok("reserve", "cancel", "soon")

    def test_ended_jobs_are_named_as_such(self):
        job = self.rig.submit("--", "true")
        self.rig.ok("wait", job)
        self.assertEqual(
            self.rig.ok("explain", job).text.splitlines()[0], f"job {job} has succeeded"
        )


class Lists(RigTest):
    options = {"sim": "1xH100"}

    def test_filters_that_match_nothing_by_mistake(self):
        job = self.rig.submit("--label", "team=vision", "--label", "run=1", "--", "true")
        self.rig.ok("wait", job)
        self.assertEqual(self.rig.ok("ps", "-q", "-l", "team=speech").text, "")
        done = self.rig.cli("ps", "-a", "-l", "taem=vision")
        self.assertEqual(done.code, 1, done)
        self.assertIn('no recent job has a label "taem"', done.errors)
        self.assertIn("did you mean team?", done.errors)
        both = self.rig.ok("ps", "-a", "-q", "-l", "team=vision", "-l", "run=1").text
        self.assertEqual(both.split(), [str(job)])
        self.assertEqual(self.rig.ok("ps", "-aq", "-l", "team=vision", "-l", "run=2").text, "")

    def test_sorted_and_recent(self):
        for name in ("b", "a", "c"):
            self.rig.ok("wait", self.rig.submit("--name", "sort-" + name, "--", "true"))
        text = self.rig.ok("ps", "-a", "--sort", "name", "--since", "1h").text
        self.assertEqual(re.findall(r"sort-\w", text), ["sort-a", "sort-b", "sort-c"])
        done = self.rig.cli("ps", "--sort", "nmae")
        self.assertEqual(done.code, 2)
        self.assertIn("did you mean name?", done.errors)

    def test_all_jobs_are_sorted_not_only_the_newest(self):
        for name in ("zz-a", "zz-b", "zz-c"):
            self.rig.ok("wait", self.rig.submit("--name", name, "--", "true"))
        done = self.rig.ok("ps", "-a", "--sort", "job", "--limit", 1)
        self.assertIn("zz-c", done.text)
        first = self.rig.ok("ps", "-a", "--sort", "name", "--limit", 2)
        self.assertNotIn("zz-c", first.text)
        self.assertIn("the first 2 by name", first.errors)

    def test_only_the_elements_that_failed(self):
        array = self.rig.submit(
            "--name", "grid", "--array", "0-3", "--", "sh", "-c", "test $BILLOW_ARRAY_INDEX != 2"
        )
        self.rig.cli("wait", array)
        text = self.rig.ok("ps", "-a", "-x", "-s", "failed", "-n", "grid").text
        self.assertEqual(len(text.splitlines()), 2, text)
        self.assertIn(f"{array}.2", text)

    def test_nothing_pads_a_picture(self):
        text = self.rig.ok("top", "--once").text
        self.assertNotIn("\n\n\n", text)
        self.assertLess(len(text.splitlines()), 30)

    def test_results_say_how_to_fetch_them(self):
        job = (
            "--sync",
            "--output",
            "results",
            "--",
            "sh",
            "-c",
            "mkdir results; echo 1 > results/a",
        )
        for command in ("run", "submit"):
            done = self.rig.ok(command, *job)
            self.assertRegex(done.errors, r"results: billow cp \d+:results \.")


class SlurmHabits(RigTest):
    """Small habits of people who come from Slurm."""

    options = {"sim": "1xH100"}

    def test_my_jobs(self):
        mine = self.rig.submit("--name", "mine", "--", "sleep", 600)
        self.rig.ok("user", "create", "else")
        self.assertEqual([j["id"] for j in self.rig.json("ps", "--me")["jobs"]], [mine])

    def test_a_number_of_tasks_is_no_name(self):
        done = self.rig.cli("submit", "-n", 4, "--", "true")
        self.assertEqual(done.code, 2, done)
        self.assertIn("-n is --name here, the number of processes is --procs", done.errors)


class Sweeps(RigTest):
    """Arrays by their name, whole and in part."""

    options = {"sim": "1xH100"}

    def test_a_rerun_does_not_hide_the_first_array(self):
        script = "echo index $BILLOW_ARRAY_INDEX; test $BILLOW_ARRAY_INDEX != 2 || test -e ok"
        first = self.rig.submit("--name", "sweep", "--array", "0-3", "--", "sh", "-c", script)
        self.rig.cli("wait", first)
        with open(self.rig.file("ok"), "w", encoding="ascii"):
            pass
        again = self.rig.json("rerun", "sweep")["id"]
        self.rig.ok("wait", again)
        both = (
            rf"2 of your jobs are called sweep \({again}, {first}\); this is job {again}, the"
            r" newest"
        )
        for words in (
            ("logs", "sweep"),
            ("ps", "-a", "--array", "sweep"),
            ("cost", "--job", "sweep"),
        ):
            done = self.rig.ok(*words)
            self.assertRegex(done.errors, both, words)
        self.assertIn("sweep.2: index 2", self.rig.ok("logs", "sweep").text)
        # An element that ran only in the first array is found there.
        done = self.rig.ok("logs", "sweep.3")
        self.assertEqual((done.text, done.errors), ("index 3\n", ""))
        done = self.rig.ok("logs", "sweep.2")
        self.assertIn(f"this is {again}.2, the newest", done.errors)
        self.assertIn("has no element 9", self.rig.cli("logs", "sweep.9").errors)

    def test_costs_name_the_elements(self):
        array = self.rig.submit("--name", "paid", "--array", "0-1", "--gpus", 1, "--", "sleep", 1)
        self.rig.ok("wait", array)
        for command in ("cost", "waste"):
            text = self.rig.ok(command, "--by", "job").text
            for index in (0, 1):
                self.assertRegex(text, rf"(?m)^{array}\.{index} +paid\.{index} ")

    def test_a_stopped_array_has_not_failed(self):
        array = self.rig.submit("--name", "ended", "--array", "0-2", "--", "sleep", 600)
        after = self.rig.submit("--after", f"any:{array}", "--", "true")
        self.rig.wait_for(f"{array}.0", "running")
        self.rig.ok("stop", "--wait", array)
        job = self.rig.job(array)
        self.assertEqual((job["state"], job["elements"]["stopped"]), ("stopped", 3), job)
        self.assertEqual(job["reason"], "3 of 3 elements were stopped")
        self.assertRegex(self.rig.ok("ps", "-a").text, rf"(?m)^{array}\[\] .* stopped .*3 stopped")
        self.assertIn(str(array), self.rig.ok("ps", "-aq", "-s", "stopped").text.split())
        self.rig.ok("wait", after)

    def test_the_start_of_later_elements_is_learned_from_earlier_ones(self):
        array = self.rig.submit("--array", "0-5", "--gpus", 1, "--", "sleep", 5)
        last = f"{array}.5"
        self.rig.wait_for(f"{array}.1", "running", 60)
        why = self.rig.json("explain", last)
        self.assertIsNotNone(why["earliest_start"], why)
        start = datetime.datetime.fromisoformat(why["earliest_start"].replace("Z", "+00:00"))
        left = (start - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
        # Four elements of five seconds run before it; a loaded machine takes longer for each.
        self.assertGreater(left, 8)
        self.assertLess(left, 300)
        self.rig.ok("stop", "--force", "--wait", array)


class Times(RigTest):
    """Times are local, with their zone, and relative first."""

    options = {"sim": "2xH100"}

    def test_a_reservation(self):
        zone = {"TZ": "XST-5"}
        day = (datetime.datetime.now() + datetime.timedelta(days=40)).strftime("%Y-%m-%d")
        whole = ("reserve", "--gpus", 1, "--for", "1h")
        done = self.rig.ok(*whole, "--from", day + " 18:00", "--name", "b", env=zone)
        self.assertRegex(done.text, r"start: in \d+ .*at 18:00; end: .*\(local time, XST\)")
        (made,) = self.rig.json("reserve", "list")["reservations"]
        self.assertEqual(made["from"][:16], day + "T13:00")
        done = self.rig.ok(*whole, "--from", day + "T14:00:00Z", "--name", "c", env=zone)
        self.assertIn("at 19:00", done.text)
        self.assertIn("XST", self.rig.ok("reserve", "calendar", env=zone).text)
        done = self.rig.cli(
            "reserve", "--gpus", 2, "--for", "1h", "--from", day + " 18:30", env=zone
        )
        self.assertEqual(done.code, 1, done)
        self.assertRegex(done.errors, rf"starting in \d+ d \({day} 18:30\)")

    def test_the_price_after_a_reservation_is_said_once(self):
        self.assertIn("the on-demand price", self.rig.ok("reserve", "--help").text)
        self.assertNotRegex(self.rig.ok("reserve", "--help").text, r"at\s+its\s+price")


class MigNames(RigTest):
    options = {"sim": "1xH100+mig=1g.10gb/1g.10gb"}

    def test_errors_name_the_profiles_of_the_cards_here(self):
        for asked in ("1g.11gb", "1g10gb"):
            done = self.rig.cli("submit", "--mig", asked, "--", "true")
            self.assertNotEqual(done.code, 0, done)
            self.assertIn("did you mean 1g.10gb?", done.errors)
            self.assertIn("1g.10gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb", done.errors)


class Programs(RigTest):
    options = {"sim": "1xH100"}

    def test_errors_are_json_where_json_is_asked_for(self):
        for args in (
            ("ps", "-s", "qeued"),
            ("explain", "nosuch"),
            ("submit", "--gpus", 99),
            ("ps", "-a", "-l", "nosuch=1"),
        ):
            words = (*args, "--json", "--", "true") if args[0] == "submit" else (*args, "--json")
            self.rig.ok("wait", self.rig.submit("--", "true"))
            done = self.rig.cli(*words)
            self.assertNotEqual(done.code, 0, done)
            self.assertIn("error", json.loads(done.errors))

    def test_replay_of_a_history_with_large_priorities(self):
        self.rig.ok("wait", self.rig.submit("--gpus", 1, "--priority", 5000, "--", "true"))
        poll(
            lambda: self.rig.cli("simulate", "replay", "--fleet", "1x8xH100").code == 0,
            "a replay of the own history",
        )
