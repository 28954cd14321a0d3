// Loads libcuda. The names carry the ABI version with which driver.h declares them.
#include "gpumem/driver.h"

#include <dlfcn.h>

#include <cstdlib>

namespace billow::gpumem {

Result<Driver> Driver::load() {
  const char* named = std::getenv("BILLOW_CUDA");
  const std::string path = named && *named ? named : "libcuda.so.1";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(Code::unsupported, "no CUDA driver (" + path + " cannot be loaded)",
                "install the NVIDIA driver on this node");
  Driver d{};
  bool complete = true;
  const auto load = [&](auto& function, const char* name, bool optional = false) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    complete = complete && (function || optional);
  };
  load(d.init, "cuInit");
  load(d.device_count, "cuDeviceGetCount");
  load(d.device_uuid, "cuDeviceGetUuid_v2", true);
  if (!d.device_uuid)
    load(d.device_uuid, "cuDeviceGetUuid");
  load(d.primary_retain, "cuDevicePrimaryCtxRetain");
  load(d.set_current, "cuCtxSetCurrent");
  load(d.mem_info, "cuMemGetInfo_v2");
  load(d.host_register, "cuMemHostRegister_v2");
  load(d.host_alloc, "cuMemHostAlloc");
  load(d.stream_create, "cuStreamCreate");
  load(d.stream_synchronize, "cuStreamSynchronize");
  load(d.event_create, "cuEventCreate");
  load(d.event_record, "cuEventRecord");
  load(d.event_query, "cuEventQuery");
  load(d.event_synchronize, "cuEventSynchronize");
  load(d.stream_wait, "cuStreamWaitEvent");
  load(d.copy_out, "cuMemcpyDtoHAsync_v2");
  load(d.copy_in, "cuMemcpyHtoDAsync_v2");
  load(d.fill, "cuMemsetD8Async");
  load(d.address_reserve, "cuMemAddressReserve");
  load(d.address_free, "cuMemAddressFree");
  load(d.map, "cuMemMap");
  load(d.unmap, "cuMemUnmap");
  load(d.set_access, "cuMemSetAccess");
  load(d.import_fd, "cuMemImportFromShareableHandle");
  load(d.release, "cuMemRelease");
  load(d.module_load, "cuModuleLoadData");
  load(d.module_function, "cuModuleGetFunction");
  load(d.launch, "cuLaunchKernel");
  load(d.checkpoint_lock, "cuCheckpointProcessLock", true);
  load(d.checkpoint_checkpoint, "cuCheckpointProcessCheckpoint", true);
  load(d.checkpoint_restore, "cuCheckpointProcessRestore", true);
  load(d.checkpoint_unlock, "cuCheckpointProcessUnlock", true);
  load(d.checkpoint_state, "cuCheckpointProcessGetState", true);
  if (!complete)
    return fail(Code::unsupported, "the CUDA driver is too old for suspend and resume",
                "CUDA 11.2 or newer is needed");
  GPUMEM_CUDA("cuInit", d.init(0));
  return d;
}

Error cuda_error(const char* what, CUresult result) {
  const char* meaning = "";
  Code code = Code::internal;
  switch (result) {
    case CUDA_OUT_OF_MEMORY:
      meaning = " (out of memory)";
      code = Code::exhausted;
      break;
    case CUDA_INVALID_VALUE:
      meaning = " (invalid value)";
      break;
    case CUDA_NO_DEVICE:
      meaning = " (no device)";
      code = Code::unsupported;
      break;
    case CUDA_NOT_SUPPORTED:
      meaning = " (not supported)";
      code = Code::unsupported;
      break;
    case CUDA_NOT_READY:
      meaning = " (not ready)";
      code = Code::timed_out;
      break;
    default:
      break;
  }
  return Error{code, std::string(what) + ": CUDA error " + std::to_string(result) + meaning, ""};
}

}  // namespace billow::gpumem
