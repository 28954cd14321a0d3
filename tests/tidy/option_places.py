"""A job option that the agent carries out takes three places: its member, its row in the table of
options, and its use. Counted for options that nothing else needs (no rule of the head, no column of
a listing): each name may stand in those sources and in no other. Files that are made from the table
(docs/cli.md, src/api/job_schemas.json, completion) do not count.

    python3 option_places.py ROOT"""
import os
import re
import sys

OPTIONS = ("suspend_hook", "resume_hook")
EXPECTED = {
    "src/core/model/job.h": "the member, with its line in `fields`",
    "src/client/request/job_options.cpp": "the row",
    "src/agent/task/suspender.cpp": "the use",
}


def places(root, name):
    word = re.compile(rf"\b{name}\b")
    found = set()
    for folder, _, files in os.walk(os.path.join(root, "src")):
        for file in files:
            if file.endswith((".cpp", ".h")):
                path = os.path.join(folder, file)
                with open(path, encoding="utf-8") as f:
                    if word.search(f.read()):
                        found.add(os.path.relpath(path, root))
    return found


def main():
    wrong = 0
    for name in OPTIONS:
        found = places(sys.argv[1], name)
        for path in sorted(found - EXPECTED.keys()):
            print(
                f"{path}: names the option {name}; an option should need no other source than"
                f" {', '.join(EXPECTED)}"
            )
        for path in sorted(EXPECTED.keys() - found):
            print(f"{path}: does not name {name}: {EXPECTED[path]} has moved; mend this test")
        wrong += len(found ^ EXPECTED.keys())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
