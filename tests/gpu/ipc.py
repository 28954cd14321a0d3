"""CUDA IPC under the shim: legacy handles and exported descriptors between two processes of a job, and torch.multiprocessing; each
suspended and resumed while it works."""
from rig import *


def suspended_while(service, name, program, cycles):
    cold, errors = 0, []
    for i in range(cycles):
        time.sleep(0.05 + 0.03 * (i % 5))
        try:
            out = service.call(f"suspend name={name} mode={'cold' if i % 5 == 4 else 'warm'}")
            cold += int(out.get("cold", "0"))
            if "cold_error" in out:
                errors.append("stayed warm: " + out["cold_error"])
            back = service.call("resume name=" + name)
            if "lost" in back:
                errors.append("lost " + back["lost"])
        except RuntimeError as error:
            errors.append(str(error))
    for e in sorted(set(errors)):
        print(f"{errors.count(e)} x {e}", flush=True)
    refused = [e for e in errors if not e.startswith("stayed warm")]
    program.start("")
    return cold, refused


def part_ipc():
    size = 640 * MIB if SIM else 4 * GIB
    service = MemoryService(size)
    service.wait_arena(size)
    name = service.job("ipc", memory=768 * MIB)
    p = Program([BUILD + "/shim_child", "sharing"], service.env(name))
    p.read()
    cycles = 5 if SIM else 50
    cold, refused = suspended_while(service, name, p, cycles)
    line = p.read()
    status = p.process.wait(60)
    Table.add(
        "two processes share memory by handle and by descriptor",
        f"{line}; {cycles} suspends ({cold} cold), {len(refused)} refused, exit {status}",
        "right, none refused",
        line.startswith("right") and not refused and status == 0,
    )
    if SIM:
        return service.stop()
    for what, setting in (("plain", ""), ("expandable segments", "expandable_segments:True")):
        name = service.job("torch-" + what.split()[0], memory=8 * GIB)
        env = service.env(name)
        env["PYTORCH_CUDA_ALLOC_CONF"] = setting
        p = Program([sys.executable, os.path.join(HERE, "ipc_share.py")], env)
        p.answer("start")
        features = service.status(name)["features"]
        cold, refused = suspended_while(service, name, p, 25)
        answer = p.answer("end")
        Table.add(
            f"torch.multiprocessing shares CUDA tensors, {what} (features {features})",
            (
                f"{answer['rounds']} rounds, {answer['wrong']} words wrong; 25 suspends"
                f" ({cold} cold), {len(refused)} refused"
            ),
            "0 wrong, none refused",
            answer["wrong"] == "0" and not refused and answer["child"] == "0",
        )
        p.process.wait(60)
    service.stop()
