# ./dev bench core: latency of a warm run and rate of an array beside a real Slurm, a queue of
# 100,000 jobs, 1,000 log followers, a log of 120 MB beside cat and ssh.
compile billow billow-supervise billow_nvml_sim
install slurmctld slurmd slurm-client munge python3
python3 "$root/tools/bench/core.py" --billow "$build/bin/billow" "$@"
