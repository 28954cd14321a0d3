# ./dev numbers: the sizes of the sources, as in the table of CONTRIBUTING.md.
install git python3
python3 "$root/tools/dev/numbers.py"
