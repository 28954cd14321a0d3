# ./dev bench python [--short]: calls of Python functions beside Dask and multiprocessing, arrays
# beside a Unix socket, and a million mapped items with their memory.
compile billow billow-supervise billow_nvml_sim
install python3 python3-cloudpickle python3-numpy python3-distributed
/usr/bin/python3 "$root/tools/bench/python_functions.py" --bin "$build/bin" "$@"
