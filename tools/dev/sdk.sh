# ./dev sdk [DIR]: build the wheel and the source archive of the Python package, without network (default: build/sdk).
install python3
python3 "$root/tools/dev/sdk_wheel.py" "$root/sdk/python" "${1:-$build/sdk}"
