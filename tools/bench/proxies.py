"""The gateway beside other proxies in front of one upstream, in the same run: HTTP/1.1 and HTTP/2, up
to thousands of connections. Part `proxies` of gateway.py.

nginx is needed; HAProxy takes part if it is installed. h2load (Debian's nghttp2-client) makes the
load for both protocols. All proxies keep connections to the upstream open and write an access log.
"""
import os
import re
import resource
import shutil
import statistics
import subprocess

UPSTREAM = """worker_processes 1;
http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 300;
server {{ listen 127.0.0.1:{port} backlog=8192; location / {{ default_type application/json;
return 200 '{{"id":"job-1","state":"running","gpus":1,"text":"hello hello hello"}}\\n'; }} }} }}"""

NGINX = """worker_processes {workers};
http {{ access_log {dir}/nginx{workers}.log combined buffer=64k flush=1s;
keepalive_requests 100000000; keepalive_timeout 300;
upstream u {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
server {{ listen 127.0.0.1:{port} backlog=8192{http2}; location /f/hello/ {{
proxy_pass http://u/; proxy_http_version 1.1; proxy_set_header Connection "";
proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }} }} }}"""

HAPROXY = """global
  nbthread {threads}
  maxconn 8000
  log {dir}/haproxy.sock local0
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  http-reuse always
  option httplog
  log global
  option forwardfor
frontend f
  bind 127.0.0.1:{port} backlog 8192{http2}
  http-request replace-path /f/hello/(.*) /\\1
  default_backend b
backend b
  server s 127.0.0.1:{upstream} maxconn 0
"""


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def family(pid):
    out = [pid]
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        for child in f.read().split():
            out += family(int(child))
    return out


def memory_kib(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
            total += int(re.search(r"Pss:\s+(\d+)", f.read()).group(1))
    return total


def h2load(url, connections, streams, seconds, http2, log):
    """(requests a second, p50 in ms, p99 in ms)"""
    if os.path.exists(log):
        os.unlink(log)
    command = ["h2load", f"--duration={seconds}", "--warm-up-time=1", f"-c{connections}"]
    command += [f"-m{streams}"] if http2 else ["--h1"]
    out = subprocess.run(
        [*command, "-t1", f"--log-file={log}", url], capture_output=True, text=True, check=True
    ).stdout
    done = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", out)
    assert done and int(done[1]) > 0, out
    # With a duration, requests that are under way at its end are not answered; nothing else fails.
    good = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", out)
    assert good.group(2, 3, 4) == ("0", "0", "0"), out
    with open(log, encoding="ascii") as f:
        times = sorted(int(line.split()[2]) for line in f)
    at = lambda q: times[min(len(times) - 1, int(len(times) * q))] / 1000
    return float(re.search(r"finished in [^,]+, ([\d.]+) req/s", out)[1]), at(0.5), at(0.99)


def named(program, threads):
    return f"{program}, {threads} thread{'s' * (threads > 1)}"


class Proxy:
    def __init__(self, program, threads, pid, port):
        self.program, self.threads, self.pids, self.port = program, threads, family(pid), port
        self.name = named(program, threads)
        self.idle_kib = memory_kib(self.pids)


def start_proxies(run, upstream, http2, free_port, await_port):
    out = []
    for threads in (1, 2):
        port, pid = run.gateway(upstream, threads)
        out.append(Proxy("gateway", threads, pid, port))
    for workers in (1, 2):
        port = free_port()
        text = NGINX.format(
            workers=workers, dir=run.dir, upstream=upstream, port=port, http2=" http2" * http2
        )
        pid = run.nginx(f"nginx{workers}", text)
        await_port(port)
        out.append(Proxy("nginx", workers, pid, port))
    if not shutil.which("haproxy"):
        print("       HAProxy is not installed: it does not take part", flush=True)
        return out
    for threads in (1, 2):
        port = free_port()
        path = os.path.join(run.dir, f"haproxy{threads}.cfg")
        with open(path, "w", encoding="ascii") as f:
            f.write(
                HAPROXY.format(
                    threads=threads,
                    dir=run.dir,
                    upstream=upstream,
                    port=port,
                    http2=" proto h2" * http2,
                )
            )
        pid = run.start("haproxy", "-db", "-f", path)
        await_port(port)
        out.append(Proxy("HAProxy", threads, pid, port))
    return out


def raise_open_files(wanted):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    return min(wanted, hard)


def measure(options, judge, run, proxies, http2, connections, upstream):
    figures = {p.name: [] for p in proxies}
    log = os.path.join(run.dir, "h2load.log")
    streams = 16 if connections <= 64 else 1
    for _ in range(options.rounds):
        for proxy in proxies:
            before = cpu_seconds(proxy.pids)
            rate, p50, p99 = h2load(
                f"http://127.0.0.1:{proxy.port}/f/hello/",
                connections,
                streams,
                options.seconds,
                http2,
                log,
            )
            cpu = (cpu_seconds(proxy.pids) - before) / (rate * (options.seconds + 1))
            each = max(memory_kib(proxy.pids) - proxy.idle_kib, 0) / connections
            figures[proxy.name].append((rate, p50, p99, cpu * 1e6, each))
    what = f"HTTP/{2 if http2 else 1}, {connections} connections"
    what += f" × {streams} streams" if http2 and streams > 1 else ""
    for proxy in proxies:
        rate, p50, p99, cpu, each = (statistics.median(f) for f in zip(*figures[proxy.name]))
        ours = figures[named("gateway", proxy.threads)]
        ratio = statistics.median(a[0] / b[0] for a, b in zip(ours, figures[proxy.name]))
        print(
            f"       {what}: {proxy.name}: {rate:.0f}/s, p50 {p50:.2f} ms, p99 {p99:.2f} ms, CPU"
            f" {cpu:.1f} µs a request, {each:.1f} KiB a connection; gateway with"
            f" as many threads / this: {ratio:.2f}",
            flush=True,
        )
        # More threads than one share the cores with the load and the upstream: not judged.
        if proxy.program == "nginx" and proxy.threads == 1:
            judge.say(f"throughput, {what}", f"{ratio:.2f} x {proxy.name}", ">= 0.7", ratio >= 0.7)


def proxies(options, judge, run_processes, free_port, await_port):
    if not shutil.which("h2load") or not shutil.which("nginx"):
        return print("       skipped: h2load (nghttp2-client) and nginx are needed", flush=True)
    files = raise_open_files(65536)
    for http2 in (False, True):
        with run_processes(options.billow) as run:
            upstream = free_port()
            run.nginx("upstream", UPSTREAM.format(port=upstream))
            await_port(upstream)
            all_of_them = start_proxies(run, upstream, http2, free_port, await_port)
            for connections in options.proxy_connections:
                if files < 3 * connections + 1000:
                    print(f"       {connections} connections need more open files ({files})")
                    continue
                measure(options, judge, run, all_of_them, http2, connections, upstream)
