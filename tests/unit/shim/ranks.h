// The case `ranks` of the shim's tests: processes of a job whose kernels wait for each other, as
// those of NCCL do.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/unit/shim/child.h"

// Every round adds one to all numbers and meets the others. The ranks launch differently far ahead
// of the GPU and pause at different times, so that they have rarely launched equally much.
inline void ranks() {
  constexpr uint64_t sides = 3, words = 64, bytes = 4 * MiB, margin = 100;
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* last = new (page) std::atomic<uint64_t>(UINT64_MAX);
  auto* begun = new (last + 1) std::atomic<uint64_t>(0);  // ranks that have their memory
  uint64_t side = 0;
  pid_t others[sides] = {};
  for (uint64_t i = 1; i < sides && side == 0; i++)  // before CUDA
    if ((others[i] = fork()) == 0)
      side = i;
  start();
  CUdeviceptr numbers = 0;
  EXPECT(alloc(&numbers, bytes) == CUDA_OK);
  const auto* seen = reinterpret_cast<const volatile uint64_t*>(numbers);
  for (uint64_t i = 0; i < bytes / 8; i++)
    reinterpret_cast<uint64_t*>(numbers)[i] = 0;
  ++*begun;
  CUmodule module = nullptr;
  CUfunction add = nullptr, meet = nullptr;
  EXPECT(cu("cuModuleLoadData", &module, static_cast<const void*>("ptx")) == CUDA_OK);
  EXPECT(cu("cuModuleGetFunction", &add, module, "sim_add") == CUDA_OK);
  EXPECT(cu("cuModuleGetFunction", &meet, module, "sim_meet") == CUDA_OK);
  const auto launch = [](CUfunction f, uint64_t a, uint64_t b) {
    void* parameters[] = {&a, &b};
    return cu("cuLaunchKernel", f, 1u, 1u, 1u, 1u, 1u, 1u, 0u, static_cast<CUstream>(nullptr),
              static_cast<void**>(parameters), static_cast<void**>(nullptr));
  };
  std::thread reader;
  std::atomic<bool> stop{false};
  if (side == 0) {
    while (*begun < sides)
      usleep(200);
    std::puts("ready");
    std::fflush(stdout);
    reader = std::thread([&] {
      getchar();
      stop = true;
    });
  }
  std::mt19937_64 random(side + 1);
  const uint64_t ahead = side == 0 ? 40 : side == 1 ? 7 : 1;
  uint64_t round = 0;
  while (round < last->load()) {
    EXPECT(launch(add, numbers, words) == CUDA_OK);
    EXPECT(launch(meet, side, sides) == CUDA_OK);
    if (++round % ahead == 0)
      EXPECT(cu("cuCtxSynchronize") == CUDA_OK);
    if (random() % 8 == 0)
      usleep(static_cast<useconds_t>(random() % 1500));
    if (stop.exchange(false))
      *last = round + margin;  // further than any other rank has come
  }
  EXPECT(cu("cuCtxSynchronize") == CUDA_OK);
  for (uint64_t i = 0; i < bytes / 8; i++)
    EXPECT(seen[i] == (i < words ? round : 0));
  if (side)
    std::exit(0);
  reader.join();
  for (uint64_t i = 1; i < sides; i++) {
    int status = 0;
    EXPECT(waitpid(others[i], &status, 0) == others[i] && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0);
  }
  std::printf("right %llu\n", static_cast<unsigned long long>(round));
}
