# ./dev screenshots: the pictures in docs/screenshots, made by the browser tests themselves.
compile billow billow-supervise billow_nvml_sim
install chromium curl
cd "$root/tests/e2e"
BILLOW_SHOTS="$root/docs/screenshots" BILLOW_BIN="$build/bin" PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$root/tests/support:." python3 -m unittest eyes_test.Browser
