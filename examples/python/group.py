"""A group: a trainer and two samplers in one job. They start together and end together.

Each sampler answers with a number, and the trainer asks all of them.
"""

import billow

SAMPLER = """
import os, socket
server = socket.create_server(("", int(os.environ["BILLOW_PORT"])))
while True:
    peer, _ = server.accept()
    peer.sendall(os.environ["BILLOW_ROLE_INDEX"].encode())
    peer.close()
"""

TRAINER = """
import os, socket, time

def ask(address):
    host, port = address.rsplit(":", 1)
    while True:
        try:
            with socket.create_connection((host, int(port))) as sampler:
                return sampler.recv(10).decode()
        except OSError:
            time.sleep(0.1)  # it is about to start

for address in os.environ["BILLOW_GROUP_SAMPLER_ADDRESSES"].split(","):
    print("sample", ask(address))
"""

group = billow.group(
    {
        "trainer": billow.role(["python3", "-c", TRAINER], gpus=1),
        "sampler": billow.role(
            ["python3", "-c", SAMPLER], gpus=0.5, count=2, service=True, retries=3
        ),
    },
    name="sampling",
)
group.wait()
print(*group.logs(role="trainer"), sep="\n")
print("cost", {role: round(usd, 4) for role, usd in group.cost_by_role.items()})
