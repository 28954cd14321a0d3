#!/bin/sh
# A notebook server behind a key. It sleeps with all it has in memory when nobody has it open, and wakes when somebody does:
# examples/jupyter.sh [OPTION of billow deploy…]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
billow deploy notebook --gpus 1 --max 1 --concurrency 0 --access key --idle 10m --keep suspended=72h --health /api "$@" -- \
  jupyter server --config="$here/jupyter_config.py"
key=$(billow endpoint-key notebook --name "browser-$(date +%s)")
echo "open it in a browser; any name, and as the password: $key"
