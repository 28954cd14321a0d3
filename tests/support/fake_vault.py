"""HashiCorp Vault's KV version 2 for tests, on loopback. It answers as the real one does: by token
and namespace, with 403 for paths outside the token's policy, 404 with a document for versions that
were deleted, 503 while it is sealed. Requests that a correct client never sends are kept."""
from cloud_server import Answer, CloudServer


class FakeVault(CloudServer):
    def __init__(self, certificate=None):
        super().__init__(certificate)
        self.tokens = {"hvs.good": ("secret/data/",)}  # which paths each may read
        self.namespace = ""
        self.sealed = False
        self.secrets = {}  # "MOUNT/PATH" -> dict, or None: its last version was deleted
        self.mistakes = []

    def serve(self, request):
        if request.method != "GET" or request.body or not request.path.startswith("/v1/"):
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
            or request.headers.get("x-vault-namespace", "") != self.namespace
        ):
            return denied
        path = request.path[len("/v1/") :]
        if path == "auth/token/lookup-self":
            return Answer(200, {"data": {"display_name": "token-billow", "ttl": 3600}})
        if not path.startswith(self.tokens[token]):
            return denied
        mount, _, name = path.partition("/data/")
        if f"{mount}/{name}" not in self.secrets:
            return Answer(404, {"errors": []})
        data = self.secrets[f"{mount}/{name}"]
        meta = {"version": 3, "destroyed": False, "deletion_time": "" if data else "2024-01-01"}
        return Answer(200 if data else 404, {"data": {"data": data, "metadata": meta}})
