"""Two PyTorch processes that share CUDA tensors through torch.multiprocessing, as a data loader or vLLM's workers do: the parent
sends a tensor, the child adds one in place and answers, again and again. Prints `ok ready`, then after a line on its input `ok rounds=N
wrong=M`."""
import sys
import threading

import torch
import torch.multiprocessing as mp


def child(inbox, outbox):
    mine = torch.zeros(1 << 20, device="cuda", dtype=torch.int64)
    outbox.put(mine)  # the parent reads the child's memory, too
    x = inbox.get()
    while inbox.get() == "go":
        x.add_(1)
        mine.copy_(x[: mine.numel()])
        torch.cuda.synchronize()
        outbox.put("done")
    del x
    torch.cuda.ipc_collect()


def main():
    mp.set_start_method("spawn")
    inbox, outbox = mp.Queue(), mp.Queue()
    p = mp.Process(target=child, args=(inbox, outbox))
    p.start()
    x = torch.arange(64 << 20, device="cuda", dtype=torch.int64)  # 512 MiB
    theirs = outbox.get(timeout=120)
    inbox.put(x)
    stop = threading.Event()

    def listen():
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    print("ok ready=1", flush=True)
    rounds = 0
    while not stop.is_set():
        inbox.put("go")
        outbox.get(timeout=120)
        rounds += 1
    expected = torch.arange(64 << 20, device="cuda", dtype=torch.int64) + rounds
    wrong = int((x != expected).sum()) + int((theirs != expected[: theirs.numel()]).sum())
    del theirs
    inbox.put("end")
    p.join(60)
    print(f"ok rounds={rounds} wrong={wrong} child={p.exitcode}", flush=True)


if __name__ == "__main__":
    main()
