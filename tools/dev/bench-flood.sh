# ./dev bench flood [--connections N] [--seconds N]: submissions at 20 a second while thousands of
# hostile connections idle, trickle headers, push bodies without a token and repeat wrong tokens:
# latency, losses and memory of the head.
compile billow billow-supervise billow_nvml_sim
install python3
python3 "$root/tools/bench/flood.py" --billow "$build/bin/billow" "$@"
