// A core with pools for tests: jobs are submitted, machines arrive, providers answer.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "core/control/core.h"
#include "tests/unit/control/node_offer.h"
#include "tests/unit/control/plan_all.h"

namespace billow::control {

struct PoolWorld {
  Core core{State{}, {}};
  std::vector<Event> history;
  WallTime now{1'000'000'000'000};
  WallTime billed;                // the billing clock; zero: like `now`
  std::int64_t disk_mib_max = 0;  // of the pools that are added

  PoolWorld() {
    must(StartHead{.version = "1",
                   .epoch = 1,
                   .admin = "ana",
                   .admin_token_hash = "h",
                   .node_token_hash = "n"});
  }
  const State& state() const { return core.state(); }
  Status run(const Command& command) {
    auto step = core.execute(command, {"head", ""}, now, billed);
    if (!step)
      return pass(step.error());
    keep(std::move(*step));
    plan_all(core, [&] { keep(core.plan(now, billed)); });
    return {};
  }
  void keep(Step step) {
    for (Event& e : step.events) {
      const auto decoded = decode_event(
          e.seq, e.at, visit([](const auto& b) { return std::decay_t<decltype(b)>::kind; }, e.body),
          encode_event(e));
      ASSERT_TRUE(decoded) << decoded.error().message;
      history.push_back(*decoded);
    }
    const Status ok = check_invariants(core.state());
    ASSERT_TRUE(ok) << ok.error().message;
  }
  void must(const Command& command) {
    const Status s = run(command);
    ASSERT_TRUE(s) << s.error().message;
  }
  UserId ana() const { return state().users.begin()->first; }
  static JobSpec spec(int gpus, std::uint32_t nodes = 1) {
    JobSpec out;
    out.argv = {"true"};
    out.resources.gpus = gpus;
    out.resources.share = {1000, 0};
    out.nodes = nodes;
    return out;
  }
  JobId submit(JobSpec asked, std::string project = {}) {
    SubmitJob job;
    job.spec = std::move(asked);
    job.user = ana();
    job.project = std::move(project);
    const JobId id(state().next_job);
    must(job);
    return id;
  }
  JobId submit(int gpus, std::uint32_t nodes = 1, bool spot = false, NanoUsd max_price = {}) {
    JobSpec asked = spec(gpus, nodes);
    asked.spot = spot;
    asked.place.max_price = max_price;
    return submit(std::move(asked));
  }
  Pool pool(std::string name, std::string kind = "slurm") {
    Pool p;
    p.name = std::move(name);
    p.kind = kind;
    p.capabilities = PoolCapabilities{.sizes_to_demand = kind == "slurm",
                                      .several_nodes_at_once = kind != "cloud",
                                      .list_is_final = kind == "slurm"};
    p.machines_max = 4;
    p.gpus = 8;
    p.gpu_type = "H100";
    p.partition = "gpu";
    p.gres = "gpu:h100";
    if (kind == "command")
      p.create_command = p.list_command = p.delete_command = "true";
    return p;
  }
  std::vector<Machine> machines(std::string_view pool = {}) const {
    std::vector<Machine> out;
    for (const auto& [name, m] : state().machines)
      if (pool.empty() || name.starts_with(std::string(pool) + "-"))
        out.push_back(m);
    return out;
  }
  std::vector<Machine> machines(MachineState in) const {
    std::vector<Machine> out;
    for (const auto& [name, m] : state().machines)
      if (m.state == in)
        out.push_back(m);
    return out;
  }
  std::vector<Machine> wanted() const { return machines(MachineState::wanted); }
  // A pool that orders from these offers.
  void add(std::string name, std::vector<MachineOffer> offers, bool several = true, int max = 16) {
    Pool p;
    p.name = std::move(name);
    p.kind = "ec2";
    p.capabilities = PoolCapabilities{.sizes_to_demand = false,
                                      .several_nodes_at_once = several,
                                      .list_is_final = false,
                                      .from_offers = true,
                                      .bills_from_order = true,
                                      .list_lag = minutes(5),
                                      .disk_mib_max = disk_mib_max};
    p.machines_max = static_cast<std::uint32_t>(max);
    p.offers = std::move(offers);
    must(AddPool{p});
  }
  // Plans, and returns the zone of the only machine that is wanted.
  std::string asked() {
    must(PlanPools{});
    const auto now_wanted = wanted();
    return now_wanted.size() == 1 ? now_wanted[0].offer->zone
                                  : fmt::format("{} machines", now_wanted.size());
  }
  void refuse(RefusalKind kind, std::string reason = "sold out") {
    must(OrderFailed{wanted().front().name, std::move(reason), kind});
  }
  // The credential of a node whose machine was ordered, or that joins by itself.
  TokenId credential(const std::string& node, const Machine* m = nullptr) {
    const std::string hash = "hash-" + (m ? m->name : node);
    if (m && !state().token_by_hash.contains(hash))
      must(OrderToken{
          .machine = m->name, .hash = hash, .user = ana(), .pool = m->pool, .life = hours(1)});
    if (!m)
      must(CreateToken{.name = "join",
                       .hash = hash,
                       .user = "ana",
                       .scope = TokenScope::join,
                       .life = hours(1)});
    const std::string key = *public_key_of(make_signing_key());
    must(JoinNode{state().token_by_hash.at(hash), node, key});
    const auto made = state().token_by_hash.find(node_key_hash(key));
    return made == state().token_by_hash.end() ? TokenId{} : made->second;
  }
  // The engine made it, and its agents say hello.
  void arrives(const Machine& m) {
    for (std::uint32_t i = 0; i < m.nodes; ++i) {
      const std::string node = m.nodes > 1 ? m.name + "." + std::to_string(i) : m.name;
      const TokenId token = credential(node, &m);
      must(AgentHello{node_offer(node, m.gpus), {}, token});
    }
  }
  void check_replay() const {
    Core again(State{}, {});
    for (const Event& e : history)
      again.replay(e);
    EXPECT_TRUE(image(again.state()) == image(core.state()));
    const auto restored = restore(image(core.state()));
    ASSERT_TRUE(restored);
    EXPECT_TRUE(image(*restored) == image(core.state()));
  }
  void ends(JobId job) {
    const TaskId task = state().find_job(job)->tasks.front();
    must(
        AgentReport{state().find_task(task)->node,
                    {.task = task, .state = TaskState::ended, .started_at = now, .ended_at = now}});
  }
};

}  // namespace billow::control
