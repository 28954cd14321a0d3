"""What the documentation shows is true: its commands run against a fresh head with simulated GPUs, page
by page, and the options, commands and links that it names exist."""
import getpass
import json
import os
import re
import sys
import unittest

import pages
from ports import free_port
from rig import BIN, Rig
from shell import Shell, commands_of

USER = getpass.getuser()
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))

# `billow` in the blocks: a head that a page starts takes a free port instead of 7070, and a node name
# that pages can show. A machine that joins is a second one, with simulated GPUs.
WRAPPER = """#!/bin/sh
case "$1" in
  up) shift
    case " $* " in
      *" --listen "*) ;;
      *) set -- --listen 127.0.0.1:0 --gateway 127.0.0.1:0 "$@" ;;
    esac
    exec BIN/billow up --node-name gpu1 "$@" ;;
  join) shift
    exec BIN/billow join --data NODE --node-name gpu2 --sim 8xH100 "$@" ;;
esac
exec BIN/billow "$@"
"""


class PageRun:
    """The blocks of one page, in order, in one shell, with one head."""

    def __init__(self, page):
        self.page = page
        self.ports = {"7071": str(free_port())}  # the gateway's
        self.ports.update({port: str(free_port()) for port in page.ports})
        args = ["--node-name", "gpu1", "--gateway", "127.0.0.1:" + self.ports["7071"]]
        args += ["--tls"] if page.head == "tls" else []
        self.rig = Rig(up=page.head != "none", args=args)
        self.shell = None
        self.ran = 0

    def start(self):
        folder = os.path.join(self.rig.root, "shell")
        home = os.path.join(self.rig.root, "home")
        wrapper = os.path.join(folder, "bin", "billow")
        os.makedirs(os.path.dirname(wrapper))
        os.makedirs(home)
        with open(wrapper, "w", encoding="utf-8") as f:
            node = os.path.join(self.rig.root, "node")
            f.write(WRAPPER.replace("BIN", os.path.abspath(BIN)).replace("NODE", node))
        os.chmod(wrapper, 0o755)
        environment = {k: v for k, v in self.rig.environment.items() if not k.startswith("GIT_")}
        environment.pop("BILLOW_SIM")
        environment.update(HOME=home, PATH=os.path.dirname(wrapper) + ":" + environment["PATH"])
        self.shell = Shell(folder, self.rig.files, environment)

    def everything(self):
        self.start()
        for part in self.page.parts:
            here = f"{self.page.path}:{part.line}"
            if isinstance(part, pages.Hidden):
                self.must_succeed(here, part.text)
            elif part.file:
                self.write(part)
            elif part.language in pages.COMMANDS and not part.reason:
                self.ran += 1
                if part.language == "sh":
                    for command in commands_of(part.text):
                        self.must_succeed(here, command)
                else:
                    for command, output in pages.console_steps(part.text):
                        self.must_show(here, command, output)

    def with_ports(self, command):
        if self.page.head == "tls":
            address = json.loads(self.rig.read("head.json"))["addresses"][0]
            command = command.replace("https://head:7070", address)
        for shown, free in self.ports.items():
            command = re.sub(rf"(?<!\d){shown}(?!\d)", free, command)
        return command

    def write(self, block):
        path = os.path.join(self.rig.files, block.file)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(block.text)
        if block.text.startswith("#!"):
            os.chmod(path, 0o755)

    def must_succeed(self, here, command):
        code, output = self.shell.run(self.with_ports(command))
        if code != 0:
            raise AssertionError(f"{here}: exit code {code}: {command}\n" + "\n".join(output))

    def must_show(self, here, command, expected):
        _, output = self.shell.run(self.with_ports(command))
        output = [
            line.replace(self.rig.data, "/var/lib/billow").replace(USER, "root") for line in output
        ]
        if not pages.matches(expected, output):
            raise AssertionError(
                f"{here}: $ {command}\nthe page shows:\n  "
                + "\n  ".join(expected)
                + "\nthe program printed:\n  "
                + "\n  ".join(output)
            )

    def close(self):
        try:
            if self.shell:
                self.shell.close()
        finally:
            self.rig.close()


class Commands(unittest.TestCase):
    """One case per page: its blocks are run."""

    def run_page(self, path):
        page = pages.load(ROOT, path)
        self.assertEqual([], page.mistakes)
        run = PageRun(page)
        try:
            run.everything()
        finally:
            run.close()
        print(f"{path}: {run.ran} blocks run")


def runs_something(page):
    return not page.reason and any(
        block.language in pages.COMMANDS and not block.reason for block in page.blocks
    )


for page_path in pages.all_pages(ROOT):
    if runs_something(pages.load(ROOT, page_path)):
        case_name = "test_" + re.sub(r"\W", "_", page_path.removesuffix(".md"))
        setattr(Commands, case_name, lambda self, path=page_path: self.run_page(path))


def reference():
    """The options of each command, from the generated reference: {"run": {"--gpus", …}, …}."""
    with open(os.path.join(ROOT, "docs/cli.md"), encoding="utf-8") as f:
        text = f.read()
    common = set(re.findall(r"--[a-z][a-z0-9-]*", section(text, "## Common options")))
    job = option_names(section(text, "## Job options"))
    commands = {}
    for name in re.findall(r"^### billow (.+)$", text, re.M):
        part = section(text, f"### billow {name}")
        options = option_names(part) | common | {"--help"}
        if "](#job-options)" in part:
            options |= job
        same = re.search(r"\(same as ([a-z ]+)\)", part)
        commands[name] = (options, same[1] if same else "")
    return {
        name: options | (commands[same][0] if same in commands else set())
        for name, (options, same) in commands.items()
    }


def section(text, heading):
    begin = text.index(heading + "\n") + len(heading)
    end = re.search(r"^#{2,3} ", text[begin:], re.M)
    return text[begin : begin + end.start()] if end else text[begin:]


def option_names(text):
    return {
        name
        for line in text.split("\n")
        if line.startswith("| `")
        for name in re.findall(r"(?<![\w-])--?[a-zA-Z][a-zA-Z0-9-]*", line.split("` |")[0])
    }


def code_of(page_text):
    """(line number, code) of each line of a block and each `code` in the text of a page."""
    fence, paragraph, begin = "", "", 1
    for number, line in enumerate(page_text.split("\n") + [""], 1):
        if line.strip().startswith("```"):
            fence = "" if fence else line.strip()
            line = ""
        elif fence:
            if fence != "```console" or line.startswith("$ "):
                yield number, line.removeprefix("$ ")
            continue
        if line.strip():
            begin = begin if paragraph else number
            paragraph += line + "\n"
            if not line.startswith("|"):
                continue
        for piece in re.findall(r"`([^`]+)`", paragraph):
            yield begin, piece.replace("\n", " ")
        paragraph = ""


def billow_calls(page_text):
    """(line number, words before `--`) of each `billow …` in code of a page."""
    for number, piece in code_of(page_text):
        for call in re.findall(r"(?:^|[\s$(|;`'\"=])billow ([a-z][^|;&#`)]*)", piece):
            yield number, call.split(" -- ")[0].split()


class Words(unittest.TestCase):
    maxDiff = None

    """Commands, options and links that pages name exist."""

    def test_every_block_is_run_or_says_why_not(self):
        mistakes, marked, run = [], [], 0
        for path in pages.all_pages(ROOT):
            page = pages.load(ROOT, path)
            mistakes += page.mistakes
            for block in page.blocks:
                if block.language not in pages.COMMANDS:
                    continue
                reason = block.reason or page.reason
                if reason:
                    marked.append(f"{path}:{block.line}: {reason}")
                else:
                    run += 1
        print(f"{run} blocks of commands are run, {len(marked)} are not:", file=sys.stderr)
        print("\n".join(marked), file=sys.stderr)
        self.assertEqual([], mistakes)

    def test_commands_and_options_exist(self):
        known, wrong = reference(), []
        foreign = {"squeue"}  # the page for users of Slurm shows what Billow answers
        for path in pages.all_pages(ROOT):
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                text = f.read()
            for number, words in billow_calls(text):
                name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
                if name not in known:
                    groups = {k.split()[0] for k in known}
                    if name not in groups | foreign and name.isalpha():
                        wrong.append(f"{path}:{number}: no command billow {name}")
                    continue
                for word in words:
                    option = re.match(r"--[a-z][a-z0-9-]*", word.lstrip("["))
                    if option and option[0] not in known[name]:
                        wrong.append(f"{path}:{number}: billow {name} has no {option[0]}")
        self.assertEqual([], wrong)

    def test_options_named_alone_exist(self):
        known, wrong = set().union(*reference().values()) | FOREIGN, []
        for path in pages.all_pages(ROOT):
            if os.path.basename(path).startswith("from-"):
                continue  # tables with options of other programs
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                spans = [(n, code) for n, code in code_of(f.read()) if code.startswith("--")]
            for number, code in spans:
                for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", code):
                    if option not in known:
                        wrong.append(f"{path}:{number}: no command has {option}")
        self.assertEqual([], wrong)

    def test_links_lead_somewhere(self):
        wrong = []
        for path in pages.all_pages(ROOT) + ["docs/cli.md"]:
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                text = re.sub(r"```.*?```|`[^`\n]*`", "", f.read(), flags=re.S)
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                file, _, anchor = target.partition("#")
                there = (
                    os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
                )
                if not os.path.exists(os.path.join(ROOT, there)):
                    wrong.append(f"{path}: no file {there}")
                elif anchor and there.endswith(".md") and anchor not in anchors(there):
                    wrong.append(f"{path}: {there} has no heading #{anchor}")
        self.assertEqual([], wrong)

    def test_prose_fits_100_columns(self):
        long = []
        for path in pages.all_pages(ROOT):
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                text = re.sub(
                    r"```.*?```|<!--.*?-->", lambda m: "\n" * m[0].count("\n"), f.read(), flags=re.S
                )
            for number, line in enumerate(text.split("\n"), 1):
                if len(line) > 100 and not line.startswith("|"):
                    long.append(f"{path}:{number}: {len(line)} columns")
        self.assertEqual([], long)

    def test_messages_of_the_troubleshooting_page_exist(self):
        with open(os.path.join(ROOT, "docs/troubleshooting.md"), encoding="utf-8") as f:
            rows = [line.split(" | ")[0] for line in f if line.startswith("| ")]
        messages = [m for row in rows for m in re.findall(r"`([^`]+)`", row)]
        texts, wrong, looked_for = all_strings(), [], 0
        for message in messages:
            for part in re.split(r"\s*…\s*", message):
                if len(part) > 9 and " " in part and not part.startswith("--"):
                    looked_for += 1
                    if part.strip(" ;:,") not in texts:
                        wrong.append(f"{message!r}: the program never says {part!r}")
        self.assertEqual([], wrong)
        self.assertGreater(looked_for, 40)

    def test_sentences_that_nobody_understood_do_not_come_back(self):
        """A trial of a week listed the sentences that stopped it. They are in no page and no text
        of the program."""
        told = all_strings()
        for path in pages.all_pages(ROOT) + ["docs/cli.md"]:
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                told += "\n" + re.sub(r"\s+", " ", f.read())
        self.assertEqual([], [text for text in NOT_UNDERSTOOD if text in told])

    def test_words_are_explained_where_people_meet_them(self):
        with open(os.path.join(ROOT, "docs/GLOSSARY.md"), encoding="utf-8") as f:
            defined = set(re.findall(r"\*\*([a-z ]+)\*\*", f.read()))
        with open(os.path.join(ROOT, "docs/concepts.md"), encoding="utf-8") as f:
            concepts = f.read()
        for word in ("head", "node", "job", "task", "gang", "lease", "project", "pool", "gateway"):
            self.assertIn(word, defined)
            self.assertRegex(concepts, rf"\*{word}s?\*")
        # The first page explains a head before it starts one; words of the code stay in the code.
        with open(os.path.join(ROOT, "docs/start.md"), encoding="utf-8") as f:
            start = f.read()
        self.assertLess(start.index("*head* (the server)"), start.index("$ billow up"))
        for path in pages.all_pages(ROOT):
            if re.match(r"docs/(adr/|ARCHITECTURE)|src/|tests/|bench/|shim/|web/", path):
                continue
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                text = re.sub(r"```.*?```|`[^`]*`", "", f.read(), flags=re.S)
            found = re.findall(
                r"\b(vault|shim|posting|ledger|what holds|job \d+ is failed)\b", text
            )
            self.assertEqual([], found, path)

    def test_the_index_lists_every_page(self):
        with open(os.path.join(ROOT, "docs/README.md"), encoding="utf-8") as f:
            index = f.read()
        names = [n for n in os.listdir(os.path.join(ROOT, "docs")) if n.endswith(".md")]
        self.assertEqual([], [n for n in names if n != "README.md" and f"]({n})" not in index])


NOT_UNDERSTOOD = [
    "`--access open`: nobody",
    "this is what holds without a word",
    "Work that cannot give way borrows only",
    "work that cannot give way borrows only",
    "are free in sum ({} whole), but not where",
    "a job is passed only by jobs submitted within",
    "Priority counts less against a long wait",
    "what the jobs are charged all of whose tasks",
    "Output counts as work from a KiB a second on",
    "are told and keep nothing awake",
    "whose first ten minutes at the new price are not there",
    "commands that look take the newest and say so",
    "without leave to run twice nothing that may still run",
    "members of the project that it does not belong to watch",
    "the share of time is then at least the memory's part of the card",
    "with --grep: A is a",
    "jobs that run inside it go on at its price",
    "an array has no log of its own",
    "brings no machine for it",
    "whose word about their clients counts",
    "there is money again",
    "nobody knows whether the machine exists: the pool",
    "it gets no requests until it is well",
]

# Options of other programs that pages name without the program.
FOREIGN = {
    "--query-gpu",
    "--query-compute-apps",
    "--prefix",
    "--nnodes",
    "--node",
    "--master",
    "--account",
    "--only",
    "--no-sandbox",
    "--python",
}


def all_strings():
    """The texts of the sources, with strings over several lines joined."""
    found = []
    for folder, _, names in os.walk(os.path.join(ROOT, "src")):
        for name in names:
            if name.endswith((".cpp", ".h")):
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    found.append(re.sub(r'"\s*\n\s*"', "", f.read()).replace('\\"', '"'))
    return "\n".join(found)


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        text = re.sub(r"```.*?```", "", f.read(), flags=re.S)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.M)
    }
