"""The documentation site: what the renderer lets through, and that its links and its search lead somewhere."""
import html.parser
import json
import os
import random
import re
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
sys.path.insert(0, os.path.join(ROOT, "tools/docs"))
import build_site  # noqa: E402
import markdown  # noqa: E402

VOID = {"img", "meta", "link", "input"}


class Reader(html.parser.HTMLParser):
    """Collects links and anchors, and complains about tags that do not close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links, self.ids, self.wrong = [], [], [], set(), []
        self.feed(text)
        self.close()
        self.wrong += [f"<{tag}> is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.append(value)
            if name == "id":
                self.ids.add(value)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")


def render(text):
    return markdown.Renderer().page(text)


class Rendering(unittest.TestCase):
    def test_the_subset(self):
        for text, expected in (
            ("a **b** *c* `d<e`", "<p>a <strong>b</strong> <em>c</em> <code>d&lt;e</code></p>"),
            ("- a\n- b\n  c", "<ul>\n<li>a</li>\n<li>b c</li>\n</ul>"),
            ("1. a\n2. b", "<ol>\n<li>a</li>\n<li>b</li>\n</ol>"),
            ("[a](b.md)", '<p><a href="b.md">a</a></p>'),
            ("`a|b` and \\| c", "<p><code>a|b</code> and | c</p>"),
            ("a\nb\n\nc", "<p>a b</p>\n<p>c</p>"),
            ("x <!-- run: y -->", "<p>x</p>"),
        ):
            self.assertEqual(expected, render(text))

    def test_tables(self):
        table = render("| a | b |\n|---|---|\n| `x|y` | [z](z.md) |\n| 1 |\n")
        self.assertEqual(4, table.count("<td>"))
        self.assertIn("<code>x|y</code>", table)

    def test_pages_bring_no_html_and_no_scripts(self):
        for text in (
            "<script>alert(1)</script>",
            "[a](javascript:alert(1))",
            "[a](JaVaScRiPt:alert)",
            "[a](data:text/html,x)",
            '![a" onerror="x](b.png)',
            '[a](b"onclick="x)',
            "```console\n$ <img src=x>\n```",
            "# <b onclick=x>",
            "`<i>`",
            "| <u> |\n|---|\n| <u> |",
        ):
            reader = Reader(render(text))
            self.assertEqual([], reader.wrong, text)
            for tag, attributes in reader.tags:
                self.assertNotIn(tag, ("script", "b" if "$" not in text else "script", "i", "u"))
                self.assertFalse([a for a in attributes if a.startswith("on")], text)
                for address in (attributes.get("href") or "", attributes.get("src") or ""):
                    self.assertFalse(re.match(r"\s*(javascript|data):", address, re.I), text)

    def test_no_text_breaks_it(self):
        pieces = [
            "# ",
            "- ",
            "1. ",
            "> ",
            "|",
            "|---|\n",
            "```\n",
            "```sh\n",
            "`",
            "*",
            "**",
            "[",
            "](",
            ")",
            "!",
        ]
        pieces += [
            "<b>",
            "&",
            '"',
            "\n",
            "\n\n",
            "  ",
            "\0",
            "\0000\0",
            "\\|",
            "a",
            "…",
            "<!--",
            "-->",
            "\t",
            "#",
        ]
        for seed in range(3000):
            dice = random.Random(seed)
            text = "".join(dice.choice(pieces) for _ in range(dice.randrange(60)))
            reader = Reader(render(text))
            self.assertEqual([], reader.wrong, f"seed {seed}: {text!r}")
            self.assertFalse(
                {"script", "style", "b"} & {tag for tag, _ in reader.tags}, f"seed {seed}"
            )


class Building(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.site = build_site.Site(cls.folder.name)
        cls.pages = {name: Reader(text) for name, text in cls.site.write().items()}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_pages_are_whole(self):
        for name, reader in self.pages.items():
            self.assertEqual([], reader.wrong, name)

    def test_links_stay_in_the_site_or_lead_out_openly(self):
        for name, reader in self.pages.items():
            for address in reader.links:
                if re.match(r"(https?|mailto):", address):
                    continue
                file, _, anchor = address.partition("#")
                path = os.path.join(self.folder.name, file or name)
                self.assertTrue(os.path.isfile(path), f"{name}: {address}")
                if anchor:
                    self.assertIn(anchor, self.pages[file or name].ids, f"{name}: {address}")

    def test_the_search_knows_every_section(self):
        with open(os.path.join(self.folder.name, "search-index.js"), encoding="utf-8") as f:
            text = f.read()
        self.assertNotIn("<", text)
        index = json.loads(text.removeprefix("window.billowDocs=").removesuffix(";\n"))
        self.assertEqual(set(self.pages), {entry[0].partition("#")[0] for entry in index})
        for address, _, _, _ in index:
            file, _, anchor = address.partition("#")
            self.assertTrue(not anchor or anchor in self.pages[file].ids, address)

    def test_nothing_is_inline(self):
        for name, reader in self.pages.items():
            for tag, attributes in reader.tags:
                self.assertNotIn("style", attributes, name)
                self.assertTrue(tag != "script" or attributes.get("src"), name)
