"""Groups: several roles in one job, started together, restarted alone, paid as one."""
import json
import os

from rig import RigTest, poll

# A server that answers with its name and the number of its start, and a client that asks all of
# them.
SERVER = """
import os, socket
me = os.environ["BILLOW_ROLE"] + os.environ["BILLOW_ROLE_INDEX"]
server = socket.create_server(("", int(os.environ["BILLOW_PORT"])))
print("serving", os.environ["BILLOW_REPAIRS"], os.environ.get("MODE", "none"), flush=True)
while True:
    peer, _ = server.accept()
    peer.sendall((me + " " + os.environ["BILLOW_REPAIRS"]).encode())
    peer.close()
"""
CLIENT = """
import os, socket, time
def ask(address):
    host, port = address.rsplit(":", 1)
    for _ in range(600):
        try:
            with socket.create_connection((host, int(port)), 5) as s:
                answer = s.recv(100).decode()
                if answer:
                    return answer
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("no answer from " + address)
addresses = os.environ["BILLOW_GROUP_SERVER_ADDRESSES"].split(",")
print("answers:", ", ".join(ask(a) for a in addresses), flush=True)
if os.environ.get("UNTIL_RESTART"):
    while ask(addresses[1]).endswith(" 0"):
        time.sleep(0.1)
    print("restarted:", ", ".join(ask(a) for a in addresses), flush=True)
"""


class Groups(RigTest):
    def write(self, name, text):
        path = os.path.join(self.rig.root, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def group(self, client_env="", server=""):
        return self.write(
            "group.toml",
            f"""
[job]
name = "group"

[[role]]
name = "client"
command = ["python3", "-c", {json.dumps(CLIENT)}]
gpus = 2
{client_env}

[[role]]
name = "server"
count = 2
gpus = 0.5
service = true
{server}
command = ["python3", "-c", {json.dumps(SERVER)}]
[role.env]
MODE = "sample"
""",
        )

    def job(self, number):
        return self.rig.json("describe", number)

    def test_members_find_each_other_and_the_group_ends_with_its_client(self):
        # Options of the command line are those of the whole group.
        asked = self.rig.ok("submit", "-q", "--name", "other", "--retries", "2", self.group())
        number = int(asked.text.strip())
        self.rig.ok("wait", "-q", str(number))
        job = self.job(number)
        self.assertEqual((job["state"], job["name"], job["retries"]), ("succeeded", "other", 2))
        self.assertEqual([r["retries"] for r in job["roles"]], [0, 0])
        self.assertEqual((job["members"], job["gpu_milli"]), (3, 3000))
        self.assertEqual(
            [(r["name"], r["count"], r["service"]) for r in job["roles"]],
            [("client", 1, False), ("server", 2, True)],
        )
        self.assertEqual(
            sum(r["cost_nano_usd"] for r in job["roles"]), job["cost_nano_usd"], "one bill"
        )
        self.assertEqual([t["role"] for t in job["tasks"]], ["client", "server.0", "server.1"])
        log = self.rig.ok("logs", str(number), "--role", "client").text
        self.assertIn("answers: server0 0, server1 0", log)
        self.assertEqual(
            self.rig.ok("logs", str(number), "--role", "server.1").text.strip(), "serving 0 sample"
        )
        every = self.rig.ok("logs", str(number)).text
        self.assertIn("server.1", every)
        self.assertIn("answers:", every)
        described = self.rig.ok("describe", str(number)).text
        self.assertIn("server × 2, each 0.5 GPU, a service", described)
        cost = self.rig.json("cost", "--job", number)
        self.assertEqual([r["role"] for r in cost["roles"]], ["client", "server"])
        self.assertIn("ROLE", self.rig.ok("cost", "--job", str(number)).text)

    def test_one_member_restarts_alone_and_keeps_its_address(self):
        path = self.group(client_env='env = { UNTIL_RESTART = "1" }')
        number = int(self.rig.ok("submit", "-q", path).text.strip())
        poll(
            lambda: "answers:" in self.rig.ok("logs", str(number), "--role", "client").text,
            "the client has reached both servers",
        )
        before = {t["role"]: t["id"] for t in self.job(number)["tasks"]}
        said = self.rig.ok("restart", str(number), "--role", "server.1").text
        self.assertIn("restarts", said)
        self.rig.ok("wait", "-q", str(number))
        after = {t["role"]: t["id"] for t in self.job(number)["tasks"]}
        self.assertEqual(after["client"], before["client"])
        self.assertEqual(after["server.0"], before["server.0"])
        self.assertNotEqual(after["server.1"], before["server.1"])
        log = self.rig.ok("logs", str(number), "--role", "client").text
        self.assertIn("restarted: server0 0, server1 1", log)

    def test_all_or_none(self):
        path = self.write(
            "big.toml",
            (
                '[job]\ncommand = "sleep 60"\n[[role]]\nname = "a"\ngpus = 4\n'
                '[[role]]\nname = "b"\ngpus = 4\n'
            ),
        )
        blocker = self.rig.ok("submit", "-q", "--gpus", "1", "--", "sleep", "600").text.strip()
        number = int(self.rig.ok("submit", "-q", path).text.strip())
        self.assertEqual(self.job(number)["state"], "queued")
        self.assertEqual(self.job(number)["tasks"], [])
        self.assertIn("start together", self.rig.ok("explain", str(number)).text)
        self.rig.ok("stop", "-q", blocker)
        poll(lambda: self.job(number)["state"] == "running", "all members start")
        self.assertEqual(len(self.job(number)["tasks"]), 2)
        refused = self.rig.cli("suspend", str(number))
        self.assertNotEqual(refused.code, 0)
        self.assertIn("group", refused.errors)
        self.rig.ok("stop", "-q", str(number))
        poll(lambda: self.job(number)["state"] == "stopped", "all members are stopped")

    def test_a_failing_role_is_named(self):
        path = self.write(
            "fails.toml",
            (
                '[[role]]\nname = "good"\ncommand = "sleep 600"\n'
                '[[role]]\nname = "bad"\ncommand = "exit 3"\nretries = 1\n'
            ),
        )
        number = int(self.rig.ok("submit", "-q", path).text.strip())
        ended = self.rig.cli("wait", "-q", str(number))
        self.assertEqual(ended.code, 3)
        job = self.job(number)
        self.assertEqual((job["state"], job["reason"]), ("failed", "bad: exit code 3"))

    def test_mistakes_name_their_line(self):
        for text, expected in (
            ('[[role]]\nname = "a"\ncommand = "true"\ntime = "1h"\n', "whole group"),
            ('[[role]]\nname = "a"\ncommand = "true"\ngpu = 1\n', 'did you mean "gpus"?'),
            ('[[role]]\ncommand = "true"\n', "no name"),
            ('[[role]]\nname = "a"\n', "no command"),
            ('[[role]]\nname = "a"\ncommand = "true"\ncount = 0\n', "count"),
            ("role = 1\n", "[[role]]"),
        ):
            with self.subTest(text):
                refused = self.rig.cli("submit", self.write("wrong.toml", text))
                self.assertNotEqual(refused.code, 0)
                self.assertIn(expected, refused.errors)
