# ./dev bench many: 200 short jobs through a Slurm pool beside bare sbatch, the delay a pool adds to
# a first srun, warm latency on a joined node, thousands of agents on one head, 10,000 files to the
# head beside rsync, and an environment of 2 GB on two nodes.
compile billow billow-supervise billow_nvml_sim
install slurmctld slurmd slurm-client munge python3 rsync
python3 "$root/tools/bench/many.py" --billow "$build/bin/billow" "$@"
