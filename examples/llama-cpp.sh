#!/bin/sh
# An OpenAI-compatible server with llama.cpp, asleep while nobody asks: examples/llama-cpp.sh model.gguf [OPTION of billow deploy…]
set -eu
model=${1:?which model? examples/llama-cpp.sh model.gguf}
shift
# What is given goes before what is set here.
for option in "--gpus=${GPUS:-1}" "--max=${MAX:-2}" --concurrency=4 --health=/health --slo=2s; do
  case " $* " in *" ${option%%=*} "* | *" ${option%%=*}="*) ;; *) set -- "$@" "$option" ;; esac
done
exec billow deploy llm "$@" -- \
  sh -c 'exec llama-server --model "$0" --host 127.0.0.1 --port "$PORT" --parallel 4 --n-gpu-layers 999' "$(realpath "$model")"
