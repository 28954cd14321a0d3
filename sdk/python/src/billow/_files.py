"""Trees of files by content, as the head and its nodes know them (see docs/files.md).

A tree is a list of directories, files and links with the SHA-256 of each piece of 4 MiB; its own
digest names it. Only pieces that the head does not have are sent.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import time
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Tuple

from ._client import Client
from ._errors import ApiError, ConnectionFailed, Error

MAGIC = b"billow-tree-1\n"
PIECE_BYTES = 4 << 20
PACK_BYTES_WANTED = 5 << 20
LIST_BYTES_MAX = 7 << 20
ENTRY = struct.Struct("<cHQH")
SAMPLES = (".example", ".sample", ".template", ".dist")
SECRET_NAMES = frozenset(
    ".env .envrc .netrc .pgpass .git-credentials .pypirc .htpasswd credentials.json id_rsa id_dsa"
    " id_ecdsa id_ed25519".split()
)
SECRET_ENDINGS = (".pem", ".key", ".p12", ".pfx", ".kdbx")
SECRET_PATHS = (".aws/credentials", ".docker/config.json", ".kube/config")


def looks_secret(path: str) -> bool:
    """Names whose content is usually a secret; the same as for the command line."""
    name = path.rsplit("/", 1)[-1]
    if name.endswith(SAMPLES):
        return False
    return (
        name in SECRET_NAMES
        or name.endswith(SECRET_ENDINGS)
        or name.startswith(".env.")
        or path.endswith(SECRET_PATHS)
    )


@dataclass
class Entry:
    path: str
    kind: str  # "d", "f" or "l"
    mode: int = 0o644
    size: int = 0
    target: str = ""
    pieces: List[bytes] = field(default_factory=list)


@dataclass
class Tree:
    """Files to send: their list, and where the content of each piece is."""

    entries: Dict[str, Entry] = field(default_factory=dict)
    content: Dict[bytes, "tuple[str, int, int] | bytes"] = field(default_factory=dict)
    left_out: List[str] = field(default_factory=list)

    def _above(self, path: str) -> None:
        above = os.path.dirname(path)
        if above and above not in self.entries:
            self._above(above)
            self.entries[above] = Entry(above, "d", 0o755)

    def add_directory(self, path: str) -> None:
        self._above(path)
        self.entries.setdefault(path, Entry(path, "d", 0o755))

    def add_bytes(self, path: str, content: bytes, mode: int = 0o644) -> None:
        entry = Entry(path, "f", mode, len(content))
        for at in range(0, len(content), PIECE_BYTES):
            piece = content[at : at + PIECE_BYTES]
            digest = hashlib.sha256(piece).digest()
            entry.pieces.append(digest)
            self.content[digest] = piece
        self._above(path)
        self.entries[path] = entry

    def add_file(self, path: str, source: str) -> None:
        status = os.lstat(source)
        if stat.S_ISLNK(status.st_mode):
            entry = Entry(path, "l", 0o777, 0, os.readlink(source))
        elif stat.S_ISREG(status.st_mode):
            entry = Entry(path, "f", stat.S_IMODE(status.st_mode) & 0o777)
            with open(source, "rb") as file:
                while True:
                    piece = file.read(PIECE_BYTES)
                    if not piece:
                        break
                    digest = hashlib.sha256(piece).digest()
                    entry.pieces.append(digest)
                    self.content[digest] = (source, entry.size, len(piece))
                    entry.size += len(piece)
        else:
            return
        self._above(path)
        self.entries[path] = entry

    def encode(self) -> bytes:
        # A directory comes before its content, whatever characters its name has.
        ordered = sorted(self.entries.values(), key=lambda entry: entry.path.split("/"))
        out = [MAGIC, struct.pack("<I", len(ordered))]
        for entry in ordered:
            path, target = os.fsencode(entry.path), os.fsencode(entry.target)
            out.append(ENTRY.pack(entry.kind.encode(), entry.mode, entry.size, len(path)))
            out += [path, struct.pack("<H", len(target)), target, *entry.pieces]
        encoded = b"".join(out)
        if len(encoded) > LIST_BYTES_MAX:
            raise Error(
                f"too many files ({len(ordered)}) to follow a job",
                "list files that the job does not need in .billowignore",
            )
        return encoded

    def piece(self, digest: bytes) -> bytes:
        where = self.content[digest]
        if isinstance(where, bytes):
            return where
        path, offset, size = where
        with open(path, "rb") as file:
            file.seek(offset)
            piece = file.read(size)
        if hashlib.sha256(piece).digest() != digest:
            raise Error(f"{path} changed while it was read", "try again when nothing writes to it")
        return piece


def upload(client: Client, tree: Tree) -> str:
    """Sends what the head does not have, and returns the tree's digest."""
    encoded = tree.encode()
    octets = {"Content-Type": "application/octet-stream"}
    for _ in range(3):
        missing = client.octets("POST", "/v1/files/trees", encoded, octets)
        if not missing:
            return hashlib.sha256(encoded).hexdigest()
        pack: List[bytes] = []
        size = 0
        for at in range(0, len(missing), 32):
            digest = missing[at : at + 32]
            piece = tree.piece(digest)
            if pack and size + len(piece) > PACK_BYTES_WANTED:
                _send_pack(client, pack)
                pack, size = [], 0
            pack += [digest, struct.pack("<Q", len(piece)), piece]
            size += len(piece) + 40
        if pack:
            _send_pack(client, pack)
    raise Error(
        "the head does not store the uploaded files",
        "check whether its disk is full: billow status",
    )


def _send_pack(client: Client, pack: List[bytes]) -> None:
    octets = {"Content-Type": "application/octet-stream"}
    for attempt in range(4):
        try:
            client.octets("POST", "/v1/files/packs", list(pack), octets)
            return
        except (ConnectionFailed, ApiError) as problem:
            away = not isinstance(problem, ApiError) or problem.status in (503, 504)
            if attempt == 3 or not away:
                raise
            time.sleep(0.2 * (attempt + 1))


# ---- the working directory


def _pattern(text: str) -> "re.Pattern[str]":
    """A pattern of .gitignore as a regular expression on the whole path."""
    out, at = "", 0
    while at < len(text):
        char = text[at]
        if text.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif text.startswith("**", at):
            out, at = out + ".*", at + 2
        elif char == "*":
            out, at = out + "[^/]*", at + 1
        elif char == "?":
            out, at = out + "[^/]", at + 1
        elif char == "[" and "]" in text[at + 2 :]:
            end = text.index("]", at + 2)
            inside = text[at + 1 : end].replace("\\", "\\\\")
            out += "[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]"
            at = end + 1
        else:
            if char == "\\" and at + 1 < len(text):
                at += 1
                char = text[at]
            out, at = out + re.escape(char), at + 1
    return re.compile(out + r"\Z", re.S)


@dataclass
class _Rule:
    base: str
    pattern: "re.Pattern[str]"
    anchored: bool
    directories_only: bool
    negated: bool


class Ignore:
    """The rules of .gitignore and .billowignore; the last one that fits decides."""

    def __init__(self) -> None:
        self._rules: List[_Rule] = []

    def add(self, directory: str, text: str) -> None:
        for line in text.splitlines():
            line = line.rstrip()
            if not line or line.startswith("#"):
                continue
            negated = line.startswith("!")
            line = line[1:] if negated else line
            directories_only = line.endswith("/")
            line = line.rstrip("/")
            if line:
                self._rules.append(
                    _Rule(
                        directory + "/" if directory else "",
                        _pattern(line.lstrip("/")),
                        "/" in line,
                        directories_only,
                        negated,
                    )
                )

    def verdict(self, path: str, is_directory: bool) -> Optional[bool]:
        """True: left out; False: explicitly taken; None: no rule."""
        for rule in reversed(self._rules):
            if rule.directories_only and not is_directory or not path.startswith(rule.base):
                continue
            rest = path[len(rule.base) :]
            if rule.pattern.match(rest if rule.anchored else rest.rsplit("/", 1)[-1]):
                return not rule.negated
        return None


def _stays_inside(path: str, target: str) -> bool:
    """Whether a link leads to a place in its own tree; the head refuses the others."""
    depth, named = path.count("/"), False
    for name in target.split("/"):
        if name == "..":
            depth -= 1
            if named or depth < 0:
                return False
        elif name not in ("", "."):
            named = True
    return not target.startswith("/")


def scan(root: str) -> Tree:
    """A directory as a tree, without what its ignore files, and secrets' names, leave out."""
    tree, ignore = Tree(), Ignore()

    def visit(directory: str) -> None:
        for name in (".gitignore", ".billowignore"):
            try:
                with open(os.path.join(root, directory, name), encoding="utf-8") as file:
                    ignore.add(directory, file.read())
            except (OSError, UnicodeDecodeError):
                pass
        for entry in sorted(os.scandir(os.path.join(root, directory)), key=lambda e: e.name):
            path = f"{directory}/{entry.name}" if directory else entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            verdict = ignore.verdict(path, is_directory)
            if entry.name == ".git" or verdict:
                continue
            if verdict is None and not is_directory and looks_secret(path):
                tree.left_out.append(path)
                continue
            if entry.is_symlink() and not _stays_inside(path, os.readlink(entry.path)):
                continue
            if is_directory:
                tree.add_directory(path)
                visit(path)
            else:
                tree.add_file(path, entry.path)

    visit("")
    return tree


# ---- what comes back


def read_tree(client: Client, digest: str) -> List[Entry]:
    """The list of a tree. Paths that lead out of a directory are refused."""
    data = client.octets("GET", f"/v1/files/trees/{digest}")
    if hashlib.sha256(data).hexdigest() != digest or not data.startswith(MAGIC):
        raise Error("the list of files does not match its digest")
    try:
        return list(_entries(data))
    except (struct.error, IndexError):
        raise Error("the list of files is truncated") from None


def _entries(data: bytes) -> Iterator[Entry]:
    at = len(MAGIC) + 4
    for _ in range(struct.unpack_from("<I", data, len(MAGIC))[0]):
        kind, mode, size, length = ENTRY.unpack_from(data, at)
        at += ENTRY.size
        path = os.fsdecode(data[at : at + length])
        at += length
        (length,) = struct.unpack_from("<H", data, at)
        target = os.fsdecode(data[at + 2 : at + 2 + length])
        at += 2 + length
        names = path.split("/")
        if path.startswith("/") or any(name in ("", ".", "..") for name in names):
            raise Error(f"the list of files contains an unsafe path: {path!r}")
        if target.startswith("/") or ".." in target.split("/"):
            raise Error(f"the list of files contains an unsafe link: {path!r}")
        pieces = -(-size // PIECE_BYTES) if kind == b"f" else 0
        digests = [data[at + 32 * i : at + 32 * (i + 1)] for i in range(pieces)]
        at += 32 * pieces
        if at > len(data):
            raise IndexError(at)
        yield Entry(path, kind.decode(), mode, size, target, digests)


def fetch_file(client: Client, digest: str, entry: Entry) -> Iterator[bytes]:
    """The content of one file of a tree, piece by piece, verified."""
    for piece in entry.pieces:
        pack = client.octets("POST", f"/v1/files/pieces?tree={digest}", piece)
        content = pack[40:]
        if hashlib.sha256(content).digest() != piece:
            raise Error(f"{entry.path} was damaged in transit", "try again")
        yield content


def download(client: Client, digest: str, directory: str) -> List[str]:
    """Writes a tree below a directory; returns the paths of its files."""
    written: List[str] = []
    links: List[Tuple[str, str]] = []
    os.makedirs(directory, exist_ok=True)
    for entry in read_tree(client, digest):
        where = os.path.join(directory, entry.path)
        if entry.kind == "d":
            os.makedirs(where, exist_ok=True)
        elif entry.kind == "l":
            links.append((entry.target, where))
        else:
            os.makedirs(os.path.dirname(where), exist_ok=True)
            part = where + ".part"
            with open(part, "wb") as file:
                for piece in fetch_file(client, digest, entry):
                    file.write(piece)
            os.chmod(part, entry.mode & 0o777)
            os.replace(part, where)
            written.append(where)
    for target, where in links:  # last, so that no file is written through one
        if os.path.islink(where):
            os.unlink(where)
        os.symlink(target, where)
    return written
