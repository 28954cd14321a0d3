// A small CUDA program for the GPU tests, driven by words on its standard input. It uses the driver
// API only, through dlsym and cuGetProcAddress as frameworks do, and needs no CUDA toolkit, so the
// same program runs on the simulated driver.
//
//   probe                 reads commands, one per line, and answers each with one line "ok …" or
//   "error N …": hold BYTES SEED       allocates and fills     check      counts wrong words touch
//   PERCENT SEED   rewrites that much free                  frees what is held       info
//   cuMemGetInfo          spin MICROS COUNT    launches spin kernels tiny COUNT            launches
//   empty kernels   graph COUNT NODES  replays a graph of empty kernels path NAME BYTES       one
//   allocation by the named path, kept; repeated until refused with `exhaust NAME BYTES` link BYTES
//   raw pinned copy rates    vmm BYTES  own cuMemCreate memory, filled        sync
//   storm MILLIS JOIN    four threads with a stream each fill and check memory; then the process
//   exits,
//                        with JOIN 0 while they still run
//   span BYTES           rates of copies of that much, each byte of pinned memory once
//   paired COUNT GROUPS  launches empty kernels in groups, by turns through what the program gets
//                        for cuLaunchKernel and through the driver's own function
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/driver_symbol.h"
#include "tests/gpu/probe_driver.h"

namespace {

struct Held {
  CUdeviceptr at;
  uint64_t bytes, seed;
};
std::vector<Held> held;

CUresult hold(uint64_t bytes, uint64_t seed) {
  PROC(alloc, "cuMemAlloc", "cuMemAlloc_v2", CUdeviceptr*, size_t);
  // In pieces of at most 2 GiB, as frameworks hold theirs.
  for (uint64_t left = bytes; left;) {
    const uint64_t part = left < 2ull << 30 ? left : 2ull << 30;
    CUdeviceptr at = 0;
    if (const CUresult r = alloc(&at, part))
      return r;
    held.push_back({at, part, seed + (bytes - left)});
    if (const CUresult r = fill_words(at, part, held.back().seed))
      return r;
    left -= part;
  }
  return synchronize();
}
CUresult own_vmm(uint64_t bytes, uint64_t seed) {
  PROC(create, "cuMemCreate", "cuMemCreate", CUmemHandle*, size_t, const CUmemAllocationProp*,
       unsigned long long);
  FUNCTION(reserve, "cuMemAddressReserve", CUdeviceptr*, size_t, size_t, CUdeviceptr,
           unsigned long long);
  FUNCTION(map, "cuMemMap", CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long);
  FUNCTION(access, "cuMemSetAccess", CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
  CUmemAllocationProp prop{};
  prop.type = ALLOCATION_PINNED;
  prop.location = {LOCATION_DEVICE, 0};
  CUmemHandle handle = 0;
  CUdeviceptr at = 0;
  CUmemAccessDesc both{{LOCATION_DEVICE, 0}, ACCESS_READ_WRITE};
  CUresult r;
  if ((r = create(&handle, bytes, &prop, 0)) || (r = reserve(&at, bytes, 0, 0, 0)) ||
      (r = map(at, bytes, 0, handle, 0)) || (r = access(at, bytes, &both, 1)))
    return r;
  held.push_back({at, bytes, seed});
  if ((r = fill_words(at, bytes, seed)))
    return r;
  return synchronize();
}

CUresult count_wrong(uint64_t* wrong) {
  PROC(alloc, "cuMemAlloc", "cuMemAlloc_v2", CUdeviceptr*, size_t);
  PROC(zero, "cuMemsetD8", "cuMemsetD8_v2", CUdeviceptr, unsigned char, size_t);
  PROC(copy, "cuMemcpyDtoH", "cuMemcpyDtoH_v2", void*, CUdeviceptr, size_t);
  static CUdeviceptr counter = 0;
  CUresult r;
  if (!counter && (r = alloc(&counter, 8)))
    return r;
  if ((r = zero(counter, 0, 8)) || (r = synchronize()))
    return r;
  for (Held& h : held) {
    uint64_t count = h.bytes / 8;
    void* parameters[] = {&h.at, &count, &h.seed, &counter};
    if ((r = launch(verify, 1056, parameters)))
      return r;
  }
  if ((r = synchronize()))
    return r;
  return copy(wrong, counter, 8);
}

CUresult allocate_from_pool(uint64_t bytes) {
  CUdeviceptr at = 0;
  FUNCTION(make, "cuMemPoolCreate", CUmempool*, const CUmemPoolProps*);
  PROC(f, "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", CUdeviceptr*, size_t, CUmempool,
       CUstream);
  static CUmempool pool = nullptr;
  if (!pool) {
    CUmemPoolProps props{};
    props.allocType = ALLOCATION_PINNED;
    props.location = {LOCATION_DEVICE, 0};
    if (const CUresult r = make(&pool, &props))
      return r;
  }
  const CUresult r = f(&at, bytes, pool, stream);
  return r ? r : synchronize();
}

CUresult allocate_in_graph(uint64_t bytes) {
  FUNCTION(create, "cuGraphCreate", CUgraph*, unsigned);
  PROC(node, "cuGraphAddMemAllocNode", "cuGraphAddMemAllocNode", void**, CUgraph, const void*,
       size_t, CUmemAllocNodeParams*);
  PROC(make, "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", CUgraphExec*, CUgraph,
       unsigned long long);
  PROC(go, "cuGraphLaunch", "cuGraphLaunch", CUgraphExec, CUstream);
  CUgraph graph;
  CUgraphExec exec;
  void* n;
  CUmemAllocNodeParams params{};
  params.poolProps.allocType = ALLOCATION_PINNED;
  params.poolProps.location = {LOCATION_DEVICE, 0};
  params.bytesize = bytes;
  CUresult r;
  if ((r = create(&graph, 0)) || (r = node(&n, graph, nullptr, 0, &params)) ||
      (r = make(&exec, graph, 0)) || (r = go(exec, stream)))
    return r;
  return synchronize();
}

CUresult allocate_by(const std::string& path, uint64_t bytes) {
  CUdeviceptr at = 0;
  if (path == "alloc") {
    PROC(f, "cuMemAlloc", "cuMemAlloc_v2", CUdeviceptr*, size_t);
    return f(&at, bytes);
  }
  if (path == "pitch") {
    PROC(f, "cuMemAllocPitch", "cuMemAllocPitch_v2", CUdeviceptr*, size_t*, size_t, size_t,
         unsigned);
    size_t pitch;
    return f(&at, &pitch, 1 << 20, bytes >> 20, 4);
  }
  if (path == "managed") {
    PROC(f, "cuMemAllocManaged", "cuMemAllocManaged", CUdeviceptr*, size_t, unsigned);
    const CUresult r = f(&at, bytes, 1);
    return r ? r : fill_words(at, bytes, 1) ? CUDA_UNKNOWN : synchronize();
  }
  if (path == "async") {
    PROC(f, "cuMemAllocAsync", "cuMemAllocAsync", CUdeviceptr*, size_t, CUstream);
    const CUresult r = f(&at, bytes, stream);
    return r ? r : synchronize();
  }
  if (path == "pool")
    return allocate_from_pool(bytes);
  if (path == "create") {
    PROC(f, "cuMemCreate", "cuMemCreate", CUmemHandle*, size_t, const CUmemAllocationProp*,
         unsigned long long);
    CUmemAllocationProp prop{};
    prop.type = ALLOCATION_PINNED;
    prop.location = {LOCATION_DEVICE, 0};
    CUmemHandle handle;
    return f(&handle, bytes, &prop, 0);
  }
  if (path == "array" || path == "array3d") {
    PROC(f, "cuArrayCreate", "cuArrayCreate_v2", CUarray*, const CUarrayDescriptor*);
    PROC(g, "cuArray3DCreate", "cuArray3DCreate_v2", CUarray*, const CUarray3DDescriptor*);
    CUarray array;
    const CUarrayDescriptor flat{4096, bytes >> 14, 0x20, 1};  // rows of 4096 floats
    const CUarray3DDescriptor deep{1024, 1024, bytes >> 22, 0x20, 1, 0};
    return path == "array" ? f(&array, &flat) : g(&array, &deep);
  }
  if (path == "mipmap") {
    PROC(f, "cuMipmappedArrayCreate", "cuMipmappedArrayCreate", CUarray*,
         const CUarray3DDescriptor*, unsigned);
    CUarray array;
    const CUarray3DDescriptor d{4096, bytes >> 14, 0, 0x20, 1, 0};
    return f(&array, &d, 1);
  }
  if (path == "graph")
    return allocate_in_graph(bytes);
  return CUDA_INVALID_VALUE;
}

CUresult link_rates(uint64_t bytes, double rates[4]) {
  FUNCTION(host, "cuMemHostAlloc", void**, size_t, unsigned);
  FUNCTION(create, "cuStreamCreate", CUstream*, unsigned);
  FUNCTION(wait, "cuStreamSynchronize", CUstream);
  PROC(alloc, "cuMemAlloc", "cuMemAlloc_v2", CUdeviceptr*, size_t);
  PROC(out, "cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", void*, CUdeviceptr, size_t, CUstream);
  PROC(in, "cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", CUdeviceptr, const void*, size_t, CUstream);
  void *a, *b;
  CUdeviceptr x, y;
  CUstream other;
  CUresult r;
  if ((r = host(&a, bytes, 0)) || (r = host(&b, bytes, 0)) || (r = alloc(&x, bytes)) ||
      (r = alloc(&y, bytes)) || (r = create(&other, 1)))
    return r;
  for (int round = 0; round < 2; round++) {  // the first warms up
    const int repeat = 4;
    double t = now();
    for (int i = 0; i < repeat; i++)
      out(a, x, bytes, stream);
    wait(stream);
    rates[0] = repeat * bytes / (now() - t) / 1e9;
    t = now();
    for (int i = 0; i < repeat; i++)
      in(y, b, bytes, stream);
    wait(stream);
    rates[1] = repeat * bytes / (now() - t) / 1e9;
    t = now();
    for (int i = 0; i < repeat; i++) {
      out(a, x, bytes, stream);
      in(y, b, bytes, other);
    }
    wait(stream);
    wait(other);
    rates[2] = 2.0 * repeat * bytes / (now() - t) / 1e9;
  }
  FUNCTION(free_host, "cuMemFreeHost", void*);
  PROC(release, "cuMemFree", "cuMemFree_v2", CUdeviceptr);
  free_host(a);
  free_host(b);
  release(x);
  release(y);
  return CUDA_OK;
}

// Memory of the host in pieces, each registered with the driver: pages are made by many threads.
CUresult pinned(uint64_t bytes, std::vector<char*>& out, uint64_t part) {
  FUNCTION(add, "cuMemHostRegister_v2", void*, size_t, unsigned);
  static std::vector<char*> pieces;
  while (pieces.size() * part < bytes) {
    auto* at = static_cast<char*>(mmap(nullptr, part + (2u << 20), PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (at == MAP_FAILED)
      return CUDA_OUT_OF_MEMORY;
    at += (2u << 20) - reinterpret_cast<uintptr_t>(at) % (2u << 20);
    madvise(at, part, MADV_HUGEPAGE);
    std::vector<std::thread> touch;
    const uint64_t each = part / 16;
    for (uint64_t i = 0; i < 16; i++)
      touch.emplace_back([=] { std::memset(at + i * each, 1, each); });
    for (std::thread& t : touch)
      t.join();
    if (const CUresult r = add(at, part, 0))
      return r;
    pieces.push_back(at);
  }
  out = pieces;
  return CUDA_OK;
}

// The fair measure of a move of so much memory: plain copies of as much, none of it twice.
CUresult span_rates(uint64_t bytes, double rates[2]) {
  PROC(alloc, "cuMemAlloc", "cuMemAlloc_v2", CUdeviceptr*, size_t);
  PROC(out, "cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", void*, CUdeviceptr, size_t, CUstream);
  PROC(in, "cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", CUdeviceptr, const void*, size_t, CUstream);
  PROC(release, "cuMemFree", "cuMemFree_v2", CUdeviceptr);
  const uint64_t part = std::min<uint64_t>(bytes, 1ull << 30);
  std::vector<char*> pieces;
  CUdeviceptr x = 0;
  CUresult r;
  if ((r = pinned(bytes, pieces, part)) || (r = alloc(&x, part)))
    return r;
  for (int way = 0; way < 2; way++) {
    const double t = now();
    for (uint64_t i = 0; i < bytes / part && !r; i++)
      r = way ? in(x, pieces[i], part, stream) : out(pieces[i], x, part, stream);
    if (!r)
      r = synchronize();
    rates[way] = static_cast<double>(bytes / part * part) / (now() - t) / 1e9;
  }
  release(x);
  return r;
}

using Launch = CUresult (*)(CUfunction,
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
CUresult paired(uint64_t count, uint64_t groups, std::string* text) {
  const Launch ways[] = {function<Launch>("cuLaunchKernel", true),
                         reinterpret_cast<Launch>(driver_function("cuLaunchKernel"))};
  if (!ways[0] || !ways[1])
    return CUDA_NOT_FOUND;
  std::vector<double> ratios;
  double sums[2] = {};
  for (uint64_t g = 0; g < groups; g++) {
    double took[2] = {};
    for (uint64_t i = 0; i < 2; i++) {
      const uint64_t way = (g + i) % 2;
      CUresult r = synchronize();
      const double t = now();
      for (uint64_t n = 0; n < count / groups && !r; n++)
        r = ways[way](nothing, 1, 1, 1, 256, 1, 1, 0, stream, nullptr, nullptr);
      if (r || (r = synchronize()))
        return r;
      sums[way] += took[way] = now() - t;
    }
    ratios.push_back(took[0] / took[1] - 1);
  }
  std::sort(ratios.begin(), ratios.end());
  char line[200];
  std::snprintf(
      line, sizeof line, "hooked=%d median=%.6f low=%.6f high=%.6f sum=%.6f nanoseconds=%.1f",
      ways[0] != ways[1], ratios[groups / 2], ratios[groups / 20], ratios[groups - 1 - groups / 20],
      sums[0] / sums[1] - 1, sums[1] / static_cast<double>(count) * 1e9);
  *text = line;
  return CUDA_OK;
}

CUresult replay(uint64_t count, uint64_t nodes, double* seconds) {
  PROC(begin, "cuStreamBeginCapture", "cuStreamBeginCapture_v2", CUstream, int);
  PROC(end, "cuStreamEndCapture", "cuStreamEndCapture", CUstream, CUgraph*);
  PROC(make, "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", CUgraphExec*, CUgraph,
       unsigned long long);
  PROC(go, "cuGraphLaunch", "cuGraphLaunch", CUgraphExec, CUstream);
  CUgraph graph;
  CUgraphExec exec;
  CUresult r;
  if ((r = begin(stream, 0)))
    return r;
  for (uint64_t i = 0; i < nodes; i++)
    if ((r = launch(nothing, 1, nullptr)))
      return r;
  if ((r = end(stream, &graph)) || (r = make(&exec, graph, 0)) || (r = go(exec, stream)) ||
      (r = synchronize()))
    return r;
  const double t = now();
  for (uint64_t i = 0; i < count; i++)
    if ((r = go(exec, stream)))
      return r;
  r = synchronize();
  *seconds = now() - t;
  return r;
}

// Ends the process: 0, or 3 if memory was wrong, or 4 if a call failed before the end.
[[noreturn]] void storm(uint64_t millis, bool join) {
  static std::atomic<bool> over{false};
  static std::atomic<int> verdict{0};
  PROC(alloc, "cuMemAlloc", "cuMemAlloc_v2", CUdeviceptr*, size_t);
  PROC(release, "cuMemFree", "cuMemFree_v2", CUdeviceptr);
  PROC(zero, "cuMemsetD8Async", "cuMemsetD8Async", CUdeviceptr, unsigned char, size_t, CUstream);
  PROC(copy, "cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", void*, CUdeviceptr, size_t, CUstream);
  PROC(go, "cuLaunchKernel", "cuLaunchKernel", CUfunction, unsigned, unsigned, unsigned, unsigned,
       unsigned, unsigned, unsigned, CUstream, void**, void**);
  FUNCTION(set, "cuCtxSetCurrent", CUcontext);
  FUNCTION(create, "cuStreamCreate", CUstream*, unsigned);
  FUNCTION(wait, "cuStreamSynchronize", CUstream);
  std::vector<std::thread> all;
  for (uint64_t i = 0; i < 4; i++)
    all.emplace_back([=] {
      CUstream mine = nullptr;
      CUdeviceptr at = 0, counter = 0;
      CUresult r = set(context);
      if (!r)
        r = create(&mine, 1);
      uint64_t count = (16u << 20) / 8, seed = i << 40, wrong = 0;
      if (!r)
        r = alloc(&at, count * 8);
      if (!r)
        r = alloc(&counter, 8);
      void* fills[] = {&at, &count, &seed};
      void* checks[] = {&at, &count, &seed, &counter};
      while (!r && !over) {
        seed += count;
        r = go(fill, 64, 1, 1, 256, 1, 1, 0, mine, fills, nullptr);
        r = r ? r : zero(counter, 0, 8, mine);
        r = r ? r : go(verify, 64, 1, 1, 256, 1, 1, 0, mine, checks, nullptr);
        r = r ? r : copy(&wrong, counter, 8, mine);
        r = r ? r : wait(mine);
        if (wrong)
          verdict = 3;
        CUdeviceptr brief = 0;
        if (!r && seed / count % 8 == 0 && !(r = alloc(&brief, 3u << 20)))
          r = release(brief);
      }
      if (r && !over && !verdict)
        verdict = 4;
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(millis));
  if (join)
    over = true;
  for (std::thread& t : all)
    join ? t.join() : t.detach();
  over = true;
  std::exit(verdict);
}

// Allocates once, or as often as it goes.
std::string allocations(const std::string& verb,
                        const std::string& path,
                        uint64_t bytes,
                        CUresult* r) {
  uint64_t made = 0;
  do {
    *r = allocate_by(path, bytes);
    made += *r == CUDA_OK;
  } while (verb == "exhaust" && *r == CUDA_OK && made < 1000000);
  char text[256] = "";
  std::snprintf(text, sizeof text, "made=%llu last=%d", static_cast<unsigned long long>(made), *r);
  if (verb == "exhaust" && *r == CUDA_OUT_OF_MEMORY)
    *r = CUDA_OK;
  return text;
}

// Rewrites so many percent of every 2 MiB-piece range, from the start of each allocation.
CUresult touch(uint64_t percent, uint64_t seed) {
  CUresult r = CUDA_OK;
  std::vector<Held> now_held;
  for (Held& h : held) {
    const uint64_t part = h.bytes / 100 * percent / (2u << 20) * (2u << 20);
    if (part) {
      r = fill_words(h.at, part, seed);
      now_held.push_back({h.at, part, seed});
    }
    seed += part;  // no two pieces alike
    if (h.bytes > part)
      now_held.push_back({h.at + part, h.bytes - part, h.seed + part / 8});
  }
  held = now_held;
  return r ? r : synchronize();
}

CUresult free_all() {
  PROC(release, "cuMemFree", "cuMemFree_v2", CUdeviceptr);
  CUresult r = CUDA_OK;
  for (Held& h : held)
    if (CUresult e = release(h.at))
      r = e;
  held.clear();
  return r;
}

CUresult memory_info(size_t* free, size_t* total) {
  PROC(info, "cuMemGetInfo", "cuMemGetInfo_v2", size_t*, size_t*);
  return info(free, total);
}

// The seconds that so many launches take, with what was waiting.
double timed_launches(uint64_t count, CUfunction kernel, void** parameters, CUresult* r) {
  const double t = now();
  for (uint64_t i = 0; i < count && !*r; i++)
    *r = launch(kernel, 1, parameters);
  if (!*r)
    *r = synchronize();
  return now() - t;
}

// Verbs that report figures; empty for any other.
std::string measure(const std::string& verb, uint64_t a, uint64_t b, CUresult* r) {
  char text[256] = "";
  if (verb == "check") {
    uint64_t wrong = 0;
    *r = count_wrong(&wrong);
    std::snprintf(text, sizeof text, "wrong=%llu", static_cast<unsigned long long>(wrong));
  } else if (verb == "info") {
    size_t free = 0, total = 0;
    *r = memory_info(&free, &total);
    std::snprintf(text, sizeof text, "free=%zu total=%zu", free, total);
  } else if (verb == "spin") {
    uint64_t cycles = simulated ? a : a * 1755;
    void* parameters[] = {&cycles};
    std::snprintf(text, sizeof text, "seconds=%.6f", timed_launches(b, spin, parameters, r));
  } else if (verb == "tiny") {
    timed_launches(1000, nothing, nullptr, r);
    std::snprintf(text, sizeof text, "seconds=%.6f", timed_launches(a, nothing, nullptr, r));
  } else if (verb == "graph") {
    double seconds = 0;
    *r = replay(a, b, &seconds);
    std::snprintf(text, sizeof text, "seconds=%.6f", seconds);
  } else if (verb == "span") {
    double rates[2] = {};
    *r = span_rates(a, rates);
    std::snprintf(text, sizeof text, "out=%.3f in=%.3f", rates[0], rates[1]);
  } else if (verb == "link") {
    double rates[4] = {};
    *r = link_rates(a, rates);
    std::snprintf(text, sizeof text, "out=%.2f in=%.2f both=%.2f", rates[0], rates[1], rates[2]);
  } else {
    *r = CUDA_INVALID_VALUE;
  }
  return text;
}

std::string command(const std::string& line, CUresult* r) {
  std::istringstream words(line);
  std::string verb, name, said;
  uint64_t a = 0, b = 0;
  words >> verb;
  if (verb == "path" || verb == "exhaust") {
    words >> name >> a;
    return allocations(verb, name, a, r);
  }
  words >> a >> b;
  if (verb == "hold")
    *r = hold(a, b);
  else if (verb == "vmm")
    *r = own_vmm(a, b);
  else if (verb == "storm")
    storm(a, b != 0);
  else if (verb == "sync")
    *r = synchronize();
  else if (verb == "touch")
    *r = touch(a, b);
  else if (verb == "free")
    *r = free_all();
  else if (verb == "paired")
    *r = paired(a, b ? b : 1, &said);
  else
    said = measure(verb, a, b, r);
  return said;
}
}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const CUresult started = start();
  std::printf(started ? "error %d start\n" : "ok pid=%d\n", started ? started : getpid());
  if (started)
    return 1;
  char line[512];
  while (fgets(line, sizeof line, stdin)) {
    if (!std::strncmp(line, "quit", 4))
      break;
    CUresult r = CUDA_OK;
    const std::string text = command(line, &r);
    if (r)
      std::printf("error %d %s\n", r, text.c_str());
    else
      std::printf("ok %s\n", text.c_str());
  }
  return 0;
}
