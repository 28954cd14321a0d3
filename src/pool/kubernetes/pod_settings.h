// The options of a Kubernetes pool, read from Pool::options and checked.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "core/model/pool.h"
#include "pool/kinds.h"
#include "pool/kubernetes/kubeconfig.h"

namespace billow::pool {

struct Toleration {
  std::string key, value, effect;  // empty value: any; empty effect: all
};

struct PodVolume {
  enum class Kind { claim, host } kind = Kind::claim;
  std::string source;  // name of the claim, or a directory of the node
  std::string path;    // in the pod
  bool read_only = false;
};

enum class QueueSystem { kueue, volcano };

// Has what the program needs, and python3 to fetch it.
inline constexpr const char* default_image = "docker.io/library/python:3.12-slim-bookworm";

struct PodSettings {
  KubeChoice cluster;
  std::string name_space;  // empty: that of the context
  std::string image = default_image;
  std::string program;                    // in the image; empty: in its PATH, else from the head
  std::string gpu_resource;               // "nvidia.com/gpu"; empty: that of the GPU type's vendor
  std::vector<std::string> gpu_products;  // values of the model label; "any": no selection
  std::map<std::string, std::string> node_selector;
  std::vector<Toleration> tolerations;
  std::string runtime_class, priority_class, topology_key, rack_label;
  std::vector<std::string> pull_secrets;
  std::vector<PodVolume> volumes;
  std::string queue;
  QueueSystem queue_system = QueueSystem::kueue;
  std::string cpus, memory, shared_memory;  // quantities as Kubernetes writes them: "4", "16Gi"
  std::int64_t user = 1000, group = 1000;
  bool privileged = false;
  Duration grace = seconds(60);       // from the signal until the kill
  Duration lost_after = seconds(60);  // a pod of a silent node is given up
};

const std::vector<KindOption>& kubernetes_options();
Result<PodSettings> read_pod_settings(const billow::Pool& pool);

}  // namespace billow::pool
