// The documents of one node: its pod and the secret with its join token.
#pragma once

#include "base/json.h"
#include "pool/kubernetes/pod_settings.h"
#include "pool/pool.h"

namespace billow::pool {

inline constexpr const char* label_installation = "billow/installation";
inline constexpr const char* label_pool = "billow/pool";
inline constexpr const char* label_machine = "billow/machine";
inline constexpr const char* token_volume = "token";
inline constexpr const char* annotation_nodes = "billow/nodes";  // of its machine

struct PodRequest {
  const PodSettings& settings;
  const billow::Pool& pool;
  const Order& order;
  std::string installation;
  std::uint32_t rank = 0;  // of order.machine.nodes
};

std::string pod_name(const std::string& installation, const Machine& machine, std::uint32_t rank);
std::string gpu_resource_of(const PodSettings& settings, const billow::Pool& pool);
Json pod_document(const PodRequest& request);
// The name of the secret that the pod mounts. It differs for each token, so that the secret of an
// earlier pod of the same name, which is deleted late, is not taken for this one's.
std::string secret_name(const PodRequest& request);
// It belongs to the pod, so Kubernetes deletes both together.
Json secret_document(const PodRequest& request,
                     const std::string& name,
                     const std::string& pod_uid);

}  // namespace billow::pool
