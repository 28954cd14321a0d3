#!/usr/bin/env python3
"""Money at size, on the real binary.

year:   a store with a year of leases (10 million by default) as the head's own tables hold them; `billow cost --by project,day` over all
        of it must answer within a second. Also says how many bytes of store a lease takes. The rows are made by SQL in the schema that
        `billow up` has just created, because ten million real jobs would take days; the daily sums are the sums of those rows.
fleet:  1,000 nodes with 8 GPUs each, played by this program over the real agent protocol, all GPUs leased, readings every second and
        meter marks every minute; the head's CPU time over the run, as a part of one core, must stay below 30 %.
"""
import argparse
import base64
import fcntl
import json
import os
import selectors
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import termios
import time

DAY_NS = 86_400_000_000_000


class Billow:
    def __init__(self, binary, data):
        self.binary, self.data = binary, data
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("BILLOW_")},
            "BILLOW_DATA": data,
        }

    def run(self, *args, check=True):
        done = subprocess.run(
            [self.binary, *map(str, args)],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            sys.exit(f"{args}: {done.stderr}")
        return done.stdout

    def up(self):
        self.run("up", "--background", "--listen", "127.0.0.1:0", "--no-agent")

    def down(self):
        self.run("down", check=False)

    def pid(self):
        with open(f"{self.data}/head.json", encoding="utf-8") as f:
            return json.load(f)["pid"]


def make_year(path, options, first):
    """A year of leases, their daily sums and postings in the tables that the head has just made. Indexes are built at the end, which is
    many times quicker than keeping them up row by row."""
    db = sqlite3.connect(path)
    db.executescript(
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-400000; PRAGMA"
        " temp_store=MEMORY;"
    )
    n = options.leases
    indexes = db.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name IN ('leases',"
        " 'entries') AND sql IS NOT NULL"
    ).fetchall()
    for name, _ in indexes:
        db.execute(f"DROP INDEX {name}")
    # 60 projects of four people each; half an hour on average, one or two cards of three types,
    # some of it spot.
    db.execute(
        f"""
      INSERT INTO leases (id, job_id, task_id, project_id, user_id, node_name, gpu_type, milli, price_class, from_at, to_at, open, charge, cost, idle, energy_mj,
                          gpus, card_mem_mib, mem_peak_mib, sm_peak_pct, engine_p95_pct, measured)
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n}),
      x AS (SELECT i, {first} * {DAY_NS} + (i * {364 * DAY_NS // max(1, n)}) AS at, (i * 7919) % 3600 + 1 AS s, (i * 104729) % 60 + 1 AS p, (i * 31 / 7) % 4 AS u, (i / 11) % 3 AS t FROM n)
      SELECT i, i, i, p, p * 4 + u, 'gpu-' || (i % 200), CASE t WHEN 0 THEN 'H100' WHEN 1 THEN 'A100-80' ELSE 'L4' END, 1000 * (1 + i % 2), CASE (i / 3) % 5 WHEN 0 THEN 'spot' ELSE 'on-demand' END,
             at, at + s * 1000000000, 0, s * 830000 * (1 + i % 2), s * 700000 * (1 + i % 2), s * 70000, s * 350000, 1 + i % 2, 81559, 30000, 80, 60, 1 FROM x"""
    )
    db.execute(
        f"""
      INSERT INTO usage_daily (day, project_id, user_id, gpu_type, price_class, charge, cost, gpu_milli_ms, idle, energy_mj)
      SELECT (to_at - 1) / {DAY_NS}, project_id, user_id, gpu_type, price_class, sum(charge), sum(cost), sum(milli * ((to_at - from_at) / 1000000)), sum(idle), sum(energy_mj) FROM leases GROUP BY 1, 2, 3, 4, 5"""
    )
    if not options.no_entries:
        db.execute(
            """
          INSERT INTO entries (number, kind, node_id, lease_id, job_id, project_id, user_id, from_at, to_at, amount, correction)
          SELECT id * 3 + k.k, CASE k.k WHEN 0 THEN 'active' WHEN 1 THEN 'idle' ELSE 'charge' END, 1 + id % 200, id, job_id, project_id, user_id, from_at, to_at,
                 CASE k.k WHEN 0 THEN cost - idle WHEN 1 THEN idle ELSE charge END, 0 FROM leases CROSS JOIN (SELECT 0 AS k UNION SELECT 1 UNION SELECT 2) AS k"""
        )
    for _, sql in indexes:
        db.execute(sql)
    db.commit()
    db.close()


def year(options, billow):
    path, n = f"{billow.data}/billow.db", options.leases
    first = int(time.time()) // 86400 - 364
    if os.path.exists(path):
        print(f"the store of an earlier run: {path}")
    else:
        billow.up()
        billow.down()
        print(f"writing {n:,} leases of a year …", flush=True)
        began = time.monotonic()
        make_year(path, options, first)
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
    db = sqlite3.connect(path)
    rows, expected = db.execute("SELECT count(*), sum(charge) FROM usage_daily").fetchone()
    if db.execute("SELECT sum(charge), count(*) FROM leases").fetchone() != (expected, n):
        sys.exit("the store holds another number of leases, or its daily sums are not theirs")
    db.close()
    size = os.path.getsize(path)
    billow.up()
    since = time.strftime("%Y-%m-%d", time.gmtime(first * 86400))
    times, used = [], []
    try:
        for _ in range(5):
            began, before = time.monotonic(), cpu_s(billow.pid())
            answer = json.loads(
                billow.run("cost", "--by", "project,day", "--since", since, "--json")
            )
            times.append(time.monotonic() - began)
            used.append(cpu_s(billow.pid()) - before)
    finally:
        billow.down()
    total = answer["total"]["charge_nano_usd"]
    print(
        f"billow cost --by project,day over {n:,} leases ({rows:,} daily sums):"
        f" {len(answer['lines']):,} lines in {sorted(times)[2] * 1000:.0f} ms, median of 5"
        f" ({min(times) * 1000:.0f}–{max(times) * 1000:.0f}), {sorted(used)[2] * 1000:.0f} ms of"
        " CPU in the head; asked: < 1000 ms"
    )
    print(
        f"store: {size / n:.0f} bytes a lease, postings"
        f" {'left out' if options.no_entries else 'included'}; job rows and the journal are apart"
    )
    if total != expected:
        sys.exit(f"the report says {total}, the rows {expected}")
    return sorted(times)[2] < 1.0


class Node:
    """One agent: a WebSocket whose frames are made once and sent again and again."""

    def __init__(self, index, path, token):
        self.name = f"sim-{index}"
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall(
            "GET /v1/agent HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade:"
            f" websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nAuthorization:"
            f" Bearer {token}\r\n\r\n".encode()
        )
        self.buffer, self.tasks, self.number, self.upgraded = b"", [], 0, False
        gpus = [
            {
                "index": i,
                "uuid": f"{self.name}-{i}",
                "vendor": "nvidia",
                "model": "NVIDIA H100",
                "type": "H100",
                "mem_mib": 81559,
                "nvlink_domain": 0,
            }
            for i in range(8)
        ]
        self.hello = {
            "type": "hello",
            "version": 1,
            "sent_at_ns": 1,
            "offer": {
                "name": self.name,
                "boot_id": "b" + self.name,
                "version": "1",
                "gpus": gpus,
                "cpu_milli": 64000,
                "mem_mib": 1 << 20,
                "simulated": True,
            },
        }
        self.beat = frame(
            {
                "type": "heartbeat",
                "gpus": [
                    {
                        "gpu": i,
                        "util_pct": 87,
                        "mem_used_mib": 61234,
                        "power_mw": 612345,
                        "temperature_c": 61,
                    }
                    for i in range(8)
                ],
                "cpu_used_milli": 12345,
                "mem_used_mib": 234567,
            }
        )

    def take(self):
        data = self.sock.recv(1 << 20)
        if not data:
            sys.exit(f"the head closed the connection of {self.name}")
        self.buffer += data
        if not self.upgraded:
            if b"\r\n\r\n" not in self.buffer:
                return
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            if b" 101 " not in head.split(b"\r\n")[0]:
                sys.exit(head.decode())
            self.upgraded = True
            self.sock.sendall(frame(self.hello))
        while len(self.buffer) >= 2:
            length, at = self.buffer[1] & 127, 2
            if length == 126:
                if len(self.buffer) < 4:
                    return
                length, at = struct.unpack(">H", self.buffer[2:4])[0], 4
            elif length == 127:
                if len(self.buffer) < 10:
                    return
                length, at = struct.unpack(">Q", self.buffer[2:10])[0], 10
            if len(self.buffer) < at + length:
                return
            opcode, payload = self.buffer[0] & 15, self.buffer[at : at + length]
            self.buffer = self.buffer[at + length :]
            if opcode == 9:
                self.sock.sendall(b"\x8a" + bytes([0x80 | len(payload)]) + b"\0\0\0\0" + payload)
            elif opcode == 2 and b'"type":"start"' in payload[:40]:
                self.start(json.loads(payload[4 : 4 + struct.unpack("<I", payload[:4])[0]])["task"])

    def start(self, task):
        if task not in self.tasks:
            self.tasks.append(task)
        self.number += 1
        self.sock.sendall(
            frame(
                {
                    "type": "report",
                    "number": self.number,
                    "status": {"task": task, "state": "running", "started_at_ns": time.time_ns()},
                }
            )
        )

    def mark(self, active_s):
        self.sock.sendall(
            frame(
                {
                    "type": "meter_mark",
                    "marks": [
                        {
                            "task": t,
                            "meter": {
                                "active_ns": int(active_s * 1e9),
                                "energy_mj": int(active_s * 600_000),
                                "gpu_mem_peak_mib": 61234,
                                "sm_peak_pct": 88,
                                "engine_p95_pct": 85,
                                "measured": True,
                            },
                        }
                        for t in self.tasks
                    ],
                }
            )
        )


def frame(message):
    body = json.dumps(message, separators=(",", ":")).encode()
    data = struct.pack("<I", len(body)) + body
    head = (
        bytes([0x82, 0x80 | len(data)])
        if len(data) < 126
        else (
            bytes([0x82, 0x80 | 126]) + struct.pack(">H", len(data))
            if len(data) < 65536
            else bytes([0x82, 0x80 | 127]) + struct.pack(">Q", len(data))
        )
    )
    return head + b"\0\0\0\0" + data  # a mask of zeros masks nothing


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fleet(options, billow):
    billow.up()
    try:
        token = json.loads(billow.run("token", "create", "fleet", "--scope", "node", "--json"))[
            "token"
        ]
        selector = selectors.DefaultSelector()
        nodes = []

        beaten = [0.0]

        def pump(until, done=lambda: False, beats=False):
            while time.monotonic() < until and not done():
                # A node that has joined and says nothing is given up by its head: each goes on
                # beating while others join.
                if beats and time.monotonic() - beaten[0] >= 5:
                    beaten[0] = time.monotonic()
                    for node in nodes:
                        if node.upgraded:
                            node.sock.sendall(node.beat)
                for key, _ in selector.select(max(0, min(0.05, until - time.monotonic()))):
                    key.data.take()

        for i in range(options.nodes):
            nodes.append(Node(i, f"{billow.data}/head.sock", token))
            selector.register(nodes[-1].sock, selectors.EVENT_READ, nodes[-1])
            if i % 20 == 19:
                pump(time.monotonic() + 60, lambda: nodes[-1].upgraded, beats=True)
        pump(time.monotonic() + 60, lambda: all(n.upgraded for n in nodes), beats=True)
        submitted = subprocess.Popen(
            [
                billow.binary,
                "submit",
                "--gpus",
                "1",
                "--array",
                f"1-{options.nodes * 8}",
                "--",
                "true",
            ],
            env=billow.env,
            stdout=subprocess.DEVNULL,
        )
        pump(
            time.monotonic() + 300,
            lambda: sum(len(n.tasks) for n in nodes) >= options.nodes * 8,
            beats=True,
        )
        submitted.wait()
        leased = sum(len(n.tasks) for n in nodes)
        pump(time.monotonic() + 5, beats=True)
        pid, began = billow.pid(), time.monotonic()
        before, late, second = cpu_s(pid), 0.0, 0
        while second < options.seconds:
            for i, node in enumerate(nodes):
                node.sock.sendall(node.beat)
                if (i + second) % 60 == 0 and node.tasks:
                    node.mark(time.monotonic() - began + 5)
            second += 1
            late = max(late, time.monotonic() - began - second)
            pump(began + second)
        unread = sum(
            struct.unpack("i", fcntl.ioctl(n.sock, termios.TIOCOUTQ, b"\0" * 4))[0] for n in nodes
        )
        pump(time.monotonic() + 1)
        left = sum(
            struct.unpack("i", fcntl.ioctl(n.sock, termios.TIOCOUTQ, b"\0" * 4))[0] for n in nodes
        )
        wall, used = second, cpu_s(pid) - before
        share = used / wall
        print(
            f"{options.nodes:,} nodes × 8 GPUs, {leased:,} leases, readings every second for"
            f" {wall:.0f} s: the head used {share * 100:.1f} % of one core; asked: < 30 %"
        )
        print(
            f"  unread by the head at the end: {unread:,} bytes, {left:,} a second later (0: it"
            " kept up)"
        )
        print(
            f"  {used / (options.nodes * options.seconds) * 1e6:.0f} µs of CPU a reading of a node;"
            f" this program was late by {max(0, late) * 1000:.0f} ms at most"
        )
        return share < 0.30 and leased == options.nodes * 8 and left == 0
    finally:
        try:
            os.kill(billow.pid(), signal.SIGTERM)
        except (OSError, ValueError):
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["year", "fleet"], help="one of them (both)")
    parser.add_argument("--billow", required=True)
    parser.add_argument("--leases", type=int, default=10_000_000)
    parser.add_argument("--no-entries", action="store_true", help="without the postings")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument(
        "--keep",
        metavar="DIR",
        help="year: make the store there and leave it, or ask the one that is there",
    )
    parser.add_argument(
        "--scratch", default=None, help="where the store is made (the year takes some GB)"
    )
    options = parser.parse_args()
    good = True
    for what, measure in (("year", year), ("fleet", fleet)):
        if options.what not in (None, what):
            continue
        kept = options.keep if what == "year" else None
        data = kept or tempfile.mkdtemp(prefix="billow-money-", dir=options.scratch)
        try:
            good = measure(options, Billow(os.path.abspath(options.billow), data)) and good
        finally:
            if not kept:
                shutil.rmtree(data, ignore_errors=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
