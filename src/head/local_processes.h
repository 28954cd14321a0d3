// Keeps this machine's agent and gateway running: starts them if their lock is free, which means
// that none is alive. One that is alive but disconnected connects by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "head/options.h"

namespace billow::head {

class LocalProcesses {
 public:
  struct Options {
    const HeadOptions* head = nullptr;
    std::string head_address;      // unix:…/head.sock
    std::uint64_t open_files = 0;  // the agent's limit of open files; 0: the head's
    const Clock* clock = nullptr;
  };
  explicit LocalProcesses(Options options) : options_(std::move(options)) {}

  // On a timer, idempotent. After a start, a few looks are skipped: the process needs a moment to
  // take its lock.
  void watch_agent();
  void watch_gateway();
  // Whether one was started so recently that it may not have connected yet.
  bool agent_just_started() const;
  bool gateway_just_started() const;
  // Of this machine, which its gateway serves; empty: it has none.
  std::string region() const;

 private:
  bool just(const std::optional<SteadyTime>& started) const;

  Options options_;
  std::optional<SteadyTime> agent_started_;
  std::optional<SteadyTime> gateway_started_;
  int agent_looks_to_skip_ = 0;
  int gateway_looks_to_skip_ = 0;
  bool gateway_looked_at_ = false;  // by this head
};

}  // namespace billow::head
