/* The exports without a model: each records its arguments and succeeds. They are weak symbols, so a
 * model replaces them. */
#include <unistd.h>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "shim/sim/sim.h"

namespace simcuda {
namespace {
struct Recorded {
  std::atomic<uint64_t> calls;
  uint64_t last[12];
  std::atomic<long> fail_after;
  int fail_with;
};
Recorded recorded[api_count];
const char* const symbols[] = {
#define BILLOW_API(symbol, name, since, arguments, kind, stream) #symbol,
#include "shim/cuda_api.def"
#undef BILLOW_API
};
const char* const names[] = {
#define BILLOW_API(symbol, name, since, arguments, kind, stream) #name,
#include "shim/cuda_api.def"
#undef BILLOW_API
};
const int since[] = {
#define BILLOW_API(symbol, name, since, arguments, kind, stream) since,
#include "shim/cuda_api.def"
#undef BILLOW_API
};

int index_of(const char* symbol) {
  for (int i = 0; i < api_count; i++)
    if (!std::strcmp(symbols[i], symbol))
      return i;
  return -1;
}

// Tests hold one kind of thread at its n-th call: the threads of the program, which said so, or all
// others (the shim's).
thread_local bool of_program = false;
std::atomic<int> park_program{-1}, parked{0};
std::atomic<long> park_after{0};

void park() {
  if (park_program.load() != static_cast<int>(of_program) || park_after.fetch_sub(1) != 0)
    return;
  parked = 1;
  while (parked.load() == 1)
    usleep(200);
}

template <class... W>
CUresult record(Api api, W... words) {
  const CUresult injected = enter(api);
  const uint64_t all[] = {words..., 0};
  for (size_t i = 0; i < sizeof...(words); i++)
    recorded[api].last[i] = all[i];
  return injected;
}
}  // namespace

CUresult enter(Api api) {
  Recorded& r = recorded[api];
  r.calls.fetch_add(1);
  World& w = world();
  while (w.me && w.me->state.load() != running)
    usleep(500);
  park();
  if (w.ended.load())
    return CUDA_DEINITIALIZED;
  if (r.fail_with && r.fail_after.fetch_sub(1) <= 0)
    return r.fail_with;
  return CUDA_OK;
}

extern void (*const functions[api_count])();  // table.cpp

CUresult proc_address(const char* name, void** function, int version, uint64_t flags) {
  if (!name || !function)
    return CUDA_INVALID_VALUE;
  *function = nullptr;
  int best = -1;
  for (int i = 0; i < api_count; i++) {
    if (std::strcmp(names[i], name) || since[i] > version)
      continue;
    const std::string_view symbol = symbols[i];
    const bool per_thread = symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
    if (per_thread && !(flags & PROC_ADDRESS_PER_THREAD))
      continue;
    if (best < 0 || since[i] > since[best] || (since[i] == since[best] && per_thread))
      best = i;
  }
  if (best < 0)
    return CUDA_NOT_FOUND;
  *function = reinterpret_cast<void*>(functions[best]);
  return *function ? CUDA_OK : CUDA_NOT_FOUND;
}

}  // namespace simcuda

using namespace simcuda;

// ---- for tests
SIM_EXPORT uint64_t billow_sim_calls(const char* symbol) {
  const int i = index_of(symbol);
  return i < 0 ? 0 : recorded[i].calls.load();
}
SIM_EXPORT void billow_sim_last(const char* symbol, uint64_t* words) {
  const int i = index_of(symbol);
  if (i >= 0)
    std::memcpy(words, recorded[i].last, sizeof recorded[i].last);
}
SIM_EXPORT void billow_sim_of_program() {
  of_program = true;
}
// Holds the next thread of that kind at its (after+1)th call, until unparked.
SIM_EXPORT void billow_sim_park(int program, long after) {
  park_after = after;
  parked = 0;
  park_program = program;
}
SIM_EXPORT int billow_sim_parked() {
  return parked.load();
}
SIM_EXPORT void billow_sim_unpark() {
  park_program = -1;
  parked = 2;
}
// From the (after+1)th call on, the function fails with `result`; 0 ends it.
SIM_EXPORT void billow_sim_fail(const char* symbol, long after, int result) {
  const int i = index_of(symbol);
  if (i < 0)
    return;
  recorded[i].fail_with = 0;
  recorded[i].fail_after = after;
  recorded[i].fail_with = result;
}

typedef uintptr_t Word;
#define P_0
#define P_1 Word a
#define P_2 P_1, Word b
#define P_3 P_2, Word c
#define P_4 P_3, Word d
#define P_5 P_4, Word e
#define P_6 P_5, Word f
#define P_7 P_6, Word g
#define P_8 P_7, Word h
#define P_9 P_8, Word i
#define P_10 P_9, Word j
#define P_11 P_10, Word k
#define P_12 P_11, Word l
#define P_13 P_12, Word m
#define P_14 P_13, Word n
#define P_15 P_14, Word o
#define P_16 P_15, Word p
#define P_17 P_16, Word q
#define A_0 \
  Word {    \
    0       \
  }
#define A_1 a
#define A_2 A_1, b
#define A_3 A_2, c
#define A_4 A_3, d
#define A_5 A_4, e
#define A_6 A_5, f
#define A_7 A_6, g
#define A_8 A_7, h
#define A_9 A_8, i
#define A_10 A_9, j
#define A_11 A_10, k
#define A_12 A_11
#define A_13 A_11
#define A_14 A_11
#define A_15 A_11
#define A_16 A_11
#define A_17 A_11
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define BILLOW_API(symbol, name, since, arguments, kind, stream)                           \
  extern "C" __attribute__((weak, visibility("default"))) CUresult symbol(P_##arguments) { \
    return record(api_##symbol, A_##arguments);                                            \
  }
#include "shim/cuda_api.def"
#undef BILLOW_API
