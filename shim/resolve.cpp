/* How a program finds the driver's functions, and how each way returns our hooks.
 *
 *   linked against libcuda     the loader binds to us, because we are preloaded and export the same
 *                              names
 *   dlsym, dlvsym              exported here; every other name goes to the C library, by a jump
 *                              that keeps the caller's return address, because RTLD_NEXT and
 *                              RTLD_DEFAULT depend on the caller
 *   cuGetProcAddress (v1, v2)  the driver is asked first; its answer is looked up by address, and
 *                              only a function known under exactly that address is replaced by its
 *                              hook, so ABIs are never mixed up
 *
 * The C library's dlsym is found by reading the loaded objects' symbol tables: asking dlsym for
 * dlsym would find our own. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "shim/internal.h"

namespace shim {

AnyFunction real_table[api_count];

namespace {

void* (*libc_dlsym)(void*, const char*);
void* (*libc_dlvsym)(void*, const char*, const char*);
void* cuda_handle;
pthread_once_t driver_once = PTHREAD_ONCE_INIT;
pthread_once_t libc_once = PTHREAD_ONCE_INIT;

struct ByAddress {
  AnyFunction real;
  int api;
};
ByAddress by_address[api_count];
int by_address_count;

struct Search {
  const char* name;
  void* found;
};

size_t symbol_count(const uint32_t* gnu_hash) {
  const uint32_t buckets = gnu_hash[0], first = gnu_hash[1], bloom = gnu_hash[2];
  const uint32_t* bucket = gnu_hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; i++)
    if (bucket[i] > last)
      last = bucket[i];
  if (last < first)
    return first;
  const uint32_t* chain = bucket + buckets;
  while (!(chain[last - first] & 1))
    last++;
  return last + 1;
}

int search_object(struct dl_phdr_info* info, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  const char* base = strrchr(info->dlpi_name ? info->dlpi_name : "", '/');
  base = base ? base + 1 : info->dlpi_name;
  if (!base || (strncmp(base, "libc.so", 7) && strncmp(base, "libdl.so", 8) &&
                strncmp(base, "libc-2", 6) && strncmp(base, "libdl-2", 7)))
    return 0;
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t *gnu = nullptr, *sysv = nullptr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
      continue;
    for (auto* d = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
         d->d_tag != DT_NULL; d++) {
      // Some loaders leave these relative to the object, some have already added its base.
      ElfW(Addr) p =
          d->d_un.d_ptr < info->dlpi_addr ? d->d_un.d_ptr + info->dlpi_addr : d->d_un.d_ptr;
      if (d->d_tag == DT_SYMTAB)
        symbols = reinterpret_cast<const ElfW(Sym)*>(p);
      else if (d->d_tag == DT_STRTAB)
        strings = reinterpret_cast<const char*>(p);
      else if (d->d_tag == DT_GNU_HASH)
        gnu = reinterpret_cast<const uint32_t*>(p);
      else if (d->d_tag == DT_HASH)
        sysv = reinterpret_cast<const uint32_t*>(p);
    }
  }
  if (!symbols || !strings || (!gnu && !sysv))
    return 0;
  const size_t count = gnu ? symbol_count(gnu) : sysv[1];
  for (size_t i = 0; i < count; i++) {
    if (symbols[i].st_shndx == SHN_UNDEF || strcmp(strings + symbols[i].st_name, search->name))
      continue;
    search->found = reinterpret_cast<void*>(info->dlpi_addr + symbols[i].st_value);
    return 1;
  }
  return 0;
}

void find_libc() {
  Search dlsym_search{"dlsym", nullptr}, dlvsym_search{"dlvsym", nullptr};
  dl_iterate_phdr(search_object, &dlsym_search);
  dl_iterate_phdr(search_object, &dlvsym_search);
  libc_dlsym = reinterpret_cast<void* (*)(void*, const char*)>(dlsym_search.found);
  libc_dlvsym = reinterpret_cast<void* (*)(void*, const char*, const char*)>(dlvsym_search.found);
}

int compare_address(const void* a, const void* b) {
  const auto x = reinterpret_cast<uintptr_t>(static_cast<const ByAddress*>(a)->real);
  const auto y = reinterpret_cast<uintptr_t>(static_cast<const ByAddress*>(b)->real);
  return x < y ? -1 : x > y;
}

void load_driver() {
  cuda_handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!cuda_handle)
    cuda_handle = dlopen("libcuda.so.1", RTLD_LAZY);
  if (!cuda_handle)
    return;
  int n = 0;
  for (int i = 0; i < api_count; i++) {
    auto function = reinterpret_cast<AnyFunction>(real_dlsym(cuda_handle, api_table[i].symbol));
    __atomic_store_n(&real_table[i], function, __ATOMIC_RELEASE);
    if (function && api_table[i].hook)
      by_address[n++] = {function, i};
  }
  qsort(by_address, static_cast<size_t>(n), sizeof *by_address, compare_address);
  __atomic_store_n(&by_address_count, n, __ATOMIC_RELEASE);
}

int hook_of_address(AnyFunction real) {
  int low = 0, high = __atomic_load_n(&by_address_count, __ATOMIC_ACQUIRE);
  while (low < high) {
    const int middle = (low + high) / 2;
    if (reinterpret_cast<uintptr_t>(by_address[middle].real) < reinterpret_cast<uintptr_t>(real))
      low = middle + 1;
    else
      high = middle;
  }
  return low < by_address_count && by_address[low].real == real ? by_address[low].api : -1;
}

// The newest ABI of `name` that a caller with CUDA `version` can mean, with the requested kind of
// default stream.
int hook_of_name(const char* name, int version, uint64_t flags) {
  int best = -1;
  const bool per_thread = flags & PROC_ADDRESS_PER_THREAD;
  for (int i = 0; i < api_count; i++) {
    const ApiEntry& e = api_table[i];
    if (!e.hook || e.since > version || strcmp(e.name, name))
      continue;
    const char* tail = strrchr(e.symbol, '_');
    const bool is_per_thread = tail && (!strcmp(tail, "_ptsz") || !strcmp(tail, "_ptds"));
    if (is_per_thread && !per_thread)
      continue;
    if (best < 0 || e.since > api_table[best].since ||
        (e.since == api_table[best].since && is_per_thread))
      best = i;
  }
  return best;
}

// Replaces the driver's answer with our hook.
void exchange(const char* name, void** function, int version, uint64_t flags) {
  if (!name || !function || !*function)
    return;
  const int api = hook_of_address(reinterpret_cast<AnyFunction>(*function));
  if (api >= 0) {
    *function = reinterpret_cast<void*>(api_table[api].hook);
    return;
  }
  // An unknown address for a known name: the driver's table differs from its exports. If exactly
  // one ABI fits and the driver exports nothing under that symbol, the answer is that function;
  // otherwise the driver's answer is kept and counted.
  const int named = hook_of_name(name, version, flags);
  if (named < 0)
    return;
  if (!real_table[named]) {
    __atomic_store_n(&real_table[named], reinterpret_cast<AnyFunction>(*function),
                     __ATOMIC_RELEASE);
    *function = reinterpret_cast<void*>(api_table[named].hook);
  } else if (pages.slot) {
    __atomic_fetch_add(&pages.slot->passed_by, 1, __ATOMIC_RELAXED);
  }
}

}  // namespace

void* real_dlsym(void* handle, const char* name) {
  pthread_once(&libc_once, find_libc);
  return libc_dlsym ? libc_dlsym(handle, name) : nullptr;
}

AnyFunction resolve_real(Api api) {
  pthread_once(&driver_once, load_driver);
  return __atomic_load_n(&real_table[api], __ATOMIC_ACQUIRE);
}

}  // namespace shim

using namespace shim;

// Called by the assembly below for every dlsym and dlvsym of the process: returns our hook, or null
// for "ask the C library".
extern "C" HIDDEN void* billow_dlsym_ours(void* handle, const char* name, const char* version) {
  if (!name || handle == RTLD_NEXT)
    return nullptr;
  const bool cuda = name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
  const bool nvml = !cuda && !strncmp(name, "nvmlDevice", 10);
  if (!cuda && !nvml)
    return nullptr;
  pthread_once(&libc_once, find_libc);
  // A global lookup would find our own export even without a loaded driver; the answer is the next
  // one in the search order.
  void* where = handle == RTLD_DEFAULT ? RTLD_NEXT : handle;
  void* real = version && libc_dlvsym ? libc_dlvsym(where, name, version) : real_dlsym(where, name);
  if (!real)
    return nullptr;
  if (nvml)
    return reinterpret_cast<void*>(nvml_hook(name, real));
  pthread_once(&driver_once, load_driver);
  for (int i = 0; i < api_count; i++) {
    if (!api_table[i].hook || strcmp(api_table[i].symbol, name))
      continue;
    // Another library's function with the same name must not be replaced.
    const bool same = reinterpret_cast<void*>(real_table[i]) == real ||
                      reinterpret_cast<void*>(api_table[i].hook) == real;
    return same ? reinterpret_cast<void*>(api_table[i].hook) : nullptr;
  }
  return nullptr;
}
extern "C" HIDDEN void* billow_libc_dlsym() {
  pthread_once(&libc_once, find_libc);
  return reinterpret_cast<void*>(libc_dlsym);
}
extern "C" HIDDEN void* billow_libc_dlvsym() {
  pthread_once(&libc_once, find_libc);
  return reinterpret_cast<void*>(libc_dlvsym);
}

// dlsym(handle, name) and dlvsym(handle, name, version): ask billow_dlsym_ours, else jump to the C
// library's function with all registers unchanged.
#if defined(__x86_64__)
#define FORWARDER(function, third, real)                                            \
  asm(".text\n.globl " #function "\n.type " #function ",@function\n" #function      \
      ":\n"                                                                         \
      "  .cfi_startproc\n  endbr64\n  push %rdi\n  push %rsi\n  push %rdx\n  "      \
      ".cfi_adjust_cfa_offset 24\n"                                                 \
      "  " third                                                                    \
      "\n  call billow_dlsym_ours\n  test %rax,%rax\n  jz 1f\n"                     \
      "  add $24,%rsp\n  .cfi_adjust_cfa_offset -24\n  ret\n"                       \
      "1: .cfi_adjust_cfa_offset 24\n  call " #real                                 \
      "\n  pop %rdx\n  pop %rsi\n  pop %rdi\n"                                      \
      "  .cfi_adjust_cfa_offset -24\n  jmp *%rax\n  .cfi_endproc\n.size " #function \
      ",.-" #function "\n")
FORWARDER(dlsym, "xor %edx,%edx", billow_libc_dlsym);
FORWARDER(dlvsym, "nop", billow_libc_dlvsym);
#elif defined(__aarch64__)
#define FORWARDER(function, third, real)                                                      \
  asm(".text\n.globl " #function "\n.type " #function ",%function\n" #function                \
      ":\n"                                                                                   \
      "  .cfi_startproc\n  hint #34\n  stp x29,x30,[sp,#-48]!\n  .cfi_adjust_cfa_offset 48\n" \
      "  stp x0,x1,[sp,#16]\n  str x2,[sp,#32]\n  mov x29,sp\n  " third                       \
      "\n  bl billow_dlsym_ours\n"                                                            \
      "  cbz x0,1f\n  ldp x29,x30,[sp],#48\n  ret\n"                                          \
      "1: bl " #real                                                                          \
      "\n  mov x16,x0\n  ldp x0,x1,[sp,#16]\n  ldr x2,[sp,#32]\n  ldp x29,x30,[sp],#48\n"     \
      "  br x16\n  .cfi_endproc\n.size " #function ",.-" #function "\n")
FORWARDER(dlsym, "mov x2,xzr", billow_libc_dlsym);
FORWARDER(dlvsym, "nop", billow_libc_dlvsym);
#else
#error "write FORWARDER for this architecture: dlsym needs the caller's return address"
#endif

EXPORT CUresult cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  const CUresult r = REAL(cuGetProcAddress, name, function, version, flags);
  if (r == CUDA_OK)
    exchange(name, function, version, flags);
  return r;
}
EXPORT CUresult
cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, void* status) {
  const CUresult r = REAL(cuGetProcAddress_v2, name, function, version, flags, status);
  if (r == CUDA_OK)
    exchange(name, function, version, flags);
  return r;
}
EXPORT CUresult cuGetProcAddress_v2_ptsz(
    const char* name, void** function, int version, uint64_t flags, void* status) {
  const CUresult r = REAL(cuGetProcAddress_v2_ptsz, name, function, version, flags, status);
  if (r == CUDA_OK)
    exchange(name, function, version, flags);
  return r;
}
