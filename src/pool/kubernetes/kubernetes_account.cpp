// Whose credentials a pool has, which rights they lack, and which GPU types the cluster has.
#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "pool/kubernetes/kubernetes_pool.h"

namespace billow::pool {
namespace {

// How kubectl names an account to which a role is bound.
std::string subject(std::string_view identity) {
  constexpr std::string_view service = "system:serviceaccount:";
  return identity.starts_with(service)
             ? fmt::format("--serviceaccount={}", identity.substr(service.size()))
             : fmt::format("--user={}", shell_quote(identity));
}

}  // namespace

bool KubernetesPool::looks_for_type() const {
  return settings_.gpus > 0 && pods_.gpu_products.empty() && settings_.sim.empty();
}

// The values of the nodes' label that mean the pool's GPU type.
Result<std::vector<std::string>> KubernetesPool::gpu_products() {
  const auto nodes = labels_->all();
  if (!nodes) {
    Error error = Error(nodes.error()).in("finding the GPU type " + settings_.gpu_type);
    error.hint = "allow it, or name the label's values with --option gpu-product=…";
    return pass(std::move(error));
  }
  return models_of_type(*nodes, settings_.gpu_type);
}

// Nodes may come later, so the pool is not refused for it.
void KubernetesPool::warn_of_gpu_type(Account& account) {
  if (!looks_for_type())
    return;
  if (const auto found = gpu_products(); !found && found.error().code == Code::infeasible)
    account.warnings.push_back(fmt::format("{}; {}", found.error().message, found.error().hint));
}

Result<bool> KubernetesPool::may(const KubeRight& right) {
  Json asked = Json::object({{"resource", right.resource}, {"verb", right.verb}});
  if (!right.whole_cluster)
    asked.set("namespace", name_space_);
  const auto answer = BILLOW_TRY(client_->ask(
      {.method = net::Method::post,
       .target = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
       .body =
           Json::object({{"apiVersion", "authorization.k8s.io/v1"},
                         {"kind", "SelfSubjectAccessReview"},
                         {"spec", Json::object({{"resourceAttributes", std::move(asked)}})}})}));
  if (!answer.ok())
    return pass(answer.error("asking for the own rights"));
  return answer.body.at("status", "allowed").bool_or(false);
}

// The commands with which an administrator of the cluster grants what is missing.
std::string KubernetesPool::remedy(const std::string& identity,
                                   bool in_namespace,
                                   bool over_nodes) const {
  if (!in_namespace && !over_nodes)
    return {};
  std::string out = fmt::format(
      "an administrator of the cluster runs `billow install kubernetes --pool-only --namespace {} "
      "| kubectl apply --server-side -f -`",
      name_space_);
  const std::string name = sha256_hex(identity).substr(0, 8);
  if (in_namespace)
    out += fmt::format(
        ", then `kubectl create rolebinding billow-pool-{} -n {} --role=billow-pool "
        "{}`",
        name, name_space_, subject(identity));
  if (over_nodes)
    out += fmt::format(
        ", then `kubectl create clusterrolebinding billow-nodes-{} "
        "--clusterrole=billow-nodes {}` (or set --option gpu-product=…)",
        name, subject(identity));
  return out;
}

Result<Account> KubernetesPool::account() {
  BILLOW_TRY_VOID(find_cluster());
  Account out;
  out.id = fmt::format("{} (namespace {})", BILLOW_TRY(client_->server()), name_space_);
  const std::string context = BILLOW_TRY(client_->context());
  const std::string& file = pods_.cluster.kubeconfig;
  out.source = context.empty() ? "the service account of the head's pod"
                               : fmt::format("context {} of {}", context,
                                             file.empty() ? "the kubeconfig of the head" : file);
  const auto me =
      BILLOW_TRY(client_->ask({.method = net::Method::post,
                               .target = "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                               .body = Json::object({{"apiVersion", "authentication.k8s.io/v1"},
                                                     {"kind", "SelfSubjectReview"}})}));
  if (me.status == 401)
    return pass(me.error("signing in"));
  out.identity = me.body.at("status", "userInfo", "username").str_or("");
  bool in_namespace = false, over_nodes = false;  // what is missing
  for (const KubeRight& right : kube_rights()) {
    // Nodes are listed only to find a GPU type.
    if (right.whole_cluster && !looks_for_type())
      continue;
    if (BILLOW_TRY(may(right)))
      continue;
    (right.whole_cluster ? over_nodes : in_namespace) = true;
    out.problems.push_back(fmt::format(
        "{} may not {} {}{}, which Billow needs to {}", out.identity, right.verb, right.resource,
        right.whole_cluster ? "" : " in namespace " + name_space_, right.why));
  }
  out.remedy = remedy(out.identity, in_namespace, over_nodes);
  if (out.problems.empty())
    warn_of_gpu_type(out);
  return out;
}

}  // namespace billow::pool
