#!/usr/bin/env python3
"""Line coverage by room, from the counters that a BILLOW_COVERAGE build leaves beside its objects.

`gcov --json-format` prints, for each object, every source line with its count. A line of a header appears in many
objects: it counts as run if it ran in any of them.
"""
import collections
import concurrent.futures
import json
import os
import subprocess
import sys


def counters(folder):
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".gcno"):
                yield os.path.join(place, name)


def lines_of(gcno):
    """(file, line, ran) of one object. An object without counters (.gcda) was linked into nothing
    that ran."""
    done = subprocess.run(
        ["gcov", "--json-format", "--stdout", gcno], capture_output=True, cwd=os.path.dirname(gcno)
    )
    found = []
    for document in done.stdout.splitlines():
        if not document.startswith(b"{"):
            continue
        for file in json.loads(document)["files"]:
            found += [
                (file["file"], line["line_number"], line["count"] > 0) for line in file["lines"]
            ]
    return found


def room_of(path, root):
    folder = os.path.dirname(path)
    while folder and not os.path.exists(os.path.join(root, folder, "README.md")):
        folder = os.path.dirname(folder)
    return folder or os.path.dirname(path)


def measure(root, folder):
    lines = collections.defaultdict(dict)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for found in pool.map(lines_of, sorted(counters(folder))):
            for file, number, ran in found:
                path = os.path.relpath(os.path.realpath(os.path.join(folder, file)), root)
                if path.startswith("src/"):
                    lines[path][number] = lines[path].get(number, False) or ran
    return lines


def main(root, folder):
    rooms = collections.defaultdict(lambda: [0, 0])
    for path, numbers in measure(os.path.realpath(root), folder).items():
        room = rooms[room_of(path, root)]
        room[0] += len(numbers)
        room[1] += sum(numbers.values())
    total = [sum(r[i] for r in rooms.values()) for i in (0, 1)]
    if not total[0]:
        sys.exit(f"coverage: no counters in {folder}")
    print(f"{'room':24} {'lines':>7} {'run':>7} {'%':>6}")
    for name, (all_, ran) in sorted(rooms.items()) + [("all", total)]:
        print(f"{name:24} {all_:7} {ran:7} {100 * ran / all_:6.1f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
