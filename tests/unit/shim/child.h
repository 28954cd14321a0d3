// What the programs of the shim's tests share: calls of the simulated driver by name, and
// expectations that end the process.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "shim/cuda_types.h"

#define EXPECT(condition)                                                          \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::_Exit(1);                                                               \
    }                                                                              \
  } while (0)

inline void* library() {
  static void* l = dlopen("libcuda.so.1", RTLD_NOW);
  return l;
}
template <class F>
F sim(const char* name) {
  return reinterpret_cast<F>(dlsym(library(), name));
}
template <class... A>
CUresult cu(const char* symbol, A... arguments) {
  auto f = reinterpret_cast<CUresult (*)(A...)>(dlsym(library(), symbol));
  EXPECT(f != nullptr);
  return f(arguments...);
}
inline void fail_from(const char* symbol, long after, int result) {
  sim<void (*)(const char*, long, int)>("billow_sim_fail")(symbol, after, result);
}
inline uint64_t used() {
  return sim<uint64_t (*)(int)>("billow_sim_used")(0);
}
inline uint64_t violations() {
  return sim<uint64_t (*)()>("billow_sim_violations")();
}

inline CUcontext start() {
  CUcontext context = nullptr;
  EXPECT(cu("cuInit", 0u) == CUDA_OK);
  EXPECT(cu("cuDevicePrimaryCtxRetain", &context, 0) == CUDA_OK);
  EXPECT(cu("cuCtxSetCurrent", context) == CUDA_OK);
  return context;
}
inline CUresult alloc(CUdeviceptr* out, size_t bytes) {
  return cu("cuMemAlloc_v2", out, bytes);
}
inline size_t free_now() {
  size_t f = 0, t = 0;
  EXPECT(cu("cuMemGetInfo_v2", &f, &t) == CUDA_OK);
  return f;
}
constexpr size_t MiB = 1 << 20;
