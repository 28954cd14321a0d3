# ./dev screenshots: take the pictures in docs/screenshots; the browser tests make them.
compile billow billow-supervise billow_nvml_sim
install $browser_packages curl python3
cd "$root/tests/e2e"
export BILLOW_SHOTS="$root/docs/screenshots" BILLOW_BIN="$build/bin"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$root/tests/support:."
python3 -m unittest eyes_test.Browser
