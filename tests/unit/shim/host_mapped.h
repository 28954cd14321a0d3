// The case `host_mapped` of the shim's tests: a thread writes host memory of cuMemCreate all the
// time, also while the job is suspended, as NCCL does between processes of one node.
#pragma once

#include <atomic>
#include <thread>

#include "tests/unit/shim/child.h"

inline void host_mapped() {
  constexpr size_t bytes = 4 << 20;
  constexpr int host_numa = 3;
  start();
  CUdeviceptr numbers = 0;
  EXPECT(alloc(&numbers, bytes) == CUDA_OK);
  CUmemAllocationProp prop{};
  prop.type = ALLOCATION_PINNED;
  prop.location = {host_numa, 0};
  CUmemHandle handle = 0;
  CUdeviceptr at = 0;
  const CUmemAccessDesc access{prop.location, ACCESS_READ_WRITE};
  EXPECT(cu("cuMemCreate", &handle, bytes, static_cast<const CUmemAllocationProp*>(&prop), 0ull) ==
         CUDA_OK);
  EXPECT(cu("cuMemAddressReserve", &at, bytes, size_t{0}, CUdeviceptr{0}, 0ull) == CUDA_OK);
  EXPECT(cu("cuMemMap", at, bytes, size_t{0}, handle, 0ull) == CUDA_OK);
  EXPECT(cu("cuMemSetAccess", at, bytes, &access, size_t{1}) == CUDA_OK);
  std::atomic<bool> stop{false};
  uint64_t written = 0;
  auto* word = reinterpret_cast<volatile uint64_t*>(at);
  std::thread writer([&] {
    while (!stop) {
      EXPECT(*word == written);
      *word = ++written;
    }
  });
  std::puts("ready");
  std::fflush(stdout);
  getchar();
  stop = true;
  writer.join();
  std::printf("right %llu\n", static_cast<unsigned long long>(written));
}
