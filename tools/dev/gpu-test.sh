# ./dev gpu-test [--part N|wake|smoke] [--sim]: run the GPU tests on a machine with an NVIDIA GPU.
# It compiles the shim, the GPU memory service and the probe with the g++ of the machine (no CUDA
# toolkit, no packages), runs one part or all of them, and prints a table. Parts:
#   1 memory limits · 2 compute shares · 3 overhead · 4 suspend and resume · 5 suspend cycles of a training loop
#   6 taking turns (six minutes) · 7 the whole product from its bundle, with strict shares, a training step and swapping
#   8 verdicts on idle, busy, hung and bursty processes · 9 record the signals of twenty kinds of work for the test of
#   the idle verdict, into $OUT (seven minutes) · wake: wake an endpoint with a model of 16 GiB (four minutes)
#   exits: processes of four threads that exit while they are suspended and resumed · ipc: processes that share memory ·
#   sizes: suspend and resume of 20 and 50 GiB beside the stock driver (two minutes) ·
#   mixed: shares of ten pairs of different work (eight minutes) · asleep: 160 GiB of suspended memory (two minutes) ·
#   programs: many different programs suspended and resumed at work (two minutes) ·
#   nccl: two ranks of NCCL on one GPU · preempt: whether the GPU switches away from a process that was restored ·
#   steps: the training step by turns through the shim and past it in one process ·
#   replay: the training step as one graph, with and without the shim · train: the step in pairs of processes ·
#   wall: jobs with --isolation strict, from the bundle
# --sim: run everything, small, on the simulated driver. That checks the tests, not the figures.
part=all
sim=
while [ $# -gt 0 ]; do
  case $1 in
    --part) part=$2; shift 2 ;;
    --sim) sim=1; shift ;;
    *) die "usage: ./dev gpu-test [--part 1..9|wake|smoke] [--sim]" ;;
  esac
done
out=${BILLOW_GPU_TEST_BUILD:-$root/.dev/gpu-test}
mkdir -p "$out/obj" "$out/sim-cuda"
cxx=${CXX:-g++}
flags="-std=c++23 -O2 -g1 -I$root -I$root/src -Wall -Wextra -fPIC"
compile_one() { # object, source, flags...: only when the source or any header is newer
  object=$1 source=$2
  shift 2
  set -- "$cxx" $flags "$@" -c "$source" -o "$object"
  newer=$(find "$source" "$root"/shim "$root"/src/gpumem "$root"/src/base/*.h "$root"/src/process/*.h "$root"/tests/gpu \
    \( -name '*.h' -o -name '*.def' -o -samefile "$source" \) -newer "$object" -print 2>/dev/null | head -1)
  if [ ! -f "$object" ] || [ -n "$newer" ]; then
    echo "$*"
  fi
}
{
  for f in "$root"/shim/*.cpp; do
    compile_one "$out/obj/shim_$(basename "$f" .cpp).o" "$f" -fno-exceptions -fno-rtti -fno-threadsafe-statics \
      -fvisibility=hidden -ftls-model=initial-exec -fno-stack-protector
  done
  for f in "$root"/shim/sim/*.cpp; do
    compile_one "$out/obj/sim_$(basename "$f" .cpp).o" "$f" -fvisibility=hidden
  done
  for f in $(python3 "$root/tests/gpu/sources.py"); do
    compile_one "$out/obj/gpumem_$(basename "$f" .cpp).o" "$root/$f"
  done
  compile_one "$out/obj/probe.o" "$root/tests/gpu/probe.cpp"
  compile_one "$out/obj/bypass.o" "$root/tests/gpu/bypass.cpp"
  compile_one "$out/obj/child_of_tests.o" "$root/tests/unit/shim/child.cpp"
} >"$out/compile.txt"
say "gpu-test: compiling $(wc -l <"$out/compile.txt") files with $($cxx --version | head -1)"
xargs -P "$jobs" -I{} sh -c '{} || exit 1' <"$out/compile.txt" || die "the shim or the GPU memory service did not compile"
gcc -shared -Wl,-z,defs -Wl,-soname,libbillow-cuda.so -o "$out/libbillow-cuda.so" "$out"/obj/shim_*.o -ldl -lpthread
$cxx -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -o "$out/sim-cuda/libcuda.so.1" "$out"/obj/sim_*.o -lpthread
$cxx -o "$out/billow-gpumem" "$out"/obj/gpumem_*.o -lpthread -ldl
$cxx -o "$out/probe" "$out/obj/probe.o" -ldl -lpthread
$cxx -shared -o "$out/libbypass.so" "$out/obj/bypass.o" -ldl
$cxx -o "$out/shim_child" "$out/obj/child_of_tests.o" -ldl -lpthread
export BILLOW_GPU_TEST_BUILD="$out" PYTHONUNBUFFERED=1
if [ -n "$sim" ]; then
  export BILLOW_GPU_TEST_SIM=1 BILLOW_SIM_CUDA_STATE="$out/sim-state"
  export LD_LIBRARY_PATH="$out/sim-cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  rm -f "$out/sim-state"
elif ! command -v nvidia-smi >/dev/null; then
  die "no NVIDIA GPU here; ./dev gpu-test --sim checks the tests themselves on the simulated driver"
fi
if [ "$part" = smoke ]; then
  python3 "$root/tests/gpu/smoke.py"
else
  python3 "$root/tests/gpu/run.py" --part "$part"
fi
