"""An OpenID provider of its own for a test: oidc-provider from npm, on loopback, and a person with a
browser who signs in there: follows redirects, keeps cookies and sends the forms of its pages."""

import html
import http.client
import json
import os
import re
import shutil
import subprocess
import urllib.parse

from ports import free_port
from rig import poll

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "oidc")


def usable():
    if not shutil.which("node"):
        return "node is not installed"
    if not os.path.exists(os.path.join(HERE, "node_modules/oidc-provider")):
        return "oidc-provider is not installed: run npm ci in tests/oidc"
    return None


class Provider:
    def __init__(self, directory, redirects=()):
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        self.people = os.path.join(directory, "people.json")
        self.log_path = os.path.join(directory, "provider.log")
        self.accounts = {}
        self.save()
        self.secret_file = os.path.join(directory, "client-secret")
        with open(self.secret_file, "w", encoding="ascii") as f:
            f.write("a secret of the client\n")
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["node", os.path.join(HERE, "provider.mjs"), str(self.port), self.people],
                env={**os.environ, "REDIRECTS": json.dumps(list(redirects))},
                stdout=log,
                stderr=log,
                cwd=HERE,
            )
        poll(lambda: "ready" in self.log() or self.process.poll() is not None, "the provider", 60)
        if self.process.poll() is not None:
            raise AssertionError(self.log())

    def log(self):
        with open(self.log_path, encoding="utf-8") as f:
            return f.read()

    def save(self):
        with open(self.people + ".new", "w", encoding="utf-8") as f:
            json.dump({"accounts": self.accounts}, f)
        os.replace(self.people + ".new", self.people)

    def person(self, name, **claims):
        self.accounts[name] = claims
        self.save()

    def close(self):
        self.process.kill()
        self.process.wait()


class Browser:
    """Follows redirects up to an address that `stop` accepts, which it does not open."""

    def __init__(self):
        self.cookies = {}
        self.seen = []

    def request(self, method, url, form=None):
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
        headers = {}
        kept = self.cookies.get(parts.netloc, {})
        if kept:
            headers["Cookie"] = "; ".join(f"{k}={v}" for k, v in kept.items())
        body = None
        if form is not None:
            body = urllib.parse.urlencode(form)
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        target = parts.path + ("?" + parts.query if parts.query else "")
        connection.request(method, target or "/", body, headers)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                pair = value.split(";")[0].split("=", 1)
                self.cookies.setdefault(parts.netloc, {})[pair[0]] = pair[1]
        location = answer.getheader("Location")
        connection.close()
        self.seen.append(url)
        return answer.status, urllib.parse.urljoin(url, location) if location else None, text

    def go(self, url, stop=lambda url: False, method="GET", form=None):
        for _ in range(30):
            status, location, text = self.request(method, url, form)
            if not location:
                return status, url, text
            if stop(location):
                return status, location, text
            method, form, url = "GET", None, location
        raise AssertionError(f"too many redirects: {self.seen[-5:]}")

    def sign_in(self, url, name, stop, user_code=""):
        """Sends the provider's forms, as this person, until `stop`; returns where it led."""
        status, at, text = self.go(url, stop)
        for _ in range(10):
            if stop(at):
                return at
            found = re.search(r"<form[^>]*action=\"([^\"]*)\"[^>]*>(.*?)</form>", text, re.S)
            if not found:
                raise AssertionError(f"no form at {at}: {status} {text[:2000]}")
            fields = {}
            for field in re.findall(r"<input[^>]*>", found.group(2)):
                key = re.search(r'name="([^"]*)"', field)
                value = re.search(r'value="([^"]*)"', field)
                if key:
                    fields[key.group(1)] = html.unescape(value.group(1)) if value else ""
            if "user_code" in fields:
                fields["user_code"] = fields["user_code"] or user_code
            if "login" in fields:
                fields.update(login=name, password="any")
            action = urllib.parse.urljoin(at, html.unescape(found.group(1)) or at)
            status, at, text = self.go(action, stop, "POST", fields)
            if "Sign-in Success" in text:
                return at
        raise AssertionError(f"the sign-in did not end: {at}")
