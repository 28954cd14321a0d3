#!/usr/bin/env python3
"""The house rules as a test: layering, purity, sizes, banned constructs, dead code, READMEs.

A room is a folder under src/ with a README.md; folders below it without one belong to it. What a
room may include is what its README names after "May depend on:", and these lines together have no
cycle. A README names every source of its room, so that a reader finds who does what, and
docs/ARCHITECTURE.md names no source or function that does not exist. `--self-test` proves on a
made-up tree that each rule can fail. Exits 1 and names file, line and rule for each finding.
"""
import ast
import collections
import fnmatch
import glob
import os
import re
import sys
import tempfile

from cpp_text import blank_comments_and_strings, comma_statements, functions
from named_sources import wrong_names

COLUMNS_MAX = 100
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
FOLDER_FILES_MAX = 42

# A client is built without these, and on systems that have none of what they use. `gpu` lends it
# the names of GPU types alone.
CLIENT = (
    "base",
    "docs",
    "process",
    "files",
    "core/model",
    "core/wire",
    "net",
    "s3",
    "core/ledger",
    "advise",
    "client",
)
CLIENT_MAY_ALSO = {"gpu/types.h", "gpu/device.h", "gpu/types.cpp"}
SYSTEM = re.compile(r"_(linux|darwin)\.(cpp|h)$")
LINUX_ONLY = re.compile(
    r"^(sys/(epoll|signalfd|eventfd|inotify|prctl|sysmacros|random|timerfd|vfs|syscall|capability)\.h"
    r"|linux/)"
)

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
BANNED_INCLUDES = {"regex": "costs four seconds a file", "coroutine": "miscompiled by g++ 12"}
HIDDEN = re.compile(r"^(boost/|openssl/|sqlite3\.h|libpq-fe\.h|cuda\.h|nvml\.h|yaml\.h)")
BANNED_CODE = [
    (re.compile(r"\bsystem\s*\("), "system(): start a program with process::spawn"),
    (re.compile(r"\bco_(await|return|yield)\b"), "coroutines are miscompiled by g++ 12"),
]
# Starting a program and becoming a user happen in one place, with every guarantee of
# process/spawn.h.
# billow-supervise is static and starts jobs itself.
STARTS = ("src/process/", "src/supervise/")
STARTING = re.compile(
    r"\b(v?fork|forkpty|posix_spawnp?|exec[lv]p?e?|execvpe|fexecve|daemon|popen"
    r"|set(res|re|e|fs)?[ug]id|setgroups|initgroups)\s*\("
)
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")

# What a pure room has none of: it is given the time, the files' contents and what was asked.
PURE = "core/"
IMPURE_INCLUDES = re.compile(
    r"^(fstream|filesystem|iostream|thread|mutex|unistd\.h|fcntl\.h|sys/.*|poll\.h|signal\.h"
    r"|base/(file|log|sync|lock_file|platform)\.h|process/.*|net/.*|store/.*)$"
)
IMPURE_CODE = [
    (re.compile(r"\b(system_clock|steady_clock|high_resolution_clock)\b"), "reads a clock"),
    (re.compile(r"\bfmt::ptr\b"), "depends on an address"),
    (re.compile(r"\b(getenv|secure_getenv|random_device|rand)\s*\("), "reads the surroundings"),
    (re.compile(r"\b(unordered_)?(map|set)<(const )?[A-Za-z_:]+\s*\*"), "keys on a pointer"),
]

MAY_DEPEND = re.compile(r"May depend on:(.*?)(?:\.(?:\s|$)|\n\n|\Z)", re.S)
FROM_OUTSIDE = re.compile(
    r"Boost|OpenSSL|SQLite|libpq|standard library|fmt|zstd|shim|pugixml|libyaml|toml|nghttp2", re.I
)
SOURCE = (".cpp", ".h")
TOPS = ("src", "shim", "tests", "bench", "tools")


def files_of(root, top, ends=SOURCE):
    for folder, dirs, names in os.walk(os.path.join(root, top)):
        dirs[:] = [d for d in dirs if d not in ("node_modules", "build", "dist")]
        for name in sorted(names):
            if name.endswith(ends):
                yield os.path.relpath(os.path.join(folder, name), root)


class House:
    """The tree as the rules see it: rooms, what each declares, and every source's text."""

    def __init__(self, root):
        self.root = root
        self.findings = []
        self.paths = [f for top in TOPS for f in files_of(root, top)]
        self.text = {}
        for path in self.paths:
            with open(os.path.join(root, path), encoding="utf-8") as f:
                self.text[path] = f.read()
        self.code = {p: blank_comments_and_strings(t) for p, t in self.text.items()}
        self.rooms = self.find_rooms()

    def find_rooms(self):
        rooms = {}
        for folder, _, names in os.walk(os.path.join(self.root, "src")):
            if "README.md" not in names:
                continue
            room = os.path.relpath(folder, os.path.join(self.root, "src"))
            with open(os.path.join(folder, "README.md"), encoding="utf-8") as f:
                rooms[room] = f.read()
        return rooms

    def room_of(self, path):
        """The room of a path below src/, by the nearest folder with a README; None if there is
        none."""
        folder = os.path.dirname(path)
        while folder:
            if folder in self.rooms:
                return folder
            folder = os.path.dirname(folder)
        return None

    def found(self, path, number, what):
        self.findings.append(f"{path}:{number}: {what}" if number else f"{path}: {what}")


def check_includes(house):
    used = collections.defaultdict(set)
    included = set()
    for path in house.paths:
        room = house.room_of(path[4:]) if path.startswith("src/") else None
        for number, line in enumerate(house.text[path].split("\n"), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            name = match.group(1) or match.group(2)
            included.update(
                os.path.normpath(os.path.join(d, name)) for d in ("src", os.path.dirname(path), "")
            )
            if match.group(2) in BANNED_INCLUDES:
                house.found(path, number, f"<{name}> is banned: {BANNED_INCLUDES[match.group(2)]}")
            if not path.startswith("src/"):
                continue
            if match.group(2) == "iostream" and not path.startswith("src/client"):
                house.found(path, number, "<iostream> outside the client")
            if path.endswith(".h") and HIDDEN.match(name) and not private_header(house, path):
                house.found(
                    path, number, f"{name} leaks through a header that another room includes"
                )
            if path.startswith("src/" + PURE) and IMPURE_INCLUDES.match(name):
                house.found(path, number, f"{name} in {PURE}, which is pure")
            other = house.room_of(name) if match.group(1) else None
            if room and other and other != room:
                used[room].add((other, path, number))
    for path in house.paths:
        if path.endswith(".h") and path.startswith("src/") and path not in included:
            house.found(path, 0, "nobody includes this header")
    return used


def private_header(house, path):
    """A header that only its own room includes may show what it likes."""
    wanted = f'"{path[4:]}"'
    room = house.room_of(path[4:])
    return not any(
        wanted in text
        for other, text in house.text.items()
        if other.startswith("src/") and house.room_of(other[4:]) != room
    )


def declared(house):
    allowed = {}
    for room, text in house.rooms.items():
        match = MAY_DEPEND.search(text)
        words = re.findall(r"[\w/.-]+(?:\s+\([^)]*\))?", match.group(1)) if match else []
        allowed[room] = {w.split()[0] for w in words if w.split()[0] in house.rooms}
        if not match and any(p.startswith(f"src/{room}/") for p in house.paths):
            house.found(f"src/{room}/README.md", 0, 'no line "May depend on:"')
    return allowed


def check_layers(house, used):
    allowed = declared(house)
    for room in sorted(allowed):
        uses = used[room]
        for other, path, number in sorted(uses):
            if other not in allowed[room]:
                house.found(
                    path, number, f"{room} may not depend on {other}: its README does not name it"
                )
        for other in sorted(allowed[room] - {o for o, _, _ in uses}):
            house.found(f"src/{room}/README.md", 0, f"names {other}, which {room} does not use")
    state = {}

    def visit(room, way):
        if state.get(room) == "done":
            return
        if state.get(room) == "open":
            house.found(f"src/{room}/README.md", 0, "a cycle: " + " -> ".join(way + [room]))
            return
        state[room] = "open"
        for other in sorted(allowed.get(room, ())):
            visit(other, way + [room])
        state[room] = "done"

    for room in sorted(allowed):
        visit(room, [])


def check_text(house):
    for path in house.paths:
        lines = house.text[path].split("\n")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                house.found(path, number, f"{len(line)} columns; {COLUMNS_MAX} is the limit")
        if len(lines) - 1 > FILE_LINES_MAX and not path.endswith("_ptx.h"):
            house.found(path, 0, f"{len(lines) - 1} lines; {FILE_LINES_MAX} is the limit")
        code = house.code[path]
        for number in comma_statements(code):
            house.found(path, number, "a statement joined by the comma operator")
        for name, first, last in functions(code):
            if last - first + 1 > FUNCTION_LINES_MAX:
                house.found(
                    path,
                    first,
                    f"{name} has {last - first + 1} lines; {FUNCTION_LINES_MAX} is the limit",
                )
        if not path.startswith(("src/", "shim/")):
            continue
        for number, line in enumerate(code.split("\n"), 1):
            for pattern, why in BANNED_CODE:
                if pattern.search(line):
                    house.found(path, number, why)
            if not path.startswith(STARTS + ("shim/",)) and (call := STARTING.search(line)):
                house.found(path, number, f"{call.group(1)}(): start programs with process/spawn.h")
            if path.startswith("src/" + PURE):
                for pattern, why in IMPURE_CODE:
                    if pattern.search(line):
                        house.found(path, number, f"{why}, and {PURE} is pure")
        for number, line in enumerate(lines, 1):
            if UNFINISHED.search(line):
                house.found(path, number, "unfinished work belongs in an issue")


# What is no C++ and people read: its size is limited too.
OTHER_TEXT = {
    "sdk/python": (".py",),
    "tests": (".py", ".sh", ".ts", ".mjs", ".js"),
    "tools": (".py", ".sh"),
    "web/src": (".ts", ".tsx", ".css"),
}


def check_other_text(house):
    for top, ends in OTHER_TEXT.items():
        for path in files_of(house.root, top, ends):
            with open(os.path.join(house.root, path), encoding="utf-8") as f:
                lines = f.read().split("\n")
            if len(lines) - 1 > FILE_LINES_MAX:
                house.found(path, 0, f"{len(lines) - 1} lines; {FILE_LINES_MAX} is the limit")
            if not path.startswith("sdk/python/src/"):
                continue  # prettier formats web/src and leaves long texts whole
            for number, line in enumerate(lines, 1):
                if len(line) > COLUMNS_MAX:
                    house.found(path, number, f"{len(line)} columns; {COLUMNS_MAX} is the limit")


def check_folders(house):
    source = os.path.join(house.root, "src")
    for folder, _, names in os.walk(source):
        here = os.path.relpath(folder, house.root)
        own = [n for n in names if n.endswith(SOURCE)]
        if own and not house.room_of(os.path.relpath(folder, source) + "/x"):
            house.found(here, 0, "no README.md")
        if len(own) > FOLDER_FILES_MAX:
            house.found(here, 0, f"{len(own)} sources; {FOLDER_FILES_MAX} is the limit")


def check_readmes(house):
    """A README names every source of its room (`codec.*`, `decide/decide_*.cpp`, `sim/` for a whole
    folder), and no source that does not exist."""
    source = os.path.join(house.root, "src")
    for room, text in house.rooms.items():
        readme = f"src/{room}/README.md"
        words = set(re.split(r"[\s,]+", " ".join(re.findall(r"`([^`]+)`", text))))
        folders = tuple(w for w in words if w.endswith("/"))
        patterns = [re.sub(r"\.(\*|h|cpp)$", "", w) for w in words if re.search(r"\w\w", w)]
        missing = set()
        for path in house.paths:
            if not path.startswith("src/") or house.room_of(path[4:]) != room:
                continue
            inside = path[len(f"src/{room}/") :]
            stem = os.path.splitext(inside)[0]
            names = {stem, os.path.basename(stem)}
            names |= {re.sub(r"_(linux|darwin)$", "", name) for name in names}
            if not inside.startswith(folders) and not any(
                fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns
            ):
                missing.add(stem)
        for stem in sorted(missing):
            house.found(readme, 0, f"does not name {stem}, a source of the room")
        for word in sorted(w for w in words if re.fullmatch(r"[a-z0-9_/]+\.(h|cpp)", w)):
            places = (room, "", "core", "..")
            if not any(os.path.exists(os.path.join(source, p, word)) for p in places) and not any(
                path.endswith("/" + word) for path in house.paths
            ):
                house.found(readme, 0, f"names {word}, which does not exist")


def check_architecture(house):
    """The map of the tree leads to sources that exist, and to functions that are in them."""
    where = "docs/ARCHITECTURE.md"
    if os.path.exists(path := os.path.join(house.root, where)):
        with open(path, encoding="utf-8") as f:
            for number, what in wrong_names(house.root, f.read()):
                house.found(where, number, what)


def python_of(house, path):
    """The file as a tree; one without statements where it does not compile."""
    with open(os.path.join(house.root, path), encoding="utf-8") as f:
        try:
            tree = ast.parse(f.read(), path)
            compile(tree, path, "exec")
            return tree
        except SyntaxError as error:
            house.found(path, error.lineno, f"not Python: {error.msg}")
            return ast.Module([], [])


def check_python(house):
    """A test that does not compile is a test that does not run."""
    for path in (f for top in (*TOPS, "sdk") for f in files_of(house.root, top, ".py")):
        if not path.endswith("_test.py") or not path.startswith("tests/"):  # see check_cases
            python_of(house, path)


DECLARATION = re.compile(r"\b([a-z_][a-z0-9_]{3,})\s*\(")


def check_dead(house):
    """A function that a header declares is named outside its declaration and its definition.

    Headers named sim_* are exempt: what the tests do to a simulated device has no other caller.
    """
    words = collections.Counter()
    for path in house.paths:
        if path.startswith(("src/", "shim/", "bench/", "tools/")):
            words.update(re.findall(r"\b[a-z_][a-z0-9_]{3,}\b", house.code[path]))
    for path in house.paths:
        if not (path.startswith("src/") and path.endswith(".h")) or "/sim_" in path:
            continue
        for number, line in enumerate(house.code[path].split("\n"), 1):
            if not re.match(r"^ {0,4}[\w:<>,&*\[\] ~]*\b[a-z_]\w*\(", line):
                continue
            name = DECLARATION.search(line)
            if not name or re.match(r"\s*(return|if|for|while|switch|case)\b", line):
                continue
            if name.group(1).startswith("__"):  # of the compiler
                continue
            inline = "{" in line
            others = words[name.group(1)] - (1 if inline else 2)
            if others <= 0 and not line.rstrip().endswith(("override;", "= 0;")):
                house.found(path, number, f"nothing calls {name.group(1)}")


def check_client(house):
    """What a client includes is of the client; systems differ by files, not by #if."""
    for path in house.paths:
        inside = path[4:] if path.startswith("src/") else ""
        if not inside or not (
            inside.startswith(tuple(c + "/" for c in CLIENT)) or inside in CLIENT_MAY_ALSO
        ):
            continue
        for number, line in enumerate(house.text[path].split("\n"), 1):
            match = INCLUDE.match(line)
            if match and match.group(1):
                name = match.group(1)
                own = name.startswith(tuple(c + "/" for c in CLIENT)) or name in CLIENT_MAY_ALSO
                if not own and os.path.exists(os.path.join(house.root, "src", name)):
                    house.found(path, number, f"a client is built without {name}")
            if (
                match
                and match.group(2)
                and LINUX_ONLY.match(match.group(2))
                and not SYSTEM.search(path)
            ):
                house.found(
                    path, number, f"<{match.group(2)}> is Linux's: it belongs in a _linux.cpp file"
                )
            if re.match(r"\s*#\s*if.*(__linux__|__APPLE__)", line):
                house.found(
                    path, number, "systems differ by files (_linux.cpp, _darwin.cpp), not by #if"
                )


NAMED_CASES = re.compile(r"\b(\w+_test)(?:\.(\w+))?")


def check_cases(house):
    """Every class of cases is a test of ctest, or the base of one; else nobody would run it."""
    named, classes, bases = set(), [], set()
    for path in files_of(house.root, "tests", ("CMakeLists.txt",)):
        with open(os.path.join(house.root, path), encoding="utf-8") as f:
            named.update(NAMED_CASES.findall(f.read()))
    for path in files_of(house.root, "tests", ("_test.py",)):
        for node in python_of(house, path).body:
            if isinstance(node, ast.ClassDef):
                bases.update(ast.unparse(base).split(".")[-1] for base in node.bases)
                if any(getattr(each, "name", "").startswith("test") for each in node.body):
                    classes.append((path, node.name, node.lineno))
    for path, name, line in classes:
        module = os.path.basename(path)[:-3]
        if not {(module, name), (module, "")} & named and name not in bases:
            house.found(path, line, f"no CMakeLists.txt of the tests names {module}.{name}")


FUZZ_SOURCE = re.compile(r"(?<![\w/*}.-])[\w-]+/[\w/.-]+\.cpp")


def check_fuzz(house):
    """Fuzz targets name their sources: these exist, and so does a corpus that the tests replay."""
    where = "tests/fuzz/CMakeLists.txt"
    path = os.path.join(house.root, where)
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    for number, line in enumerate(lines, 1):
        for source in FUZZ_SOURCE.findall(line):
            places = [os.path.join(house.root, place, source) for place in ("src", "tests/fuzz")]
            if not any(os.path.exists(p) for p in places):
                house.found(where, number, f"there is no {source}")
        for name in re.findall(r"^billow_fuzz\((\w+)", line):
            if not os.path.isdir(os.path.join(house.root, "tests/fuzz/corpus", name)):
                house.found(where, number, f"there is no tests/fuzz/corpus/{name}")


def check(root):
    house = House(root)
    check_layers(house, check_includes(house))
    check_text(house)
    check_other_text(house)
    check_folders(house)
    check_readmes(house)
    check_architecture(house)
    check_python(house)
    check_dead(house)
    check_client(house)
    check_cases(house)
    check_fuzz(house)
    return house.findings


LONG_FUNCTION = "int f() {\n" + "  work();\n" * 80 + "}\n"
SELF_TEST = {
    "src/base/README.md": ("May depend on: nothing.\n", ""),
    "src/net/README.md": ("May depend on: base, head.\n", ""),
    "src/head/README.md": ("May depend on: net.\n", "a cycle"),
    "src/core/sched/README.md": ("May depend on: base, net.\n", "names base, which"),
    "src/client/README.md": ("May depend on: head.\n", ""),
    "src/loose/README.md": ("Nothing but `y.cpp`.\n", 'no line "May depend on:"'),
    "src/told/README.md": ("`b.*`, `gone.h`.\nMay depend on: nothing.\n", "names gone.h, which"),
    "src/told/untold.cpp": ("int x;\n", "does not name untold, a source"),
    "src/loose/x.cpp": ("int x;\n", ""),
    "src/base/a.h": ('#pragma once\n#include "net/b.h"\n', "base may not depend on net"),
    "src/net/b.h": ("#pragma once\n#include <boost/asio.hpp>\n", "leaks"),
    "src/net/c.cpp": ("#include <regex>\n", "banned"),
    "src/net/d.cpp": ('void f() { system("ls"); }\n', "process::spawn"),
    "src/net/fork.cpp": ("void f() { ::fork(); }\n", "fork(): start programs with process"),
    "src/net/become.cpp": ("void f() { ::setresuid(1, 1, 1); }\n", "setresuid(): start programs"),
    "src/net/exec.cpp": ("void f() { ::execvp(a, b); }\n", "execvp(): start programs"),
    "src/net/spawn.cpp": ("void f() { ::posix_spawn(a, b); }\n", "posix_spawn(): start programs"),
    "src/net/e.cpp": ("// TODO later\n", "unfinished"),
    "src/net/unused.h": ("#pragma once\n", "nobody includes"),
    "src/net/long.cpp": (LONG_FUNCTION, "f has 82 lines"),
    "tests/unit/long_test.cpp": (LONG_FUNCTION, "tests/unit/long_test.cpp:1: f has 82 lines"),
    "src/net/wide.cpp": ("int " + "x" * 120 + ";\n", "columns"),
    "src/net/high.cpp": ("int a;\n" * 700, "700 lines"),
    "web/src/high.css": ("a {\n}\n" * 301, "web/src/high.css: 602 lines"),
    "sdk/python/src/wide.py": ("x = " + "1" * 100 + "\n", "sdk/python/src/wide.py:1: 104 columns"),
    "src/net/comma.cpp": ("void f() {\n  a = 1, b = 2;\n}\n", "comma.cpp:2: a statement joined"),
    "src/net/comma_if.cpp": (
        "void f() {\n  if (a(1))\n    b[i] = 1, ++c;\n}\n",
        "comma_if.cpp:3: a statement joined",
    ),
    "src/net/comma_else.cpp": (
        "void f() {\n  if (a) {\n  } else\n    b(1).c = {1, 2}, d->e();\n}\n",
        "comma_else.cpp:4: a statement joined",
    ),
    "src/net/comma_for.cpp": (
        "void f() {\n  for (auto& [a, b] : c)\n    a->g(), h.b++;\n}\n",
        "comma_for.cpp:3: a statement joined",
    ),
    "bench/comma_return.cpp": (
        "auto f = [&] { return ++a, b; };\n",
        "comma_return.cpp:1: a statement joined",
    ),
    "src/net/dead.h": ("int never_called_by_anyone();\n", "nothing calls never_called_by_anyone"),
    "src/net/alive.cpp": ('#include "net/dead.h"\nint never_called_by_anyone() {\n}\n', ""),
    "src/net/sim_dead.h": ("int broken_by_tests_alone();\n", ""),
    "src/net/sim_dead.cpp": ('#include "net/sim_dead.h"\n', ""),
    "src/odd/f.cpp": ("int x;\n", "src/odd: no README.md"),
    "src/core/sched/g.cpp": (
        "#include <fstream>\nauto t = std::chrono::system_clock::now();\n",
        "fstream in core/",
    ),
    "src/core/sched/h.cpp": ("auto t = system_clock().wall();\n", "reads a clock"),
    "src/core/sched/i.cpp": ("std::map<const Job*, int> m;\n", "keys on a pointer"),
    "src/head/h.h": ("#pragma once\n", ""),
    "src/head/i.cpp": ("#include <iostream>\n", "outside the client"),
    "src/client/i.cpp": ('#include "head/h.h"\n', "a client is built without head/h.h"),
    "src/net/l.cpp": ("#include <sys/epoll.h>\n", "is Linux's"),
    "tests/e2e/n.py": ("@skip\nX = 1\n", "not Python"),
    "tests/e2e/high_test.py": ("X = 1\n" * 601, "tests/e2e/high_test.py: 601 lines"),
    "tests/e2e/CMakeLists.txt": ("e2e(A ran_test.Ran TIMEOUT 9)\n", ""),
    "tests/e2e/ran_test.py": (
        "class Base(TestCase):\n    def test_a(self):\n        pass\n\n\n"
        "class Ran(Base):\n    def test_b(self):\n        pass\n\n\n"
        "class Lost(Base):\n    def test_c(self):\n        pass\n",
        "tests/e2e/ran_test.py:11: no CMakeLists.txt of the tests names ran_test.Lost",
    ),
    "docs/ARCHITECTURE.md": (
        "| Where? | `net/long.cpp` (`f`), `fork.cpp` (it calls `f`), `h` (`net/e.cpp`) |\n"
        "`gone.cpp` is gone.\n",
        "docs/ARCHITECTURE.md:1: names h of net/e.cpp, which does not contain it",
    ),
    "src/net/m.cpp": ("#if defined(__APPLE__)\n", "systems differ by files"),
    "tests/fuzz/CMakeLists.txt": (
        "billow_fuzz(x net/none.cpp SOURCES net/c.cpp)\n",
        "there is no net/none.cpp",
    ),
}


# Where a rule does not hold.
ALLOWED = {
    "src/process/start_linux.cpp": "void f() { ::fork(); ::setgroups(0, nullptr); }\n",
    "src/supervise/start.cpp": "void f() { fork(); }\n",
    "src/supervise/commas.cpp": (
        "enum class E { a, b };\ntemplate <class A, class B>\nstruct C : A, B {};\n"
        "D::D() : a_(1), b_{2} {\n  int a = 1, b[2] = {}, *c;\n  std::map<int, int> d, e;\n"
        "  for (a = 1, b[0] = 2; a < 3; ++a, ++b[0])\n    f<int, int>(a, b);\n"
        "  return {a, b};\n}\n"
    ),
}


def self_test():
    cases = dict(SELF_TEST)
    for path, text in ALLOWED.items():
        cases[path] = (text, "")
        cases[os.path.dirname(path) + "/README.md"] = ("May depend on: nothing.\n", "")
    for number in range(FOLDER_FILES_MAX + 1):
        cases[f"src/crowd/f{number}.cpp"] = ("int x;\n", "")
    with tempfile.TemporaryDirectory() as root:
        for path, (text, _) in cases.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        found = "\n".join(check(root))
    wanted = [why for _, why in cases.values()] + [f"{FOLDER_FILES_MAX + 1} sources"]
    wanted.append("docs/ARCHITECTURE.md:2: names gone.cpp, which does not exist")
    missed = [why for why in wanted if why not in found]
    missed += [f"{path}, which is allowed" for path in ALLOWED if path in found]
    if missed:
        print("not found:", missed, "in\n" + found)
        return 1
    if "ran_test.Base" in found or "ran_test.Ran" in found:
        print("a class of cases that runs is taken for one that does not in\n" + found)
        return 1
    if "names f of" in found:
        print("a function that its source contains is taken for one that is missing in\n" + found)
        return 1
    if "broken_by_tests_alone" in found:
        print("a function of a simulated device is taken for dead in\n" + found)
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    problems = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    print("\n".join(problems) if problems else "tidy")
    sys.exit(1 if problems else 0)
