"""What is guaranteed when processes are killed during a map with side effects.

With the default a call runs at least once: every result is there, and what ran twice has the same
call id and a higher attempt. With retries=0 it runs at most once: what is missing is CallLost."""
import collections
import os
import subprocess
import sys
import threading
import time

from rig import poll
from sdk_rig import SdkTest, billow

ITEMS = 10_000
CLIENT = """
import sys
import kill_test
inputs = ((sys.argv[1], i) for i in range(kill_test.ITEMS))
for _ in kill_test.at_least_once.starmap(inputs):
    pass
"""


def note(path, index):
    call = billow.current_call()
    line = f"{index} {call.id} {call.attempt} {os.getpid()}\n".encode()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, line)
    os.close(fd)
    time.sleep(0.0005)
    return index * 3


@billow.function(max=2)
def at_least_once(path, index):
    return note(path, index)


@billow.function(max=2, retries=0)
def at_most_once(path, index):
    return note(path, index)


class Kills(SdkTest):
    def setUp(self):
        self.path = self.rig.file(self.id().rsplit(".", 1)[-1])
        self.end = threading.Event()
        self.kills = 0

    def written(self):
        try:
            return os.path.getsize(self.path)
        except OSError:
            return 0

    def effects(self):
        """index → [(call id, attempt)]"""
        out = collections.defaultdict(list)
        with open(self.path, encoding="ascii") as file:
            for line in file:
                index, call, attempt, _ = line.split()
                out[int(index)].append((call, int(attempt)))
        return out

    def killer(self, victims, every):
        """Kills one of `victims()` again and again while work is being done."""

        def work():
            while not self.end.wait(every):
                before = self.written()
                found = victims()
                if not found or before == 0:
                    continue
                self.rig.kill(found[0])
                self.kills += 1
                while self.written() == before and not self.end.wait(0.05):
                    pass  # until work goes on

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def workers(self, name):
        """Of the function of that name, not idle ones of another function."""

        def serves(pid):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    return f"BILLOW_JOB_NAME=kill_test.{name}-".encode() in file.read()
            except OSError:
                return False

        processes = self.rig.processes().items()
        return [pid for pid, line in processes if "-m billow._worker" in line and serves(pid)]

    def gateways(self):
        return [pid for pid, line in self.rig.processes().items() if " gateway " in line + " "]

    def run_map(self, function, victims, every=1.0, **options):
        function.deploy()
        thread = self.killer(victims, every)
        try:
            inputs = ((self.path, i) for i in range(ITEMS))
            return list(function.starmap(inputs, **options))
        finally:
            self.end.set()
            thread.join()

    def check_at_least_once(self, results):
        self.assertEqual(results, [i * 3 for i in range(ITEMS)])
        effects = self.effects()
        self.assertEqual(set(effects), set(range(ITEMS)), "every call ran")
        twice = {i: calls for i, calls in effects.items() if len(calls) > 1}
        for index, calls in twice.items():
            self.assertEqual(len({call for call, _ in calls}), 1, "one id for one call")
            attempts = [attempt for _, attempt in calls]
            self.assertEqual(len(set(attempts)), len(attempts), f"{index}: {calls}")
        self.assertGreater(self.kills, 0, "somebody was killed")
        print(f"{self.kills} kills, {len(twice)} of {ITEMS} calls ran twice")

    def test_workers(self):
        victims = lambda: self.workers("at_least_once")  # noqa: E731
        self.check_at_least_once(self.run_map(at_least_once, victims))

    def test_gateway(self):
        self.check_at_least_once(self.run_map(at_least_once, self.gateways, 1.5))

    def test_head(self):
        def heads():
            pid = self.rig.head_pid()
            if pid and pid in self.rig.processes():
                threading.Timer(0.5, self.rig.up).start()
                return [pid]
            return []

        self.check_at_least_once(self.run_map(at_least_once, heads, 2.0))
        poll(lambda: self.rig.head_pid() in self.rig.processes(), "a head")

    def test_agent(self):
        def agents():
            return [self.rig.agent_pid()] if self.rig.agent_pid() in self.rig.processes() else []

        self.check_at_least_once(self.run_map(at_least_once, agents, 2.0))

    def test_client(self):
        """Calls of a process that was killed end with it; a new process makes new calls."""
        at_least_once.deploy()
        program = self.rig.file("client.py")
        with open(program, "w", encoding="ascii") as file:
            file.write(CLIENT)
        places = [os.path.dirname(__file__), *sys.path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
        client = subprocess.Popen([sys.executable, program, self.path], env=environment)
        poll(lambda: self.written() > 20_000 or client.poll() is not None, "some calls have run")
        client.kill()
        self.assertEqual(client.wait(), -9, "it was in the middle of its calls")

        def is_quiet():
            before = self.written()
            for _ in range(4):
                at_least_once.remote(os.devnull, 0)
            time.sleep(0.5)  # longer than a connection takes to notice that its caller has gone
            return self.written() == before

        poll(is_quiet, "what was under way is interrupted")
        first = self.effects()
        self.assertTrue(all(len(calls) == 1 for calls in first.values()), "nothing ran twice")
        self.assertLess(len(first), ITEMS)
        results = list(at_least_once.starmap((self.path, i) for i in range(ITEMS)))
        self.assertEqual(results, [i * 3 for i in range(ITEMS)])
        for index, calls in self.effects().items():
            self.assertEqual(len(calls), 1 + len(first.get(index, ())), (index, calls))
        print(f"{len(first)} of {ITEMS} calls had run when the client was killed, none after it")

    def test_at_most_once(self):
        victims = lambda: self.workers("at_most_once")  # noqa: E731
        results = self.run_map(at_most_once, victims, return_exceptions=True)
        self.assertEqual(len(results), ITEMS)
        effects = self.effects()
        lost = 0
        for index, value in enumerate(results):
            self.assertLessEqual(len(effects[index]), 1, effects[index])
            if isinstance(value, billow.CallLost):
                lost += 1
            else:
                self.assertEqual((value, len(effects[index])), (index * 3, 1))
        self.assertGreater(self.kills, 0, "somebody was killed")
        self.assertGreater(lost, 0, "the calls that were under way")
        print(f"{self.kills} kills, {lost} of {ITEMS} calls lost, none ran twice")
