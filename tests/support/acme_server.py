"""A stand-in for an ACME authority (RFC 8555), strict where clients err: each nonce counts once, every request is signed with ES256 by
its account's key for exactly its URL, names are proved before an order is finalized, and the request for a certificate must name what
was ordered. HTTP-01 is fetched from `http_port` of this machine, whatever the name; DNS-01 is read from `records`."""
import base64
import datetime
import hashlib
import http.client
import http.server
import json
import secrets
import threading

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.x509.oid import NameOID


def decode(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def thumbprint(jwk):
    members = json.dumps(
        {name: jwk[name] for name in ("crv", "kty", "x", "y")}, separators=(",", ":")
    )
    return encode(hashlib.sha256(members.encode()).digest())


class Problem(Exception):
    def __init__(self, kind, detail, status=400):
        super().__init__(detail)
        self.kind, self.detail, self.status = kind, detail, status


class Authority:
    def __init__(self, life=datetime.timedelta(days=90)):
        self.life = life
        self.http_port = 0
        self.records = {}  # DNS name → values
        self.nonces, self.accounts, self.orders, self.authorizations = set(), {}, {}, {}
        self.issued, self.problems, self.orders_at_once = [], [], 0
        self.lock = threading.RLock()
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        now = datetime.datetime.now(datetime.timezone.utc)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(self.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=3650))
            .add_extension(x509.BasicConstraints(True, None), True)
            .sign(self.key, hashes.SHA256())
        )
        authority = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                authority.handle(self)

            do_HEAD = do_POST = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def ca_pem(self):
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    # ---- requests
    def nonce(self):
        fresh = encode(secrets.token_bytes(16))
        self.nonces.add(fresh)
        return fresh

    def handle(self, request):
        headers, status, body = {}, 200, None
        try:
            with self.lock:
                if request.path == "/directory" and request.command == "GET":
                    body = {
                        name: self.url + "/" + name
                        for name in ("newNonce", "newAccount", "newOrder")
                    }
                elif request.path == "/newNonce":
                    pass
                elif request.command == "POST":
                    size = int(request.headers.get("Content-Length") or 0)
                    status, body, headers = self.post(request, request.rfile.read(size))
                else:
                    raise Problem("malformed", f"{request.command} {request.path}", 405)
        except Problem as problem:
            self.problems.append((request.path, problem.kind, problem.detail))
            status = problem.status
            body = {"type": "urn:ietf:params:acme:error:" + problem.kind, "detail": problem.detail}
            headers = {"Content-Type": "application/problem+json"}
        data = (
            body.encode() if isinstance(body, str) else json.dumps(body).encode() if body else b""
        )
        request.send_response(status)
        with self.lock:
            request.send_header("Replay-Nonce", self.nonce())
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data)

    def post(self, request, body):
        if request.headers.get("Content-Type") != "application/jose+json":
            raise Problem("malformed", "the type must be application/jose+json", 415)
        try:
            jws = json.loads(body)
            header = json.loads(decode(jws["protected"]))
            signature = decode(jws["signature"])
        except (ValueError, KeyError, TypeError) as error:
            raise Problem("malformed", f"not a JWS: {error}") from error
        if set(jws) != {"protected", "payload", "signature"}:
            raise Problem("malformed", "other members than a flattened JWS has")
        if header.get("nonce") not in self.nonces:
            raise Problem("badNonce", "this nonce is unknown or used")
        self.nonces.remove(header["nonce"])
        if header.get("alg") != "ES256":
            raise Problem("badSignatureAlgorithm", "only ES256 is accepted")
        if header.get("url") != self.url + request.path:
            raise Problem("unauthorized", "the URL differs from the signed one", 403)
        if ("jwk" in header) == ("kid" in header):
            raise Problem("malformed", "exactly one of jwk and kid is needed")
        if ("jwk" in header) != (request.path == "/newAccount"):
            raise Problem("malformed", "jwk is for new accounts, kid for all others")
        jwk = header.get("jwk") or self.accounts.get(header.get("kid"), {}).get("jwk")
        if not jwk:
            raise Problem("accountDoesNotExist", "no such account")
        self.verify(jwk, signature, (jws["protected"] + "." + jws["payload"]).encode())
        payload = json.loads(decode(jws["payload"])) if jws["payload"] else None
        return self.act(request.path, header.get("kid"), jwk, payload)

    @staticmethod
    def verify(jwk, signature, data):
        if len(signature) != 64:
            raise Problem("malformed", "a signature of ES256 has 64 bytes")
        number = lambda part: int.from_bytes(part, "big")
        key = ec.EllipticCurvePublicNumbers(
            number(decode(jwk["x"])), number(decode(jwk["y"])), ec.SECP256R1()
        ).public_key()
        try:
            key.verify(
                encode_dss_signature(number(signature[:32]), number(signature[32:])),
                data,
                ec.ECDSA(hashes.SHA256()),
            )
        except InvalidSignature as error:
            raise Problem("unauthorized", "the signature is wrong", 403) from error

    def act(self, path, account, jwk, payload):
        if path == "/newAccount":
            return self.new_account(jwk, payload)
        if path == "/newOrder":
            return self.new_order(account, payload)
        kind, _, number = path.lstrip("/").partition("/")
        if kind == "authorization" and number in self.authorizations and payload is None:
            return 200, self.authorizations[number]["document"], {}
        if kind == "challenge" and number in self.authorizations and payload == {}:
            return self.prove(self.authorizations[number], jwk)
        if kind in ("order", "finalize", "certificate") and number in self.orders:
            order = self.orders[number]
            if order["account"] != account:
                raise Problem("unauthorized", "the order of another account", 403)
            if kind == "order" and payload is None:
                return 200, self.order_document(number), {}
            if kind == "finalize" and payload:
                return self.finalize(number, order, payload)
            if kind == "certificate" and payload is None and order.get("pem"):
                return 200, order["pem"], {"Content-Type": "application/pem-certificate-chain"}
        raise Problem("malformed", f"{path} cannot be asked for like this", 404)

    def new_account(self, jwk, payload):
        if not payload or payload.get("termsOfServiceAgreed") is not True:
            raise Problem("userActionRequired", "the terms of service must be accepted", 403)
        url = f"{self.url}/account/{thumbprint(jwk)}"
        known = url in self.accounts
        self.accounts[url] = {"jwk": jwk, "contact": payload.get("contact")}
        return (200 if known else 201), {"status": "valid"}, {"Location": url}

    def new_order(self, account, payload):
        open_orders = [o for o in self.orders.values() if o["status"] in ("pending", "ready")]
        self.orders_at_once = max(self.orders_at_once, len(open_orders) + 1)
        number = encode(secrets.token_bytes(8))
        order = {"account": account, "status": "pending", "names": [], "authorizations": []}
        for identifier in payload["identifiers"]:
            if identifier["type"] != "dns":
                raise Problem("unsupportedIdentifier", "only names")
            name = identifier["value"]
            order["names"].append(name)
            own = encode(secrets.token_bytes(8))
            wildcard = name.startswith("*.")
            token = encode(secrets.token_bytes(16))
            self.authorizations[own] = {
                "order": number,
                "token": token,
                "document": {
                    "status": "pending",
                    "identifier": {"type": "dns", "value": name.removeprefix("*.")},
                    "wildcard": wildcard,
                    "challenges": [
                        {"type": kind, "token": token, "url": f"{self.url}/challenge/{own}"}
                        for kind in (["dns-01"] if wildcard else ["http-01", "dns-01"])
                    ],
                },
            }
            order["authorizations"].append(own)
        self.orders[number] = order
        return 201, self.order_document(number), {"Location": f"{self.url}/order/{number}"}

    def order_document(self, number):
        order = self.orders[number]
        document = {
            "status": order["status"],
            "identifiers": [{"type": "dns", "value": name} for name in order["names"]],
            "authorizations": [
                f"{self.url}/authorization/{own}" for own in order["authorizations"]
            ],
            "finalize": f"{self.url}/finalize/{number}",
        }
        if order.get("pem"):
            document["certificate"] = f"{self.url}/certificate/{number}"
        return document

    def prove(self, authorization, jwk):
        document = authorization["document"]
        name = document["identifier"]["value"]
        proof = authorization["token"] + "." + thumbprint(jwk)
        digest = encode(hashlib.sha256(proof.encode()).digest())
        found = digest in self.records.get("_acme-challenge." + name, [])
        detail = f"no TXT record with the right value at _acme-challenge.{name}"
        if not found and not document["wildcard"]:
            found, detail = self.fetch(name, authorization["token"], proof)
        document["status"] = "valid" if found else "invalid"
        if not found:
            for challenge in document["challenges"]:
                challenge["error"] = {"detail": detail}
        order = self.orders[authorization["order"]]
        states = [self.authorizations[own]["document"]["status"] for own in order["authorizations"]]
        if "invalid" in states:
            order["status"] = "invalid"
        elif all(state == "valid" for state in states):
            order["status"] = "ready"
        return 200, document["challenges"][0], {}

    def fetch(self, name, token, proof):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=10)
            connection.request(
                "GET", "/.well-known/acme-challenge/" + token, headers={"Host": name}
            )
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
        except OSError as error:
            return False, f"{name} cannot be reached: {error}"
        return text == proof, f"{name} answers {answer.status}: {text[:80]}"

    def finalize(self, number, order, payload):
        if order["status"] != "ready":
            raise Problem("orderNotReady", "its names are not proved", 403)
        request = x509.load_der_x509_csr(decode(payload["csr"]))
        if not request.is_signature_valid:
            raise Problem("badCSR", "the signature of the request is wrong")
        names = request.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value.get_values_for_type(x509.DNSName)
        if sorted(names) != sorted(order["names"]):
            raise Problem("badCSR", f"it names {names}, not {order['names']}")
        now = datetime.datetime.now(datetime.timezone.utc)
        leaf = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.name)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + self.life)
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), True
            )
            .sign(self.key, hashes.SHA256())
        )
        order["pem"] = leaf.public_bytes(serialization.Encoding.PEM).decode() + self.ca_pem()
        order["status"] = "valid"
        self.issued.append(names)
        return 200, self.order_document(number), {}
