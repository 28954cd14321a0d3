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
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/file.h"
#include "gpumem/client.h"
#include "gpumem/server.h"

namespace {
struct Options {
  billow::gpumem::ServerOptions server;
  std::uint64_t sleep_memory = 0;
};

// Numbers are read without base/text.h: this program links with the standard library alone, so that
// it can be compiled on a machine without our build.
billow::Result<std::int64_t> number_of(std::string_view text, std::int64_t min, std::int64_t max) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc{} || read.ptr != end || value < min || value > max)
    return billow::fail(billow::Code::invalid,
                        "\"" + std::string(text) + "\" is not a whole number from " +
                            std::to_string(min) + " to " + std::to_string(max));
  return value;
}

billow::Status set_bytes(std::string_view text, std::uint64_t& out) {
  constexpr std::string_view units = "KMGT";
  constexpr double most = 1ull << 60;
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  bool good = read.ec == std::errc{} && (read.ptr == end || read.ptr + 1 == end);
  if (good && read.ptr != end) {
    const std::size_t unit = units.find(*read.ptr);
    good = unit != std::string_view::npos;
    value *= good ? static_cast<double>(1ull << (10 * (unit + 1))) : 1;
  }
  if (!good || !(value >= 0 && value <= most))
    return billow::fail(billow::Code::invalid,
                        "\"" + std::string(text) + "\" is not a size like 512M, 20G or 1.5T");
  out = static_cast<std::uint64_t>(value);
  return {};
}

billow::Status set_option(Options& out, std::string_view name, const std::string& value) {
  billow::gpumem::Service::Options& service = out.server.service;
  if (name == "--arena")
    return set_bytes(value, service.arena_bytes);
  if (name == "--sleep-memory")
    return set_bytes(value, out.sleep_memory);
  if (name == "--sleep-disk")
    return set_bytes(value, service.lower.file_bytes);
  if (name == "--threads")
    service.threads = static_cast<unsigned>(BILLOW_TRY(number_of(value, 1, 1024)));
  else if (name == "--period-ms")
    service.arbiter.period_ns = BILLOW_TRY(number_of(value, 1, 60'000)) * 1'000'000;
  else if (name == "--socket")
    out.server.job_socket = value;
  else if (name == "--admin")
    out.server.admin_socket = value;
  else if (name == "--sleep-dir")
    service.lower.directory = value;
  else
    return billow::fail(billow::Code::invalid, "unknown option");
  return {};
}

billow::Result<Options> read_options(int argc, char** argv) {
  Options out;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc)
      return billow::fail(billow::Code::invalid, name + ": its value is missing");
    if (const auto set = set_option(out, name, argv[i + 1]); !set)
      return billow::pass(set.error(), name);
  }
  if (out.server.job_socket.empty() || out.server.admin_socket.empty())
    return billow::fail(billow::Code::invalid, "--socket and --admin are needed");
  const std::uint64_t arena = out.server.service.arena_bytes;
  out.server.service.lower.memory_bytes = out.sleep_memory - std::min(out.sleep_memory, arena);
  return out;
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
  const auto read = read_options(argc, argv);
  if (!read) {
    std::fprintf(stderr,
                 "billow-gpumem: %s\n"
                 "usage: billow-gpumem --socket PATH --admin PATH [--arena 64G] [--threads N] "
                 "[--period-ms N]\n                     [--sleep-memory SIZE] [--sleep-dir PATH "
                 "--sleep-disk SIZE]\n       billow-gpumem call ADMIN COMMAND…\n",
                 read.error().message.c_str());
    return 2;
  }
  const billow::gpumem::ServerOptions& options = read->server;
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
