#!/usr/bin/env python3
"""A head under attack, on the real binary.

Attackers keep 10,000 connections open (or as many as the head lets them), of four kinds: idle; a
header that never ends; a body of 8 MB without a token; requests with a wrong token, one after
another. A connection that the head cuts is opened again. Meanwhile a client submits 20 jobs a
second over TCP. The answer must come within 200 ms (99th percentile), no accepted job may be
missing afterwards, and the head's memory must stay flat. As root, the attackers run as another
account."""
import argparse
import asyncio
import http.client
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time

KINDS = ("idle", "slow head", "body", "wrong token")
HEADS = {
    "idle": b"",
    "slow head": b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    "body": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n" + b"x" * 65536,
    "wrong token": b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n\r\n",
}


async def hostile(address, kind, until, counts):
    """One connection, opened again whenever it is cut."""
    while time.monotonic() < until:
        try:
            reader, writer = await asyncio.open_connection(*address)
        except OSError:
            await asyncio.sleep(1)
            continue
        counts["opened"] += 1
        try:
            writer.write(HEADS[kind])
            while time.monotonic() < until:
                if kind == "slow head":
                    writer.write(b"x")
                elif kind == "wrong token":
                    writer.write(HEADS[kind])
                try:
                    if not await asyncio.wait_for(reader.read(65536), 1):
                        break
                except asyncio.TimeoutError:
                    pass
        except OSError:
            pass
        finally:
            writer.close()
        await asyncio.sleep(1)


async def attack(address, connections, seconds):
    until = time.monotonic() + seconds
    counts = {"opened": 0}
    tasks = []
    for i in range(connections):
        tasks.append(asyncio.create_task(hostile(address, KINDS[i % len(KINDS)], until, counts)))
        if i % 100 == 99:
            await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps(counts), flush=True)


def attacker_main(args):
    most = args.connections + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    host, port = args.attack.rsplit(":", 1)
    asyncio.run(attack((host, int(port)), args.connections, args.seconds))


class Head:
    def __init__(self, binary):
        self.binary = binary
        self.root = tempfile.mkdtemp(prefix="billow-flood-")
        self.data = os.path.join(self.root, "data")
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("BILLOW_")},
            "BILLOW_DATA": self.data,
            "XDG_STATE_HOME": os.path.join(self.root, "state"),
        }
        self.run("up", "--background", "--listen", "127.0.0.1:0", "--sim", "8xH100")
        with open(f"{self.data}/head.json", encoding="utf-8") as f:
            about = json.load(f)
        self.pid = about["pid"]
        self.address = about["addresses"][0].split("//")[1]
        with open(f"{self.data}/token", encoding="utf-8") as f:
            self.token = f.read().strip()

    def run(self, *args):
        done = subprocess.run(
            [self.binary, *args], env=self.env, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(f"{args}: {done.stderr}")
        return done.stdout

    def close(self):
        subprocess.run([self.binary, "down", "--stop-jobs"], env=self.env, check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    def resident_mb(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) / 1000 for line in f if line.startswith("VmRSS"))


def submit_once(head, number, latencies, accepted, failures):
    """One submission, retried as the command line does: a key makes it one job."""
    body = json.dumps({"spec": {"argv": ["true"], "cwd": "/"}})
    began = time.monotonic()
    for _ in range(5):
        connection = http.client.HTTPConnection(head.address, timeout=30)
        try:
            connection.request(
                "POST",
                "/v1/jobs",
                body,
                {"Authorization": f"Bearer {head.token}", "Idempotency-Key": f"flood-{number}"},
            )
            answer = connection.getresponse()
            text = answer.read()
            if answer.status == 201:
                latencies.append(time.monotonic() - began)
                accepted.append(json.loads(text)["id"])
                return
            failures.append(answer.status)
        except OSError as e:
            failures.append(type(e).__name__)
        finally:
            connection.close()
        time.sleep(0.1)


def drive(head, seconds, rate):
    latencies, accepted, failures, threads = [], [], [], []
    peak = head.resident_mb()
    began = time.monotonic()
    for number in range(int(seconds * rate)):
        wait = began + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        thread = threading.Thread(
            target=submit_once,
            args=(head, f"{began}-{number}", latencies, accepted, failures),
        )
        thread.start()
        threads.append(thread)
        peak = max(peak, head.resident_mb())
    for thread in threads:
        thread.join()
    return latencies, accepted, failures, peak


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] * 1000 if values else 0


def stored(head):
    """Numbers of all jobs that the head knows."""
    ids, cursor = set(), ""
    while True:
        connection = http.client.HTTPConnection(head.address, timeout=60)
        connection.request(
            "GET",
            f"/v1/jobs?state=all&limit=1000&cursor={cursor}",
            headers={"Authorization": f"Bearer {head.token}"},
        )
        page = json.loads(connection.getresponse().read())
        connection.close()
        ids |= {job["id"] for job in page["jobs"]}
        cursor = page["next"]
        if not cursor:
            return ids


def measure(args):
    head = Head(args.billow)
    attackers = []
    try:
        quiet, accepted, failed, _ = drive(head, min(10, args.seconds), args.rate)
        before = head.resident_mb()
        each = args.connections // 4
        for _ in range(4):
            attackers.append(
                subprocess.Popen(
                    [sys.executable, __file__, "--attack", head.address, "--connections"]
                    + [str(each), "--seconds", str(args.seconds + 30)],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        for process in attackers:
            process.stdout.readline()
        under, more, failures, peak = drive(head, args.seconds, args.rate)
        accepted += more
        for process in attackers:
            process.terminate()
            process.wait()
        lost = set(accepted) - stored(head)
        attempts = int(args.seconds * args.rate)
        print(f"hostile connections     {each * 4}")
        print(
            f"submissions             {attempts} in {args.seconds} s; accepted {len(more)},"
            f" retried {len(failures)} {sorted(set(map(str, failures)))}"
        )
        print(f"lost                    {len(lost)} (target 0)")
        print(
            f"latency without attack  p50 {percentile(quiet, 0.5):.0f} ms,"
            f" p99 {percentile(quiet, 0.99):.0f} ms; failed {len(failed)}"
        )
        print(
            f"latency under attack    p50 {percentile(under, 0.5):.0f} ms,"
            f" p99 {percentile(under, 0.99):.0f} ms (target 200 ms), max"
            f" {percentile(under, 1):.0f} ms"
        )
        print(
            f"memory of the head      {before:.0f} MB before, {peak:.0f} MB at most,"
            f" {head.resident_mb():.0f} MB after"
        )
    finally:
        for process in attackers:
            process.kill()
        head.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--billow", default="build/bin/billow")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=20, help="submissions a second")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    args = parser.parse_args()
    attacker_main(args) if args.attack else measure(args)


if __name__ == "__main__":
    main()
