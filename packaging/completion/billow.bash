# bash completion for billow; made by `billow completion bash`
_billow_nodes() { billow nodes 2>/dev/null | awk 'NR > 1 { print $1 }'; }
_billow() {
  local cur prev cmd
  cur=${COMP_WORDS[COMP_CWORD]}
  prev=${COMP_WORDS[COMP_CWORD-1]}
  cmd=${COMP_WORDS[1]}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W "run submit shell attach ps logs describe explain wait suspend resume stop cancel port-forward ssh ssh-config ssh-proxy schedule status nodes drain undrain cordon uncordon events pool machine check top node login logout context dashboard project user token secret reserve cost waste invoice anomalies bill month budget price idle keepalive webhook commitment advise prices plan deploy endpoints scale rollback delete endpoint-key gateway profile compare loadtest simulate cp volume join env rerun up down agent doctor store ranks rsh stage box completion version help" -- "$cur")); return; fi
  case $cmd in
    bill) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "import" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    budget) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "set show rm" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    check) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "fabric gpus" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    commitment) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "set list rm" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    context) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "list use" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    env) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "save list show rm create" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    idle) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "set show" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    machine) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "release" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    month) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "close list" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    node) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "rm" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    pool) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "add list rm" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    price) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "set set-onprem list rm" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    project) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "create list member remove set tag" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    reserve) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "list calendar cancel" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    schedule) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "add list rm" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    secret) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "set list rm" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    simulate) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "endpoints openb jobs replay" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    store) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "migrate backup restore" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    token) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "create list revoke" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    user) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "create list" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    volume) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "add list rm" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
    webhook) if [ "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "add list rm test" -- "$cur")); return; fi; cmd="$cmd ${COMP_WORDS[2]}" ;;
  esac
  case $cmd in
    "run")
      case $prev in
        --gpus|-g) return ;;
        --gpu-mem) return ;;
        --gpu-type) return ;;
        --mig) return ;;
        --nodes|-N) return ;;
        --procs) return ;;
        --cpus|-c) return ;;
        --mem) return ;;
        --node-label) return ;;
        --constraint) return ;;
        --region) return ;;
        --zone) return ;;
        --pool) return ;;
        --fabric) return ;;
        --placement-group) return ;;
        --topology) return ;;
        --reservation) return ;;
        --time) return ;;
        --name|-n) return ;;
        --label|-l) return ;;
        --project|-p) return ;;
        --priority) return ;;
        --retries) return ;;
        --backoff) return ;;
        --after) COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
        --image) return ;;
        --env) return ;;
        --network) return ;;
        --max-processes) return ;;
        --env-var|-e) return ;;
        --secret) return ;;
        --cwd|-C) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --output) return ;;
        --input) return ;;
        --volume) return ;;
        --suspendable) return ;;
        --share) return ;;
        --suspend-hook) return ;;
        --resume-hook) return ;;
        --checkpoint-every) return ;;
        --checkpoint-cmd) return ;;
        --checkpoint-signal) return ;;
        --checkpoint-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --stop-grace) return ;;
        --idempotency-key) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--gpus -g --gpu-mem --gpu-type --mig --nodes -N --procs --whole-node --exclusive --cpus -c --mem --node-label --constraint --region --zone --pool --fabric --placement-group --topology --spread --pack --elastic --reservation --time --name -n --label -l --project -p --priority --spot --retries --backoff --after --image --env --network --max-processes --env-var -e --no-env --secret --cwd -C --sync --no-sync --output --input --volume --suspendable --strict --share --suspend-hook --resume-hook --checkpoint-every --checkpoint-cmd --checkpoint-signal --checkpoint-dir --stop-grace --rerun-if-lost --idempotency-key --tty -t --no-stdin --quiet -q --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -c -f -- "$cur")); return ;;
    "submit")
      case $prev in
        --gpus|-g) return ;;
        --gpu-mem) return ;;
        --gpu-type) return ;;
        --mig) return ;;
        --nodes|-N) return ;;
        --procs) return ;;
        --cpus|-c) return ;;
        --mem) return ;;
        --node-label) return ;;
        --constraint) return ;;
        --region) return ;;
        --zone) return ;;
        --pool) return ;;
        --fabric) return ;;
        --placement-group) return ;;
        --topology) return ;;
        --reservation) return ;;
        --time) return ;;
        --name|-n) return ;;
        --label|-l) return ;;
        --project|-p) return ;;
        --priority) return ;;
        --retries) return ;;
        --backoff) return ;;
        --after) COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
        --image) return ;;
        --env) return ;;
        --network) return ;;
        --max-processes) return ;;
        --env-var|-e) return ;;
        --secret) return ;;
        --cwd|-C) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --output) return ;;
        --input) return ;;
        --volume) return ;;
        --suspendable) return ;;
        --share) return ;;
        --suspend-hook) return ;;
        --resume-hook) return ;;
        --checkpoint-every) return ;;
        --checkpoint-cmd) return ;;
        --checkpoint-signal) return ;;
        --checkpoint-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --stop-grace) return ;;
        --idempotency-key) return ;;
        --array|-a) return ;;
        --cron) return ;;
        --lines) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--gpus -g --gpu-mem --gpu-type --mig --nodes -N --procs --whole-node --exclusive --cpus -c --mem --node-label --constraint --region --zone --pool --fabric --placement-group --topology --spread --pack --elastic --reservation --time --name -n --label -l --project -p --priority --spot --retries --backoff --after --image --env --network --max-processes --env-var -e --no-env --secret --cwd -C --sync --no-sync --output --input --volume --suspendable --strict --share --suspend-hook --resume-hook --checkpoint-every --checkpoint-cmd --checkpoint-signal --checkpoint-dir --stop-grace --rerun-if-lost --idempotency-key --array -a --cron --quiet -q --lines --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -f -- "$cur")); return ;;
    "shell")
      case $prev in
        --gpus|-g) return ;;
        --gpu-mem) return ;;
        --gpu-type) return ;;
        --mig) return ;;
        --nodes|-N) return ;;
        --procs) return ;;
        --cpus|-c) return ;;
        --mem) return ;;
        --node-label) return ;;
        --constraint) return ;;
        --region) return ;;
        --zone) return ;;
        --pool) return ;;
        --fabric) return ;;
        --placement-group) return ;;
        --topology) return ;;
        --reservation) return ;;
        --time) return ;;
        --name|-n) return ;;
        --label|-l) return ;;
        --project|-p) return ;;
        --priority) return ;;
        --retries) return ;;
        --backoff) return ;;
        --after) COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
        --image) return ;;
        --env) return ;;
        --network) return ;;
        --max-processes) return ;;
        --env-var|-e) return ;;
        --secret) return ;;
        --cwd|-C) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --output) return ;;
        --input) return ;;
        --volume) return ;;
        --suspendable) return ;;
        --share) return ;;
        --suspend-hook) return ;;
        --resume-hook) return ;;
        --checkpoint-every) return ;;
        --checkpoint-cmd) return ;;
        --checkpoint-signal) return ;;
        --checkpoint-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --stop-grace) return ;;
        --idempotency-key) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--gpus -g --gpu-mem --gpu-type --mig --nodes -N --procs --whole-node --exclusive --cpus -c --mem --node-label --constraint --region --zone --pool --fabric --placement-group --topology --spread --pack --elastic --reservation --time --name -n --label -l --project -p --priority --spot --retries --backoff --after --image --env --network --max-processes --env-var -e --no-env --secret --cwd -C --sync --no-sync --output --input --volume --suspendable --strict --share --suspend-hook --resume-hook --checkpoint-every --checkpoint-cmd --checkpoint-signal --checkpoint-dir --stop-grace --rerun-if-lost --idempotency-key --quiet -q --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -c -f -- "$cur")); return ;;
    "attach")
      case $prev in
        --tail) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--tty -t --tail --watch -w --no-stdin --quiet -q --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "ps")
      case $prev in
        --state|-s) return ;;
        --project|-p) return ;;
        --user|-u) return ;;
        --name|-n) return ;;
        --label|-l) return ;;
        --array) COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
        --limit) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--all -a --expand -x --state -s --project -p --user -u --name -n --label -l --array --limit --quiet -q --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "logs")
      case $prev in
        --tail) return ;;
        --lines|-n) return ;;
        --rank) return ;;
        --grep) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--follow -f --tail --lines -n --rank --grep --ignore-case -i --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "describe")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "explain")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "wait")
      case $prev in
        --timeout) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--timeout --quiet -q --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "suspend")
      case $prev in
        --reason) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--cold --reason --wait -w --quiet -q --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "resume")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--on-demand --wait -w --quiet -q --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "stop")
      case $prev in
        --reason) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--force -f --reason --wait -w --quiet -q --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "cancel")
      case $prev in
        --reason) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--force -f --reason --wait -w --quiet -q --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "port-forward")
      case $prev in
        --rank) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--rank --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "ssh")
      case $prev in
        --rank) return ;;
        --identity|-i) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--rank --identity -i --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "ssh-config")
      case $prev in
        --rank) return ;;
        --identity|-i) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--rank --identity -i --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "ssh-proxy")
      case $prev in
        --rank) return ;;
        --identity|-i) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--rank --identity -i --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "schedule add")
      case $prev in
        --gpus|-g) return ;;
        --gpu-mem) return ;;
        --gpu-type) return ;;
        --mig) return ;;
        --nodes|-N) return ;;
        --procs) return ;;
        --cpus|-c) return ;;
        --mem) return ;;
        --node-label) return ;;
        --constraint) return ;;
        --region) return ;;
        --zone) return ;;
        --pool) return ;;
        --fabric) return ;;
        --placement-group) return ;;
        --topology) return ;;
        --reservation) return ;;
        --time) return ;;
        --name|-n) return ;;
        --label|-l) return ;;
        --project|-p) return ;;
        --priority) return ;;
        --retries) return ;;
        --backoff) return ;;
        --after) COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
        --image) return ;;
        --env) return ;;
        --network) return ;;
        --max-processes) return ;;
        --env-var|-e) return ;;
        --secret) return ;;
        --cwd|-C) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --output) return ;;
        --input) return ;;
        --volume) return ;;
        --suspendable) return ;;
        --share) return ;;
        --suspend-hook) return ;;
        --resume-hook) return ;;
        --checkpoint-every) return ;;
        --checkpoint-cmd) return ;;
        --checkpoint-signal) return ;;
        --checkpoint-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --stop-grace) return ;;
        --idempotency-key) return ;;
        --array|-a) return ;;
        --cron) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--gpus -g --gpu-mem --gpu-type --mig --nodes -N --procs --whole-node --exclusive --cpus -c --mem --node-label --constraint --region --zone --pool --fabric --placement-group --topology --spread --pack --elastic --reservation --time --name -n --label -l --project -p --priority --spot --retries --backoff --after --image --env --network --max-processes --env-var -e --no-env --secret --cwd -C --sync --no-sync --output --input --volume --suspendable --strict --share --suspend-hook --resume-hook --checkpoint-every --checkpoint-cmd --checkpoint-signal --checkpoint-dir --stop-grace --rerun-if-lost --idempotency-key --array -a --cron --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "schedule list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "schedule rm")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "status")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "nodes")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--gpus -g --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(_billow_nodes)" -- "$cur")); return ;;
    "drain")
      case $prev in
        --reason) return ;;
        --gpu) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--reason --gpu --reclaim --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(_billow_nodes)" -- "$cur")); return ;;
    "undrain")
      case $prev in
        --gpu) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--gpu --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(_billow_nodes)" -- "$cur")); return ;;
    "cordon")
      case $prev in
        --reason) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--reason --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(_billow_nodes)" -- "$cur")); return ;;
    "uncordon")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(_billow_nodes)" -- "$cur")); return ;;
    "events")
      case $prev in
        --after) return ;;
        --limit) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--follow -f --after --limit --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "pool add")
      case $prev in
        --min) return ;;
        --max) return ;;
        --idle) return ;;
        --patience) return ;;
        --order) return ;;
        --price) return ;;
        --gpu) return ;;
        --label) return ;;
        --head-url) return ;;
        --sim) return ;;
        --partition) return ;;
        --gres) return ;;
        --time) return ;;
        --sbatch) return ;;
        --create) return ;;
        --list) return ;;
        --delete) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--min --max --idle --patience --order --price --spot --gpu --label --head-url --sim --partition --gres --time --sbatch --create --list --delete --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "pool list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "pool rm")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "machine release")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "check fabric")
      case $prev in
        --node) COMPREPLY=($(compgen -W "$(_billow_nodes)" -- "$cur")); return ;;
        --pool) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--node --pool --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "top")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--once --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "node rm")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(_billow_nodes)" -- "$cur")); return ;;
    "login")
      case $prev in
        --token) return ;;
        --fingerprint) return ;;
        --ca) COMPREPLY=($(compgen -f -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--token --fingerprint --ca --json --help -h" -- "$cur")); return; fi
      return ;;
    "logout")
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--help -h" -- "$cur")); return; fi
      return ;;
    "context list")
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --help -h" -- "$cur")); return; fi
      return ;;
    "context use")
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--help -h" -- "$cur")); return; fi
      return ;;
    "dashboard")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "project create")
      case $prev in
        --weight) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--weight --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "project list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "project member")
      case $prev in
        --role) COMPREPLY=($(compgen -W "admin member viewer" -- "$cur")); return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--role --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "project remove")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "user create")
      case $prev in
        --role) COMPREPLY=($(compgen -W "admin member viewer" -- "$cur")); return ;;
        --unix-name) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--role --unix-name --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "user list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "token create")
      case $prev in
        --user|-u) return ;;
        --scope) COMPREPLY=($(compgen -W "full read submit join node" -- "$cur")); return ;;
        --project|-p) return ;;
        --life) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--user -u --scope --project -p --life --node --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "token list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "token revoke")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "secret set")
      case $prev in
        --project|-p) return ;;
        --file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--project -p --file --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "secret list")
      case $prev in
        --project|-p) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--project -p --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "secret rm")
      case $prev in
        --project|-p) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--project -p --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "project set")
      case $prev in
        --guarantee) return ;;
        --max) return ;;
        --weight) return ;;
        --borrow) COMPREPLY=($(compgen -W "yes no" -- "$cur")); return ;;
        --policy) COMPREPLY=($(compgen -W "fair shortest fifo" -- "$cur")); return ;;
        --user-max) return ;;
        --user-jobs) return ;;
        --regions) return ;;
        --pools) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--guarantee --max --weight --borrow --policy --user-max --user-jobs --regions --pools --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "reserve")
      case $prev in
        --gpus|-g) return ;;
        --gpu-type) return ;;
        --nodes|-N) return ;;
        --cpus|-c) return ;;
        --mem) return ;;
        --from) return ;;
        --for) return ;;
        --until) return ;;
        --name|-n) return ;;
        --project|-p) return ;;
        --region) return ;;
        --zone) return ;;
        --pool) return ;;
        --fabric) return ;;
        --placement-group) return ;;
        --topology) return ;;
        --node-label) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--gpus -g --gpu-type --nodes -N --whole-node --cpus -c --mem --from --for --until --name -n --project -p --region --zone --pool --fabric --placement-group --topology --node-label --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "reserve list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "reserve calendar")
      case $prev in
        --days) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--days --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "reserve cancel")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "cost")
      case $prev in
        --by) return ;;
        --job) COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
        --since) return ;;
        --until) return ;;
        --project|-p) return ;;
        --user|-u) return ;;
        --grid) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--by --job --csv --focus --since --until --project -p --user -u --grid --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "waste")
      case $prev in
        --by) return ;;
        --limit) return ;;
        --since) return ;;
        --until) return ;;
        --project|-p) return ;;
        --user|-u) return ;;
        --grid) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--by --limit --since --until --project -p --user -u --grid --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "invoice")
      case $prev in
        --project|-p) return ;;
        --month) return ;;
        --grid) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--project -p --month --grid --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "anomalies")
      case $prev in
        --since) return ;;
        --until) return ;;
        --project|-p) return ;;
        --user|-u) return ;;
        --grid) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--since --until --project -p --user -u --grid --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "bill import")
      case $prev in
        --name) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--name --all -a --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -f -- "$cur")); return ;;
    "month close")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "month list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "budget set")
      case $prev in
        --project|-p) return ;;
        --user|-u) return ;;
        --job) return ;;
        --grace) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--project -p --user -u --job --daily --monthly --total --warn-only --grace --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "budget show")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "budget rm")
      case $prev in
        --project|-p) return ;;
        --user|-u) return ;;
        --job) return ;;
        --grace) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--project -p --user -u --job --daily --monthly --total --warn-only --grace --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "price set")
      case $prev in
        --cost) return ;;
        --charge) return ;;
        --spot) return ;;
        --storage) return ;;
        --egress) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--cost --charge --spot --storage --egress --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "price set-onprem")
      case $prev in
        --purchase) return ;;
        --gpus) return ;;
        --years) return ;;
        --power) return ;;
        --per-kwh) return ;;
        --pue) return ;;
        --upkeep) return ;;
        --charge) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--purchase --gpus --years --power --per-kwh --pue --upkeep --charge --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "price list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "price rm")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "idle set")
      case $prev in
        --project|-p) return ;;
        --warn) return ;;
        --suspend) return ;;
        --stop) return ;;
        --keepalive-max) return ;;
        --floor) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--project -p --warn --suspend --stop --keepalive-max --off --reset --floor --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "idle show")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "keepalive")
      case $prev in
        --for) return ;;
        --reason) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--for --reason --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "webhook add")
      case $prev in
        --kinds) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--kinds --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "webhook list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "webhook rm")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "webhook test")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "commitment set")
      case $prev in
        --gpu) return ;;
        --gpus) return ;;
        --rate) return ;;
        --from) return ;;
        --to) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--gpu --gpus --rate --from --to --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "commitment list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "commitment rm")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "project tag")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "advise")
      case $prev in
        --model|-m) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --models) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --precision) return ;;
        --context) return ;;
        --input) return ;;
        --output) return ;;
        --ttft) return ;;
        --tps) return ;;
        --users) return ;;
        --rps) return ;;
        --trace) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --engine) COMPREPLY=($(compgen -W "vllm sglang trtllm" -- "$cur")); return ;;
        --engine-version) return ;;
        --providers) return ;;
        --regions) return ;;
        --tuning) COMPREPLY=($(compgen -W "full lora qlora" -- "$cur")); return ;;
        --sequence) return ;;
        --micro-batch) return ;;
        --tokens) return ;;
        --checkpoint-time) return ;;
        --interruptions) return ;;
        --batch) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--model -m --models --precision --context --input --output --ttft --tps --users --rps --trace --engine --engine-version --providers --regions --spot --mine --train --tuning --sequence --micro-batch --tokens --checkpoint-time --interruptions --batch --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -f -- "$cur")); return ;;
    "prices")
      case $prev in
        --gpu) return ;;
        --instance) return ;;
        --providers) return ;;
        --regions) return ;;
        --gpus-min) return ;;
        --limit) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--gpu --instance --providers --regions --gpus-min --limit --gpus --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -f -- "$cur")); return ;;
    "plan")
      case $prev in
        --trace) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --gpu) return ;;
        --providers) return ;;
        --regions) return ;;
        --risk) COMPREPLY=($(compgen -W "low medium high" -- "$cur")); return ;;
        --committed-ratio) return ;;
        --price-drop) return ;;
        --buy) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--trace --gpu --providers --regions --risk --committed-ratio --price-drop --buy --review --this-month --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "deploy")
      case $prev in
        --min) return ;;
        --max) return ;;
        --concurrency) return ;;
        --timeout) return ;;
        --idle) return ;;
        --keep) return ;;
        --slo) return ;;
        --health) return ;;
        --start-timeout) return ;;
        --regions) return ;;
        --base-on-demand) return ;;
        --queue) return ;;
        --access) COMPREPLY=($(compgen -W "local key open" -- "$cur")); return ;;
        --cors) return ;;
        --webhook) return ;;
        --gpus|-g) return ;;
        --gpu-mem) return ;;
        --gpu-type) return ;;
        --mig) return ;;
        --nodes|-N) return ;;
        --procs) return ;;
        --cpus|-c) return ;;
        --mem) return ;;
        --node-label) return ;;
        --constraint) return ;;
        --region) return ;;
        --zone) return ;;
        --pool) return ;;
        --fabric) return ;;
        --placement-group) return ;;
        --topology) return ;;
        --reservation) return ;;
        --time) return ;;
        --name|-n) return ;;
        --label|-l) return ;;
        --project|-p) return ;;
        --priority) return ;;
        --retries) return ;;
        --backoff) return ;;
        --after) COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
        --image) return ;;
        --env) return ;;
        --network) return ;;
        --max-processes) return ;;
        --env-var|-e) return ;;
        --secret) return ;;
        --cwd|-C) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --output) return ;;
        --input) return ;;
        --volume) return ;;
        --suspendable) return ;;
        --share) return ;;
        --suspend-hook) return ;;
        --resume-hook) return ;;
        --checkpoint-every) return ;;
        --checkpoint-cmd) return ;;
        --checkpoint-signal) return ;;
        --checkpoint-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --stop-grace) return ;;
        --idempotency-key) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--min --max --concurrency --timeout --idle --keep --slo --health --start-timeout --regions --base-on-demand --queue --access --cors --webhook --no-wait --quiet -q --gpus -g --gpu-mem --gpu-type --mig --nodes -N --procs --whole-node --exclusive --cpus -c --mem --node-label --constraint --region --zone --pool --fabric --placement-group --topology --spread --pack --elastic --reservation --time --name -n --label -l --project -p --priority --spot --retries --backoff --after --image --env --network --max-processes --env-var -e --no-env --secret --cwd -C --sync --no-sync --output --input --volume --suspendable --strict --share --suspend-hook --resume-hook --checkpoint-every --checkpoint-cmd --checkpoint-signal --checkpoint-dir --stop-grace --rerun-if-lost --idempotency-key --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "endpoints")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "scale")
      case $prev in
        --min) return ;;
        --max) return ;;
        --concurrency) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--min --max --concurrency --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "rollback")
      case $prev in
        --to) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--to --quiet -q --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "delete")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "endpoint-key")
      case $prev in
        --name) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--name --remove --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "gateway")
      case $prev in
        --listen) return ;;
        --head) return ;;
        --token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --fingerprint) return ;;
        --ca) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --region) return ;;
        --advertise) return ;;
        --webhook-host) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --serve) return ;;
        --cert) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --key) COMPREPLY=($(compgen -f -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--listen --head --token-file --fingerprint --ca --region --advertise --webhook-host --data --serve --cert --key --any-port --log-json --verbose -v --help -h" -- "$cur")); return; fi
      return ;;
    "profile")
      case $prev in
        --gpus|-g) return ;;
        --gpu-mem) return ;;
        --gpu-type) return ;;
        --mig) return ;;
        --nodes|-N) return ;;
        --procs) return ;;
        --cpus|-c) return ;;
        --mem) return ;;
        --node-label) return ;;
        --constraint) return ;;
        --region) return ;;
        --zone) return ;;
        --pool) return ;;
        --fabric) return ;;
        --placement-group) return ;;
        --topology) return ;;
        --reservation) return ;;
        --time) return ;;
        --name|-n) return ;;
        --label|-l) return ;;
        --project|-p) return ;;
        --priority) return ;;
        --retries) return ;;
        --backoff) return ;;
        --after) COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
        --image) return ;;
        --env) return ;;
        --network) return ;;
        --max-processes) return ;;
        --env-var|-e) return ;;
        --secret) return ;;
        --cwd|-C) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --output) return ;;
        --input) return ;;
        --volume) return ;;
        --suspendable) return ;;
        --share) return ;;
        --suspend-hook) return ;;
        --resume-hook) return ;;
        --checkpoint-every) return ;;
        --checkpoint-cmd) return ;;
        --checkpoint-signal) return ;;
        --checkpoint-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --stop-grace) return ;;
        --idempotency-key) return ;;
        --for) return ;;
        --steps) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--gpus -g --gpu-mem --gpu-type --mig --nodes -N --procs --whole-node --exclusive --cpus -c --mem --node-label --constraint --region --zone --pool --fabric --placement-group --topology --spread --pack --elastic --reservation --time --name -n --label -l --project -p --priority --spot --retries --backoff --after --image --env --network --max-processes --env-var -e --no-env --secret --cwd -C --sync --no-sync --output --input --volume --suspendable --strict --share --suspend-hook --resume-hook --checkpoint-every --checkpoint-cmd --checkpoint-signal --checkpoint-dir --stop-grace --rerun-if-lost --idempotency-key --for --steps --quiet -q --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -c -f -- "$cur")); return ;;
    "compare")
      case $prev in
        --gpus|-g) return ;;
        --gpu-mem) return ;;
        --gpu-type) return ;;
        --mig) return ;;
        --nodes|-N) return ;;
        --procs) return ;;
        --cpus|-c) return ;;
        --mem) return ;;
        --node-label) return ;;
        --constraint) return ;;
        --region) return ;;
        --zone) return ;;
        --pool) return ;;
        --fabric) return ;;
        --placement-group) return ;;
        --topology) return ;;
        --reservation) return ;;
        --time) return ;;
        --name|-n) return ;;
        --label|-l) return ;;
        --project|-p) return ;;
        --priority) return ;;
        --retries) return ;;
        --backoff) return ;;
        --after) COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
        --image) return ;;
        --env) return ;;
        --network) return ;;
        --max-processes) return ;;
        --env-var|-e) return ;;
        --secret) return ;;
        --cwd|-C) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --output) return ;;
        --input) return ;;
        --volume) return ;;
        --suspendable) return ;;
        --share) return ;;
        --suspend-hook) return ;;
        --resume-hook) return ;;
        --checkpoint-every) return ;;
        --checkpoint-cmd) return ;;
        --checkpoint-signal) return ;;
        --checkpoint-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --stop-grace) return ;;
        --idempotency-key) return ;;
        --gpu-types) return ;;
        --steps) return ;;
        --units) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--gpus -g --gpu-mem --gpu-type --mig --nodes -N --procs --whole-node --exclusive --cpus -c --mem --node-label --constraint --region --zone --pool --fabric --placement-group --topology --spread --pack --elastic --reservation --time --name -n --label -l --project -p --priority --spot --retries --backoff --after --image --env --network --max-processes --env-var -e --no-env --secret --cwd -C --sync --no-sync --output --input --volume --suspendable --strict --share --suspend-hook --resume-hook --checkpoint-every --checkpoint-cmd --checkpoint-signal --checkpoint-dir --stop-grace --rerun-if-lost --idempotency-key --gpu-types --steps --units --show-output --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -c -f -- "$cur")); return ;;
    "loadtest")
      case $prev in
        --rps) return ;;
        --trace) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --speed) return ;;
        --for) return ;;
        --input) return ;;
        --output) return ;;
        --ttft) return ;;
        --tps) return ;;
        --served-model) return ;;
        --timeout) return ;;
        --model|-m) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --models) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --gpu) return ;;
        --tensor) return ;;
        --precision) return ;;
        --engine) COMPREPLY=($(compgen -W "vllm sglang trtllm" -- "$cur")); return ;;
        --engine-version) return ;;
        --seed) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--rps --trace --speed --for --input --output --ttft --tps --served-model --timeout --model -m --models --gpu --tensor --precision --engine --engine-version --seed --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "simulate endpoints")
      case $prev in
        --trace) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --concurrency) return ;;
        --prefill-tokens-s) return ;;
        --step-ms) return ;;
        --start-s) return ;;
        --wake-s) return ;;
        --existing) return ;;
        --slo-s) return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--trace --concurrency --prefill-tokens-s --step-ms --start-s --wake-s --existing --slo-s --json --help -h" -- "$cur")); return; fi
      return ;;
    "simulate openb")
      case $prev in
        --nodes) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --tasks) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --stream) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --policy) COMPREPLY=($(compgen -W "best bestfit fgd random" -- "$cur")); return ;;
        --shuffle-nodes) return ;;
        --svg) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --limit) return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--nodes --tasks --stream --policy --shuffle-nodes --svg --limit --json --help -h" -- "$cur")); return; fi
      return ;;
    "simulate jobs")
      case $prev in
        --trace) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W "muri philly" -- "$cur")); return ;;
        --nodes) return ;;
        --gpus) return ;;
        --policy) COMPREPLY=($(compgen -W "best srsf las fifo fair" -- "$cur")); return ;;
        --durations) COMPREPLY=($(compgen -W "known learned" -- "$cur")); return ;;
        --svg) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --limit) return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--trace --format --nodes --gpus --policy --durations --interleave --svg --limit --json --help -h" -- "$cur")); return; fi
      return ;;
    "simulate replay")
      case $prev in
        --trace) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --format) COMPREPLY=($(compgen -W "openb muri philly history" -- "$cur")); return ;;
        --fleet) return ;;
        --policy) COMPREPLY=($(compgen -W "fair shortest fifo" -- "$cur")); return ;;
        --durations) COMPREPLY=($(compgen -W "known learned" -- "$cur")); return ;;
        --svg) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --limit) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--trace --format --fleet --policy --durations --svg --limit --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "cp")
      case $prev in
        --rank) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--rank --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -f -- "$cur")); return ;;
    "volume add")
      case $prev in
        --path) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --pool) return ;;
        --label|-l) return ;;
        --project|-p) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--path --pool --label -l --project -p --read-only --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "volume list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "volume rm")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "join")
      case $prev in
        --token) return ;;
        --token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --node-name) return ;;
        --label) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --sim) return ;;
        --only-gpus) return ;;
        --cache-max) return ;;
        --reclaim-notices) return ;;
        --metadata-url) return ;;
        --files-max) return ;;
        --images-max) return ;;
        --pull-patience) return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--token --token-file --node-name --label --data --sim --only-gpus --allow-mig-changes --in-allocation --cache-max --reclaim-notices --metadata-url --files-max --images-max --pull-patience --register-only --log-json --help -h" -- "$cur")); return; fi
      return ;;
    "check gpus")
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --help -h" -- "$cur")); return; fi
      return ;;
    "env save")
      case $prev in
        --project|-p) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--project -p --shared --json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -d -- "$cur")); return ;;
    "env list")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "env show")
      case $prev in
        --project|-p) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--project -p --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "env rm")
      case $prev in
        --project|-p) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--project -p --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "rerun")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --head --data --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "$(billow ps -q 2>/dev/null)" -- "$cur")); return ;;
    "env create")
      case $prev in
        --image) return ;;
        --project|-p) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--image --project -p --shared --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "up")
      case $prev in
        --listen) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --sim) return ;;
        --node-name) return ;;
        --vault-arena) return ;;
        --images-max) return ;;
        --pull-patience) return ;;
        --secrets-key) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --notify-command) return ;;
        --label|-l) return ;;
        --gateway) return ;;
        --webhook-host) return ;;
        --tls-cert) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --tls-key) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --tls-name) return ;;
        --store) return ;;
        --store-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --files-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --backup-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --backup-every) return ;;
        --backup-keep) return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--listen --data --sim --node-name --vault-arena --allow-mig-changes --images-max --pull-patience --secrets-key --notify-command --label -l --gateway --webhook-host --no-agent --tls --tls-cert --tls-key --tls-name --store --store-file --standby --files-dir --backup-dir --backup-every --backup-keep --plain-http --background --log-json --verbose -v --help -h" -- "$cur")); return; fi
      return ;;
    "down")
      case $prev in
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--stop-jobs --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "agent")
      case $prev in
        --head) return ;;
        --token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --sim) return ;;
        --vault-arena) return ;;
        --images-max) return ;;
        --pull-patience) return ;;
        --node-name) return ;;
        --label|-l) return ;;
        --metrics) return ;;
        --pool) return ;;
        --end-command) return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--head --token-file --data --sim --vault-arena --allow-mig-changes --images-max --pull-patience --node-name --label -l --metrics --pool --bills --end-command --log-json --help -h" -- "$cur")); return; fi
      return ;;
    "doctor")
      case $prev in
        --sim) return ;;
        --head) return ;;
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--sim --json --head --data --help -h" -- "$cur")); return; fi
      return ;;
    "store migrate")
      case $prev in
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --store-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--data --store-file --json --help -h" -- "$cur")); return; fi
      return ;;
    "store backup")
      case $prev in
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --store) return ;;
        --store-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--data --store --store-file --json --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -f -- "$cur")); return ;;
    "store restore")
      case $prev in
        --data) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --store) return ;;
        --store-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--data --store --store-file --json --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -f -- "$cur")); return ;;
    "ranks")
      case $prev in
        --procs) return ;;
        --barrier) return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--procs --barrier --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -c -f -- "$cur")); return ;;
    "rsh")
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -c -f -- "$cur")); return ;;
    "stage")
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--copy-in --copy-out --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -c -f -- "$cur")); return ;;
    "box")
      case $prev in
        --image) return ;;
        --environment) return ;;
        --limit) return ;;
        --key) return ;;
        --enter) return ;;
        --store) return ;;
      esac
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--image --environment --hold --limit --key --enter --store --help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -c -f -- "$cur")); return ;;
    "completion")
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--help -h" -- "$cur")); return; fi
      COMPREPLY=($(compgen -W "bash zsh fish" -- "$cur")); return ;;
    "version")
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--json --help -h" -- "$cur")); return; fi
      return ;;
    "help")
      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "--markdown --help -h" -- "$cur")); return; fi
      return ;;
  esac
}
complete -o bashdefault -F _billow billow
