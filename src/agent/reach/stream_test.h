// Measures the bandwidth from one node to another: a listener for one test, and the node that dials
// it. Nothing listens before the head asks for it. The dialling node must show the secret that the
// head gave both ends. The port closes after one test or twenty seconds.
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
  // Listens on the address by which other nodes know this one; the kernel chooses the port.
  static Result<std::unique_ptr<StreamListener>> open(const std::string& address,
                                                      std::string secret);
  ~StreamListener();  // closes immediately
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
  std::int64_t mbit_s = 0;            // over several parallel connections
  std::int64_t latency_us = 0;        // median round trip of a small message
  std::string interface;              // the network interface that sent the bytes
  std::int64_t interface_mbit_s = 0;  // its speed according to the kernel; 0: unknown
};
struct StreamTarget {
  std::string address;
  std::uint16_t port = 0;
  std::string secret;
  Duration lasts = seconds(1);
};
// Blocks for the duration of the test and at most a few seconds more.
Result<StreamFigures> run_stream_test(const StreamTarget& target);

// The fastest InfiniBand port of this machine in Mbit/s; 0: none. `root` is for tests.
std::int64_t infiniband_mbit_s(const std::string& root = "/sys");

}  // namespace billow::agent
