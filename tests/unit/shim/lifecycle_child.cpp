// One process of a job that is suspended and resumed while it makes a transition: exit, a crash,
// the end of a context and so on. `lifecycle_child KIND TRANSITION N`: KIND `shim` holds the shim's
// own thread at its Nth call of the driver during the suspend or the resume and makes the
// transition then; KIND `program` holds the program at the Nth call of its transition while the
// suspend comes. It says "ready", then "held" or "beyond" (there is no such call), and ends.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/shim/child.h"

namespace {

CUdeviceptr small_memory, memory;
CUcontext context, other;
char** arguments;

void say(const char* text) {
  std::puts(text);
  std::fflush(stdout);
}
void check_memory() {
  std::vector<uint64_t> back(8 * MiB / 8);
  EXPECT(cu("cuMemcpyDtoH_v2", static_cast<void*>(back.data()), memory, 8 * MiB) == CUDA_OK);
  for (size_t i = 0; i < back.size(); i++)
    EXPECT(back[i] == i * 0x9e3779b97f4a7c15ull);
}

// ---- transitions; those that return are followed by a check of the memory and a normal end
void by_exit() {
  std::exit(7);
}
void by_exit_with_threads() {  // threads that use the GPU until the process is gone
  for (int i = 0; i < 3; i++)
    std::thread([] {
      sim<void (*)()>("billow_sim_of_program")();
      cu("cuCtxSetCurrent", context);
      for (;;) {
        CUdeviceptr p = 0;
        if (alloc(&p, 4096) == CUDA_OK)
          cu("cuMemFree_v2", p);
        usleep(500);
      }
    }).detach();
  std::exit(7);
}
void by_quick_exit() {
  _exit(7);
}
// The driver's own exit handler comes first: it hands over nothing more, and the process ends
// later.
void by_driver_end() {
  sim<void (*)(const char*, long, int)>("billow_sim_fail")("cuMemExportToShareableHandle", 0,
                                                           CUDA_DEINITIALIZED);
  usleep(50000);
  _exit(7);
}
void by_crash() {
  signal(SIGABRT, SIG_DFL);
  std::abort();
}
void by_signal_handler() {  // exit() from a handler, on a thread that may be waiting at the gate
  signal(SIGUSR1, [](int) { std::exit(7); });
  const pthread_t self = pthread_self();
  std::thread([self] {
    usleep(10000);
    pthread_kill(self, SIGUSR1);
  }).detach();
  for (;;) {
    cu("cuMemsetD8_v2", small_memory, static_cast<unsigned char>(1), size_t{64});
    usleep(200);
  }
}
// The handler itself uses the driver, whatever it interrupted. The function is looked up before: a
// handler that interrupts dlsym and is held there would keep the loader's lock.
using Memset = CUresult (*)(CUdeviceptr, unsigned char, size_t);
Memset fill_bytes;
void by_handler_that_calls() {
  fill_bytes = sim<Memset>("cuMemsetD8_v2");
  static std::atomic<int> handled{0};
  signal(SIGUSR1, [](int) {
    fill_bytes(small_memory, 2, 64);
    handled++;
  });
  const pthread_t self = pthread_self();
  std::thread sender([self] {
    for (int i = 0; i < 10; i++) {
      pthread_kill(self, SIGUSR1);
      usleep(3000);
    }
  });
  for (int calls = 0; handled.load() < 1; calls++)
    if (calls < 50)
      fill_bytes(small_memory, 1, 64);
    else
      usleep(100);
  sender.join();
}
void by_reset() {  // cudaDeviceReset, and a start from nothing
  EXPECT(cu("cuDevicePrimaryCtxReset_v2", 0) == CUDA_OK);
  EXPECT(cu("cuDevicePrimaryCtxRetain", &context, 0) == CUDA_OK &&
         cu("cuCtxSetCurrent", context) == CUDA_OK);
  EXPECT(alloc(&memory, 8 * MiB) == CUDA_OK);
  std::vector<uint64_t> words(8 * MiB / 8);
  for (size_t i = 0; i < words.size(); i++)
    words[i] = i * 0x9e3779b97f4a7c15ull;
  EXPECT(cu("cuMemcpyHtoD_v2", memory, static_cast<const void*>(words.data()), 8 * MiB) == CUDA_OK);
}
void by_context_end() {
  EXPECT(cu("cuCtxDestroy_v2", other) == CUDA_OK);
  EXPECT(cu("cuCtxSetCurrent", context) == CUDA_OK);
}
void by_fork() {
  for (int i = 0; i < 3; i++) {
    const pid_t child = fork();
    if (child == 0) {
      sim<void (*)()>("billow_sim_unpark")();  // the thread that would do it is the parent's
      std::exit(cu("cuInit", 0u) == CUDA_NOT_INITIALIZED ? 0 : 3);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
  }
}
void by_exec() {
  char* again[] = {arguments[0], const_cast<char*>("shim"), const_cast<char*>("started"),
                   const_cast<char*>("0"), nullptr};
  execv(arguments[0], again);
  std::_Exit(9);
}
void by_free_and_alloc() {
  for (int i = 0; i < 4; i++) {
    CUdeviceptr p = 0;
    EXPECT(alloc(&p, 3 * MiB) == CUDA_OK && cu("cuMemFree_v2", p) == CUDA_OK);
  }
}
// As XLA does: a thread that asks about completion all the time, and never puts work on the GPU.
void by_polling() {
  std::atomic<bool> end{false};
  std::thread polls([&] {
    cu("cuCtxSetCurrent", context);
    CUevent event = nullptr;
    EXPECT(cu("cuEventCreate", &event, 0u) == CUDA_OK);
    EXPECT(cu("cuEventRecord", event, static_cast<CUstream>(nullptr)) == CUDA_OK);
    while (!end) {
      const CUresult asked = cu("cuEventQuery", event);
      EXPECT(asked == CUDA_OK || asked == CUDA_NOT_READY);
      EXPECT(cu("cuStreamSynchronize", static_cast<CUstream>(nullptr)) == CUDA_OK);
      EXPECT(cu("cuEventSynchronize", event) == CUDA_OK);
    }
  });
  by_free_and_alloc();
  usleep(100000);
  by_free_and_alloc();
  end = true;
  polls.join();
}
void by_thread_end() {
  for (int i = 0; i < 4; i++)
    std::thread([] {
      sim<void (*)()>("billow_sim_of_program")();
      cu("cuCtxSetCurrent", context);
      CUdeviceptr p = 0;
      EXPECT(alloc(&p, 4096) == CUDA_OK && cu("cuMemFree_v2", p) == CUDA_OK);
    }).join();
}

struct Transition {
  const char* name;
  void (*run)();
} transitions[] = {{"exit", by_exit},
                   {"exit_with_threads", by_exit_with_threads},
                   {"quick_exit", by_quick_exit},
                   {"driver_end", by_driver_end},
                   {"crash", by_crash},
                   {"signal_handler", by_signal_handler},
                   {"handler_that_calls", by_handler_that_calls},
                   {"reset", by_reset},
                   {"context_end", by_context_end},
                   {"fork", by_fork},
                   {"exec", by_exec},
                   {"free_and_alloc", by_free_and_alloc},
                   {"polling", by_polling},
                   {"thread_end", by_thread_end}};

void set_up() {
  sim<void (*)()>("billow_sim_of_program")();
  context = start();
  EXPECT(alloc(&small_memory, 4096) == CUDA_OK && alloc(&memory, 8 * MiB) == CUDA_OK);
  for (size_t i = 0; i < 8 * MiB / 8; i++)
    reinterpret_cast<uint64_t*>(memory)[i] = i * 0x9e3779b97f4a7c15ull;
  EXPECT(cu("cuCtxCreate_v2", &other, 0u, 0) == CUDA_OK);
  CUdeviceptr in_other = 0;
  EXPECT(alloc(&in_other, 2 * MiB) == CUDA_OK);
  EXPECT(cu("cuCtxSetCurrent", context) == CUDA_OK);
}

// Lets the held thread go a moment after the transition has begun: a transition that waits at the
// gate would never return otherwise.
void release_soon(int milliseconds) {
  const auto unpark = sim<void (*)()>("billow_sim_unpark");
  std::thread([milliseconds, unpark] {
    usleep(static_cast<useconds_t>(milliseconds) * 1000);
    unpark();
  }).detach();
}

void make(const Transition& t) {
  t.run();
  check_memory();
}

void hold_shim(const Transition& t, long n) {
  sim<void (*)(int, long)>("billow_sim_park")(0, n);
  say("ready");
  auto held = sim<int (*)()>("billow_sim_parked");
  static std::atomic<bool> over{false};  // the suspend and the resume are over
  std::thread([] {
    getchar();
    over = true;
  }).detach();
  while (!held() && !over)
    usleep(200);
  say(held() ? "held" : "beyond");
  release_soon(15);
  make(t);
}

void hold_program(const Transition& t, long n) {
  say("ready");
  getchar();
  auto held = sim<int (*)()>("billow_sim_parked");
  const auto unpark = sim<void (*)()>("billow_sim_unpark");
  std::thread([held, unpark] {
    for (int i = 0; i < 100 && !held(); i++)
      usleep(1000);
    say(held() ? "held" : "beyond");
    usleep(15000);
    unpark();
  }).detach();
  sim<void (*)(int, long)>("billow_sim_park")(1, n);
  make(t);
  if (!held())
    usleep(120000);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4)
    return 2;
  arguments = argv;
  const std::string kind = argv[1], name = argv[2];
  set_up();
  if (name == "started")  // after exec
    std::exit(7);
  for (const Transition& t : transitions)
    if (name == t.name) {
      (kind == "shim" ? hold_shim : hold_program)(t, std::atol(argv[3]));
      return 0;
    }
  return 2;
}
