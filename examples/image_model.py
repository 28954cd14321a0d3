"""Serves a text-to-image model: POST /generate {"prompt": "…", "steps": 4} answers with a PNG. GET /healthz says when it is ready."""
import http.server
import io
import json
import os
import sys
import threading


def load(name):
    import torch
    from diffusers import AutoPipelineForText2Image

    return AutoPipelineForText2Image.from_pretrained(name, torch_dtype=torch.float16).to("cuda")


def main():
    pipeline = load(sys.argv[1])
    one_at_a_time = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status, kind, body):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.answer(
                200 if self.path == "/healthz" else 404,
                "text/plain",
                b"ok\n" if self.path == "/healthz" else b"POST /generate\n",
            )

        def do_POST(self):
            try:
                asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                prompt, steps = str(asked["prompt"]), int(asked.get("steps", 4))
            except (ValueError, KeyError, TypeError):
                return self.answer(400, "text/plain", b'send {"prompt": "...", "steps": 4}\n')
            try:
                with one_at_a_time:
                    image = pipeline(prompt=prompt, num_inference_steps=steps).images[0]
            except Exception as error:  # of the model: a caller is told, and the next one is served
                return self.answer(500, "text/plain", f"{type(error).__name__}: {error}\n".encode())
            out = io.BytesIO()
            image.save(out, format="PNG")
            self.answer(200, "image/png", out.getvalue())

    http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()


if __name__ == "__main__":
    main()
