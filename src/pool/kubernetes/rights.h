// Every right that Billow uses in a Kubernetes cluster. The role of `billow install kubernetes`,
// the Helm chart, the check of `billow pool add` and the table in docs/kubernetes.md come from it.
#pragma once

#include <span>
#include <string_view>

namespace billow::pool {

struct KubeRight {
  std::string_view resource;
  std::string_view verb;
  bool whole_cluster;  // a ClusterRole; optional
  std::string_view why;
};

std::span<const KubeRight> kube_rights();

}  // namespace billow::pool
