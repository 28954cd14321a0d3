"""A sweep as jobs: every combination of the parameters, then one job that waits for all of them."""
import billow

if __name__ == "__main__":
    runs = billow.grid(
        "echo loss of lr={lr} seed=$SEED: $((SEED * 10))",
        params={"lr": [0.1, 0.01], "seed": range(2)},
        gpus=0.25,
        name="sweep",
    )
    report = billow.submit("echo all done", after=list(runs))
    for parameters, job in zip(runs.parameters, runs.wait(120)):
        print(parameters, job.text().strip())
    print(report.wait(60).text().strip(), f"${runs.cost:.4f}")
