/* The few types and values of the CUDA driver API that the shim, the GPU memory service and the
 * simulated driver use, declared here so that none of them needs a CUDA toolkit to build. Layouts
 * are the ABI's of CUDA 12 and 13 on 64-bit Linux. */
#ifndef BILLOW_SHIM_CUDA_TYPES_H
#define BILLOW_SHIM_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint64_t CUmemHandle; /* CUmemGenericAllocationHandle */
typedef void *CUcontext, *CUstream, *CUevent, *CUmodule, *CUfunction, *CUmempool, *CUarray,
    *CUgraph, *CUgraphExec;

enum {
  CUDA_OK = 0,
  CUDA_INVALID_VALUE = 1,
  CUDA_OUT_OF_MEMORY = 2,
  CUDA_NOT_INITIALIZED = 3,
  CUDA_DEINITIALIZED = 4,
  CUDA_DEVICE_UNAVAILABLE = 46,
  CUDA_NO_DEVICE = 100,
  CUDA_INVALID_DEVICE = 101,
  CUDA_INVALID_CONTEXT = 201,
  CUDA_INVALID_HANDLE = 400,
  CUDA_ILLEGAL_STATE = 401,
  CUDA_NOT_FOUND = 500,
  CUDA_NOT_READY = 600,
  CUDA_LAUNCH_FAILED = 719,
  CUDA_NOT_PERMITTED = 800,
  CUDA_NOT_SUPPORTED = 801,
  CUDA_SYSTEM_NOT_READY = 802,
  CUDA_CAPTURE_UNSUPPORTED = 900,
  CUDA_UNKNOWN = 999
};

enum {
  LOCATION_DEVICE = 1,
  LOCATION_HOST = 2,  // 3 and 4: host memory of a NUMA node
  HANDLE_POSIX_FD = 1,
  ACCESS_READ_WRITE = 3,
  ALLOCATION_PINNED = 1
};
enum {
  POOL_RELEASE_THRESHOLD = 4,
  POOL_RESERVED_CURRENT = 5,
  POOL_USED_CURRENT = 7,
  GRAPH_RESERVED_CURRENT = 2
};
enum { POINTER_IPC_CAPABLE = 10, POINTER_RANGE_START = 11, POINTER_RANGE_SIZE = 12 };
enum { GRAPH_NODE_MEM_ALLOC = 10 };
enum {
  EVENT_BLOCKING_SYNC = 1,
  EVENT_DISABLE_TIMING = 2,
  CAPTURE_MODE_RELAXED = 2,
  HOST_DEVICEMAP = 2
};
enum { PROC_ADDRESS_PER_THREAD = 2 };
enum { ATTRIBUTE_RDMA_WITH_VMM = 110, HOST_REGISTER_PORTABLE = 1 };

typedef struct {
  int type;
  int id;
} CUmemLocation;
typedef struct {
  int type;
  int requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} CUmemAllocationProp;
typedef struct {
  CUmemLocation location;
  int flags;
} CUmemAccessDesc;
typedef struct {
  size_t Width, Height;
  int Format;
  unsigned NumChannels;
} CUarrayDescriptor;
typedef struct {
  size_t Width, Height, Depth;
  int Format;
  unsigned NumChannels, Flags;
} CUarray3DDescriptor;
typedef struct {
  int allocType, handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
} CUmemPoolProps;
typedef struct {
  CUmemPoolProps poolProps;
  const CUmemAccessDesc* accessDescs;
  size_t accessDescCount, bytesize;
  CUdeviceptr dptr;
} CUmemAllocNodeParams;
typedef struct {
  int type;
  int reserved0[3];
  union {
    long long reserved1[29];
    CUmemAllocNodeParams alloc;
  } u;
  long long reserved2;
} CUgraphNodeParams;
typedef struct {
  unsigned grid[3], block[3], sharedMemBytes;
  CUstream hStream;
  void* attrs;
  unsigned numAttrs;
} CUlaunchConfig;
typedef struct {
  unsigned char bytes[16];
} CUuuid;
typedef struct {
  unsigned timeoutMs, reserved0;
  uint64_t reserved1[7];
} CUcheckpointLockArgs;
typedef struct {
  uint64_t reserved[8];
} CUcheckpointArgs; /* of Checkpoint, Restore and Unlock alike: all zero */

#endif
