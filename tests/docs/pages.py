"""Reads the Markdown pages of the documentation: their blocks of code, and how each is tested.

A block is tested by its language, or by HTML comments on the lines above it, which readers do not see:

    ```sh                             each command must succeed
    ```console                        lines after `$ ` are run, the lines below are their output;
                                      `…` stands for any text, alone on a line for any lines, and
                                      further sentences may follow a line that ends with a period
    <!-- file: job.toml -->           the block is written to this file
    <!-- not run: needs a cluster --> the block is not run, for this reason

Comments anywhere on a page:

    <!-- run: mkdir results -->       a command that readers need not see
    <!-- head: none -->               the page starts its own head (default: one with 8 simulated H100s)
    <!-- head: tls -->                the head is https://head:7070 to the page's commands
    <!-- ports: 8899 -->              ports that the test replaces by free ones
    <!-- page not run: needs a cloud account -->   no block of the page is run
"""
import dataclasses
import os
import re

# Languages of blocks that show content, not commands.
CONTENT = {
    "toml",
    "json",
    "yaml",
    "python",
    "ini",
    "text",
    "svg",
    "xml",
    "html",
    "dockerfile",
    "promql",
}
COMMANDS = {"sh", "console"}

NO_LANGUAGE = "the block has no language"

COMMENT = re.compile(r"<!--\s*(page not run|not run|file|run|head|ports)\s*:\s*(.*?)\s*-->", re.S)
FENCE = re.compile(r"^(\s*)```(.*)$")


@dataclasses.dataclass
class Block:
    line: int
    language: str
    text: str
    file: str = ""
    reason: str = ""  # why it is not run


@dataclasses.dataclass
class Hidden:
    line: int
    text: str


@dataclasses.dataclass
class Page:
    path: str
    parts: list  # blocks and hidden commands, in order
    head: str = "sim"
    reason: str = ""
    ports: list = dataclasses.field(default_factory=list)
    mistakes: list = dataclasses.field(default_factory=list)

    @property
    def blocks(self):
        return [p for p in self.parts if isinstance(p, Block)]


def read_page(text, path):
    """The page's parts, and what is wrong with its blocks."""
    page = Page(path, [])
    lines = text.split("\n")
    marks, at = {}, 0
    while at < len(lines):
        line = lines[at]
        fence = FENCE.match(line)
        if fence:
            at, block = read_block(lines, at, fence, marks, page)
            page.parts.append(block)
            marks = {}
        elif line.lstrip().startswith("<!--"):
            begin = at
            while "-->" not in lines[at] and at + 1 < len(lines):
                at += 1
            take_comment("\n".join(lines[begin : at + 1]), begin + 1, page, marks)
        elif line.strip():
            for kind in marks:
                page.mistakes.append(f"{path}:{at + 1}: <!-- {kind}: --> stands above no block")
            marks = {}
        at += 1
    if page.reason:
        page.mistakes = [m for m in page.mistakes if NO_LANGUAGE not in m]
    return page


def take_comment(comment, line, page, marks):
    for kind, value in COMMENT.findall(comment):
        if not value:
            page.mistakes.append(f"{page.path}:{line}: <!-- {kind}: --> says nothing")
        elif kind == "run":
            page.parts.append(Hidden(line, value))
        elif kind == "head":
            page.head = value
        elif kind == "ports":
            page.ports += value.split()
        elif kind == "page not run":
            page.reason = value
        else:
            marks[kind] = value


def read_block(lines, begin, fence, marks, page):
    """(line of the closing fence, block)"""
    indent = len(fence[1])
    language = fence[2].strip()
    here = f"{page.path}:{begin + 1}"
    at = begin + 1
    while at < len(lines) and lines[at].strip() != "```":
        at += 1
    if at == len(lines):
        page.mistakes.append(f"{here}: the block has no end")
    if not language:
        page.mistakes.append(
            f"{here}: the block has no language: write ```sh or ```console for commands, ```text"
            " for anything else"
        )
    elif language not in CONTENT | COMMANDS:
        page.mistakes.append(f"{here}: unknown language {language!r}")
    if "not run" in marks and language not in COMMANDS:
        page.mistakes.append(f"{here}: a block of {language or 'no language'} is never run")
    text = "".join(line[indent:] + "\n" for line in lines[begin + 1 : at])
    return at, Block(begin + 1, language, text, marks.get("file", ""), marks.get("not run", ""))


def console_steps(text):
    """[(command, expected output)] of a console block; lines after `> ` continue a command."""
    steps = []
    for line in text.split("\n")[:-1]:
        if line.startswith("$ "):
            steps.append([line[2:], []])
        elif not steps:
            raise ValueError(f"output before the first command: {line!r}")
        elif line.startswith("> ") and not steps[-1][1]:
            steps[-1][0] += "\n" + line[2:]
        else:
            steps[-1][1].append(line)
    for step in steps:
        while step[1] and not step[1][-1].strip():
            step[1].pop()
    return [(command, output) for command, output in steps]


# Figures that differ from run to run. Each is replaced on both sides before they are compared.
VARIES = [
    (re.compile(r"<?\$\d[\d.,]*"), "$N"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT?[ \d:.]*Z?"), "DATE"),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?\b"), "CLOCK"),
    (re.compile(r"\b\d+(\.\d+)? ?(ns|us|µs|ms|s|min|m|h|d)\b( \d+(s|m|h)\b)*"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?(B|KiB|MiB|GiB|TiB|kB|MB|GB)\b"), "SIZE"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), "ADDRESS"),
    (re.compile(r"\bpid \d+"), "pid N"),
    (re.compile(r"[ \t]+"), " "),
]


def plain(line):
    for pattern, word in VARIES:
        line = pattern.sub(word, line)
    return line.strip()


def matches(expected, actual):
    """Whether the lines agree: `…` stands for any text, alone on a line for any lines."""
    pattern = []
    for line in expected:
        if line.strip() == "…":
            pattern.append(r"(?:.*\n)*")
        else:
            more = "( .*)?" if line.rstrip().endswith(".") else " *"
            parts = [re.escape(plain(part)) for part in line.split("…")]
            pattern.append(".*".join(parts) + more + r"\n")
    text = "".join(plain(line) + "\n" for line in actual if line.strip())
    wanted = "".join(p for p, line in zip(pattern, expected) if line.strip())
    return re.fullmatch(wanted.replace(r"\ .*", ".*").replace(r".*\ ", ".*"), text) is not None


def all_pages(root):
    """Paths, relative to the root, of the pages that are tested. The command reference is generated
    from the program and compared with it elsewhere."""
    docs = sorted(
        f"docs/{name}" for name in os.listdir(os.path.join(root, "docs")) if name.endswith(".md")
    )
    return ["README.md", "examples/README.md"] + [p for p in docs if p != "docs/cli.md"]


def load(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return read_page(f.read(), path)
