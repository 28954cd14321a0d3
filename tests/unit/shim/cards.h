// The case `cards` of the shim's tests: one process with memory on eight cards, each mapped on all.
#pragma once

#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/shim/child.h"

// Sends a page around the ring of cards, between plain memory and memory that all cards map, until
// told to end. Then all memory of every card must be as it was written.
inline void cards() {
  constexpr int count = 8;
  constexpr size_t plain = 6 * MiB, mapped = 4 * MiB, page = 4096;
  EXPECT(cu("cuInit", 0u) == CUDA_OK);
  CUcontext contexts[count] = {};
  CUdeviceptr own[count] = {}, open[count] = {};
  CUmemAccessDesc everybody[count] = {};
  for (int d = 0; d < count; d++) {
    EXPECT(cu("cuDevicePrimaryCtxRetain", &contexts[d], d) == CUDA_OK);
    everybody[d] = {{LOCATION_DEVICE, d}, ACCESS_READ_WRITE};
  }
  for (int d = 0; d < count; d++) {
    EXPECT(cu("cuCtxSetCurrent", contexts[d]) == CUDA_OK);
    EXPECT(alloc(&own[d], plain) == CUDA_OK);
    for (int other = 0; other < count; other++)
      EXPECT(other == d || cu("cuCtxEnablePeerAccess", contexts[other], 0u) == CUDA_OK);
    CUmemAllocationProp prop{};
    prop.type = ALLOCATION_PINNED;
    prop.location = {LOCATION_DEVICE, d};
    CUmemHandle h = 0;
    EXPECT(cu("cuMemCreate", &h, mapped, static_cast<const CUmemAllocationProp*>(&prop), 0ull) ==
           CUDA_OK);
    EXPECT(cu("cuMemAddressReserve", &open[d], mapped, size_t{0}, CUdeviceptr{0}, 0ull) == CUDA_OK);
    EXPECT(cu("cuMemMap", open[d], mapped, size_t{0}, h, 0ull) == CUDA_OK);
    EXPECT(cu("cuMemSetAccess", open[d], mapped, static_cast<const CUmemAccessDesc*>(everybody),
              size_t{count}) == CUDA_OK);
    for (size_t i = 0; i < plain / 8; i++)
      reinterpret_cast<uint64_t*>(own[d])[i] = (i + 1) * 0x9e3779b97f4a7c15ull + own[d];
  }
  std::puts("ready");
  std::fflush(stdout);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    getchar();
    stop = true;
  });
  std::vector<uint64_t> seen(plain / 8);
  for (int n = 0; !stop; n++) {
    const int from = n % count, to = (n + 1) % count;
    EXPECT(cu("cuCtxSetCurrent", contexts[from]) == CUDA_OK);
    EXPECT(cu("cuMemcpyPeerAsync", open[to], contexts[to], own[from], contexts[from], page,
              static_cast<CUstream>(nullptr)) == CUDA_OK);
    EXPECT(cu("cuMemcpyDtoH_v2", static_cast<void*>(seen.data()), open[to], page) == CUDA_OK);
    for (size_t i = 0; i < page / 8; i++)
      EXPECT(seen[i] == (i + 1) * 0x9e3779b97f4a7c15ull + own[from]);
    usleep(100);
  }
  reader.join();
  for (int d = 0; d < count; d++) {
    EXPECT(cu("cuMemcpyDtoH_v2", static_cast<void*>(seen.data()), own[d], plain) == CUDA_OK);
    for (size_t i = 0; i < plain / 8; i++)
      EXPECT(seen[i] == (i + 1) * 0x9e3779b97f4a7c15ull + own[d]);
  }
  std::puts("right");
}
