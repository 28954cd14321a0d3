#!/usr/bin/env python3
"""The sources of the GPU memory service, for machines without the build: those of src/gpumem, and of
other rooms those whose headers they include, with all that these include in turn.

Without arguments it prints them. `sources.py --link CXX` compiles them without optimisation and links
the program, with the standard library alone.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OTHERS = re.compile(r"^#include <(?!sys/|linux/|netinet/|arpa/)\w+/", re.M)  # libraries of others
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def own_sources():
    found = glob.glob("src/gpumem/*.cpp", root_dir=ROOT)
    return sorted(found) + ["src/gpumem/main/main.cpp"]


def other_sources():
    """A source that uses a library of others is left out: of its header, the service may use what is
    inline. If it uses more, the program does not link."""
    seen, waiting = set(), own_sources()
    while waiting:
        path = waiting.pop()
        if path in seen or not os.path.exists(os.path.join(ROOT, path)):
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            text = f.read()
        if path.endswith(".cpp") and OTHERS.search(text):
            continue
        seen.add(path)
        for name in INCLUDE.findall(text):
            waiting += ["src/" + name, "src/" + re.sub(r"\.h$", ".cpp", name)]
    return sorted(p for p in seen if p.endswith(".cpp") and not p.startswith("src/gpumem/"))


def link(compiler):
    with tempfile.TemporaryDirectory() as folder:
        batch = os.path.join(folder, "gpumem.cpp")
        with open(batch, "w", encoding="utf-8") as f:
            f.writelines(f'#include "{os.path.join(ROOT, path)}"\n' for path in own_sources())
        common = [compiler, "-std=c++23", "-O0", f"-I{ROOT}", f"-I{ROOT}/src"]
        others = [os.path.join(ROOT, path) for path in other_sources()]
        program = os.path.join(folder, "billow-gpumem")
        subprocess.run([*common, batch, *others, "-o", program, "-lpthread", "-ldl"], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--link"]:
        link(sys.argv[2])
    else:
        print("\n".join(own_sources() + other_sources()))
