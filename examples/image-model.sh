#!/bin/sh
# Images from text: examples/image-model.sh stabilityai/sdxl-turbo [OPTION of billow deploy…]
set -eu
model=${1:?which model? examples/image-model.sh stabilityai/sdxl-turbo}
shift
here=$(cd "$(dirname "$0")" && pwd)
exec billow deploy image --gpus "${GPUS:-1}" --max "${MAX:-2}" --concurrency 1 --health /healthz --start-timeout 20m "$@" -- python3 "$here/image_model.py" "$model"
