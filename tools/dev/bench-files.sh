# ./dev bench files [--files N] [--mib N]: how long a job waits for its files, beside rsync.
compile billow billow-supervise billow_nvml_sim
install python3 rsync
python3 "$root/tools/bench/files.py" --bin "$build/bin" "$@"
