// Runs the program as a person or a script would, and tells what it wrote and how it ended.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"

namespace billow::client::testing {

class Child {
 public:
  // stdin is /dev/null unless `input` is a descriptor to read from.
  Child(const std::string& program,
        std::vector<std::string> args,
        const std::map<std::string, std::string>& env,
        int input = -1) {
    int out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0)
      std::abort();
    out_ = Fd(out[0]);
    err_ = Fd(err[0]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    if (input >= 0)
      ::posix_spawn_file_actions_adddup2(&actions, input, 0);
    else
      ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    ::posix_spawn_file_actions_adddup2(&actions, err[1], 2);
    std::vector<std::string> variables = {"PATH=/usr/bin:/bin", "HOME=/nonexistent"};
    for (const auto& [name, value] : env)
      variables.push_back(name + "=" + value);
    args.insert(args.begin(), program);
    std::vector<char*> argv, envp;
    for (auto& word : args)
      argv.push_back(word.data());
    for (auto& word : variables)
      envp.push_back(word.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    if (::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), envp.data()) != 0)
      std::abort();
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    ::close(err[1]);
  }
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  void signal(int number) { ::kill(pid_, number); }
  // Reads until the output so far satisfies `enough`, or the time is over.
  template <class Enough>
  bool read_until(Enough enough, Duration at_most = seconds(20)) {
    const auto deadline = system_clock().steady() + at_most;
    while (!enough()) {
      if (system_clock().steady() > deadline)
        return false;
      pollfd fds[2] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
      if (!out_ && !err_)
        return enough();
      if (::poll(fds, 2, 100) <= 0)
        continue;
      if (fds[0].revents)
        take(out_, out);
      if (fds[1].revents)
        take(err_, err);
    }
    return true;
  }
  // The exit code, or -signal.
  int wait() {
    read_until([&] { return !out_ && !err_; });
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string out, err;

 private:
  static void take(Fd& fd, std::string& into) {
    char buffer[65536];
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n > 0)
      into.append(buffer, static_cast<std::size_t>(n));
    else
      fd.reset();
  }
  pid_t pid_ = -1;
  Fd out_, err_;
};

}  // namespace billow::client::testing
