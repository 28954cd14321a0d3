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

namespace billow {

// One GPU of a node, as far as scheduling and billing need it. Vendor-neutral.
struct NodeGpu {
  std::int32_t index = 0;
  std::string uuid;
  std::string vendor;  // "nvidia", "amd"
  std::string model;   // "NVIDIA H100 80GB HBM3"
  std::string type;    // "H100": what --gpu-type names
  std::int64_t mem_mib = 0;
  std::int32_t nvlink_domain = -1;  // GPUs of one number reach each other by NVLink; -1: none
  std::int32_t numa = -1;
  std::string unhealthy;         // why it takes no work; empty: healthy
  std::vector<std::string> mig;  // profiles of existing instances

  bool operator==(const NodeGpu&) const = default;
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("uuid", uuid);
    v("vendor", vendor);
    v("model", model);
    v("type", type);
    v("mem_mib", mem_mib);
    v("nvlink_domain", nvlink_domain);
    v("numa", numa);
    v("unhealthy", unhealthy);
    v("mig", mig);
  }
};

// What an agent offers when it says hello.
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
  std::string address;  // where the nodes of a gang reach it; empty: by its name

  bool operator==(const NodeOffer&) const = default;
  template <class V>
  void fields(V& v) {
    v("name", name);
    v("boot_id", boot_id);
    v("version", version);
    v("gpus", gpus);
    v("cpu_milli", cpu_milli);
    v("mem_mib", mem_mib);
    v("labels", labels);
    v("simulated", simulated);
    v("arch", arch);
    v("address", address);
  }
};

// A card taken out of service by its health, or put back by a person. `since` is when that was
// decided: faults older than a person's decision do not count again.
struct GpuMark {
  std::int32_t gpu = 0;
  std::string drained;  // why it takes no new work; empty: it does
  WallTime since;
  bool operator==(const GpuMark&) const = default;
  template <class V>
  void fields(V& v) {
    v("gpu", gpu);
    v("drained", drained);
    v("since_ns", since);
  }
};

struct Node {
  NodeId id;
  NodeOffer offer;
  bool reachable = true;
  WallTime unreachable_since;
  std::string drained;  // why it takes no new work; empty: it does
  WallTime joined_at;
  PoolId pool;                     // where it came from; zero: it joined by itself
  std::vector<GpuMark> gpu_marks;  // of cards that were ever drained, by index

  const GpuMark* mark(std::int32_t gpu) const {
    for (const GpuMark& m : gpu_marks)
      if (m.gpu == gpu)
        return &m;
    return nullptr;
  }
  // Why a card takes no new work: the agent's word first, then the mark. Empty: it does.
  std::string gpu_trouble(const NodeGpu& gpu) const {
    if (!gpu.unhealthy.empty())
      return gpu.unhealthy;
    const GpuMark* m = mark(gpu.index);
    return m ? m->drained : std::string();
  }
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("offer", offer);
    v("reachable", reachable);
    v("unreachable_since_ns", unreachable_since);
    v("drained", drained);
    v("joined_at_ns", joined_at);
    v("pool", pool);
    v("gpu_marks", gpu_marks);
  }
};

struct User {
  UserId id;
  std::string name;
  std::string unix_name;     // whom its jobs run as on the nodes
  Role role = Role::member;  // on the whole installation
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("name", name);
    v("unix_name", unix_name);
    v("role", role);
  }
};

struct Project {
  ProjectId id;
  std::string name;
  std::map<std::string, Role> members;  // by user name
  std::uint32_t weight = 100;
  Quota quota;
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("name", name);
    v("members", members);
    v("weight", weight);
    v("quota", quota);
  }
};

// A token is shown once, when it is made; what is kept is its hash.
struct Token {
  TokenId id;
  std::string name;
  std::string hash;  // SHA-256, hex
  UserId user;
  TokenScope scope = TokenScope::full;
  ProjectId project;  // for scope submit
  std::string node;   // for scope node: whom alone it speaks for; empty: this machine's own agent
  PoolId pool;        // for scopes node and join: where such a node comes from
  WallTime created_at;
  WallTime expires_at;  // 0: never
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("name", name);
    v("hash", hash);
    v("user", user);
    v("scope", scope);
    v("project", project);
    v("node", node);
    v("pool", pool);
    v("created_at_ns", created_at);
    v("expires_at_ns", expires_at);
  }
};

// A job submitted again and again by the clock.
struct Schedule {
  ScheduleId id;
  std::string name;
  std::string cron;  // five fields, UTC
  std::shared_ptr<const JobSpec> spec;
  ProjectId project;
  UserId user;
  WallTime next_at;
  JobId last_job;
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("name", name);
    v("cron", cron);
    v("spec", spec);
    v("project", project);
    v("user", user);
    v("next_at_ns", next_at);
    v("last_job", last_job);
  }
};

}  // namespace billow
