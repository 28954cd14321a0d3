"""Markdown to HTML, as much of it as the documentation uses: headings, paragraphs, lists, tables, quotes, fenced
code, images, links, bold, italics and code.

Everything that is not Markdown of this subset is text: HTML in a page is escaped, comments are dropped, and links
lead only to http, https, mailto and relative addresses. So a page cannot bring scripts into the site.
"""
import dataclasses
import html
import re

HEADING = re.compile(r"^(#{1,6}) +(.+?)\s*#*\s*$")
FENCE = re.compile(r"^(\s*)```\s*([\w-]*)\s*$")
ITEM = re.compile(r"^(\s*)([-*]|\d+\.) +(.*)$")
RULE = re.compile(r"^\s*\|?\s*:?-{3,}:?\s*(\|\s*:?-{3,}:?\s*)*\|?\s*$")
SAFE = re.compile(r"^(https?:|mailto:|[^:]*$|[^:]*[/#?][^:]*:)", re.I)
NESTING_MAX = 16  # deeper lists and quotes are text


@dataclasses.dataclass
class Heading:
    level: int
    anchor: str
    text: str  # without markup
    body: list = dataclasses.field(default_factory=list)  # lines of text below it, for the search


def plain(text):
    """A line without its markup."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[`*]", "", text).replace("\\|", "|").strip()


def anchor_of(text, taken):
    """The anchor of a heading, as GitHub makes it."""
    anchor = re.sub(r"[^\w\- ]", "", plain(text).lower()).replace(" ", "-") or "section"
    number = taken.get(anchor, 0)
    taken[anchor] = number + 1
    return f"{anchor}-{number}" if number else anchor


def safe_address(address):
    return bool(SAFE.match(address)) and not re.search(r"[\x00-\x20]", address)


class Renderer:
    """One page. `link` maps an address of the source to the one in the site, or to None for none; `name` gives the
    words of a link that names only a file."""

    def __init__(self, link=lambda address: address, name=lambda address, words: words):
        self.link, self.name = link, name
        self.headings = [Heading(1, "", "")]
        self.taken = {}

    def page(self, text):
        text = re.sub(r"<!--.*?-->\n?", "", text.replace("\r\n", "\n"), flags=re.S)
        return self.blocks(text.expandtabs(4).split("\n"), 0)

    # ---- blocks
    def blocks(self, lines, depth):
        out, at = [], 0
        while at < len(lines):
            line = lines[at]
            if not line.strip():
                at += 1
            elif FENCE.match(line):
                at = self.fenced(lines, at, out)
            elif HEADING.match(line) and depth == 0:
                self.heading(HEADING.match(line), out)
                at += 1
            elif "|" in line and at + 1 < len(lines) and RULE.match(lines[at + 1]):
                at = self.table(lines, at, out)
            elif ITEM.match(line) and depth < NESTING_MAX:
                at = self.items(lines, at, out, depth)
            elif line.lstrip().startswith("> ") and depth < NESTING_MAX:
                at = self.quote(lines, at, out, depth)
            else:
                at = self.paragraph(lines, at, out, depth)
        return "\n".join(out)

    def note(self, text):
        """Keeps text for the search, under the heading it belongs to."""
        if text.strip():
            self.headings[-1].body.append(text.strip())

    def heading(self, found, out):
        level, text = len(found[1]), found[2]
        heading = Heading(level, anchor_of(text, self.taken), plain(text))
        self.headings.append(heading)
        out.append(
            f'<h{level} id="{html.escape(heading.anchor)}">{self.inline(text)}<a class="here"'
            f' href="#{html.escape(heading.anchor)}" aria-label="Link to this'
            f' section">#</a></h{level}>'
        )

    def fenced(self, lines, at, out):
        found = FENCE.match(lines[at])
        indent, language = len(found[1]), found[2] or "text"
        end = at + 1
        while end < len(lines) and lines[end].strip() != "```":
            end += 1
        code = "\n".join(
            line[min(indent, len(line) - len(line.lstrip())) :] for line in lines[at + 1 : end]
        )
        self.note(code)
        shown = console(code) if language == "console" else html.escape(code)
        out.append(
            f'<div class="code" data-language="{html.escape(language)}"><pre'
            f' tabindex="0"><code>{shown}</code></pre></div>'
        )
        return end + 1

    def table(self, lines, at, out):
        header = cells(lines[at])
        empty = not any(header)
        out.append('<div class="table"><table>')
        if not empty:
            row = "".join(f'<th scope="col">{self.inline(c)}</th>' for c in header)
            out.append(f"<thead><tr>{row}</tr></thead>")
        out.append("<tbody>")
        end = at + 2
        while end < len(lines) and "|" in lines[end] and lines[end].strip():
            row = (cells(lines[end]) + [""] * len(header))[: max(1, len(header))]
            self.note(" · ".join(plain(c) for c in row))
            out.append("<tr>" + "".join(f"<td>{self.inline(c)}</td>" for c in row) + "</tr>")
            end += 1
        out.append("</tbody></table></div>")
        return end

    def items(self, lines, at, out, depth):
        """A list: each item with the lines that are indented below it."""
        indent = len(ITEM.match(lines[at])[1])
        ordered = ITEM.match(lines[at])[2][0].isdigit()
        out.append("<ol>" if ordered else "<ul>")
        while at < len(lines):
            found = ITEM.match(lines[at])
            if not found or len(found[1]) != indent or found[2][0].isdigit() != ordered:
                break
            inside, at = [found[3]], at + 1
            margin = indent + len(found[2]) + 1
            while at < len(lines):
                line = lines[at]
                if line.strip() and len(line) - len(line.lstrip()) <= indent:
                    break
                if not line.strip() and not (
                    at + 1 < len(lines) and lines[at + 1].startswith(" " * (indent + 1))
                ):
                    break
                inside.append(line[min(margin, len(line) - len(line.lstrip())) :])
                at += 1
            out.append("<li>" + self.blocks(inside, depth + 1) + "</li>")
        out.append("</ol>" if ordered else "</ul>")
        return at

    def quote(self, lines, at, out, depth):
        inside = []
        while at < len(lines) and lines[at].lstrip().startswith(">"):
            inside.append(lines[at].lstrip()[1:].removeprefix(" "))
            at += 1
        out.append("<blockquote>" + self.blocks(inside, depth + 1) + "</blockquote>")
        return at

    def paragraph(self, lines, at, out, depth):
        text = [lines[at].strip()]
        at += 1
        while at < len(lines) and lines[at].strip() and not self.begins_block(lines, at):
            text.append(lines[at].strip())
            at += 1
        whole = " ".join(text)
        self.note(plain(whole))
        alone = depth > 0 and at >= len(lines)
        out.append(self.inline(whole) if alone else f"<p>{self.inline(whole)}</p>")
        return at

    @staticmethod
    def begins_block(lines, at):
        line = lines[at]
        return bool(
            FENCE.match(line)
            or HEADING.match(line)
            or ITEM.match(line)
            or ("|" in line and at + 1 < len(lines) and RULE.match(lines[at + 1]))
        )

    # ---- inside a line
    def inline(self, text):
        """Code is cut out before links and emphasis are looked for, and put back at the end."""
        codes = []

        def keep(found):
            codes.append(f"<code>{html.escape(found[1])}</code>")
            return f"\0{len(codes) - 1}\0"

        text = re.sub(r"`([^`]+)`", keep, text.replace("\0", ""))
        return re.sub("\0(\\d+)\0", lambda found: codes[int(found[1])], self.links(text))

    def links(self, text):
        """Links and images, and emphasis in what lies between them."""
        out, at = [], 0
        for found in re.finditer(r"(!?)\[([^\[\]]*)\]\(([^()\s]+)\)", text):
            out.append(emphasis(text[at : found.start()]))
            at = found.end()
            words, address = found[2], re.sub("\0\\d+\0", "", found[3])
            target = self.link(address) if safe_address(address) else None
            if target is None:
                out.append(emphasis(words))
            elif found[1]:
                words = html.escape(re.sub("\0\\d+\0", "", words))
                out.append(f'<img src="{html.escape(target)}" alt="{words}" loading="lazy">')
            else:
                far = ' rel="noopener noreferrer"' if re.match(r"https?:", target) else ""
                words = emphasis(self.name(address, words))
                out.append(f'<a href="{html.escape(target)}"{far}>{words}</a>')
        return "".join(out) + emphasis(text[at:])


def emphasis(text):
    text = html.escape(text.replace("\\|", "|"), quote=False)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"(?<![\w*])\*([^*\s](?:[^*]*[^*\s])?)\*(?![\w*])", r"<em>\1</em>", text)


def cells(line):
    """The cells of a table row; `|` inside code and after a backslash does not separate."""
    out, now, code = [], "", False
    line = line.strip().removeprefix("|")
    if line.endswith("|") and not line.endswith("\\|"):
        line = line[:-1]
    for i, c in enumerate(line):
        if c == "`":
            code = not code
        if c == "|" and not code and (i == 0 or line[i - 1] != "\\"):
            out.append(now.strip())
            now = ""
        else:
            now += c
    return out + [now.strip()]


def console(code):
    """Commands stand out from their output."""
    shown = []
    for line in code.split("\n"):
        if line.startswith("$ "):
            shown.append(f'<span class="prompt">$ </span><b>{html.escape(line[2:])}</b>')
        else:
            shown.append(html.escape(line))
    return "\n".join(shown)
