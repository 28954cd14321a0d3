// Nodes and the GPUs they offer, users, projects, tokens and schedules, as the core knows them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/money.h"
#include "core/model/job.h"
#include "core/model/permission.h"

namespace billow {

// One GPU of a node, as far as scheduling and billing need it. Vendor-neutral.
struct NodeGpu {
  std::int32_t index = 0;
  std::string uuid;
  std::string vendor;  // "nvidia", "amd"
  std::string model;   // "NVIDIA H100 80GB HBM3"
  std::string type;    // "H100": what --gpu-type names
  std::int64_t mem_mib = 0;
  std::int32_t nvlink_domain = -1;  // GPUs with the same number are connected by NVLink; -1: none
  std::int32_t numa = -1;
  std::string unhealthy;         // why it takes no jobs; empty: healthy
  std::vector<std::string> mig;  // profiles of existing instances

  bool operator==(const NodeGpu&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("index", s.index);
    v("uuid", s.uuid);
    v("vendor", s.vendor);
    v("model", s.model);
    v("type", s.type);
    v("mem_mib", s.mem_mib);
    v("nvlink_domain", s.nvlink_domain);
    v("numa", s.numa);
    v("unhealthy", s.unhealthy);
    v("mig", s.mig);
  }
};

// What an agent offers in its hello message.
struct NodeOffer {
  std::string name;
  std::string boot_id;
  std::string version;
  std::vector<NodeGpu> gpus;
  std::int64_t cpu_milli = 0;
  std::int64_t mem_mib = 0;
  std::map<std::string, std::string> labels;
  bool simulated = false;
  std::string arch;
  std::string address;  // where the nodes of a gang reach it; empty: its name
  // Free on the file system of its data when its agent started, in whole GiB; 0: not reported.
  std::int64_t disk_mib = 0;

  bool operator==(const NodeOffer&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("boot_id", s.boot_id);
    v("version", s.version);
    v("gpus", s.gpus);
    v("cpu_milli", s.cpu_milli);
    v("mem_mib", s.mem_mib);
    v("labels", s.labels);
    v("simulated", s.simulated);
    v("arch", s.arch);
    v("address", s.address);
    v("disk_mib", s.disk_mib);
  }
};

// A card taken out of service for its health, or put back by a person. `since` is the time of that
// decision: faults older than a person's decision do not count again.
struct GpuMark {
  std::int32_t gpu = 0;
  std::string drained;  // why it takes no new jobs; empty: it does
  WallTime since;
  bool operator==(const GpuMark&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("gpu", s.gpu);
    v("drained", s.drained);
    v("since_ns", s.since);
  }
};

struct Node {
  NodeId id;
  NodeOffer offer;
  bool reachable = true;
  WallTime unreachable_since;  // when it was last heard from
  std::string drained;         // why it takes no new jobs; empty: it does
  WallTime joined_at;
  PoolId pool;                     // where it came from; zero: it joined by itself
  std::vector<GpuMark> gpu_marks;  // of cards that were ever drained, by index

  const GpuMark* mark(std::int32_t gpu) const {
    for (const GpuMark& m : gpu_marks)
      if (m.gpu == gpu)
        return &m;
    return nullptr;
  }
  // Why a card takes no new jobs: the agent's reason first, then the mark. Empty: it does.
  std::string gpu_trouble(const NodeGpu& gpu) const {
    if (!gpu.unhealthy.empty())
      return gpu.unhealthy;
    const GpuMark* m = mark(gpu.index);
    return m ? m->drained : std::string();
  }
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("offer", s.offer);
    v("reachable", s.reachable);
    v("unreachable_since_ns", s.unreachable_since);
    v("drained", s.drained);
    v("joined_at_ns", s.joined_at);
    v("pool", s.pool);
    v("gpu_marks", s.gpu_marks);
  }
};

struct User {
  UserId id;
  std::string name;
  std::string unix_name;             // the Unix user that its jobs run as
  std::string role = roles::member;  // on the whole installation
  UserState state = UserState::active;
  bool starts_heads = false;  // started a head of this installation: has its rights on the machine
  // Where submissions go that name no project. Others cannot change it; 0: none yet.
  ProjectId default_project;
  bool service = false;  // a service account: it cannot sign in, and others create its tokens
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("name", s.name);
    v("unix_name", s.unix_name);
    v("role", s.role);
    v("state", s.state);
    v("starts_heads", s.starts_heads);
    v("default_project", s.default_project);
    v("service", s.service);
  }
};

struct Project {
  ProjectId id;
  std::string name;
  std::map<std::string, std::string> members;  // roles by user name
  std::uint32_t weight = 100;
  Quota quota;
  bool admins_enter = false;               // admins may enter the jobs of others (ssh, attach, cp)
  Isolation isolation = Isolation::plain;  // strict: of all its jobs
  // If its jobs must be strict: the widest network that they may have (none, project, internet).
  ContainerNetwork network = ContainerNetwork::none;
  // Private networks that its jobs with the network `internet` reach (AddressBlock). If its jobs
  // must be strict, they reach no others.
  std::vector<std::string> allow;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("name", s.name);
    v("members", s.members);
    v("weight", s.weight);
    v("quota", s.quota);
    v("admins_enter", s.admins_enter);
    v("isolation", s.isolation);
    v("network", s.network);
    v("allow", s.allow);
  }
};

// What a token of scope agent may use. Its jobs never cost more than `budget` together.
struct AgentLimits {
  NanoUsd budget;
  NanoUsd per_job;              // of one submission, arrays included; beyond it a person is asked
  std::int64_t gpus_milli = 0;  // held at once by all its jobs
  bool keep_jobs = false;       // its jobs go on when it expires; a revoked token ends them always
  bool operator==(const AgentLimits&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("budget", s.budget);
    v("per_job", s.per_job);
    v("gpus_milli", s.gpus_milli);
    v("keep_jobs", s.keep_jobs);
  }
};

// A token is shown once, when it is created; only its hash is kept.
struct Token {
  TokenId id;
  std::string name;
  std::string hash;  // SHA-256, hex; of a node with a key: node_key_hash
  UserId user;
  TokenScope scope = TokenScope::full;
  ProjectId project;  // for scopes submit and agent
  // For scope node: the only node it speaks for; empty: none yet, the first hello decides. For
  // scope join: the machine that may join with it; empty: any.
  std::string node;
  PoolId pool;  // for scopes node and join: the pool of such a node
  WallTime created_at;
  WallTime expires_at;  // 0: never
  bool once = false;    // for scope join: each node of its machine may join once
  std::map<std::string, std::string> joined;  // by a token for one use: the nodes, and their keys
  std::string made_by;                        // the user who created it, if it is not the owner
  TokenId parent;     // the token that created it, with which it ends; 0: the head did, or 0.1
  AgentLimits agent;  // for scope agent
  // After a rotation: the hash of the secret before it, which is accepted until then.
  std::string previous_hash;
  WallTime previous_until;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("name", s.name);
    v("hash", s.hash);
    v("user", s.user);
    v("scope", s.scope);
    v("project", s.project);
    v("node", s.node);
    v("pool", s.pool);
    v("created_at_ns", s.created_at);
    v("expires_at_ns", s.expires_at);
    v("once", s.once);
    v("joined", s.joined);
    v("made_by", s.made_by);
    v("parent", s.parent);
    v("agent", s.agent);
    v("previous_hash", s.previous_hash);
    v("previous_until_ns", s.previous_until);
  }
};

// A job that is submitted repeatedly by the clock.
struct Schedule {
  ScheduleId id;
  std::string name;
  std::string cron;  // five fields, UTC
  std::shared_ptr<const JobSpec> spec;
  ProjectId project;
  UserId user;
  WallTime next_at;
  JobId last_job;
  TokenId agent;  // the agent token that made it and pays for its jobs; 0: none
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("name", s.name);
    v("cron", s.cron);
    v("spec", s.spec);
    v("project", s.project);
    v("user", s.user);
    v("next_at_ns", s.next_at);
    v("last_job", s.last_job);
    v("agent", s.agent);
  }
};

}  // namespace billow
