"""A function in a worker: one call, many calls, an exception from there."""
import os
import platform

import billow


@billow.function(max=2)
def square(x):
    return x * x


@billow.function(gpus=0.5, max=1)
def where():
    return platform.node(), os.environ.get("CUDA_VISIBLE_DEVICES", "none")


if __name__ == "__main__":
    print("one call:", square.remote(7))
    print("many calls:", sum(square.map(range(1000))))
    node, gpu = where.remote()
    print(f"half a GPU on {node}: device {gpu}")
    try:
        square.remote("seven")
    except TypeError as problem:
        print("an exception from the worker:", problem)
    print(f"so far: ${square.cost + where.cost:.4f}")
