#!/usr/bin/env python3
"""The house rules as a test: layering, banned constructs, files nobody uses, modules without a README.

Exits 1 and names file, line and rule for each finding. `--self-test` proves on a made-up tree that each rule can fail.
"""
import os
import re
import sys
import tempfile

# From the design: base -> model -> wire, net -> sched, ledger, gpu -> control, store -> agent, pool, gateway, advise -> api ->
# head -> cli. A module may include modules of earlier layers, and those named beside it within its own.
LAYERS = [["base"], ["files", "model"], ["wire", "net"], ["sched", "ledger", "gpu", "objects"], ["box", "control", "store"],
          ["supervise", "vault", "agent", "pool", "gateway", "advise"], ["api"], ["head"], ["cli"]]
SAME_LAYER = {"agent": {"supervise", "vault"}, "vault": {"supervise"}, "gateway": {"agent"}, "pool": {"agent"}}
RANK = {module: i for i, layer in enumerate(LAYERS) for module in layer}

# A client is built without these, and on systems that have none of what they use. `gpu` lends it the names of GPU types alone.
CLIENT = {"base", "files", "model", "wire", "net", "objects", "ledger", "advise", "cli"}
CLIENT_MAY_ALSO = {"gpu/types.h", "gpu/device.h", "gpu/types.cpp"}
SYSTEM = re.compile(r"_(linux|darwin)\.cpp$")
LINUX_ONLY = re.compile(r"^(sys/(epoll|signalfd|eventfd|inotify|prctl|sysmacros|random|timerfd|vfs|syscall|capability)\.h|linux/)")

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
BANNED_INCLUDES = {"regex": "costs four seconds a file", "coroutine": "miscompiled by g++ 12"}
HIDDEN = re.compile(r"^(boost/|openssl/|sqlite3\.h|libpq-fe\.h|cuda\.h|nvml\.h)")
BANNED_WORDS = [
    (re.compile(r"\bsystem\s*\("), "system(): start a program with posix_spawn"),
    (re.compile(r"\b(TODO|FIXME|XXX)\b"), "unfinished work belongs in an issue"),
    (re.compile(r"\bco_(await|return|yield)\b"), "coroutines are miscompiled by g++ 12"),
]
SOURCE = (".cpp", ".h")


def strip_comments_and_strings(line):
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    return line.split("//")[0]


def files_of(root, top):
    for folder, dirs, names in os.walk(os.path.join(root, top)):
        dirs[:] = [d for d in dirs if d not in ("node_modules", "build")]
        for name in sorted(names):
            if name.endswith(SOURCE):
                yield os.path.relpath(os.path.join(folder, name), root)


def check(root):
    findings = []
    included = set()
    everything = [f for top in ("src", "shim", "tests", "bench", "tools") for f in files_of(root, top)]
    for path in everything:
        parts = path.split(os.sep)
        module = parts[1] if parts[0] == "src" else None
        with open(os.path.join(root, path), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                match = INCLUDE.match(line)
                if match:
                    name = match.group(1) or match.group(2)
                    included.add(os.path.normpath(os.path.join("src", name)))
                    included.add(os.path.normpath(os.path.join(os.path.dirname(path), name)))
                    included.add(os.path.normpath(name))
                    if match.group(2) in BANNED_INCLUDES:
                        findings.append(f"{path}:{number}: <{name}> is banned: {BANNED_INCLUDES[match.group(2)]}")
                    if match.group(2) == "iostream" and module and module != "cli":
                        findings.append(f"{path}:{number}: <iostream> outside the CLI")
                    if module and path.endswith(".h") and HIDDEN.match(name) and not path.endswith(("_inside.h", "_impl.h")):
                        if module in RANK and not private_header(root, path):
                            findings.append(f"{path}:{number}: {name} leaks through a header that another module includes")
                    other = name.split("/")[0]
                    if module in RANK and match.group(1) and other in RANK and other != module:
                        allowed = RANK[other] < RANK[module] or other in SAME_LAYER.get(module, set())
                        if not allowed:
                            findings.append(f"{path}:{number}: {module} may not depend on {other}")
                    continue
                if parts[0] in ("src", "shim"):
                    code = strip_comments_and_strings(line)
                    for pattern, why in BANNED_WORDS:
                        if pattern.search(code if "system" in why or "coroutines" in why else line):
                            findings.append(f"{path}:{number}: {why}")
    for path in everything:
        if path.endswith(".h") and path.startswith("src") and os.path.normpath(path) not in included:
            findings.append(f"{path}: nobody includes this header")
    source = os.path.join(root, "src")
    for module in sorted(os.listdir(source)) if os.path.isdir(source) else []:
        folder = os.path.join(source, module)
        if os.path.isdir(folder) and module not in RANK:
            findings.append(f"src/{module}: a module the design does not name")
        if os.path.isdir(folder) and not os.path.exists(os.path.join(folder, "README.md")):
            findings.append(f"src/{module}: no README.md")
    return findings + check_client(root)


def client_files(root):
    """Every source a client is built from. Those of the server's commands and for one system only are not looked into."""
    for path in files_of(root, "src"):
        parts = path.split(os.sep)
        if parts[1] == "cli" and parts[2] == "server":
            continue
        if parts[1] in CLIENT or "/".join(parts[1:]) in CLIENT_MAY_ALSO:
            yield path


def check_client(root):
    """What a client includes, however far down, is of the client; what differs between systems is in the files named for it."""
    findings = []
    for path in client_files(root):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                match = INCLUDE.match(line)
                if match and match.group(1):
                    name = match.group(1)
                    server = name.startswith("cli/server/") or name.split("/")[0] not in CLIENT and name not in CLIENT_MAY_ALSO
                    if server and os.path.exists(os.path.join(root, "src", name)):
                        findings.append(f"{path}:{number}: a client is built without {name}")
                if match and match.group(2) and LINUX_ONLY.match(match.group(2)) and not SYSTEM.search(path):
                    findings.append(f"{path}:{number}: <{match.group(2)}> is Linux's alone: it belongs in a file named _linux.cpp")
                if re.match(r"\s*#\s*if.*(__linux__|__APPLE__)", line):
                    findings.append(f"{path}:{number}: systems differ by files (_linux.cpp, _darwin.cpp), not by #if")
    return findings


def private_header(root, path):
    """A header that only its own module includes may show what it likes."""
    module = path.split(os.sep)[1]
    wanted = '"' + "/".join(path.split(os.sep)[1:]) + '"'
    for other in files_of(root, "src"):
        if other.split(os.sep)[1] == module:
            continue
        with open(os.path.join(root, other), encoding="utf-8") as f:
            if wanted in f.read():
                return False
    return True


def self_test():
    cases = {
        "src/base/a.h": ('#pragma once\n#include "net/b.h"\n', "may not depend on net"),
        "src/net/b.h": ('#pragma once\n#include <boost/asio.hpp>\n', "leaks"),
        "src/net/c.cpp": ("#include <regex>\n", "banned"),
        "src/net/d.cpp": ('void f() { system("ls"); }\n', "posix_spawn"),
        "src/net/e.cpp": ("// TODO later\n", "unfinished"),
        "src/net/unused.h": ("#pragma once\n", "nobody includes"),
        "src/odd/f.cpp": ("int x;\n", "does not name"),
        "src/sched/g.cpp": ("#include <iostream>\n", "outside the CLI"),
        "src/head/h.h": ("#pragma once\n", ""),
        "src/cli/i.cpp": ('#include "head/h.h"\n', "a client is built without head/h.h"),
        "src/cli/server/j.h": ('#pragma once\n#include "head/h.h"\n', ""),
        "src/cli/k.cpp": ('#include "cli/server/j.h"\n', "a client is built without cli/server/j.h"),
        "src/net/l.cpp": ("#include <sys/epoll.h>\n", "is Linux's alone"),
        "src/net/m.cpp": ("#if defined(__APPLE__)\n", "systems differ by files"),
    }
    with tempfile.TemporaryDirectory() as root:
        for path, (text, _) in cases.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        found = "\n".join(check(root))
        missed = [why for _, why in cases.values() if why not in found]
        if "no README.md" not in found:
            missed.append("no README.md")
        if missed:
            print("not found:", missed, "in\n" + found)
            return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    problems = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    print("\n".join(problems) if problems else "tidy")
    sys.exit(1 if problems else 0)
