// The nodes of a gang: one request for all of them, and a placement policy that keeps them close
// together. The policy has the machine's name, is made first, listed with the machine and deleted
// last. A machine of which only the policy is left is listed until that is gone, so that the head
// goes on releasing it. A young one without an end may belong to an order on its way: it is not
// listed, so that the order is repeated.
#include <fmt/format.h>

#include <thread>

#include "base/crypto.h"
#include "base/text.h"
#include "pool/gce/gce_pool.h"
#include "pool/resource_name.h"

namespace billow::pool {
namespace {

constexpr std::size_t policy_pages_max = 50;
constexpr Duration policy_wait = seconds(4);
constexpr auto policy_poll = std::chrono::milliseconds(200);
constexpr Duration order_takes_max = minutes(10);

}  // namespace

Ordered GcePool::make_policy(const GceOrder& order) {
  has_policies_ = true;
  const std::string region = gce_region_of(order.zone);
  const SteadyTime give_up = clock_.steady() + policy_wait;
  for (bool asked = false;;) {
    const auto found =
        api_.call({.target = gce_policy_target(order.project, region, order.policy)});
    if (!found)
      return std::unexpected(refusal_of_error(found.error()));
    if (found->ok() && found->body["status"].str_or("READY") == "READY")
      return {};
    if (!found->ok() && found->status != 404)
      return std::unexpected(gce_refusal(*found));
    if (!asked && found->status == 404) {
      asked = true;
      const auto made = api_.call({.method = net::Method::post,
                                   .target = gce_policies_target(order),
                                   .body = gce_policy_body(order)});
      if (!made)
        return std::unexpected(refusal_of_error(made.error()));
      if (!made->ok() && gce_error_reason(made->body) != "alreadyExists")
        return std::unexpected(gce_refusal(*made));
      if (const GceOperation operation = read_gce_operation(made->body); operation.refusal)
        return std::unexpected(*operation.refusal);
      continue;
    }
    if (clock_.steady() >= give_up)
      return std::unexpected(Refusal{RefusalKind::no_answer, "the placement policy is being made"});
    std::this_thread::sleep_for(policy_poll);
  }
}

// A policy in use is refused; it is asked again as long as the list has it.
Status GcePool::drop_policy(const std::string& region, const std::string& name) {
  const std::string project = BILLOW_TRY(this->project());
  const ApiAnswer answer = BILLOW_TRY(
      api_.call({.method = net::Method::del,
                 .target = fmt::format("{}?requestId={}", gce_policy_target(project, region, name),
                                       request_uuid(random_bytes(16)))}));
  if (answer.ok() || answer.status == 404 ||
      gce_error_reason(answer.body) == "resourceInUseByAnotherResource")
    return {};
  return fail(Code::unavailable,
              fmt::format("delete placement policy {}: {}", name, gce_error_text(answer)));
}

Result<std::vector<GcePolicy>> GcePool::policies() {
  std::vector<GcePolicy> out;
  // Without gangs there are none, and no request is spent on them.
  if (!has_policies_)
    return out;
  const std::uint64_t before = gang_orders_;
  const std::string project = BILLOW_TRY(this->project());
  std::string page;
  for (std::size_t pages = 0; pages < policy_pages_max; ++pages) {
    const ApiAnswer answer = BILLOW_TRY(
        api_.call({.target = gce_policy_list_target(project, options_.installation, page)}));
    if (!answer.ok())
      return fail(Code::unavailable,
                  fmt::format("list placement policies: {}", gce_error_text(answer)));
    if (!gce_is_list(answer.body))
      return fail(Code::unavailable, "the list of placement policies is not a list");
    GcePolicyPage read = read_gce_policies(answer.body);
    for (const std::string& region : read.silent_regions)
      if (counts_region(region))
        return fail(Code::unavailable,
                    fmt::format("region {} does not answer: its policies are not listed", region));
    for (GcePolicy& policy : read.policies)
      if (named_after(policy.machine, pool_.name))
        out.push_back(std::move(policy));
    page = std::move(read.next);
    if (page.empty())
      break;
  }
  if (!page.empty())
    return fail(Code::unavailable, "the list of placement policies has too many pages");
  if (out.empty() && before == gang_orders_)
    has_policies_ = false;
  return out;
}

bool GcePool::is_left_over(const GcePolicy& policy) {
  return ending_.lock()->contains(policy.machine) ||
         (!pending_.find(policy.machine) && policy.created + order_takes_max < clock_.wall());
}

// A machine's instances as one: it runs when all of them do, and has failed when one has.
std::map<std::string, GcePool::Seen> GcePool::machines_in(
    const std::vector<GceInstance>& instances) {
  std::map<std::string, Seen> out;
  for (const GceInstance& instance : instances) {
    if (instance.installation != label_value(options_.installation) ||
        !named_after(instance.machine, pool_.name))
      continue;
    Seen& seen = out[instance.machine];
    MachineSighting& machine = seen.sighting;
    ++seen.instances;
    seen.running += instance.status == "RUNNING";
    machine.name = instance.machine;
    machine.external +=
        machine.external.empty() ? instance.zone + "/" + instance.name : "," + instance.name;
    if (machine.note.empty() || machine.note == "RUNNING" || instance.stopped())
      machine.note = instance.problem.empty()
                         ? instance.status
                         : fmt::format("{}: {}", instance.status, instance.problem);
    machine.ends_at = instance.ends_at;
    if (instance.stopped())
      machine.failed = RefusalKind::capacity;
  }
  return out;
}

}  // namespace billow::pool
