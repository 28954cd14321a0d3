# ./dev bench gateway: the proxy beside nginx in front of the same upstream, event streams, a large
# upload, waking from zero, endpoints that share few GPUs, and replays of request traces.
compile billow billow-supervise billow_nvml_sim
install nginx-light wrk python3
python3 "$root/tools/bench/gateway.py" --billow "$build/bin/billow" "$@"
