// Backups by schedule: a new one when the newest in the directory is old enough, and then the
// oldest go. It looks at the files and remembers nothing, so a head that restarts, or a standby
// with the same directory, continues where the last one was.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "net/workers.h"
#include "store/store.h"

namespace billow::head {

class Backups {
 public:
  struct Options {
    std::string dir;
    Duration every = hours(24);
    std::uint32_t kept = 7;
    net::Workers* workers = nullptr;
    const Clock* clock = nullptr;
    const Store* store = nullptr;
    std::function<void(const Error&)> failed;  // on the loop
  };
  explicit Backups(Options options) : options_(std::move(options)) {}
  void look();  // on a timer; idempotent

 private:
  Options options_;
  bool busy_ = false;
  WallTime retry_after_;  // a failure is not repeated every second
};

}  // namespace billow::head
