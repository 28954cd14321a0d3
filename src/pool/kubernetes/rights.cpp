#include "pool/kubernetes/rights.h"

namespace billow::pool {
namespace {

constexpr KubeRight all_rights[] = {
    {"pods", "create", false, "start nodes"},
    {"pods", "get", false, "find out whether a pod of that name is ours"},
    {"pods", "list", false, "see which nodes exist and why they wait"},
    {"pods", "watch", false, "follow their changes without asking again and again"},
    {"pods", "delete", false, "release nodes"},
    {"secrets", "create", false, "give each node its join token"},
    {"nodes", "list", true,
     "find the nodes that have the pool's GPU type, and their zone and rack"},
};

}  // namespace

std::span<const KubeRight> kube_rights() {
  return all_rights;
}

}  // namespace billow::pool
