"""A head that was installed anew at the address of an earlier one, and a machine that had joined
the earlier one. The machine moves only if its own configuration has changed."""
import os
import shutil
import time
import unittest

from far import FarCase
from rig import poll


class Reinstalled(FarCase):
    hosts = ("head", "a")
    joined = ()

    def setUp(self):
        self.agent = None

    def tearDown(self):
        self.end_agent()

    def start_agent(self, token):
        """As the DaemonSet does: the token is in a file."""
        self.end_agent()
        path = self.rig.file("token")
        with open(path, "w", encoding="ascii") as f:
            f.write(token + "\n")
        self.agent = self.rig.join("a", path)

    def end_agent(self):
        if self.agent and self.agent.poll() is None:
            self.agent.kill()
            self.agent.wait()

    def end_head(self):
        self.rig.kill(self.rig.head_pid())

    def reinstall(self):
        self.end_head()
        shutil.rmtree(self.rig.data)
        os.makedirs(self.rig.data, mode=0o700)
        self.rig.up()

    def run_job(self, word):
        self.assertEqual(self.rig.ok("run", "--gpus", 1, "--", "echo", word).text.strip(), word)

    def key(self):
        with open(os.path.join(self.rig.node_dir("a"), "node/credential"), encoding="ascii") as f:
            return f.read()

    def test_1_only_a_token_of_the_new_head_makes_a_node_move(self):
        old = self.rig.join_token()
        self.start_agent(old)
        self.rig.node_here("a")
        self.run_job("first")
        for _ in range(2):  # an epoch that a new head does not have
            self.end_head()
            self.rig.up()
        self.rig.node_here("a", 60)
        self.end_agent()
        self.reinstall()
        before = self.key()

        self.start_agent(old)
        poll(lambda: "cannot reach the head" in self.rig.log_of("a"), "its head is not there", 60)
        self.assertEqual(self.rig.nodes(), {}, "the token that it has used moves it nowhere")
        self.assertEqual(self.key(), before)

        new = self.rig.join_token()
        self.start_agent(new)
        self.rig.node_here("a", 60)
        self.assertNotEqual(self.key(), before)
        self.run_job("second")  # a task of the same number as that of "first"

        # Its head is away, and the first token is back: it waits for its head.
        before = self.key()
        self.end_head()
        self.start_agent(old)
        time.sleep(3)
        self.rig.up()
        self.rig.node_here("a", 60)
        self.assertEqual(self.key(), before)

    def test_2_a_node_waits_for_a_new_head_that_does_not_answer_yet(self):
        self.start_agent(self.rig.join_token())
        self.rig.node_here("a", 60)
        self.end_agent()
        self.reinstall()
        new = self.rig.join_token()
        self.end_head()
        self.start_agent(new)
        poll(lambda: "the new token cannot be used" in self.rig.log_of("a"), "a first try", 60)
        self.rig.up()
        self.rig.node_here("a", 90)
        self.run_job("late")

    def test_3_a_node_leaves_no_running_job_behind(self):
        self.start_agent(self.rig.join_token())
        self.rig.node_here("a", 60)
        mark = self.rig.file("alive")
        job = self.rig.submit("--gpus", 1, "--", "sh", "-c", f"touch {mark}; exec sleep 600")
        poll(lambda: os.path.exists(mark), "the job runs", 30)
        self.end_agent()  # its jobs go on
        kept = self.rig.file("earlier")
        self.end_head()
        os.rename(self.rig.data, kept)
        os.makedirs(self.rig.data, mode=0o700)
        self.rig.up()
        self.start_agent(self.rig.join_token())
        poll(lambda: "still runs here" in self.rig.log_of("a"), "that it is not left behind", 60)
        self.assertEqual(self.rig.nodes(), {})
        self.end_agent()

        self.end_head()
        shutil.rmtree(self.rig.data)
        os.rename(kept, self.rig.data)
        self.rig.up()
        self.start_agent(self.rig.join_token())
        self.rig.node_here("a", 60)
        self.assertEqual(self.rig.job(job)["state"], "running", "its own head has it back")
        self.rig.ok("stop", "--force", "--wait", job)


if __name__ == "__main__":
    unittest.main()
