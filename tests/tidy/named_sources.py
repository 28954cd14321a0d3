"""The sources that a document names in backticks, and the functions beside them in parentheses:
`core/sched/plan.cpp` (`plan`), or the other way round: `plan` (`core/sched/plan.cpp`). A name
without a folder is in the folder of the source before it in the same paragraph or table row."""
import glob
import os
import re

WORD = re.compile(r"`([^`\n]+)`|[()]|\S")
SOURCE = re.compile(r"[\w/.*-]*\w\.(?:cpp|h|ts|tsx|py)|[\w.-]+/[\w/.*-]+\.json")
FUNCTION = re.compile(r"[A-Za-z_]\w*")


def blocks(text):
    """(first line, text) of each paragraph and table row."""
    start, lines = 1, []
    for number, line in enumerate(text.split("\n"), 1):
        if lines and (not line.strip() or line.startswith("|") or lines[-1].startswith("|")):
            yield start, "\n".join(lines)
            lines = []
        if line.strip():
            start = start if lines else number
            lines.append(line)
    if lines:
        yield start, "\n".join(lines)


def paths_of(root, name, folder):
    places = (folder,) if "/" not in name else ("src", "")
    found = (glob.glob(os.path.join(root, place, name)) for place in places)
    return [path for each in found for path in each]


def says(paths, function):
    for path in paths:
        with open(path, encoding="utf-8") as f:
            if re.search(rf"\b{function}\b", f.read()):
                return True
    return False


def wrong_names(root, text):
    """(line, what is wrong) for each source that does not exist or lacks a function named with
    it."""
    for start, block in blocks(text):
        folder, last, beside, waiting = "src", None, "", None
        for word in WORD.finditer(block):
            line, name = start + block.count("\n", 0, word.start()), word.group(1)
            functions = []
            if word.group(0) == "(":
                waiting = []  # those of a parenthesis belong to a source in it, else to the last
            elif name and SOURCE.fullmatch(name) and "NAME" not in name:
                last = (name, paths_of(root, name, folder))
                if last[1]:
                    folder = os.path.relpath(os.path.dirname(last[1][0]), root)
                if not last[1]:
                    yield line, f"names {name}, which does not exist"
                if waiting is not None:
                    functions = [beside, *waiting]
                    waiting = []
            elif name and FUNCTION.fullmatch(name):
                if waiting is not None:
                    waiting.append(name)
            elif word.group(0) == ")":
                functions, waiting = waiting or [], None
            for function in filter(None, functions):
                if last and last[1] and not says(last[1], function):
                    yield line, f"names {function} of {last[0]}, which does not contain it"
            if word.group(0) != "(":
                beside = name if name and FUNCTION.fullmatch(name) else ""
