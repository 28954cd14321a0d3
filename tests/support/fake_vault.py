"""HashiCorp Vault's KV version 2 for tests, on loopback. It answers as the real one does: by token
and namespace, with 403 for paths outside the token's policy, 404 with a document for versions that
were deleted, 503 while it is sealed. Requests that a correct client never sends are kept."""
import time

from cloud_server import Answer, CloudServer


class FakeVault(CloudServer):
    def __init__(self, certificate=None):
        super().__init__(certificate)
        self.tokens = {"hvs.good": ("secret/data/",)}  # which paths each may read
        self.namespace = ""
        self.sealed = False
        self.secrets = {}  # "MOUNT/PATH" -> dict, or None: its last version was deleted
        self.mistakes = []
        self.lives = {}  # token -> seconds for which it is renewed; others live for an hour
        self.ends = {}  # token -> when it ends
        self.renewals = 0

    def let_expire(self, token, seconds):
        """From now on the token lives for so long, and can be renewed."""
        self.lives[token] = seconds
        self.ends[token] = time.time() + seconds

    def asked_for(self):
        """The paths of secrets that were asked for."""
        return [r.path for r in self.requests if "/data/" in r.path]

    def token_itself(self, token, path):
        left = int(self.ends.get(token, time.time() + 3600) - time.time())
        if path == "auth/token/renew-self":
            self.renewals += 1
            self.let_expire(token, self.lives[token])
            return Answer(200, {"auth": {"lease_duration": self.lives[token], "renewable": True}})
        data = {"display_name": "token-billow", "ttl": left, "renewable": token in self.lives}
        return Answer(200, {"data": {**data, "creation_ttl": self.lives.get(token, 3600)}})

    def serve(self, request):
        renewal = request.path == "/v1/auth/token/renew-self"
        if request.method != ("POST" if renewal else "GET") or not request.path.startswith("/v1/"):
            self.mistakes.append(repr(request))
            return Answer(405, {"errors": ["unsupported operation"]})
        if request.headers.get("x-vault-request") != "true":
            self.mistakes.append(f"no X-Vault-Request: {request!r}")
        if self.sealed:
            return Answer(503, {"errors": ["Vault is sealed"]})
        denied = Answer(403, {"errors": ["1 error occurred:\n\t* permission denied\n\n"]})
        token = request.headers.get("x-vault-token", "")
        if (
            token not in self.tokens
            or self.ends.get(token, time.time() + 1) < time.time()
            or request.headers.get("x-vault-namespace", "") != self.namespace
        ):
            return denied
        path = request.path[len("/v1/") :]
        if path.startswith("auth/token/"):
            return self.token_itself(token, path)
        if not path.startswith(self.tokens[token]):
            return denied
        mount, _, name = path.partition("/data/")
        if f"{mount}/{name}" not in self.secrets:
            return Answer(404, {"errors": []})
        data = self.secrets[f"{mount}/{name}"]
        meta = {"version": 3, "destroyed": False, "deletion_time": "" if data else "2024-01-01"}
        return Answer(200 if data else 404, {"data": {"data": data, "metadata": meta}})
