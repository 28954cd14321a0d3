"""Prints the sizes of the sources: of src/, and whether any file of the project is over its limit."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests/tidy")]
sys.dont_write_bytecode = True
from cpp_text import blank_comments_and_strings, functions  # noqa: E402
from tidy import COLUMNS_MAX, FILE_LINES_MAX, FUNCTION_LINES_MAX  # noqa: E402

TEXT = (".cpp", ".h", ".py", ".ts", ".tsx", ".mjs", ".sh", ".css")


def tracked(*words):
    done = subprocess.run(["git", "ls-files", "-z", *words], cwd=ROOT, capture_output=True, check=True)
    return [name for name in done.stdout.decode().split("\0") if name]


def text_of(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def main():
    sources = [name for name in tracked("src", "shim") if name.endswith((".cpp", ".h"))]
    lines, wide, comments, characters = 0, 0, 0, 0
    for name in sources:
        text = text_of(name)
        for line in filter(str.strip, text.split("\n")):
            lines += 1
            wide += len(line) > COLUMNS_MAX
            if line.lstrip().startswith("//"):
                comments += 1
            else:
                characters += len(line.strip())
    long_functions = sum(
        last - first + 1 > FUNCTION_LINES_MAX
        for name in tracked("src", "shim", "tests", "bench", "tools")
        if name.endswith((".cpp", ".h"))
        for _, first, last in functions(blank_comments_and_strings(text_of(name)))
    )
    long_files = [
        name
        for name in tracked("src", "shim", "tests", "tools", "sdk", "web/src", "bench")
        if name.endswith(TEXT) and not name.endswith("_ptx.h")
        if text_of(name).count("\n") > FILE_LINES_MAX
    ]
    print(f"sources of src and shim: {len(sources)}, {lines} lines, {lines // len(sources)} a file")
    print(f"lines over {COLUMNS_MAX} columns: {wide} ({100 * wide / lines:.2f} %)")
    print(f"characters in a line of code: {characters / (lines - comments):.1f}")
    print(f"lines of comments: {100 * comments / lines:.1f} %")
    print(f"C++ functions over {FUNCTION_LINES_MAX} lines, tests included: {long_functions}")
    print(f"files over {FILE_LINES_MAX} lines, tests and tools included: {len(long_files)}", *long_files)


main()
