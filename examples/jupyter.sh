#!/bin/sh
# A notebook server behind a key. It sleeps with all it has in memory when nobody has it open, and wakes when somebody does:
# examples/jupyter.sh [OPTION of billow deploy…]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
jupyter=$(command -v jupyter-lab || command -v jupyter-server) || { echo "jupyter is not installed: pip install jupyterlab" >&2; exit 1; }
# What is given goes before what is set here.
for option in "--gpus=${GPUS:-1}" "--max=${MAX:-1}" --concurrency=0 --access=key "--idle=${IDLE:-10m}" --keep=suspended=72h --health=/api; do
  case " $* " in *" ${option%%=*} "* | *" ${option%%=*}="*) ;; *) set -- "$@" "$option" ;; esac
done
billow deploy notebook "$@" -- \
  "$jupyter" --config="$here/jupyter_config.py"
key=$(billow endpoint-key notebook --name "browser-$(date +%s)")
echo "open it in a browser; any name, and as the password: $key"
