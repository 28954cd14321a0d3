#!/bin/sh
# Images from text: examples/image-model.sh stabilityai/sdxl-turbo [OPTION of billow deploy…]
set -eu
model=${1:?which model? examples/image-model.sh stabilityai/sdxl-turbo}
shift
here=$(cd "$(dirname "$0")" && pwd)
# What is given goes before what is set here.
for option in "--gpus=${GPUS:-1}" "--max=${MAX:-2}" --concurrency=1 --health=/healthz --start-timeout=20m; do
  case " $* " in *" ${option%%=*} "* | *" ${option%%=*}="*) ;; *) set -- "$@" "$option" ;; esac
done
exec billow deploy image "$@" -- python3 "$here/image_model.py" "$model"
