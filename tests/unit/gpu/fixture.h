// Shared by the GPU tests: a temporary state directory, simulated faults, real child processes, and
// waiting for a condition.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/file.h"
#include "gpu/backend.h"
#include "gpu/sim/sim_holders.h"

namespace billow {

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/billow-gpu-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempDir() { (void)remove_tree(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Appends a line to the faults file of a simulated GPU library ("xid 3 79"); an error if the
// simulator would not understand it.
inline Status inject_sim_fault(const std::string& state_dir, std::string_view line) {
  BILLOW_TRY_VOID(parse_sim_fault(line));
  BILLOW_TRY_VOID(make_directories(state_dir));
  const std::string path = state_dir + "/faults";
  const std::string text = file_exists(path) ? BILLOW_TRY(read_file(path, 1 << 20)) : "";
  return write_file_atomic(path, text + std::string(line) + "\n");
}
inline Status clear_sim_faults(const std::string& state_dir) {
  const std::string path = state_dir + "/faults";
  if (unlink(path.c_str()) != 0 && errno != ENOENT)
    return fail_errno(path, errno);
  return {};
}

// A real child process; killed and reaped at the end of the test.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ == 0) {
      body();
      _exit(0);
    }
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};
inline void spin() {
  for (volatile unsigned n = 0;;)
    n = n + 1;
}
inline void rest() {
  for (;;)
    pause();
}

inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::seconds limit = std::chrono::seconds(20)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    if (condition())
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (std::chrono::steady_clock::now() < deadline);
  return condition();
}

inline std::unique_ptr<GpuBackend> open_sim(const std::string& spec,
                                            const std::string& state = "",
                                            bool mig_changes = false) {
  GpuBackendOptions options;
  options.sim = spec;
  options.sim_state_dir = state;
  options.allow_mig_changes = mig_changes;
  auto backend = GpuBackend::open(options);
  EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message);
  return backend ? std::move(*backend) : nullptr;
}

}  // namespace billow
