// What runs inside a job in the shim's tests: one named case per process, on the simulated driver,
// with the shim preloaded or not. A failed expectation prints its line and ends the process with 1;
// a crash shows as a signal.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shim/abi.h"
#include "tests/unit/shim/cards.h"
#include "tests/unit/shim/child.h"
#include "tests/unit/shim/host_mapped.h"
#include "tests/unit/shim/ranks.h"
#include "tests/unit/shim/sharing.h"

namespace {

struct Entry {
  const char *symbol, *name;
  int since, arguments;
  const char* kind;
};
const Entry entries[] = {
#define BILLOW_API(symbol, name, since, arguments, kind, stream) \
  {#symbol, #name, since, arguments, #kind},
#include "shim/cuda_api.def"
#undef BILLOW_API
};

// ---- cases
void resolution() {
  start();
  Dl_info hook{}, real{};
  for (const Entry& e : entries) {
    void* by_dlsym = dlsym(library(), e.symbol);
    EXPECT(by_dlsym != nullptr);
    EXPECT(dladdr(by_dlsym, &hook) != 0);
    const bool ours = std::strstr(hook.dli_fname, "libbillow-cuda.so") != nullptr;
    EXPECT(ours == (std::strcmp(e.kind, "none") != 0));
    // Asked for exactly the version that brought it, the same function comes from cuGetProcAddress.
    const std::string symbol = e.symbol;
    const bool per_thread = symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
    void* by_proc = nullptr;
    const CUresult r = cu("cuGetProcAddress_v2", e.name, &by_proc, e.since,
                          static_cast<uint64_t>(per_thread ? 2 : 0), static_cast<void*>(nullptr));
    EXPECT(r == CUDA_OK && by_proc != nullptr);
    if (std::strcmp(e.name, "cuGetProcAddress"))
      EXPECT(by_proc == by_dlsym);
    void* by_version = dlvsym(library(), e.symbol, "NO_SUCH_VERSION");
    EXPECT(by_version == nullptr);
  }
  EXPECT(dlsym(library(), "cuNoSuchFunction") == nullptr);
  EXPECT(dlsym(RTLD_DEFAULT, "malloc") == reinterpret_cast<void*>(&malloc));
  void* next = dlsym(RTLD_NEXT, "getpid");
  EXPECT(next != nullptr && dladdr(next, &real) != 0 && std::strstr(real.dli_fname, "libc"));
}

// Every generated hook forwards exactly the arguments it got.
void forwarding() {
  start();
  auto last = sim<void (*)(const char*, uint64_t*)>("billow_sim_last");
  auto calls = sim<uint64_t (*)(const char*)>("billow_sim_calls");
  int seen = 0;
  for (const Entry& e : entries) {
    const std::string kind = e.kind;
    if (kind != "launch" && kind != "copy" && kind != "code" && kind != "share")
      continue;
    const uint64_t before = calls(e.symbol);
    uint64_t a[12];
    for (int i = 0; i < 12; i++)
      a[i] = 0;  // NULL everywhere: whatever the driver says is what comes back
    using F = CUresult (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    auto f = reinterpret_cast<F>(dlsym(library(), e.symbol));
    f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    EXPECT(calls(e.symbol) == before + 1);
    if (std::string(e.symbol) == "cuLaunchKernelEx_ptsz")
      continue;  // its first argument is looked into while metered
    for (int i = 0; i < 12; i++)
      a[i] = 0x1000000000000001ull * static_cast<uint64_t>(i + 1);
    // Only functions without a model record; the modelled ones would follow these pointers.
    uint64_t recorded[12] = {};
    static const char* modelled[] = {"cuMemcpyHtoD_v2",      "cuMemcpyDtoH_v2",
                                     "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
                                     "cuMemcpyDtoDAsync_v2", "cuMemcpyPeerAsync",
                                     "cuMemsetD8_v2",        "cuMemsetD8Async",
                                     "cuLaunchKernel",       "cuLaunchKernel_ptsz",
                                     "cuLaunchKernelEx",     "cuGraphLaunch",
                                     "cuModuleLoadData",     "cuMemImportFromShareableHandle"};
    bool skip = false;
    for (const char* m : modelled)
      skip |= !std::strcmp(m, e.symbol);
    if (skip)
      continue;
    f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    last(e.symbol, recorded);
    for (int i = 0; i < e.arguments && i < 11; i++)
      EXPECT(recorded[i] == a[i]);
    seen++;
  }
  EXPECT(seen > 150);
}

void limits() {  // the job has 64 MiB
  start();
  size_t f = 0, t = 0;
  EXPECT(cu("cuMemGetInfo_v2", &f, &t) == CUDA_OK && t == 64 * MiB && f == 64 * MiB);
  size_t total = 0;
  EXPECT(cu("cuDeviceTotalMem_v2", &total, 0) == CUDA_OK && total == 64 * MiB);
  const uint64_t base = used();
  CUdeviceptr a = 0, b = 0, c = 0;
  EXPECT(alloc(&a, 40 * MiB) == CUDA_OK && free_now() == 24 * MiB);
  EXPECT(alloc(&b, 30 * MiB) == CUDA_OUT_OF_MEMORY && free_now() == 24 * MiB);
  EXPECT(alloc(&b, 24 * MiB) == CUDA_OK && free_now() == 0);
  EXPECT(alloc(&c, 1) == CUDA_OUT_OF_MEMORY);
  EXPECT(used() - base == 64 * MiB);
  EXPECT(cu("cuMemFree_v2", a) == CUDA_OK && free_now() == 40 * MiB);
  std::memset(reinterpret_cast<void*>(b), 7, 24 * MiB);
  EXPECT(cu("cuMemFree_v2", b) == CUDA_OK && free_now() == 64 * MiB && used() == base);
  EXPECT(cu("cuMemFree_v2", b) != CUDA_OK);  // twice: the driver's own error
  EXPECT(cu("cuMemFree_v2", static_cast<CUdeviceptr>(0)) == CUDA_OK);
  EXPECT(alloc(nullptr, 5) == CUDA_INVALID_VALUE && alloc(&a, 0) == CUDA_INVALID_VALUE);
  EXPECT(alloc(&a, ~size_t{0} - 5) == CUDA_OUT_OF_MEMORY &&
         alloc(&a, size_t{1} << 60) == CUDA_OUT_OF_MEMORY);
  EXPECT(free_now() == 64 * MiB);
}

void small() {
  start();
  std::vector<CUdeviceptr> all;
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; i++) {
    CUdeviceptr p = 0;
    const size_t bytes = random() % 20000 + 1;
    EXPECT(alloc(&p, bytes) == CUDA_OK && p % 512 == 0);
    std::memset(reinterpret_cast<void*>(p), i & 255, bytes);
    CUdeviceptr base = 0;
    size_t size = 0;
    EXPECT(cu("cuMemGetAddressRange_v2", &base, &size, p + bytes / 2) == CUDA_OK && base == p &&
           size == bytes);
    uint64_t start_address = 0;
    EXPECT(cu("cuPointerGetAttribute", static_cast<void*>(&start_address), 11, p + bytes - 1) ==
               CUDA_OK &&
           start_address == p);
    all.push_back(p);
    if (random() % 3 == 0) {
      const size_t which = random() % all.size();
      EXPECT(cu("cuMemFree_v2", all[which]) == CUDA_OK);
      all.erase(all.begin() + static_cast<long>(which));
    }
  }
  for (CUdeviceptr p : all)
    EXPECT(cu("cuMemFree_v2", p) == CUDA_OK);
  size_t f = 0, t = 0;
  EXPECT(cu("cuMemGetInfo_v2", &f, &t) == CUDA_OK && f == t);
}

// Each driver call an allocation makes fails once: the caller sees the error, and nothing stays
// charged.
void rollback() {
  start();
  const uint64_t base = used();
  for (const char* step : {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    for (size_t bytes : {100 * size_t{1}, 5 * MiB, 300 * MiB}) {
      for (long after : {0l, 1l}) {
        CUdeviceptr p = 0;
        fail_from(step, after, CUDA_OUT_OF_MEMORY);
        const CUresult r = alloc(&p, bytes);
        fail_from(step, 0, 0);
        if (r == CUDA_OK)
          EXPECT(cu("cuMemFree_v2", p) == CUDA_OK);
        else
          EXPECT(r == CUDA_OUT_OF_MEMORY);
        EXPECT(free_now() == 512 * MiB && used() == base);
      }
    }
  }
  fail_from("cuMemAllocAsync", 0, 77);
  CUdeviceptr p = 0;
  EXPECT(cu("cuMemAllocAsync", &p, 5 * MiB, static_cast<CUstream>(nullptr)) == 77 &&
         free_now() == 512 * MiB);
  fail_from("cuArrayCreate_v2", 0, 78);
  CUarray array;
  CUarrayDescriptor d{100, 100, 0x20, 1};
  EXPECT(cu("cuArrayCreate_v2", &array, static_cast<const CUarrayDescriptor*>(&d)) == 78 &&
         free_now() == 512 * MiB);
}

void managed_is_declared() {
  start();
  CUdeviceptr p = 0;
  EXPECT(cu("cuMemAllocManaged", &p, 4 * MiB, 1u) == CUDA_OK);
  std::puts("ready");
  std::fflush(stdout);
  getchar();
}

void own_handles() {
  start();
  CUmemAllocationProp prop{};
  prop.type = 1;
  prop.location = {LOCATION_DEVICE, 0};
  CUmemHandle h = 0, again = 0;
  CUdeviceptr at = 0;
  EXPECT(cu("cuMemCreate", &h, 8 * MiB, static_cast<const CUmemAllocationProp*>(&prop), 0ull) ==
         CUDA_OK);
  EXPECT(free_now() == 56 * MiB);
  EXPECT(cu("cuMemAddressReserve", &at, 8 * MiB, size_t{0}, CUdeviceptr{0}, 0ull) == CUDA_OK);
  EXPECT(cu("cuMemMap", at, 8 * MiB, size_t{0}, h, 0ull) == CUDA_OK);
  CUmemAccessDesc access{{LOCATION_DEVICE, 0}, ACCESS_READ_WRITE};
  EXPECT(cu("cuMemSetAccess", at, 8 * MiB, static_cast<const CUmemAccessDesc*>(&access),
            size_t{1}) == CUDA_OK);
  std::memset(reinterpret_cast<void*>(at), 9, 8 * MiB);
  CUmemAllocationProp got{};
  EXPECT(cu("cuMemGetAllocationPropertiesFromHandle", &got, h) == CUDA_OK &&
         got.requestedHandleTypes == 0);
  EXPECT(cu("cuMemRetainAllocationHandle", &again, reinterpret_cast<void*>(at + 5)) == CUDA_OK &&
         again == h);
  EXPECT(cu("cuMemRelease", again) == CUDA_OK && cu("cuMemRelease", h) == CUDA_OK);
  EXPECT(free_now() == 56 * MiB);  // still mapped
  EXPECT(cu("cuMemUnmap", at, 8 * MiB) == CUDA_OK && free_now() == 64 * MiB);
  EXPECT(cu("cuMemAddressFree", at, 8 * MiB) == CUDA_OK);
  prop.location = {LOCATION_HOST, 0};
  EXPECT(cu("cuMemCreate", &h, 8 * MiB, static_cast<const CUmemAllocationProp*>(&prop), 0ull) ==
             CUDA_OK &&
         free_now() == 64 * MiB);
  EXPECT(cu("cuMemRelease", h) == CUDA_OK &&
         cu("cuMemRelease", CUmemHandle{0xb110000000000777ull}) != CUDA_OK);
}

void capture() {
  start();
  CUstream s = nullptr;
  CUmodule m = nullptr;
  CUfunction f = nullptr;
  EXPECT(cu("cuStreamCreate", &s, 1u) == CUDA_OK &&
         cu("cuModuleLoadData", &m, static_cast<const void*>("x")) == CUDA_OK);
  EXPECT(cu("cuModuleGetFunction", &f, m, "sim_spin") == CUDA_OK);
  uint64_t micros = 300;
  void* parameters[] = {&micros};
  const auto launch = [&] {
    return cu("cuLaunchKernel", f, 1u, 1u, 1u, 1u, 1u, 1u, 0u, s, static_cast<void**>(parameters),
              static_cast<void**>(nullptr));
  };
  CUdeviceptr p = 0;
  EXPECT(alloc(&p, 4 * MiB) == CUDA_OK);
  for (int round = 0; round < 20; round++) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT(cu("cuStreamBeginCapture_v2", s, 0) == CUDA_OK);
    for (int i = 0; i < 5; i++) {
      EXPECT(launch() == CUDA_OK);
      usleep(2000);  // time for a neighbour's arbiter to ask
    }
    if (round == 0)
      EXPECT(cu("cuMemFree_v2", p) == CUDA_OK);  // must not synchronise now
    CUdeviceptr inside = 0;
    EXPECT(cu("cuMemAllocAsync", &inside, 2 * MiB, s) == CUDA_OK);
    EXPECT(cu("cuStreamEndCapture", s, &graph) == CUDA_OK);
    EXPECT(cu("cuGraphInstantiateWithFlags", &exec, graph, 0ull) == CUDA_OK);
    for (int i = 0; i < 3; i++)
      EXPECT(cu("cuGraphLaunch", exec, s) == CUDA_OK);
    EXPECT(cu("cuStreamSynchronize", s) == CUDA_OK);
    EXPECT(cu("cuGraphDestroy", graph) == CUDA_OK && cu("cuGraphExecDestroy", exec) == CUDA_OK);
    CUdeviceptr other = 0;
    EXPECT(alloc(&other, 2 * MiB) == CUDA_OK && cu("cuMemFree_v2", other) == CUDA_OK);
  }
  EXPECT(violations() == 0 && free_now() == 64 * MiB);
}

void forks() {
  start();
  CUdeviceptr p = 0;
  EXPECT(alloc(&p, 8 * MiB) == CUDA_OK);
  const pid_t child = fork();
  if (child == 0) {
    // CUDA does not work after a fork; the shim must let the driver say so, and not touch the
    // parent's slot.
    if (cu("cuInit", 0u) != CUDA_NOT_INITIALIZED)
      _exit(3);
    CUdeviceptr q = 0;
    if (cu("cuMemAlloc_v2", &q, 3 * MiB) == 12345)
      _exit(4);
    _exit(0);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT(free_now() == 56 * MiB && cu("cuMemFree_v2", p) == CUDA_OK && free_now() == 64 * MiB);
}

void threads() {
  CUcontext context = start();
  std::vector<std::thread> all;
  std::atomic<int> refused{0};
  for (int i = 0; i < 8; i++) {
    all.emplace_back([&, i] {
      cu("cuCtxSetCurrent", context);
      std::mt19937_64 random(static_cast<uint64_t>(i));
      for (int k = 0; k < 200; k++) {
        CUdeviceptr p = 0;
        const CUresult r = alloc(&p, random() % (9 * MiB) + 1);
        EXPECT(r == CUDA_OK || r == CUDA_OUT_OF_MEMORY);
        refused += r != CUDA_OK;
        if (r == CUDA_OK)
          EXPECT(cu("cuMemFree_v2", p) == CUDA_OK);
      }
    });
  }
  for (auto& t : all)
    t.join();
  EXPECT(free_now() == 64 * MiB);
}

// One of several processes that race for the job's memory: takes until refused, then says how much,
// and waits.
void racer() {
  start();
  uint64_t taken = 0;
  CUdeviceptr p = 0;
  while (alloc(&p, 2 * MiB) == CUDA_OK)
    taken += 2 * MiB;
  std::printf("%llu\n", static_cast<unsigned long long>(taken));
  std::fflush(stdout);
  getchar();
}

// Keeps memory, a stream and a counter going, so that a suspend has something to take; says whether
// all is right at the end.
void worker() {
  start();
  CUdeviceptr p = 0, big = 0;
  EXPECT(alloc(&p, 4096) == CUDA_OK && alloc(&big, 12 * MiB) == CUDA_OK);
  // Each process has its own content, or those of one job would be kept once.
  const uint64_t own = static_cast<uint64_t>(getpid()) << 32;
  for (size_t i = 0; i < 12 * MiB / 8; i++)
    reinterpret_cast<uint64_t*>(big)[i] = (own + i) * 0x9e3779b97f4a7c15ull;
  CUmodule m = nullptr;
  CUfunction f = nullptr;
  EXPECT(cu("cuModuleLoadData", &m, static_cast<const void*>("x")) == CUDA_OK &&
         cu("cuModuleGetFunction", &f, m, "sim_add") == CUDA_OK);
  EXPECT(cu("cuMemsetD8_v2", p, static_cast<unsigned char>(0), size_t{4096}) == CUDA_OK);
  uint64_t count = 512, launches = 0;
  void* parameters[] = {&p, &count};
  std::puts("ready");
  std::fflush(stdout);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    getchar();
    stop = true;
  });
  while (!stop) {
    EXPECT(cu("cuLaunchKernel", f, 1u, 1u, 1u, 1u, 1u, 1u, 0u, static_cast<CUstream>(nullptr),
              static_cast<void**>(parameters), static_cast<void**>(nullptr)) == CUDA_OK);
    launches++;
    usleep(200);
  }
  reader.join();
  std::vector<uint64_t> back(512);
  EXPECT(cu("cuMemcpyDtoH_v2", static_cast<void*>(back.data()), p, size_t{4096}) == CUDA_OK);
  for (uint64_t v : back)
    EXPECT(v == launches);
  std::vector<uint64_t> all(12 * MiB / 8);
  EXPECT(cu("cuMemcpyDtoH_v2", static_cast<void*>(all.data()), big, 12 * MiB) == CUDA_OK);
  for (size_t i = 0; i < all.size(); i++)
    EXPECT(all[i] == (own + i) * 0x9e3779b97f4a7c15ull);
  std::printf("right %llu\n", static_cast<unsigned long long>(launches));
}

// Keeps the simulated GPU busy for a while and says how much of its own work was done.
void spinner() {
  start();
  CUmodule m = nullptr;
  CUfunction f = nullptr;
  EXPECT(cu("cuModuleLoadData", &m, static_cast<const void*>("x")) == CUDA_OK &&
         cu("cuModuleGetFunction", &f, m, "sim_spin") == CUDA_OK);
  uint64_t micros = 1000, done = 0;
  void* parameters[] = {&micros};
  std::puts("ready");
  std::fflush(stdout);
  getchar();
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  while (std::chrono::steady_clock::now() < until) {
    EXPECT(cu("cuLaunchKernel", f, 1u, 1u, 1u, 1u, 1u, 1u, 0u, static_cast<CUstream>(nullptr),
              static_cast<void**>(parameters), static_cast<void**>(nullptr)) == CUDA_OK);
    done++;
    if (done % 4 == 0)
      cu("cuCtxSynchronize");
  }
  std::printf("%llu\n", static_cast<unsigned long long>(done));
}

// The limit page cannot be written, not even by root, not even through its descriptor.
void sealed() {
  start();
  FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[512];
  bool found = false;
  while (std::fgets(line, sizeof line, maps)) {
    if (!std::strstr(line, "billow-limit"))
      continue;
    found = true;
    unsigned long from = 0, to = 0;
    EXPECT(std::sscanf(line, "%lx-%lx", &from, &to) == 2 && std::strstr(line, " r--s "));
    EXPECT(mprotect(reinterpret_cast<void*>(from), to - from, PROT_READ | PROT_WRITE) != 0);
  }
  std::fclose(maps);
  EXPECT(found);
}

// Every hook called with rubbish: it must come back, whatever the answer. Arguments are NULL or the
// address of scratch memory, taken as a pointer or as an absurd number: what the driver itself
// would crash on proves nothing about the hook.
void fuzz(uint64_t seed) {
  start();
  std::mt19937_64 random(seed);
  static char scratch[1 << 16];
  for (int i = 0; i < 4000; i++) {
    const Entry& e = entries[random() % std::size(entries)];
    if (!std::strcmp(e.kind, "none") || std::string(e.symbol).find("Ctx") != std::string::npos)
      continue;
    const std::string symbol = e.symbol;
    // The models of these follow the pointers they get, as the real driver does.
    if (symbol.starts_with("cuMemcpy") || symbol.starts_with("cuMemset") ||
        symbol.find("Graph") != std::string::npos || symbol.find("Pool") != std::string::npos ||
        symbol.starts_with("cuLaunchKernel") || symbol.starts_with("cuLibraryLoad") ||
        symbol.starts_with("cuModuleUnload") ||
        symbol.starts_with("cuIpcOpen"))  // takes a struct by value: a pointer on some machines
      continue;
    uint64_t a[12];
    std::memset(scratch, 0, sizeof scratch);
    for (auto& v : a) {
      v = random() % 3 == 0 ? 0 : reinterpret_cast<uint64_t>(scratch) + random() % 4096 * 8;
    }
    using F = CUresult (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    auto f = reinterpret_cast<F>(dlsym(library(), e.symbol));
    f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
  }
  std::puts("survived");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  struct {
    const char* name;
    void (*run)();
  } cases[] = {{"resolution", resolution},
               {"forwarding", forwarding},
               {"limits", limits},
               {"small", small},
               {"rollback", rollback},
               {"managed", managed_is_declared},
               {"own_handles", own_handles},
               {"capture", capture},
               {"forks", forks},
               {"threads", threads},
               {"racer", racer},
               {"worker", worker},
               {"sharing", sharing},
               {"cards", cards},
               {"ranks", ranks},
               {"host_mapped", host_mapped},
               {"spinner", spinner},
               {"sealed", sealed}};
  for (const auto& c : cases)
    if (name == c.name) {
      c.run();
      return 0;
    }
  if (name == "fuzz") {
    fuzz(std::strtoull(argv[2], nullptr, 10));
    return 0;
  }
  std::fprintf(stderr, "no case %s\n", name.c_str());
  return 2;
}
