// billow-gpumem, the GPU memory service: one process per node with GPUs. It owns the pinned arena
// that holds the memory of suspended jobs, gives jobs their limits, and arbitrates turns. It
// survives the agent; the agent finds it again by its admin socket.
//   billow-gpumem --socket PATH --admin PATH [--arena BYTES|64G] [--threads N] [--period-ms N]
//                 [--sleep-memory BYTES] [--sleep-dir PATH --sleep-disk BYTES]
// --sleep-memory counts the arena; what exceeds it is pageable memory.
//   billow-gpumem call ADMIN-SOCKET COMMAND…     sends one admin command and prints the answer
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/file.h"
#include "gpumem/client.h"
#include "gpumem/server.h"

namespace {
std::uint64_t bytes_of(const char* text) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  const char unit = end ? *end : 0;
  const double scale = unit == 'K'   ? 1024.0
                       : unit == 'M' ? 1048576.0
                       : unit == 'G' ? 1073741824.0
                       : unit == 'T' ? 1099511627776.0
                                     : 1.0;
  return value <= 0 ? 0 : static_cast<std::uint64_t>(value * scale);
}

int call(int argc, char** argv) {
  std::string command;
  for (int i = 3; i < argc; i++)
    command += (i > 3 ? " " : "") + std::string(argv[i]);
  const auto reply = billow::gpumem::call_service(argv[2], command);
  if (!reply) {
    std::fprintf(stderr, "error %s %s\n", billow::code_name(reply.error().code),
                 reply.error().message.c_str());
    return 1;
  }
  for (const auto& [key, value] : reply->values)
    std::printf("%s=%s\n", key.c_str(), value.c_str());
  for (const auto& line : reply->lines) {
    for (const auto& [key, value] : line)
      std::printf("%s=%s ", key.c_str(), value.c_str());
    std::printf("\n");
  }
  return 0;
}
}  // namespace

int main(int argc, char** argv) {
  if (argc >= 4 && !std::strcmp(argv[1], "call"))
    return call(argc, argv);
  billow::gpumem::ServerOptions options;
  std::uint64_t sleep_memory = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--socket")
      options.job_socket = argv[i + 1];
    else if (name == "--admin")
      options.admin_socket = argv[i + 1];
    else if (name == "--arena")
      options.service.arena_bytes = bytes_of(argv[i + 1]);
    else if (name == "--sleep-memory")
      sleep_memory = bytes_of(argv[i + 1]);
    else if (name == "--sleep-dir")
      options.service.lower.directory = argv[i + 1];
    else if (name == "--sleep-disk")
      options.service.lower.file_bytes = bytes_of(argv[i + 1]);
    else if (name == "--threads")
      options.service.threads = static_cast<unsigned>(std::max(1, std::atoi(argv[i + 1])));
    else if (name == "--period-ms")
      options.service.arbiter.period_ns = std::max(1, std::atoi(argv[i + 1])) * 1'000'000ll;
    else {
      std::fprintf(stderr, "billow-gpumem: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  if (options.job_socket.empty() || options.admin_socket.empty()) {
    std::fprintf(stderr,
                 "usage: billow-gpumem --socket PATH --admin PATH [--arena 64G] [--threads N] "
                 "[--period-ms N]\n                     [--sleep-memory SIZE] [--sleep-dir PATH "
                 "--sleep-disk SIZE]\n       billow-gpumem call ADMIN COMMAND…\n");
    return 2;
  }
  options.service.lower.memory_bytes =
      sleep_memory - std::min(sleep_memory, options.service.arena_bytes);
  // A limit on file sizes is an error to report, not a reason to end.
  signal(SIGXFSZ, SIG_IGN);
  // No core files and no tracing by other users: this process holds the memory of many tenants.
  prctl(PR_SET_DUMPABLE, 0);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  auto server = billow::gpumem::Server::create(options);
  if (!server) {
    std::fprintf(stderr, "billow-gpumem: %s\n", server.error().message.c_str());
    return 1;
  }
  const billow::Fd signal_fd(signalfd(-1, &signals, SFD_CLOEXEC));
  (*server)->run(signal_fd.get());
  unlink(options.job_socket.c_str());
  unlink(options.admin_socket.c_str());
  // The kernel frees the arena faster than its destructor would unregister it.
  _exit(0);
}
