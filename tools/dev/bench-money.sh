# ./dev bench money [year|fleet] [OPTION…]: a year of leases reported by project and day; metering of a thousand nodes through one
# head. Both print what was asked for beside what was measured.
compile billow billow-supervise billow_nvml_sim
install python3
python3 "$root/tools/bench/money.py" --billow "$build/bin/billow" "$@"
