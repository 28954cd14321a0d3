# ./dev sbom [OUT]: list every component of program and dashboard, with licences (CycloneDX; default: build/sbom.json).
install python3
[ -f "$build/build.ninja" ] || die 'build first: ./dev build'
python3 "$root/tools/dev/sbom.py" "$root" "$build" "${1:-$build/sbom.json}"
