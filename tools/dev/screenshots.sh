# ./dev screenshots: take the pictures in docs/screenshots, light and dark, and the animated tour. A fleet with jobs in every
# state is started for them; the browser tests take the others (run form, terminal, a large fleet).
compile billow billow-supervise billow_nvml_sim
install $browser_packages curl python3
cd "$root/tests/e2e/daily"
export BILLOW_SHOTS="$root/docs/screenshots" BILLOW_BIN="$build/bin"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$root/tests/support:."
python3 -m unittest browser_test.Browser
python3 "$root/tests/browser/demo_fleet.py" screenshots.mjs
