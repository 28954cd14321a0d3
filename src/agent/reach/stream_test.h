// How fast bytes go from one node to another: a listener that lives for one test, and whoever dials
// it. Nothing listens before the head asks for it; whoever connects must show the secret the head
// gave both ends; one test, or twenty seconds, and the port is closed.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"

namespace billow::agent {

class StreamListener {
 public:
  // On the address that other nodes know us by; the kernel chooses the port.
  static Result<std::unique_ptr<StreamListener>> open(const std::string& address,
                                                      std::string secret);
  ~StreamListener();  // closes at once
  std::uint16_t port() const { return port_; }

 private:
  StreamListener() = default;
  void serve();

  Fd socket_, wake_;
  std::string secret_;
  std::uint16_t port_ = 0;
  std::atomic<bool> closing_ = false;
  std::thread thread_;
};

struct StreamFigures {
  std::int64_t mbit_s = 0;            // over several connections at once
  std::int64_t latency_us = 0;        // there and back, of a small message; the median
  std::string interface;              // the one the bytes left by
  std::int64_t interface_mbit_s = 0;  // what the kernel says it can do; 0: it does not say
};
struct StreamTarget {
  std::string address;
  std::uint16_t port = 0;
  std::string secret;
  Duration lasts = seconds(1);
};
// Blocks for as long as the test lasts, and a few seconds more at the most.
Result<StreamFigures> run_stream_test(const StreamTarget& target);

// The fastest InfiniBand port of this machine in Mbit/s; 0: there is none. `root`: /sys, for tests
// another.
std::int64_t infiniband_mbit_s(const std::string& root = "/sys");

}  // namespace billow::agent
