# ./dev bench clouds [CYCLES]: orders and releases of machines (1,000 by default) against a server
# that plays EC2 and fails in every way, with heads that are killed.
compile billow billow-supervise billow_nvml_sim
install python3
export PYTHONPATH=$root/tests/support:$root/tests/e2e/pools BILLOW_BIN=$build/bin
BILLOW_CLOUD_CYCLES=${1:-1000} python3 -m unittest -v clouds_test.NeverLeak
