"""A PyTorch job that holds memory like a model in training: weights in bf16, moments in fp32, a tenth of zeros. Answers lines:
`check` → words that differ from what the seed gives."""
import sys

import torch

gib, seed = float(sys.argv[1]), int(sys.argv[2])
block = 1 << 28  # bytes
kinds = (
    "weights",
    "weights",
    "weights",
    "moments",
    "moments",
    "moments",
    "moments",
    "moments",
    "moments",
    "zeros",
)


def make(number):
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed * 100003 + number)
    kind = kinds[number % len(kinds)]
    if kind == "zeros":
        return torch.zeros(block // 4, device="cuda")
    if kind == "weights":
        return (
            torch.randn(block // 2, device="cuda", generator=generator)
            .mul_(0.02)
            .to(torch.bfloat16)
        )
    return torch.randn(block // 4, device="cuda", generator=generator).mul_(1e-4)


tensors = [make(i) for i in range(int(gib * (1 << 30) / block))]
torch.cuda.synchronize()
torch.cuda.empty_cache()
print("ok ready=1", flush=True)
for line in sys.stdin:
    if line.strip() == "quit":
        break
    wrong = sum(int((t != make(i)).sum()) for i, t in enumerate(tensors))
    torch.cuda.empty_cache()
    print(f"ok wrong={wrong}", flush=True)
