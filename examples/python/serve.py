"""HTTP endpoints from functions: parameters from the query or a JSON body, answers as JSON or as a stream."""
import json
import urllib.request

import billow


@billow.endpoint(method="POST", max=2)
def add(a: int, b: int = 1):
    return {"sum": a + b}


@billow.endpoint
def count(n: int = 3):
    for i in range(n):
        yield f"data: {i}\n\n"


@billow.asgi_app
def app():
    async def application(scope, receive, send):
        if scope["type"] != "http":
            return
        body = json.dumps({"path": scope["path"], "method": scope["method"]}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return application


@billow.web_server()
def files(port):
    import subprocess
    import sys

    subprocess.Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)])


def call(endpoint, path="", body=None):
    request = urllib.request.Request(endpoint.url + path, body)
    request.add_header("Authorization", f"Bearer {endpoint.key}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


if __name__ == "__main__":
    print(call(add, body=b'{"a": 2, "b": 3}'))
    print(call(count, "?n=2").split())
    print(call(app, "some/page"))
    print("function.json" in call(files))  # a web server starts in an empty directory
