"""A deterministic training loop that writes the exact bits of every loss. `train_loop.py FILE STEPS`: stops after STEPS, or when
FILE.stop appears; the last line of FILE.done is the number of steps made."""
import os
import struct
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

path, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(17)
torch.use_deterministic_algorithms(True)
device = torch.device("cuda")
layers = [
    torch.nn.Linear(1024, 2048),
    torch.nn.GELU(),
    torch.nn.LayerNorm(2048),
    torch.nn.Linear(2048, 1024),
    torch.nn.Tanh(),
    torch.nn.Linear(1024, 256),
]
model = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ballast = torch.randint(
    0, 1 << 30, (64 << 20,), device=device, dtype=torch.int32
)  # 256 MiB that must survive too
generator = torch.Generator(device=device)
generator.manual_seed(5)
with open(path, "w", buffering=1) as out:
    print("ok ready=1", flush=True)
    for step in range(steps):
        x = torch.randn(256, 1024, device=device, generator=generator)
        target = torch.roll(x[:, :256], 1, dims=1)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        value = loss.item()
        out.write(struct.pack(">f", value).hex() + "\n")
        if step % 16 == 0 and os.path.exists(path + ".stop"):
            break
    total = int(ballast.to(torch.int64).sum().item())
with open(path + ".done", "w") as out:
    out.write(f"{step + 1} {total}\n")
