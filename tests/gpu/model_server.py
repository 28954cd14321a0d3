"""A model to serve: GIB gibibytes of weights on the GPU whose right content is known, behind HTTP on $PORT. GET /N answers with a number
computed on the GPU from every seventh weight beginning at N, so that a weight that came back wrong, or at a wrong place, is noticed.

    model_server.py torch GIB        PyTorch on a real GPU
    model_server.py driver MIB       the driver API alone, for the simulated driver

The weights are made on the GPU and read from no disk: a cold start is measured at its best.
"""
import array
import ctypes
import http.server
import os
import sys


class Torch:
    def __init__(self, gib):
        import torch

        self.torch = torch
        # Of one gibibyte each, as a model has many tensors.
        self.layers = [
            torch.arange(1 << 28, device="cuda", dtype=torch.int32).add_(layer)
            for layer in range(gib)
        ]
        torch.cuda.synchronize()

    def answer(self, first):
        return sum(self.torch.stack([layer[first::7].sum() for layer in self.layers]).tolist())


class Driver:
    def __init__(self, mib):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.words = mib << 18
        device, self.context, self.memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(self.words * 4))
        self.call(
            "cuMemcpyHtoD_v2",
            self.memory,
            array.array("i", range(self.words)).tobytes(),
            ctypes.c_size_t(self.words * 4),
        )

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            sys.exit(f"{name} failed with {result}")

    def answer(self, first):
        self.call("cuCtxSetCurrent", self.context)
        back = ctypes.create_string_buffer(self.words * 4)
        self.call("cuMemcpyDtoH_v2", back, self.memory, ctypes.c_size_t(self.words * 4))
        return sum(array.array("i", back.raw)[first::7])


def right_answer(layers, words, first):
    """What `answer` must be, by arithmetic alone."""
    count = len(range(first, words, 7))
    return sum(
        count * first + 7 * count * (count - 1) // 2 + count * layer for layer in range(layers)
    )


def main():
    model = Torch(int(sys.argv[2])) if sys.argv[1] == "torch" else Driver(int(sys.argv[2]))

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            text = str(model.answer(int(self.path[1:] or 0) % 7)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()


if __name__ == "__main__":
    main()
