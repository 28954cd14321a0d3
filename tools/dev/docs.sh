# ./dev docs [OUT]: build the documentation as a searchable site (default: build/docs-site).
python3 "$root/tools/docs/build_site.py" "${1:-$build/docs-site}"
