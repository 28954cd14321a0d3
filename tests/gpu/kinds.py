"""One of several programs that a suspend may meet: `kinds.py NAME`. Each repeats a deterministic round until a line comes on its input
and compares every result with the first one, bit for bit. Prints `ok ready=1`, then `ok rounds=N wrong=M`. Names: see KINDS."""
import ctypes
import os
import subprocess
import sys
import threading

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False
device = torch.device("cuda")


def seeded(*shape, seed=1, dtype=torch.float32):
    g = torch.Generator(device=device)
    g.manual_seed(seed)
    return torch.randn(*shape, device=device, generator=g).to(dtype)


def matmul():
    a, b = seeded(2048, 2048), seeded(2048, 2048, seed=2)
    return lambda: a @ b


def threads():
    inputs = [seeded(1024, 1024, seed=i) for i in range(4)]
    streams = [torch.cuda.Stream() for _ in inputs]

    def once():
        out = [None] * 4

        def work(i):
            with torch.cuda.stream(streams[i]):
                x = inputs[i]
                for _ in range(4):
                    x = torch.tanh(x @ inputs[i])
                out[i] = x
            streams[i].synchronize()

        all_threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in all_threads:
            t.start()
        for t in all_threads:
            t.join()
        return torch.cat(out)

    return once


def fork():
    x = seeded(1 << 20)

    def once():
        pid = os.fork()  # the child uses no CUDA, as a loader's worker does
        if pid == 0:
            os._exit(7)
        status = os.waitpid(pid, 0)[1]
        return x * os.waitstatus_to_exitcode(status)

    return once


CHILD = """
import torch
x = torch.arange(1 << 22, device="cuda", dtype=torch.int64)
print(int((x * 3 + 1).sum()))
"""


def subprocess_():
    x = torch.arange(1 << 22, device=device, dtype=torch.int64)

    def once():
        got = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
        if got.returncode:
            raise RuntimeError(got.stderr)
        return (x * 3 + 1).sum() - int(got.stdout)

    return once


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return torch.full((1 << 16,), float(i), device="cuda")


def loader():
    data = torch.utils.data.DataLoader(
        Numbers(),
        batch_size=4,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )

    def once():
        return torch.stack([b.sum() for b in data])

    return once


def compiled():
    net = torch.nn.Sequential(
        torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)
    ).to(device)
    for i, p in enumerate(net.parameters()):
        p.data.copy_(seeded(*p.shape, seed=i) * 0.05)
    fast = torch.compile(net)
    x = seeded(256, 512)

    def once():
        with torch.no_grad():
            return fast(x)

    return once


def graph():
    # Whole numbers, as in `sparse`.
    a, b = ((seeded(1024, 1024, seed=i) * 2).round() for i in (1, 2))
    out = torch.empty_like(a)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.matmul(a, b, out=out)
    side.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for _ in range(4):
            torch.matmul(a, b, out=out)
            out.add_(a)

    def once():
        g.replay()
        return out

    return once


def recapture():
    a = seeded(512, 512)
    a @ a  # cuBLAS cannot begin during a capture

    def once():
        out = torch.empty_like(a)
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            torch.matmul(a, a, out=out)
        g.replay()
        torch.cuda.synchronize()
        return out

    return once


def pools():
    import cupy

    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    base = cupy.arange(1 << 20, dtype=cupy.int64)

    def once():
        total = cupy.zeros((), dtype=cupy.int64)
        for i in range(8):
            piece = base[: (1 << 16) * (i + 1)] * (i + 3)
            total += piece.sum()
            del piece
        return torch.as_tensor(int(total))

    return once


COOPERATIVE = r"""
#include <cooperative_groups.h>
extern "C" __global__ void steps(float* x, int n) {
  auto grid = cooperative_groups::this_grid();
  for (int k = 0; k < 4; k++) {
    for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = x[i] * 0.5f + x[(i + 1) % n] * 0.0f + k;
    grid.sync();
  }
}"""


def cooperative():
    import cupy

    kernel = cupy.RawKernel(
        COOPERATIVE, "steps", options=("--std=c++17",), enable_cooperative_groups=True
    )

    def once():
        x = cupy.arange(1 << 16, dtype=cupy.float32)
        kernel((32,), (256,), (x, x.size))
        return torch.as_tensor(cupy.asnumpy(x))

    return once


TEXTURE = r"""
extern "C" __global__ void look(cudaTextureObject_t t, float* out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x < w && y < h) out[y * w + x] = tex2D<float>(t, x + 0.5f, y + 0.5f);
}"""


def texture():
    import cupy
    from cupy.cuda import texture as tex

    w, h = 512, 512
    channel = tex.ChannelFormatDescriptor(32, 0, 0, 0, cupy.cuda.runtime.cudaChannelFormatKindFloat)
    array = tex.CUDAarray(channel, w, h)
    array.copy_from(cupy.arange(w * h, dtype=cupy.float32).reshape(h, w))
    described = tex.TextureDescriptor((cupy.cuda.runtime.cudaAddressModeClamp,) * 2)
    thing = tex.TextureObject(
        tex.ResourceDescriptor(cupy.cuda.runtime.cudaResourceTypeArray, cuArr=array), described
    )
    kernel = cupy.RawKernel(TEXTURE, "look")

    def once():
        out = cupy.zeros((h, w), dtype=cupy.float32)
        kernel((2, h), (256,), (thing, out, w, h))
        return torch.as_tensor(cupy.asnumpy(out))

    return once


def sparse():
    # Whole numbers: their sums do not depend on the order, which differs from run to run.
    dense = (seeded(2048, 2048) * 4).round()
    a = torch.where(dense.abs() > 8, dense, torch.zeros_like(dense)).to_sparse_csr()
    b = (seeded(2048, 64, seed=2) * 4).round()
    return lambda: a @ b


def fft():
    x = seeded(64, 1 << 14)
    return lambda: torch.view_as_real(torch.fft.rfft(x))


def conv():
    net = torch.nn.Conv2d(16, 32, 3, padding=1).to(device)
    for i, p in enumerate(net.parameters()):
        p.data.copy_(seeded(*p.shape, seed=i) * 0.05)
    x = seeded(8, 16, 64, 64)

    def once():
        with torch.no_grad():
            return net(x)

    return once


def solver():
    a = seeded(256, 256) + 20 * torch.eye(256, device=device)
    return lambda: torch.linalg.cholesky(a @ a.T)


def jax_():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import jax.numpy as jnp
    import numpy

    f = jax.jit(lambda x: jnp.tanh(x @ x).sum(axis=0))
    x = jnp.asarray(numpy.linspace(-1, 1, 512 * 512, dtype=numpy.float32).reshape(512, 512))
    return lambda: torch.as_tensor(numpy.asarray(f(x)))


SCALE = r"""
extern "C" __global__ void scale(float* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    for (int k = 0; k < 64; k++) x[i] = x[i] * 0.5f + k;
}"""


def call(name, *arguments):
    """A function of the driver, which the runtime has no word for."""
    got = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if got:
        raise RuntimeError(f"{name}: {got}")


class ConditionalParams(ctypes.Structure):
    """CUgraphNodeParams of a conditional node."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
        ("handle", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("size", ctypes.c_uint),
        ("bodies", ctypes.POINTER(ctypes.c_void_p)),
        ("context", ctypes.c_void_p),
        ("rest", ctypes.c_uint8 * 208),
    ]


def conditional():
    """A graph whose kernels are in the body of a conditional node."""
    import cupy

    kernel = cupy.RawKernel(SCALE, "scale")
    x = cupy.zeros(1 << 16, dtype=cupy.float32)
    kernel((32,), (256,), (x, x.size))
    stream = cupy.cuda.Stream(non_blocking=True)
    graph, context, node, ended = (ctypes.c_void_p() for _ in range(4))
    executable = ctypes.c_void_p()
    handle = ctypes.c_uint64()
    call("cuCtxGetCurrent", ctypes.byref(context))
    call("cuGraphCreate", ctypes.byref(graph), 0)
    call("cuGraphConditionalHandleCreate", ctypes.byref(handle), graph, context, 1, 1)
    params = ConditionalParams(type=13, handle=handle, kind=0, size=1, context=context)
    call(
        "cuGraphAddNode", ctypes.byref(node), graph, None, ctypes.c_size_t(0), ctypes.byref(params)
    )
    into = ctypes.c_void_p(stream.ptr)
    body = ctypes.c_void_p(params.bodies[0])
    call("cuStreamBeginCaptureToGraph", into, body, None, None, ctypes.c_size_t(0), 2)
    with stream:
        for _ in range(4):
            kernel((32,), (256,), (x, x.size))
    call("cuStreamEndCapture", into, ctypes.byref(ended))
    call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))

    def once():
        with stream:
            x.fill(1)
            call("cuGraphLaunch", executable, into)
            out = cupy.asnumpy(x, stream=stream)
        stream.synchronize()
        return torch.as_tensor(out)

    return once


def green():
    """Kernels in a context that has only some of the GPU's multiprocessors."""
    import cupy

    cupy.zeros(1)  # makes the primary context
    one, rest = (ctypes.create_string_buffer(144) for _ in range(2))
    groups = ctypes.c_uint(1)
    whole = ctypes.create_string_buffer(144)
    described, context, stream = (ctypes.c_void_p() for _ in range(3))
    made = ctypes.c_void_p()
    call("cuDeviceGetDevResource", 0, whole, 1)
    call("cuDevSmResourceSplitByCount", one, ctypes.byref(groups), whole, rest, 0, 16)
    call("cuDevResourceGenerateDesc", ctypes.byref(described), one, 1)
    call("cuGreenCtxCreate", ctypes.byref(made), described, 0, 1)
    call("cuCtxFromGreenCtx", ctypes.byref(context), made)
    call("cuGreenCtxStreamCreate", ctypes.byref(stream), made, 1, 0)
    call("cuCtxPushCurrent_v2", context)
    kernel = cupy.RawKernel(SCALE, "scale")
    x = cupy.zeros(1 << 16, dtype=cupy.float32)
    part = cupy.cuda.ExternalStream(stream.value)

    def once():
        with part:
            x.fill(1)
            kernel((32,), (256,), (x, x.size))
            out = cupy.asnumpy(x, stream=part)
        part.synchronize()
        return torch.as_tensor(out)

    return once


KINDS = {
    "matmul": matmul,
    "threads": threads,
    "fork": fork,
    "subprocess": subprocess_,
    "loader": loader,
    "compile": compiled,
    "graph": graph,
    "recapture": recapture,
    "pools": pools,
    "cooperative": cooperative,
    "texture": texture,
    "sparse": sparse,
    "fft": fft,
    "conv": conv,
    "solver": solver,
    "jax": jax_,
    "conditional": conditional,
    "green": green,
}


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def main():
    once = KINDS[sys.argv[1]]()
    for _ in range(3):  # libraries choose their kernels in the first rounds
        first = once().clone()
        torch.cuda.synchronize()
    stop = threading.Event()

    def listen():
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    print("ok ready=1", flush=True)
    rounds = wrong = 0
    while not stop.is_set():
        again = once()
        torch.cuda.synchronize()
        wrong += not torch.equal(bits(first), bits(again))
        rounds += 1
    print(f"ok rounds={rounds} wrong={wrong}", flush=True)


if __name__ == "__main__":
    main()
