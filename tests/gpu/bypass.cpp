// Switches the shim off and on within one running program, so that its cost can be measured by
// turns: same process, same memory, same threads.
//
// Off: the first instructions of each hook are replaced by a jump to the driver's own function. On:
// they are the shim's own again, byte for byte, so what is measured is the code that jobs run. Only
// hooks that forward their arguments unchanged are switched (launches, copies, waits, loading of
// code); hooks that hand out memory must stay. Nothing else may run on the GPU's functions while a
// switch is made.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/gpu/driver_symbol.h"

namespace {

enum class Kind {
  resolve,
  context,
  alloc,
  free,
  graph,
  map,
  query,
  capture,
  launch,
  copy,
  code,
  share,
  wait,
  none
};

constexpr bool forwards(Kind kind) {
  return kind == Kind::launch || kind == Kind::copy || kind == Kind::wait || kind == Kind::code;
}

constexpr size_t jump_bytes = 16;
constexpr size_t counter_bytes = 64;

struct Hook {
  const char* name;
  uint8_t* at;
  uint8_t kept[jump_bytes];      // the shim's own instructions
  uint8_t past[jump_bytes];      // a jump to the driver's function
  uint8_t counting[jump_bytes];  // a jump to code that counts, then to the driver's function
  uint64_t calls;
  bool chosen;
};
std::vector<Hook> hooks;
uint8_t* counters;

// A jump that changes no argument.
void write_jump(uint8_t* to, const void* target) {
  const auto address = reinterpret_cast<uint64_t>(target);
#if defined(__x86_64__)
  const uint8_t code[] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};  // mov r11; jmp
  std::memcpy(to, code, sizeof code);
  std::memcpy(to + 2, &address, 8);
#elif defined(__aarch64__)
  const uint32_t code[] = {0x58000050, 0xd61f0200};  // ldr x16, the next words; br x16
  std::memcpy(to, code, sizeof code);
  std::memcpy(to + 8, &address, 8);
#else
#error "write the jump of this architecture"
#endif
}

void write_counter(uint8_t* to, uint64_t* count, const void* target) {
  const auto address = reinterpret_cast<uint64_t>(count);
#if defined(__x86_64__)
  // mov r11, count; lock inc qword [r11]
  const uint8_t code[] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x49, 0xff, 0x03};
  std::memcpy(to, code, sizeof code);
  std::memcpy(to + 2, &address, 8);
  write_jump(to + sizeof code, target);
#else
  const uint32_t code[] = {
      0x58000110,  // ldr x16, count (32 bytes on)
      0xc85f7e11,  // again: ldxr x17, [x16]
      0x91000631,  // add x17, x17, 1
      0xc8097e11,  // stxr w9, x17, [x16]
      0x35ffffa9,  // cbnz w9, again
      0xd503201f,  // nop
      0x14000004,  // b past the count
      0xd503201f,
  };
  std::memcpy(to, code, sizeof code);
  std::memcpy(to + sizeof code, &address, 8);
  write_jump(to + sizeof code + 8, target);
#endif
}

void patch(Hook& hook, const uint8_t* code) {
  std::memcpy(hook.at, code, jump_bytes);
  auto* begin = reinterpret_cast<char*>(hook.at);
  __builtin___clear_cache(begin, begin + jump_bytes);
}

bool writable(void* at) {
  const auto page = static_cast<uintptr_t>(getpagesize());
  const auto begin = reinterpret_cast<uintptr_t>(at) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(at) + jump_bytes;
  return mprotect(reinterpret_cast<void*>(begin), end - begin,
                  PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
}

void find(const char* name, Kind kind, void* shim) {
  if (!forwards(kind))
    return;
  void* own = dlsym(shim, name);
  void* driver = driver_function(name);
  if (!own || !driver || own == driver || !writable(own))
    return;
  Hook& hook = hooks.emplace_back();
  hook.name = name;
  hook.at = static_cast<uint8_t*>(own);
  hook.chosen = true;
  std::memcpy(hook.kept, own, jump_bytes);
  std::memcpy(hook.past, own, jump_bytes);
  write_jump(hook.past, driver);
}

}  // namespace

extern "C" {

// How many hooks can be switched; 0 if the shim is not loaded.
int bypass_find(const char* shim_path) {
  void* shim = dlopen(shim_path, RTLD_NOW | RTLD_NOLOAD);
  if (!shim || !hooks.empty())
    return static_cast<int>(hooks.size());
#define BILLOW_API(symbol, name, since, arguments, kind, stream) find(#symbol, Kind::kind, shim);
#include "shim/cuda_api.def"
#undef BILLOW_API
  const size_t bytes = hooks.size() * counter_bytes + 1;
  void* got =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED)
    return 0;
  counters = static_cast<uint8_t*>(got);
  for (size_t i = 0; i < hooks.size(); i++) {
    Hook& hook = hooks[i];
    uint8_t* thunk = counters + i * counter_bytes;
    write_counter(thunk, &hook.calls, driver_function(hook.name));
    std::memcpy(hook.counting, hook.kept, jump_bytes);
    write_jump(hook.counting, thunk);
  }
  __builtin___clear_cache(reinterpret_cast<char*>(counters),
                          reinterpret_cast<char*>(counters + bytes));
  return static_cast<int>(hooks.size());
}

// 0: through the shim. 1: past it. 2: past it, and counted.
void bypass_set(int way) {
  for (Hook& hook : hooks)
    if (hook.chosen)
      patch(hook, way == 0 ? hook.kept : way == 1 ? hook.past : hook.counting);
}

// From now on only those that were called while counted are switched: little code changes at once.
int bypass_choose() {
  bypass_set(0);
  int chosen = 0;
  for (Hook& hook : hooks)
    chosen += hook.chosen = hook.calls > 0;
  return chosen;
}

const char* bypass_name(int i) {
  return hooks[static_cast<size_t>(i)].name;
}
uint64_t bypass_calls(int i) {
  return hooks[static_cast<size_t>(i)].calls;
}
}
