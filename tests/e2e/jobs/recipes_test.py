"""The recipes of examples/: each is one command, and what it serves answers."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from endpoints_test import EndpointTest
from rig import BILLOW, SOURCE, poll


class Recipes(EndpointTest):
    """The scripts in examples/, with stand-ins for the model servers they start."""

    EXAMPLES = os.path.join(SOURCE, "examples")

    def test_language_models(self):
        programs = tempfile.mkdtemp(prefix="billow-recipes-")
        self.addCleanup(shutil.rmtree, programs)
        for name in ("llama-server", "vllm"):
            with open(os.path.join(programs, name), "w", encoding="utf-8") as f:
                f.write(
                    '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = --port ] && PORT=$2; shift;'
                    f' done\nexport PORT; exec python3 {self.rig.file("serve.py")} {name}\n'
                )
            os.chmod(f.name, 0o755)
        model = self.rig.file("model.gguf")
        with open(model, "w", encoding="ascii"):
            pass
        environment = {"PATH": f"{programs}:{os.path.dirname(BILLOW)}:{os.environ['PATH']}"}
        for script, argument, server in (
            ("llama-cpp.sh", model, "llama-server"),
            ("vllm.sh", "some/model", "vllm"),
        ):
            done = subprocess.run(
                [os.path.join(self.EXAMPLES, script), argument, "--access", "local", "--queue", "7"]
                + ["--max", "3"],
                env={**self.rig.environment, **environment},
                cwd=self.rig.files,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done)
            self.assertIn("llm is serving at http://", done.stdout)
            self.assertEqual(json.loads(self.call("llm", "/v1/models")[2])["version"], server)
            self.assertEqual(
                self.endpoint("llm")["max"], 3, "what is given goes before what the script sets"
            )

    def test_a_notebook(self):
        """Jupyter's own server where it is installed; else a stand-in, which is told the same."""
        environment = {"PATH": f"{os.path.dirname(BILLOW)}:{os.environ['PATH']}"}
        real = shutil.which("jupyter-lab") or shutil.which("jupyter-server")
        if not real:
            programs = tempfile.mkdtemp(prefix="billow-recipes-")
            self.addCleanup(shutil.rmtree, programs)
            with open(os.path.join(programs, "jupyter-server"), "w", encoding="utf-8") as f:
                f.write(
                    '#!/bin/sh\nset -e\ntest -f "${1#--config=}"\nexec python3'
                    f' {self.rig.file("serve.py")} notebook\n'
                )
            os.chmod(f.name, 0o755)
            environment["PATH"] = programs + ":" + environment["PATH"]
        done = subprocess.run(
            [os.path.join(self.EXAMPLES, "jupyter.sh"), "--queue", "7"],
            env={**self.rig.environment, **environment, "IDLE": "1s"},
            cwd=self.rig.files,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done)
        key = done.stdout.rsplit(" ", 1)[1].strip()
        self.assertEqual(self.call("notebook", "/api")[0], 401, "nobody comes in without a key")
        poll(
            lambda: [r["task_state"] for r in self.endpoint("notebook")["replicas"]]
            == ["suspended"],
            "it to sleep",
        )
        status, _, body = self.call("notebook", "/api", headers={"Authorization": f"Bearer {key}"})
        self.assertEqual(status, 200, body)
        self.assertIn("version", json.loads(body))

    # As much of diffusers and torch as the example uses: a picture of one pixel, whose colour is
    # the prompt's.
    PIPELINE = """
import struct, zlib
class Image:
    def __init__(self, prompt, steps):
        self.row = bytes([0, len(prompt) % 256, steps % 256, 7])
    def save(self, out, format):
        chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        out.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(self.row)) + chunk(b"IEND", b""))
class Result: pass
class AutoPipelineForText2Image:
    @classmethod
    def from_pretrained(cls, name, torch_dtype):
        assert name == "some/model" and torch_dtype == "half"
        return cls()
    def to(self, device):
        assert device == "cuda"
        return self
    def __call__(self, prompt, num_inference_steps):
        if num_inference_steps < 1:
            raise ValueError("no steps")
        out = Result()
        out.images = [Image(prompt, num_inference_steps)]
        return out
"""

    def test_an_image_model(self):
        modules = tempfile.mkdtemp(prefix="billow-recipes-")
        self.addCleanup(shutil.rmtree, modules)
        for name, text in (("diffusers", self.PIPELINE), ("torch", "float16 = 'half'")):
            with open(os.path.join(modules, name + ".py"), "w", encoding="ascii") as f:
                f.write(text)
        environment = {
            "PATH": f"{os.path.dirname(BILLOW)}:{os.environ['PATH']}",
            "PYTHONPATH": modules,
        }
        done = subprocess.run(
            [
                os.path.join(self.EXAMPLES, "image-model.sh"),
                "some/model",
                "--access",
                "local",
                "--idle",
                "1s",
            ],
            env={**self.rig.environment, **environment},
            cwd=self.rig.files,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("image is serving at http://", done.stdout)
        ask = lambda prompt, steps=4: self.call(
            "image", "/generate", "POST", json.dumps({"prompt": prompt, "steps": steps})
        )
        poll(
            lambda: [r["task_state"] for r in self.endpoint("image")["replicas"]] == ["suspended"],
            "it to sleep",
        )
        status, headers, png = ask("a boat")
        self.assertEqual(
            (status, headers["content-type"], png[:8]), (200, "image/png", b"\x89PNG\r\n\x1a\n")
        )
        self.assertNotEqual(png, ask("a longer prompt")[2])
        self.assertEqual(self.call("image", "/generate", "POST", "nonsense")[0], 400)
        status, _, text = ask("a boat", 0)
        self.assertEqual((status, text), (500, b"ValueError: no steps\n"))
        self.assertEqual(ask("a boat")[2], png)


if __name__ == "__main__":
    unittest.main()
