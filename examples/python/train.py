"""Trains a small PyTorch model through a function on a spot GPU, with checkpoints.

If the GPU is taken away, the worker is suspended and goes on where it was. If the worker is lost, its call is sent
again and continues from the newest checkpoint. Either way one call returns one result.

    python3 train.py CHECKPOINT STEPS
"""
import os
import sys

import billow


@billow.function(gpus=1, spot=True, max=1)
def train(checkpoint, steps):
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = 0
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    inputs = torch.rand(256, 2)
    wanted = (inputs[:, :1] * inputs[:, 1:]).detach()
    loss = torch.tensor(0.0)
    for step in range(first, steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        if (step + 1) % 50 == 0:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step + 1,
            }
            torch.save(state, checkpoint + ".part")
            os.replace(checkpoint + ".part", checkpoint)  # never half a checkpoint
            print(f"step {step + 1}: loss {loss.item():.5f}")
    return {"first": first, "steps": steps, "loss": loss.item()}


if __name__ == "__main__":
    path = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "train.pt")
    call = train.spawn(path, int(sys.argv[2]) if len(sys.argv) > 2 else 500)
    result = call.result()
    print(f"from step {result['first']} to {result['steps']}: loss {result['loss']:.5f}")
    print(f"attempts {call.attempts}, cost ${call.cost:.6f}")
