#!/usr/bin/env python3
"""Packs the site and the Markdown of its pages for the program: tools/docs/pack_site.py OUT

A line of JSON lists names, types and sizes; the contents follow. The whole is one zstd frame: by the program zstd if
it is installed, else stored without compression, which every zstd reader understands too. Screenshots stay out; a page
shows their description instead.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build_site  # noqa: E402

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
BLOCK_MAX = 128 << 10


def stored_frame(data):
    """A zstd frame of raw blocks (RFC 8878, 3.1.1): magic, a header with the size, the blocks."""
    out = [struct.pack("<IBQ", 0xFD2FB528, 0xE0, len(data))]
    for at in range(0, max(len(data), 1), BLOCK_MAX):
        block = data[at : at + BLOCK_MAX]
        last = at + BLOCK_MAX >= len(data)
        out.append(struct.pack("<I", len(block) << 3 | last)[:3] + block)
    return b"".join(out)


def compressed(data):
    zstd = shutil.which("zstd")
    if not zstd:
        return stored_frame(data)
    with tempfile.NamedTemporaryFile() as f:  # from a file, so that the frame states its size
        f.write(data)
        f.flush()
        return subprocess.run(
            [zstd, "-19", "-q", "-c", f.name], stdout=subprocess.PIPE, check=True
        ).stdout


def without_pictures(text):
    return re.sub(r'<img [^>]*alt="([^"]*)"[^>]*\.png"[^>]*>|<img [^>]*\.png"[^>]*>', r"\1", text)


def main():
    with tempfile.TemporaryDirectory() as out:
        site = build_site.Site(out)
        site.write()
        files = []
        for folder, _, names in os.walk(out):
            for name in sorted(names):
                kind = TYPES.get(os.path.splitext(name)[1])
                if not kind:
                    continue
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    text = f.read()
                if name.endswith(".html"):
                    text = without_pictures(text)
                path = os.path.relpath(os.path.join(folder, name), out)
                files.append(({"name": path, "type": kind}, text.encode()))
    pages = []
    for group, entries in site.menu_entries():
        for source, title, about in entries:
            topic = site.names[source].removesuffix(".html")
            row = {"topic": topic, "title": title, "about": about, "group": group}
            pages.append((row, build_site.read(source).encode()))
    rows = {
        "files": [{**row, "bytes": len(content)} for row, content in files],
        "pages": [{**row, "bytes": len(content)} for row, content in pages],
    }
    data = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    data += b"".join(content for _, content in files + pages)
    packed = compressed(data)
    temporary = sys.argv[1] + ".new"
    with open(temporary, "wb") as f:
        f.write(packed)
    os.replace(temporary, sys.argv[1])


if __name__ == "__main__":
    main()
