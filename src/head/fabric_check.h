// A fabric check: the head asks nodes to measure their GPUs' links and streams to each other,
// compares with what the hardware should give, and has each node keep its figures as labels. One
// check runs at a time; each step has a deadline, and a node that does not answer is a line in the
// result, never a reason to wait.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "core/control/state.h"
#include "core/wire/fabric_v1.h"
#include "net/loop.h"

namespace billow::head {

class FabricCheck {
 public:
  struct Options {
    net::Loop* loop = nullptr;
    std::function<const control::State&()> state;
    std::function<bool(NodeId, const wire::fabric_v1::Ask&)> send;
    std::function<WallTime()> now;
  };
  explicit FabricCheck(Options options) : options_(std::move(options)) {}

  // The result as the API tells it. An error if a check is already running, or if there is no node
  // to ask.
  void start(const std::vector<NodeId>& nodes, std::function<void(Result<Json>)> done);
  void take(NodeId node, const wire::fabric_v1::Answer& answer);

 private:
  struct Member {
    NodeId id;
    std::string name, address;
    std::string absent;     // why nothing of it is measured: it does not answer
    std::string gpu_error;  // why its GPUs were not measured
    std::vector<wire::fabric_v1::Pair> pairs;
    bool gpus_measured = false;
    std::int64_t net_mbit_s = -1, net_expected_mbit_s = 0, latency_us = -1,
                 infiniband_mbit_s = 0;  // the worst of its streams
  };
  struct Way {
    std::size_t from = 0, to = 0;
    std::int64_t mbit_s = 0, latency_us = 0, expected_mbit_s = 0;
    std::string interface, error;
  };
  struct Waiting {
    NodeId node;
    net::Timer deadline, again;
    bool sent = false;
    std::function<void(const wire::fabric_v1::Answer&)> then;
  };
  void ask(NodeId node,
           wire::fabric_v1::Ask ask,
           Duration patience,
           std::function<void(const wire::fabric_v1::Answer&)> then,
           bool again = false);
  void call_the_roll();
  void ask_again(std::uint64_t id);
  void measure_gpus();
  void measure_ways(std::size_t round);
  void measure_way(Way& way, std::function<void()> then);
  Json finish_member(const Member& member, Json& warnings);
  void finish();

  Options options_;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, Waiting> waiting_;
  std::vector<Member> members_;
  std::vector<std::vector<Way>> rounds_;  // ways of one round share no node
  std::function<void(Result<Json>)> done_;
};

// Ways that touch every node twice, as a ring, in rounds in which no node is used by two. Two
// nodes: there and back. Pure.
std::vector<std::vector<std::pair<std::size_t, std::size_t>>> ring_rounds(std::size_t nodes);

}  // namespace billow::head
