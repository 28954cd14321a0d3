// The CUDA driver as the probe uses it: functions by name, one stream, and the kernels that fill
// and check memory.
#pragma once

#include <dlfcn.h>

#include <chrono>
#include <cstdint>

#include "shim/cuda_types.h"
#include "tests/gpu/kernels_ptx.h"

inline void* library;
inline CUresult (*get_proc)(const char*, void**, int, uint64_t, void*);

template <class F>
F function(const char* name, bool by_proc = false, const char* symbol = nullptr) {
  void* found = nullptr;
  if (by_proc && get_proc && get_proc(name, &found, 12000, 0, nullptr) == 0 && found)
    return reinterpret_cast<F>(found);
  return reinterpret_cast<F>(dlsym(library, symbol ? symbol : name));
}
#define FUNCTION(result, name, ...) static auto result = function<CUresult (*)(__VA_ARGS__)>(name)
#define PROC(result, name, symbol, ...) \
  static auto result = function<CUresult (*)(__VA_ARGS__)>(name, true, symbol)

inline CUcontext context;
inline CUstream stream;
inline CUfunction fill, verify, nothing, spin;
inline bool simulated;

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline CUresult start() {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library)
    return CUDA_NO_DEVICE;
  simulated = dlsym(library, "billow_sim_calls") != nullptr;
  get_proc = reinterpret_cast<decltype(get_proc)>(dlsym(library, "cuGetProcAddress_v2"));
  PROC(init, "cuInit", "cuInit", unsigned);
  PROC(retain, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", CUcontext*, CUdevice);
  FUNCTION(set, "cuCtxSetCurrent", CUcontext);
  FUNCTION(create, "cuStreamCreate", CUstream*, unsigned);
  FUNCTION(load, "cuModuleLoadData", CUmodule*, const void*);
  FUNCTION(get, "cuModuleGetFunction", CUfunction*, CUmodule, const char*);
  CUmodule module;
  CUresult r;
  if ((r = init(0)) || (r = retain(&context, 0)) || (r = set(context)) ||
      (r = create(&stream, 1)) || (r = load(&module, kernels_ptx)))
    return r;
  if ((r = get(&fill, module, "probe_fill")) || (r = get(&verify, module, "probe_check")) ||
      (r = get(&nothing, module, "probe_nothing")))
    return r;
  return get(&spin, module, "probe_spin");
}

inline CUresult launch(CUfunction f, unsigned blocks, void** parameters) {
  PROC(go, "cuLaunchKernel", "cuLaunchKernel", CUfunction, unsigned, unsigned, unsigned, unsigned,
       unsigned, unsigned, unsigned, CUstream, void**, void**);
  return go(f, blocks, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr);
}
inline CUresult synchronize() {
  FUNCTION(wait, "cuStreamSynchronize", CUstream);
  return wait(stream);
}
inline CUresult fill_words(CUdeviceptr at, uint64_t bytes, uint64_t seed) {
  uint64_t count = bytes / 8;
  void* parameters[] = {&at, &count, &seed};
  return launch(fill, 1056, parameters);
}
