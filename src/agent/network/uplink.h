// Carries a job's connections and packets into the node's network. The job's own network ends at
// sockets that this process was given (job_network.h): it accepts a connection there, reads which
// address the job meant, and connects to exactly that address if the rules permit it, else resets
// the connection. It parses nothing that the job sends.
//
// It runs as a user number of no account, without capabilities and behind the call filter of strict
// jobs, and ends when the supervisor of the job ends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/network/reach_rules.h"
#include "base/file.h"
#include "base/result.h"
#include "net/loop.h"

namespace billow::agent {

// The descriptors that it starts with.
namespace uplink_fds {
inline constexpr int life = 3;  // a pipe whose other end closes with the job
inline constexpr int link = 4;  // keeps the program of catch_all.h in place
inline constexpr int connections = 5, packets = 6, first_answer = 7;
}  // namespace uplink_fds

inline constexpr double uplink_begin_burst = 1'000;  // new connections and flows at once

// The addresses of a job in its own network.
inline const AddressBlock job_v4{false, {100, 64, 0, 2}, 32};
inline const AddressBlock job_v6{
    true, {0xfd, 0x62, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, 128};
// All addresses are local there, so a job can send as any of them. What is sent as another one is
// not carried: the answer would look like something that the job sends.
bool is_jobs_own(const net::RawAddress& from);

class Uplink {
 public:
  Uplink(net::Loop& loop, ReachRules rules);
  ~Uplink();
  // Until the job's supervisor has ended.
  void run();

 private:
  struct Pair;
  struct Flow;
  void listen();
  void accept();
  void ended(std::uint64_t pair);
  void receive();
  Flow* flow_for(const std::string& key, const net::RawAddress& from, const Target& target);
  void answer(Flow& flow);
  int answering_socket(std::uint16_t port);
  bool may_begin();
  void forget_idle();

  net::Loop& loop_;
  ReachRules rules_;
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, std::unique_ptr<Pair>> pairs_;
  std::map<std::string, std::unique_ptr<Flow>> flows_;
  std::map<std::uint16_t, int> answering_;  // descriptor by port
  // New connections and flows that may begin now: each is an entry in the node's own tables for a
  // while after it has ended.
  double begin_tokens_ = uplink_begin_burst;
  SteadyTime begin_counted_;
  net::Watch life_, connections_, packets_;
  net::Timer idle_, accept_again_;
};

}  // namespace billow::agent
