# ./dev bench kubernetes [OPTION…]: a pool on a cluster of 1,000 nodes with 8 GPUs and 2,000 pods:
# CPU time and memory of the head, requests to the API server, and the time from a started pod to a
# node that jobs can use. API server, etcd and scheduler are the real ones of $KUBEBUILDER_ASSETS;
# nodes and kubelets are simulated.
compile billow billow-supervise billow_nvml_sim
install python3
BILLOW_BIN=$build/bin python3 "$root/tools/bench/kubernetes.py" "$@"
