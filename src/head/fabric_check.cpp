#include "head/fabric_check.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/log.h"
#include "base/text.h"
#include "core/control/fabric.h"

namespace billow::head {

using namespace wire::fabric_v1;

namespace {

constexpr Duration roll_patience = seconds(10);
constexpr Duration roll_again = milliseconds(500);
constexpr Duration gpus_patience = seconds(70);
constexpr Duration step_patience = seconds(20);
constexpr Duration stream_lasts = seconds(1);
constexpr std::size_t nodes_max = 512;

}  // namespace

std::vector<std::vector<std::pair<std::size_t, std::size_t>>> ring_rounds(std::size_t nodes) {
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> rounds;
  if (nodes < 2)
    return rounds;
  if (nodes == 2)
    return {{{0, 1}}, {{1, 0}}};
  rounds.resize(2);
  for (std::size_t i = 0; i + 1 < nodes; ++i)
    rounds[i % 2].emplace_back(i, i + 1);
  // The way that closes the ring touches the first and the last, which one of the rounds may use
  // already.
  if (nodes % 2 == 0)
    rounds[1].emplace_back(nodes - 1, 0);
  else
    rounds.push_back({{nodes - 1, 0}});
  return rounds;
}

void FabricCheck::start(const std::vector<NodeId>& nodes, std::function<void(Result<Json>)> done) {
  if (done_)
    return done(fail(Code::conflict, "a fabric check is already running",
                     "wait until it has ended: it takes a few seconds per node"));
  if (nodes.empty())
    return done(fail(Code::not_found, "there is no node to check", "see `billow nodes`"));
  if (nodes.size() > nodes_max)
    return done(fail(Code::invalid,
                     fmt::format("at most {} nodes can be checked at a time", nodes_max),
                     "name a pool: --pool NAME"));
  members_.clear();
  rounds_.clear();
  const control::State& state = options_.state();
  for (const NodeId id : nodes) {
    const Node& node = state.nodes.at(id);
    members_.push_back({.id = id,
                        .name = node.offer.name,
                        .address = node.offer.address,
                        .absent = {},
                        .gpu_error = {},
                        .pairs = {}});
  }
  for (const auto& round : ring_rounds(members_.size())) {
    rounds_.emplace_back();
    for (const auto& [from, to] : round)
      rounds_.back().push_back({.from = from, .to = to, .interface = {}, .error = {}});
  }
  done_ = std::move(done);
  log_info("fabric check of {} node{}", members_.size(), members_.size() == 1 ? "" : "s");
  call_the_roll();
}

// An agent from before there were fabric checks does not answer: better to know that after seconds
// than after a minute.
void FabricCheck::call_the_roll() {
  auto left = std::make_shared<std::size_t>(members_.size());
  for (Member& member : members_) {
    ask(
        member.id, {.step = Step::keep}, roll_patience,
        [this, &member, left](const Answer& answer) {
          member.absent = answer.error;
          if (--*left == 0)
            measure_gpus();
        },
        options_.state().nodes.at(member.id).reachable);
  }
}

// An agent whose labels changed says hello anew: for a moment there is nobody to ask, and an answer
// on its way may be lost. Being asked twice harms nobody.
void FabricCheck::ask_again(std::uint64_t id) {
  waiting_.at(id).again = options_.loop->after(roll_again, [this, id] {
    const auto still = waiting_.find(id);
    if (still == waiting_.end())
      return;
    still->second.sent =
        options_.send(still->second.node, {.id = id, .step = Step::keep}) || still->second.sent;
    ask_again(id);
  });
}

void FabricCheck::ask(
    NodeId node, Ask ask, Duration patience, std::function<void(const Answer&)> then, bool again) {
  ask.id = next_++;
  const std::uint64_t id = ask.id;
  Waiting& waiting = waiting_[id];
  waiting.node = node;
  waiting.then = then;
  waiting.sent = options_.send(node, ask);
  if (again)
    ask_again(id);
  // By way of `take`, which keeps what it needs: what ends here holds the very timer that runs it.
  waiting.deadline = options_.loop->after(waiting.sent || again ? patience : Duration{}, [this, id,
                                                                                          node] {
    const bool sent = waiting_.at(id).sent;
    take(node,
         Answer{.id = id,
                .error = sent ? "it did not answer in time; its agent may be older than this head"
                              : "its agent is not connected"});
  });
}

void FabricCheck::take(NodeId node, const Answer& answer) {
  const auto found = waiting_.find(answer.id);
  if (found == waiting_.end() || found->second.node != node)
    return;
  const auto then = std::move(found->second.then);
  waiting_.erase(found);
  then(answer);
}

// All nodes at once: each measures itself. Where somebody works nothing is measured, for it would
// slow him down and be wrong as well.
void FabricCheck::measure_gpus() {
  const control::State& state = options_.state();
  auto left = std::make_shared<std::size_t>(1);
  const auto one_done = [this, left] {
    if (--*left == 0)
      measure_ways(0);
  };
  for (Member& member : members_) {
    const auto found = state.nodes.find(member.id);
    if (found == state.nodes.end()) {
      member.absent = member.gpu_error = "it has disconnected";
      continue;
    }
    const Node& node = found->second;
    bool busy = false;
    if (const auto on = state.tasks_on.find(member.id); on != state.tasks_on.end())
      for (const TaskId task : on->second)
        busy = busy || (state.tasks.at(task).holds_gpus() && !state.tasks.at(task).gpus.empty());
    if (!member.absent.empty())
      member.gpu_error = member.absent;
    else if (node.offer.gpus.empty())
      member.gpu_error = "it has no GPU";
    else if (busy)
      member.gpu_error = "its GPUs are in use: check again when they are idle";
    if (!member.gpu_error.empty())
      continue;
    ++*left;
    ask(member.id, {.step = Step::gpus}, gpus_patience, [&member, one_done](const Answer& answer) {
      member.gpu_error = answer.error;
      member.pairs = answer.pairs;
      member.gpus_measured = answer.error.empty();
      one_done();
    });
  }
  options_.loop->post(one_done);
}

void FabricCheck::measure_ways(std::size_t round) {
  if (round == rounds_.size())
    return finish();
  auto left = std::make_shared<std::size_t>(rounds_[round].size());
  for (Way& way : rounds_[round]) {
    measure_way(way, [this, left, round] {
      if (--*left == 0)
        measure_ways(round + 1);
    });
  }
}

void FabricCheck::measure_way(Way& way, std::function<void()> then) {
  Member &from = members_[way.from], &to = members_[way.to];
  for (const Member* member : {&from, &to})
    if (!member->absent.empty()) {
      way.error = fmt::format("{}: {}", member->name, member->absent);
      return options_.loop->post(then);
    }
  const std::string secret = random_token(40);
  ask(to.id, {.step = Step::listen, .secret = secret, .address = to.address}, step_patience,
      [this, &way, &from, &to, secret, then](const Answer& listening) {
        if (!listening.error.empty()) {
          way.error = fmt::format("{}: {}", to.name, listening.error);
          return then();
        }
        ask(from.id,
            {.step = Step::dial,
             .secret = secret,
             .address = to.address,
             .port = listening.port,
             .lasts = stream_lasts},
            step_patience, [&way, &from, &to, then](const Answer& answer) {
              if (!answer.error.empty()) {
                way.error = fmt::format("{}: {}", from.name, answer.error);
                return then();
              }
              way.mbit_s = answer.mbit_s;
              way.latency_us = answer.latency_us;
              way.interface = answer.interface;
              way.expected_mbit_s = control::expected_stream_mbit_s(answer.interface_mbit_s);
              from.infiniband_mbit_s = answer.infiniband_mbit_s;
              for (Member* member : {&from, &to}) {
                if (member->net_mbit_s < 0 || way.mbit_s < member->net_mbit_s) {
                  member->net_mbit_s = way.mbit_s;
                  member->net_expected_mbit_s = way.expected_mbit_s;
                }
                member->latency_us = std::max(member->latency_us, way.latency_us);
              }
              then();
            });
      });
}

namespace {

std::string gb_s(std::int64_t mb_s) {
  return fmt::format("{:.3g}", static_cast<double>(mb_s) / 1000);
}

// The pairs of one node's GPUs, and what they add up to.
struct PairSummary {
  Json pairs = Json::array();
  std::int64_t slowest = -1, slowest_expected = 0;  // between two GPUs
  std::string slow;                                 // the first slow pair, in words

  explicit PairSummary(const std::vector<Pair>& measured) {
    for (const Pair& pair : measured)
      add(pair);
  }

 private:
  void add(const Pair& pair) {
    const bool is_slow = control::is_slow(pair.mb_s, pair.expected_mb_s);
    pairs.push(Json::object({{"from", pair.from < 0 ? Json("host") : Json(pair.from)},
                             {"to", pair.to},
                             {"mb_s", pair.mb_s},
                             {"expected_mb_s", pair.expected_mb_s},
                             {"slow", is_slow}}));
    const std::string name = pair.from < 0
                                 ? fmt::format("between the host and GPU {}", pair.to)
                                 : fmt::format("from GPU {} to GPU {}", pair.from, pair.to);
    if (is_slow && slow.empty())
      slow = fmt::format("{} GB/s {}, of about {} that the hardware should reach", gb_s(pair.mb_s),
                         name, gb_s(pair.expected_mb_s));
    if (pair.from >= 0 && (slowest < 0 || pair.mb_s < slowest)) {
      slowest = pair.mb_s;
      slowest_expected = pair.expected_mb_s;
    }
  }
};

Json known_or_null(std::int64_t value) {
  return value < 0 ? Json() : Json(value);
}

}  // namespace

// Reports one node, and lets it keep its figures as labels, which come back with its next hello.
Json FabricCheck::finish_member(const Member& member, Json& warnings) {
  std::map<std::string, std::string> labels;
  PairSummary gpus(member.pairs);
  if (member.gpus_measured) {
    labels[std::string(control::label_gpu_mb_s)] =
        gpus.slowest < 0 ? "" : std::to_string(gpus.slowest);
    labels[std::string(control::label_gpu_fabric)] = gpus.slow.empty() ? "ok" : "slow";
    if (!gpus.slow.empty())
      warnings.push(fmt::format("{}: {}", member.name, gpus.slow));
  }
  if (member.net_mbit_s >= 0) {
    labels[std::string(control::label_net_mbit_s)] = std::to_string(member.net_mbit_s);
    labels[std::string(control::label_net_us)] = std::to_string(member.latency_us);
    const std::string verdict = control::net_verdict(member.net_mbit_s, member.net_expected_mbit_s);
    labels[std::string(control::label_net_fabric)] = verdict.empty() ? "ok" : "slow";
    if (!verdict.empty())
      warnings.push(fmt::format("{}: {}", member.name, verdict));
  }
  if (!labels.empty()) {
    labels[std::string(control::label_fabric_at)] = format_utc(options_.now());
    ask(member.id, {.step = Step::keep, .labels = std::move(labels)}, step_patience,
        [name = member.name](const Answer& answer) {
          if (!answer.error.empty())
            log_warn("fabric check: the results of {} could not be stored: {}", name, answer.error);
        });
  }
  return Json::object({{"name", member.name},
                       {"gpus_measured", member.gpus_measured},
                       {"why_not", member.gpu_error},
                       {"gpu_pairs", std::move(gpus.pairs)},
                       {"gpu_slowest_mb_s", known_or_null(gpus.slowest)},
                       {"gpu_expected_mb_s", gpus.slowest_expected},
                       {"net_mbit_s", known_or_null(member.net_mbit_s)},
                       {"net_expected_mbit_s", member.net_expected_mbit_s},
                       {"latency_us", known_or_null(member.latency_us)},
                       {"infiniband_mbit_s", member.infiniband_mbit_s}});
}

void FabricCheck::finish() {
  Json nodes = Json::array(), ways = Json::array(), warnings = Json::array();
  for (const Member& member : members_)
    nodes.push(finish_member(member, warnings));
  for (const auto& round : rounds_)
    for (const Way& way : round) {
      ways.push(Json::object({{"from", members_[way.from].name},
                              {"to", members_[way.to].name},
                              {"mbit_s", way.mbit_s},
                              {"expected_mbit_s", way.expected_mbit_s},
                              {"latency_us", way.latency_us},
                              {"interface", way.interface},
                              {"error", way.error}}));
      if (!way.error.empty())
        warnings.push(fmt::format("from {} to {}: {}", members_[way.from].name,
                                  members_[way.to].name, way.error));
    }
  const auto done = std::exchange(done_, nullptr);
  done(Json::object(
      {{"nodes", std::move(nodes)}, {"ways", std::move(ways)}, {"warnings", std::move(warnings)}}));
}

}  // namespace billow::head
