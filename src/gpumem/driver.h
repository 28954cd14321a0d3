// The functions of the CUDA driver that the GPU memory service uses, loaded at run time.
// BILLOW_CUDA names another library, for tests. No CUDA header is needed.
#pragma once

#include <string>

#include "base/result.h"
#include "shim/cuda_types.h"

namespace billow::gpumem {

struct Driver {
  static Result<Driver> load();

  CUresult (*init)(unsigned);
  CUresult (*device_count)(int*);
  CUresult (*device_uuid)(CUuuid*, CUdevice);
  CUresult (*primary_retain)(CUcontext*, CUdevice);
  CUresult (*set_current)(CUcontext);
  CUresult (*mem_info)(size_t*, size_t*);
  CUresult (*host_register)(void*, size_t, unsigned);
  CUresult (*host_alloc)(void**, size_t, unsigned);
  CUresult (*stream_create)(CUstream*, unsigned);
  CUresult (*stream_synchronize)(CUstream);
  CUresult (*event_create)(CUevent*, unsigned);
  CUresult (*event_record)(CUevent, CUstream);
  CUresult (*event_query)(CUevent);
  CUresult (*event_synchronize)(CUevent);
  CUresult (*stream_wait)(CUstream, CUevent, unsigned);
  CUresult (*copy_out)(void*, CUdeviceptr, size_t, CUstream);
  CUresult (*copy_in)(CUdeviceptr, const void*, size_t, CUstream);
  CUresult (*fill)(CUdeviceptr, unsigned char, size_t, CUstream);
  CUresult (*address_reserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
  CUresult (*address_free)(CUdeviceptr, size_t);
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long);
  CUresult (*unmap)(CUdeviceptr, size_t);
  CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
  CUresult (*import_fd)(CUmemHandle*, void*, int);
  CUresult (*release)(CUmemHandle);
  CUresult (*module_load)(CUmodule*, const void*);
  CUresult (*module_function)(CUfunction*, CUmodule, const char*);
  CUresult (*launch)(CUfunction,
                     unsigned,
                     unsigned,
                     unsigned,
                     unsigned,
                     unsigned,
                     unsigned,
                     unsigned,
                     CUstream,
                     void**,
                     void**);
  // Null if the driver is older than 570; cold suspends are then unsupported.
  CUresult (*checkpoint_lock)(int, void*);
  CUresult (*checkpoint_checkpoint)(int, void*);
  CUresult (*checkpoint_restore)(int, void*);
  CUresult (*checkpoint_unlock)(int, void*);
  CUresult (*checkpoint_state)(int, int*);
};

// "cuMemMap: CUDA error 2 (out of memory)" as an Error; the code says whether waiting may help.
Error cuda_error(const char* what, CUresult result);

#define GPUMEM_CUDA(what, ...)                                                \
  do {                                                                        \
    if (const CUresult cuda_result = (__VA_ARGS__); cuda_result != CUDA_OK)   \
      return ::billow::pass(::billow::gpumem::cuda_error(what, cuda_result)); \
  } while (0)

}  // namespace billow::gpumem
