"""A CUDA program for tests: fills device memory with a pattern, checks it again and again, and counts. Driver API through ctypes,
so that it runs on the simulated driver and on a real one. Ends well when the file named by its first argument appears.

    cuda_loop.py DONE-FILE COUNT-FILE [MIB]
"""
import ctypes
import os
import sys
import time

done, counted = sys.argv[1], sys.argv[2]
size = int(sys.argv[3] if len(sys.argv) > 3 else 64) << 20
cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result != 0:
        sys.exit(f"{name} failed with {result}")


call("cuInit", 0)
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
print(f"total {total.value >> 20} MiB", flush=True)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
pattern = os.urandom(1 << 20)
for offset in range(0, size, len(pattern)):
    call(
        "cuMemcpyHtoD_v2",
        ctypes.c_uint64(memory.value + offset),
        pattern,
        ctypes.c_size_t(len(pattern)),
    )
back = ctypes.create_string_buffer(len(pattern))
rounds = 0
while not os.path.exists(done):
    offset = rounds * len(pattern) % size
    call(
        "cuMemcpyDtoH_v2",
        back,
        ctypes.c_uint64(memory.value + offset),
        ctypes.c_size_t(len(pattern)),
    )
    if back.raw != pattern:
        sys.exit(f"round {rounds}: device memory has changed")
    rounds += 1
    with open(counted + ".new", "w", encoding="ascii") as f:
        f.write(str(rounds))
    os.replace(counted + ".new", counted)
    time.sleep(0.02)
print(f"{rounds} rounds, all right", flush=True)
