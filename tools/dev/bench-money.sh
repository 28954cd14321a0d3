# ./dev bench money [year|fleet] [OPTION…]: a report of a year of leases by project and day, and
# metering of a thousand nodes through one head. Both print the target beside the measurement.
compile billow billow-supervise billow_nvml_sim
install python3
python3 "$root/tools/bench/money.py" --billow "$build/bin/billow" "$@"
