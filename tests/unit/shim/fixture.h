// What the shim's tests share: child processes with pipes, and a GPU memory service on the
// simulated driver.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpumem/client.h"

namespace shimtest {

using billow::gpumem::call_service;

// A process with pipes to its standard input and output.
class Child {
 public:
  Child(std::vector<std::string> arguments, std::vector<std::string> environment) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
      return;
    std::vector<char*> argv, envp;
    for (auto& a : arguments)
      argv.push_back(a.data());
    for (auto& e : environment)
      envp.push_back(e.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      signal(SIGPIPE, SIG_DFL);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(in[0], 0);
      dup2(out[1], 1);
      execve(argv[0], argv.data(), envp.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    in_ = in[1];
    out_ = fdopen(out[0], "r");
  }
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (in_ >= 0)
      close(in_);
    if (out_)
      fclose(out_);
  }
  std::string line() {
    char text[256] = "";
    if (!fgets(text, sizeof text, out_))
      return "";
    std::string s = text;
    while (!s.empty() && s.back() == '\n')
      s.pop_back();
    return s;
  }
  void poke() {
    if (write(in_, "\n", 1) < 0) {}
  }
  static constexpr int hung = -1000;
  int wait(int seconds = 100) {  // exit status, or -signal, or `hung`
    int status = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (waitpid(pid_, &status, WNOHANG) != pid_) {
      if (std::chrono::steady_clock::now() > deadline)
        return hung;
      usleep(2000);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void kill_now() {
    kill(pid_, SIGKILL);
    wait();
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  FILE* out_ = nullptr;
};

class Shim : public testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);  // a child may have ended when the test writes to it
    char pattern[] = "/tmp/billow-shim-XXXXXX";
    dir_ = mkdtemp(pattern);
    start_service();
  }
  void TearDown() override {
    service_.reset();
    std::filesystem::remove_all(dir_);
  }
  void start_service() {
    std::vector<std::string> arguments{GPUMEM_PROGRAM, "--socket",      dir_ + "/jobs",
                                       "--admin",      dir_ + "/admin", "--arena",
                                       arena_,         "--threads",     "2"};
    arguments.insert(arguments.end(), more_.begin(), more_.end());
    service_ = std::make_unique<Child>(arguments, environment("", false));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!call_service(dir_ + "/admin", "ping")) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline)
          << "the GPU memory service did not start";
      usleep(10000);
    }
  }
  std::vector<std::string> environment(const std::string& token, bool shim) {
    std::vector<std::string> out{
        std::string("LD_LIBRARY_PATH=") + SIM_CUDA_DIR, "BILLOW_SIM_CUDA_STATE=" + dir_ + "/gpu",
        "BILLOW_SIM_CUDA_CONTEXT=2097152", "BILLOW_SIM_CUDA_DEVICES=" + std::to_string(devices_)};
    if (shim) {
      out.push_back(std::string("LD_PRELOAD=") + SHIM_LIBRARY);
      out.push_back("BILLOW_VAULT_SOCKET=" + dir_ + "/jobs");
      out.push_back("BILLOW_JOB_TOKEN=" + token);
    }
    return out;
  }
  billow::gpumem::Reply call(const std::string& command) {
    auto reply = call_service(dir_ + "/admin", command, 60000);
    EXPECT_TRUE(reply.has_value()) << command << ": " << (reply ? "" : reply.error().message);
    return reply ? *reply : billow::gpumem::Reply{};
  }
  void add(const std::string& name,
           std::uint64_t mib,
           const std::string& more = "",
           int share = 1000) {
    call("add name=" + name + " token=token-of-" + name + " " + more +
         " device=-:" + std::to_string(mib << 20) + ":0:" + std::to_string(share));
  }
  std::unique_ptr<Child> child(const std::string& job, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), CHILD_PROGRAM);
    return std::make_unique<Child>(arguments, environment("token-of-" + job, true));
  }
  int run(const std::string& what, std::uint64_t mib = 64, const std::string& more = "") {
    add("job", mib, more);
    return child("job", {what})->wait();
  }
  std::map<std::string, std::string> job(const std::string& name) {
    for (const auto& line : call("status").lines)
      if (line.contains("name") && line.at("name") == name)
        return line;
    return {};
  }
  template <class Condition>
  bool eventually(Condition condition, int seconds = 20) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline)
        return false;
      usleep(5000);
    }
    return true;
  }
  std::string dir_, arena_ = "256M";
  int devices_ = 1;
  std::vector<std::string> more_;  // options of the service
  std::unique_ptr<Child> service_;
};

}  // namespace shimtest
