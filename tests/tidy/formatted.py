#!/usr/bin/env python3
"""Every C++ source is formatted as .clang-format says. Exits 77 (skipped) without clang-format 14.

Another version formats a few constructs differently, so only the one of Debian 12 counts.
"""
import os
import re
import shutil
import subprocess
import sys

FOLDERS = ("src", "shim", "tests", "bench", "tools")
VERSION = "14"


def main(root):
    program = shutil.which("clang-format-" + VERSION) or shutil.which("clang-format")
    text = (
        subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        if program
        else ""
    )
    if not re.search(rf"version {VERSION}\.", text):
        print(f"skipped: clang-format {VERSION} is not installed (apt-get install clang-format)")
        return 77
    files = [
        os.path.join(folder, name)
        for top in FOLDERS
        for folder, _, names in os.walk(os.path.join(root, top))
        if "node_modules" not in folder
        for name in names
        if name.endswith((".cpp", ".h"))
    ]
    done = subprocess.run(
        [program, "--dry-run", "--Werror", "-ferror-limit=1", *sorted(files)],
        capture_output=True,
        text=True,
    )
    wrong = sorted(
        {
            os.path.relpath(line.split(":")[0], root)
            for line in done.stderr.splitlines()
            if "[-Wclang-format" in line
        }
    )
    for path in wrong:
        print(f"{path}: not formatted; run ./dev fmt {path}")
    if done.returncode and not wrong:
        print(done.stderr)
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
