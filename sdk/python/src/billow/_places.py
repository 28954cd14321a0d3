"""Where data sets are: directories that all workers see, and S3 stores.

Both offer the same few operations; `create` and `put_new` are those that the guarantee of
`_shards` rests on. Standard library only: this file travels with the workers of `billow map`.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import hmac
import http.client
import os
import tempfile
import time
import urllib.parse
import uuid
import xml.etree.ElementTree
from typing import IO, Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

OWN = ".billow-map/"  # plan, claims and failures, below the place of the results
PIECE = 1 << 20
RETRY_STATUS = (408, 425, 429, 500, 502, 503, 504)


class Trouble(Exception):
    """What keeps a shard from its result."""


class Folder:
    """A directory that all workers see."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.text = self.root

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def names(self) -> Set[str]:
        found = set()
        for directory, _, files in os.walk(self.root):
            for each in files:
                found.add(os.path.relpath(os.path.join(directory, each), self.root))
        return found

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def fetch(self, name: str) -> str:
        return self.path(name)

    def get(self, name: str) -> Optional[Tuple[bytes, str]]:
        """(content, tag); the tag changes with every writing."""
        try:
            with open(self.path(name), "rb") as file:
                info = os.fstat(file.fileno())
                return file.read(), f"{info.st_ino}.{info.st_mtime_ns}"
        except FileNotFoundError:
            return None

    def _part(self, name: str) -> str:
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.makedirs(self.path(OWN), exist_ok=True)
        return self.path(f"{OWN}{uuid.uuid4().hex}.part")

    def scratch(self) -> str:
        """A new file beside the results, so that linking it costs nothing."""
        return self._part(OWN + "x")

    def create(self, name: str, file: str) -> bool:
        """The content of `file` under this name, unless it exists. Takes `file` away."""
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        fd = os.open(file, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        try:
            os.link(file, self.path(name))
            return True
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            if self.exists(name):
                return False
            os.replace(file, self.path(name))
            return True
        finally:
            if os.path.exists(file):
                os.unlink(file)

    def put(self, name: str, content: bytes) -> None:
        part = self._part(name)
        with open(part, "wb") as file:
            file.write(content)
        os.replace(part, self.path(name))

    def put_new(self, name: str, content: bytes) -> bool:
        part = self._part(name)
        with open(part, "wb") as file:
            file.write(content)
        return self.create(name, part)

    def take(self, name: str, tag: str) -> bool:
        """Removes a file that still has this tag; of several callers one succeeds."""
        found = self.get(name)
        if found is None or found[1] != tag:
            return False
        try:
            os.rename(self.path(name), self._part(name) + ".gone")
        except FileNotFoundError:
            return False
        return True

    def delete(self, name: str) -> None:
        try:
            os.unlink(self.path(name))
        except FileNotFoundError:
            pass

    def clean(self) -> None:
        """Removes what killed workers left half-written an hour ago or earlier."""
        for each in glob.glob(self.path(OWN) + "*.part*"):
            try:
                if time.time() - os.stat(each).st_mtime > 3600:
                    os.unlink(each)
            except OSError:
                pass


class Bucket:
    """Objects below a prefix of an S3 store. Keys and addresses come from the usual variables."""

    def __init__(self, url: str) -> None:
        self.text = url.rstrip("/")
        rest = url[len("s3://") :]
        self.bucket, _, prefix = rest.partition("/")
        self.prefix = prefix.rstrip("/") + "/" if prefix.strip("/") else ""
        variable = os.environ.get
        self.region = variable("AWS_REGION") or variable("AWS_DEFAULT_REGION") or "us-east-1"
        self.key, self.secret = variable("AWS_ACCESS_KEY_ID", ""), variable(
            "AWS_SECRET_ACCESS_KEY", ""
        )
        self.session = variable("AWS_SESSION_TOKEN", "")
        given = variable("AWS_ENDPOINT_URL_S3") or variable("AWS_ENDPOINT_URL") or ""
        amazon = f"https://{self.bucket}.s3.{self.region}.amazonaws.com"
        self.base = urllib.parse.urlsplit(given or amazon)
        self.above = f"/{self.bucket}" if given else ""

    def _sign(
        self, method: str, path: str, query: str, digest: str, headers: Dict[str, str]
    ) -> None:
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers.update({"Host": self.base.netloc, "x-amz-date": now})
        headers["x-amz-content-sha256"] = digest
        if self.session:
            headers["x-amz-security-token"] = self.session
        if not self.key:
            return
        signed = sorted(
            (name.lower(), value)
            for name, value in headers.items()
            if name.lower() == "host" or name.lower().startswith("x-amz-")
        )
        names = ";".join(name for name, _ in signed)
        lines = "".join(f"{name}:{value}\n" for name, value in signed)
        asked = "\n".join((method, path, query, lines, names, digest))
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        text = "\n".join(
            ("AWS4-HMAC-SHA256", now, scope, hashlib.sha256(asked.encode()).hexdigest())
        )
        secret = ("AWS4" + self.secret).encode()
        for part in (now[:8], self.region, "s3", "aws4_request"):
            secret = hmac.new(secret, part.encode(), "sha256").digest()
        made = hmac.new(secret, text.encode(), "sha256").hexdigest()
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, SignedHeaders={names},"
            f" Signature={made}"
        )

    def call(
        self,
        method: str,
        name: str = "",
        query: Optional[Dict[str, str]] = None,
        body: bytes = b"",
        file: Optional[str] = None,
        more: Optional[Dict[str, str]] = None,
        into: Optional[IO[bytes]] = None,
    ) -> Tuple[int, Dict[str, str], bytes]:
        path = urllib.parse.quote(self.above + "/" + (self.prefix + name if name else ""))
        given = sorted((query or {}).items())
        asked = "&".join(
            f"{urllib.parse.quote(a, safe='-_.~')}={urllib.parse.quote(b, safe='-_.~')}"
            for a, b in given
        )
        total = hashlib.sha256(body)
        if file:
            with open(file, "rb") as whole:
                for piece in iter(lambda: whole.read(PIECE), b""):
                    total.update(piece)
        problem: Any = None
        for attempt in range(4):
            time.sleep(attempt * 0.5)
            headers = dict(more or {})
            self._sign(method, path, asked, total.hexdigest(), headers)
            kind = (
                http.client.HTTPSConnection
                if self.base.scheme == "https"
                else http.client.HTTPConnection
            )
            connection = kind(self.base.netloc, timeout=120)
            opened = open(file, "rb") if file else None
            try:
                if opened is not None:
                    headers["Content-Length"] = str(os.stat(opened.fileno()).st_size)
                content: Any = opened if opened is not None else body
                connection.request(
                    method, path + ("?" + asked if asked else ""), content or None, headers
                )
                answer = connection.getresponse()
                got = {name.lower(): value for name, value in answer.getheaders()}
                if answer.status in RETRY_STATUS:
                    problem = f"{answer.status} {answer.read(500).decode('utf-8', 'replace')}"
                    continue
                if into is not None and answer.status == 200:
                    into.seek(0)
                    into.truncate()
                    while True:
                        got_now: bytes = answer.read(PIECE)
                        if not got_now:
                            break
                        into.write(got_now)
                    return answer.status, got, b""
                return answer.status, got, answer.read()
            except (OSError, http.client.HTTPException) as failed:
                problem = failed
            finally:
                connection.close()
                if opened is not None:
                    opened.close()
        raise Trouble(f"{method} {self.text}/{name}: {problem}")

    def _good(self, name: str, answer: Tuple[int, Dict[str, str], bytes]) -> bytes:
        if answer[0] >= 300:
            said = answer[2].decode("utf-8", "replace")[:300]
            raise Trouble(f"{self.text}/{name}: {answer[0]} {said}")
        return answer[2]

    def listing(self) -> Iterator[Tuple[str, int]]:
        token = ""
        while True:
            query = {"list-type": "2", "prefix": self.prefix}
            if token:
                query["continuation-token"] = token
            page = xml.etree.ElementTree.fromstring(
                self._good("", self.call("GET", "", query)).decode()
            )
            space = page.tag[: page.tag.find("}") + 1]
            for each in page.iter(space + "Contents"):
                key = each.findtext(space + "Key", "")
                yield key[len(self.prefix) :], int(each.findtext(space + "Size", "0"))
            token = page.findtext(space + "NextContinuationToken", "")
            if not token:
                return

    def names(self) -> Set[str]:
        return {name for name, _ in self.listing()}

    def exists(self, name: str) -> bool:
        return self.call("HEAD", name)[0] == 200

    def fetch(self, name: str) -> str:
        with tempfile.NamedTemporaryFile(prefix="billow-map-", delete=False) as file:
            self._good(name, self.call("GET", name, into=file))
            return file.name

    def get(self, name: str) -> Optional[Tuple[bytes, str]]:
        answer = self.call("GET", name)
        if answer[0] == 404:
            return None
        return self._good(name, answer), answer[1].get("etag", "")

    def scratch(self) -> str:
        fd, path = tempfile.mkstemp(prefix="billow-map-")
        os.close(fd)
        return path

    def _new(self, name: str, body: bytes, file: Optional[str]) -> bool:
        # Stores that do not know the condition overwrite with an object that is as whole.
        if self.exists(name):
            return False
        answer = self.call("PUT", name, None, body, file, {"If-None-Match": "*"})
        if answer[0] in (409, 412):
            return False
        self._good(name, answer)
        return True

    def create(self, name: str, file: str) -> bool:
        try:
            return self._new(name, b"", file)
        finally:
            os.unlink(file)

    def put(self, name: str, content: bytes) -> None:
        self._good(name, self.call("PUT", name, None, content))

    def put_new(self, name: str, content: bytes) -> bool:
        return self._new(name, content, None)

    def take(self, name: str, tag: str) -> bool:
        found = self.get(name)
        if found is None or found[1] != tag:
            return False
        self.delete(name)
        return True

    def delete(self, name: str) -> None:
        self.call("DELETE", name)

    def clean(self) -> None:
        pass


Place = Any  # Folder or Bucket


def place_of(text: str) -> Place:
    return Bucket(text) if text.startswith("s3://") else Folder(text)


class Shard(NamedTuple):
    source: str  # place of the input
    name: str  # below it
    size: int
    result: str  # below the place of the results


def _fixed(pattern: str) -> str:
    """The directory in front of the first wildcard."""
    parts = pattern.split("/")
    kept = []
    for part in parts[:-1]:
        if any(each in part for each in "*?["):
            break
        kept.append(part)
    return "/".join(kept)


def _matches(name: str, pattern: str) -> bool:
    """As for files: `*` does not cross a slash, `**` does."""
    if "**" in pattern:
        return fnmatch.fnmatch(name, pattern.replace("**/", "*"))
    a, b = name.split("/"), pattern.split("/")
    return len(a) == len(b) and all(fnmatch.fnmatch(x, y) for x, y in zip(a, b))


def find_shards(patterns: List[str]) -> List[Shard]:
    """The files that the patterns name, each under the name that its result gets."""
    found: Dict[str, Shard] = {}

    def add(root: str, name: str, size: int) -> None:
        other = found.get(name)
        if other is not None and other.source != root:
            raise Trouble(
                f"{other.source}/{name} and {root}/{name} would have the same result {name};"
                " use one pattern for both, such as 'data/**/*.jsonl'"
            )
        found[name] = Shard(root, name, size, name)

    for pattern in patterns:
        root = _fixed(pattern)
        if pattern.startswith("s3://"):
            bucket = Bucket(root)
            inside = pattern[len(root) :].lstrip("/")
            for name, size in bucket.listing():
                if _matches(name, inside) and not name.endswith("/"):
                    add(root, name, size)
            continue
        root = os.path.abspath(root or ("/" if pattern.startswith("/") else "."))
        for path in glob.glob(pattern, recursive=True):
            if os.path.isfile(path):
                name = os.path.relpath(os.path.abspath(path), root)
                add(root, name, os.path.getsize(path))
    return [found[name] for name in sorted(found)]
