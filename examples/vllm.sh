#!/bin/sh
# An OpenAI-compatible server with vLLM, asleep while nobody asks: examples/vllm.sh Qwen/Qwen2.5-7B-Instruct [OPTION of billow deploy…]
set -eu
model=${1:?which model? examples/vllm.sh Qwen/Qwen2.5-7B-Instruct}
shift
# What is given goes before what is set here.
for option in "--gpus=${GPUS:-1}" "--max=${MAX:-4}" --concurrency=32 --health=/health --slo=2s --start-timeout=20m; do
  case " $* " in *" ${option%%=*} "* | *" ${option%%=*}="*) ;; *) set -- "$@" "$option" ;; esac
done
exec billow deploy llm "$@" -- \
  sh -c 'exec vllm serve "$0" --host 127.0.0.1 --port "$PORT"' "$model"
