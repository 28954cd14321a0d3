#!/usr/bin/env python3
"""Builds the documentation as a static site that needs no network and no server:

    tools/docs/build_site.py [OUT]        (default: build/docs-site)

The pages are docs/*.md, README.md, CHANGELOG.md and examples/README.md. The menu is docs/README.md. The search
runs in the browser over an index of all sections. Pages have no inline scripts or styles, so they work under a
strict content security policy (default-src 'self').
"""
import html
import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from markdown import Renderer, plain  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
HERE = os.path.dirname(os.path.abspath(__file__))
WORDS_MAX = 1200  # characters of a section that the search looks at, and shows

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'">
<title>{title} · Billow</title>
<link rel="stylesheet" href="site.css">
<script src="theme.js"></script>
<script src="search-index.js" defer></script>
<script src="site.js" defer></script>
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header>
<button id="menu" type="button" aria-expanded="false" aria-controls="pages">Menu</button>
<a class="name" href="index.html">Billow <span>docs</span></a>
<div class="search" role="search">
<input id="search" type="search" placeholder="Search ( / )" aria-label="Search the documentation" autocomplete="off" role="combobox" aria-expanded="false" aria-controls="found">
<ul id="found" role="listbox" aria-label="Results" hidden></ul>
</div>
<button id="theme" type="button" aria-label="Switch between light and dark">◐</button>
</header>
<div class="columns">
<nav id="pages" aria-label="Pages">
{menu}
</nav>
<main id="content">
{body}
<footer>{neighbours}</footer>
</main>
<aside aria-label="On this page">
{contents}
</aside>
</div>
</body>
</html>
"""


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def sources():
    """Source -> name in the site, for every page."""
    found = {"README.md": "overview.html", "CHANGELOG.md": "changelog.html"}
    found["examples/README.md"] = "examples.html"
    for name in sorted(os.listdir(os.path.join(ROOT, "docs"))):
        if name.endswith(".md"):
            stem = name.removesuffix(".md").lower()
            found[f"docs/{name}"] = "index.html" if name == "README.md" else f"{stem}.html"
    return found


class Site:
    def __init__(self, out):
        self.out = out
        self.names = sources()
        self.images = {}  # source -> name in the site
        self.index = []
        self.broken = []

    def link(self, page, address):
        """Where a link of a page leads in the site; None: what the site does not have."""
        if re.match(r"(https?|mailto):", address, re.I) or address.startswith("#"):
            return address
        path, _, anchor = address.partition("#")
        source = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if source in self.names:
            return self.names[source] + (f"#{anchor}" if anchor else "")
        if os.path.isdir(os.path.join(ROOT, source)) and f"{source}/README.md" in self.names:
            return self.names[f"{source}/README.md"]
        if re.search(r"\.(svg|png)$", source) and os.path.isfile(os.path.join(ROOT, source)):
            self.images[source] = "images/" + os.path.basename(source)
            return self.images[source]
        if not os.path.exists(os.path.join(ROOT, source)):
            self.broken.append(f"{page}: {address}")
        return None

    def link_words(self, page, address, words):
        """A link that shows a file name shows the title of its page instead."""
        source = os.path.normpath(os.path.join(os.path.dirname(page), address.partition("#")[0]))
        shows_file = re.fullmatch(r"[\w./-]+\.md", words) and source in self.names
        return self.title(source) if shows_file else words

    def menu_entries(self):
        """[(group, [(source, title, words)])] of the index page."""
        groups = []
        for line in read("docs/README.md").split("\n"):
            if line.startswith("## "):
                groups.append((line[3:].strip(), []))
            row = re.match(r"\| \[[^\]]+\]\(([\w.-]+\.md)\) \| (.*) \|$", line)
            if row and groups and f"docs/{row[1]}" in self.names:
                groups[-1][1].append(
                    (f"docs/{row[1]}", self.title(f"docs/{row[1]}"), plain(row[2]))
                )
        more = [("README.md", "Overview", ""), ("examples/README.md", "Examples", "")]
        more.append(("CHANGELOG.md", "Changelog", ""))
        return groups + [("More", more)]

    @staticmethod
    def title(source):
        found = re.search(r"^# (.+)$", read(source), re.M)
        return plain(found[1]) if found else os.path.basename(source)

    def menu(self, groups, current):
        out = ['<a class="first" href="index.html">All pages</a>']
        for group, entries in groups:
            out.append(f"<h2>{html.escape(group)}</h2><ul>")
            for source, title, _ in entries:
                here = ' aria-current="page"' if source == current else ""
                out.append(
                    f'<li><a href="{self.names[source]}"{here}>{html.escape(title)}</a></li>'
                )
            out.append("</ul>")
        return "\n".join(out)

    def build(self):
        groups = self.menu_entries()
        order = [source for _, entries in groups for source, _, _ in entries]
        pages = {}
        for source, name in self.names.items():
            renderer = Renderer(
                lambda address, source=source: self.link(source, address),
                lambda address, words, source=source: self.link_words(source, address, words),
            )
            body = renderer.page(read(source))
            self.add_to_index(name, self.title(source), renderer.headings)
            pages[name] = PAGE.format(
                title=html.escape(self.title(source)),
                menu=self.menu(groups, source),
                body=body,
                contents=contents(renderer.headings),
                neighbours=self.neighbours(order, source),
            )
        return pages

    def add_to_index(self, name, title, headings):
        for heading in headings:
            words = re.sub(r"\s+", " ", " ".join(heading.body))[:WORDS_MAX]
            if not heading.text and not words:
                continue
            anchor = f"#{heading.anchor}" if heading.level > 1 else ""
            self.index.append([name + anchor, title, heading.text, words])

    def neighbours(self, order, source):
        if source not in order:
            return ""
        at, out = order.index(source), []
        for step, word in ((-1, "Previous"), (1, "Next")):
            if 0 <= at + step < len(order):
                other = order[at + step]
                out.append(
                    f'<a href="{self.names[other]}"><small>{word}</small>'
                    f" {html.escape(self.title(other))}</a>"
                )
        return "".join(out)

    def write(self):
        pages = self.build()
        os.makedirs(os.path.join(self.out, "images"), exist_ok=True)
        for name, text in pages.items():
            self.put(name, text)
        index = json.dumps(self.index, ensure_ascii=False, separators=(",", ":"))
        # "<" cannot end the script that holds the index.
        self.put("search-index.js", "window.billowDocs=" + index.replace("<", "\\u003c") + ";\n")
        for name in ("site.css", "site.js", "theme.js"):
            shutil.copyfile(os.path.join(HERE, name), os.path.join(self.out, name))
        for source, name in self.images.items():
            shutil.copyfile(os.path.join(ROOT, source), os.path.join(self.out, name))
        return pages

    def put(self, name, text):
        with open(os.path.join(self.out, name), "w", encoding="utf-8") as f:
            f.write(text)


def contents(headings):
    """The sections of a page, if there are several."""
    shown = [h for h in headings if h.level in (2, 3) and h.text]
    if len(shown) < 2:
        return ""
    rows = "".join(
        f'<li class="level{h.level}"><a'
        f' href="#{html.escape(h.anchor)}">{html.escape(h.text)}</a></li>'
        for h in shown
    )
    return f"<h2>On this page</h2><ul>{rows}</ul>"


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/docs-site")
    site = Site(out)
    pages = site.write()
    for broken in site.broken:
        print(f"no such file: {broken}", file=sys.stderr)
    print(f"{len(pages)} pages, {len(site.index)} sections in the search: {out}/index.html")


if __name__ == "__main__":
    main()
