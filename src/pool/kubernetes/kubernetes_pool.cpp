#include "pool/kubernetes/kubernetes_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "pool/kinds.h"

namespace billow::pool {
namespace {

std::string with_hint(const Error& error) {
  return error.hint.empty() ? error.message : error.message + "; " + error.hint;
}

Refusal refusal_for(const Error& error) {
  switch (error.code) {
    case Code::unavailable:
    case Code::timed_out:
      return {RefusalKind::no_answer, error.message};
    case Code::exhausted:
      return {RefusalKind::quota, error.message};
    case Code::infeasible:
      return {RefusalKind::not_offered, with_hint(error)};
    case Code::invalid:
    case Code::unauthorized:
    case Code::forbidden:
    case Code::not_found:
    case Code::conflict:
    case Code::storage_full:
    case Code::unsupported:
    case Code::too_large:
    case Code::internal:
      break;
  }
  return {RefusalKind::settings, with_hint(error)};
}

bool is_ours(const Json& pod, const std::string& installation, const std::string& pool) {
  const Json& labels = pod.at("metadata", "labels");
  return labels[label_installation].str_or("") == installation &&
         labels[label_pool].str_or("") == pool;
}

Json delete_options(const std::string& uid) {
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "DeleteOptions"},
                       {"preconditions", Json::object({{"uid", uid}})}});
}

}  // namespace

KubernetesPool::KubernetesPool(billow::Pool settings,
                               PodSettings pods,
                               Options options,
                               const Clock& clock,
                               KubeSurroundings surroundings)
    : settings_(std::move(settings)),
      pods_(std::move(pods)),
      options_(std::move(options)),
      clock_(clock),
      around_(std::move(surroundings)) {}

Status KubernetesPool::find_cluster() {
  const std::lock_guard lock(finding_);
  if (client_)
    return {};
  KubeChoice choice = pods_.cluster;
  std::string name_space = pods_.name_space;
  const std::string place = fmt::format("{}/{}.cluster", options_.work_dir, settings_.id.value);
  if (const auto written = read_file(place, 4096)) {
    const auto lines = split(*written, '\n');
    if (choice.context.empty())
      choice.context = lines[0];
    if (name_space.empty() && lines.size() > 1)
      name_space = lines[1];
  } else {
    const ClusterAccess access = BILLOW_TRY(read_access(choice, around_));
    choice.context = access.context;
    if (name_space.empty())
      name_space = access.name_space;
    BILLOW_TRY_VOID(
        write_file_atomic(place, fmt::format("{}\n{}\n", choice.context, name_space), 0600));
  }
  name_space_ = name_space;
  client_ = std::make_unique<KubeClient>(choice, around_, stop_);
  if (const auto server = client_->server())
    *place_.lock() = fmt::format("{}namespace {} at {}",
                                 choice.context.empty() ? "" : "context " + choice.context + ", ",
                                 name_space_, *server);
  labels_ = std::make_unique<NodeLabels>(*client_, clock_);
  watch_ = std::make_unique<PodWatch>(
      *client_, stop_,
      PodWatch::Options{
          .pods = target("pods"),
          .selector = fmt::format("{}={},{}={}", label_installation, options_.installation,
                                  label_pool, settings_.name),
          .wanted = [this](const PodSeen& pod) { return named_after(pod.machine, settings_.name); },
          .on_change =
              [this](const PodSeen& pod) {
                learn(pod);
              }});
  return {};
}

// On the watch's thread: where a pod runs is known before its agent can say hello.
void KubernetesPool::learn(const PodSeen& pod) {
  if (pod.node.empty())
    return;
  labels_->learn(pod.node);
  known_.lock()->nodes[billow_node_of(pod)] = pod;
}

std::string KubernetesPool::target(std::string_view resource, std::string_view rest) const {
  return fmt::format("/api/v1/namespaces/{}/{}{}", name_space_, resource, rest);
}

// ---- ordering

Result<PodSeen> KubernetesPool::create_pod(const PodRequest& request) {
  const std::string name = pod_name(request.installation, request.order.machine, request.rank);
  const auto answer = BILLOW_TRY(client_->ask({.method = net::Method::post,
                                               .target = target("pods", "?fieldValidation=Strict"),
                                               .body = pod_document(request)}));
  if (answer.status == 409 && answer.reason() == "AlreadyExists")
    return adopt_pod(name);
  if (!answer.ok())
    return pass(answer.error("creating the pod " + name));
  return read_pod(answer.body);
}

// A pod of this name exists: made by an earlier try of this order, or about to end.
Result<PodSeen> KubernetesPool::adopt_pod(const std::string& name) {
  const auto answer = BILLOW_TRY(client_->ask({.target = target("pods", "/" + name)}));
  if (!answer.ok())
    return answer.status == 404
               ? fail(Code::unavailable, fmt::format("the pod {} has just ended", name))
               : pass(answer.error("reading the pod " + name));
  if (!is_ours(answer.body, options_.installation, settings_.name))
    return fail(Code::conflict, fmt::format("the pod {} exists and is not Billow's", name),
                "delete it, or give the pool another namespace");
  if (!answer.body.at("metadata", "deletionTimestamp").is_null())
    return fail(Code::unavailable, fmt::format("an earlier pod {} is still ending", name));
  return read_pod(answer.body);
}

Status KubernetesPool::create_secret(const PodRequest& request, const PodSeen& pod) {
  const auto answer =
      BILLOW_TRY(client_->ask({.method = net::Method::post,
                               .target = target("secrets", "?fieldValidation=Strict"),
                               .body = secret_document(request, pod.secret, pod.uid)}));
  // One of an earlier try holds a token that is still valid.
  if (!answer.ok() && answer.reason() != "AlreadyExists")
    return pass(answer.error("creating the secret of " + request.order.machine.name));
  known_.lock()->complete.insert(pod.uid);
  return {};
}

Ordered KubernetesPool::want(const Order& order) {
  const std::shared_lock not_while_listing(ordering_);
  const auto all = [&]() -> Status {
    BILLOW_TRY_VOID(find_cluster());
    PodSettings pods = pods_;
    if (order.machine.gpus > 0 && looks_for_type())
      pods.gpu_products = BILLOW_TRY(gpu_products());
    Members made;
    for (std::uint32_t rank = 0; rank < order.machine.nodes; ++rank) {
      const PodRequest request{.settings = pods,
                               .pool = settings_,
                               .order = order,
                               .installation = options_.installation,
                               .rank = rank};
      const auto pod = create_pod(request);
      const Status done = pod ? create_secret(request, *pod) : Status(pass(pod.error()));
      if (pod) {
        watch_->expect(pod->uid);
        made.push_back(*pod);
      }
      // All nodes or none. Without an answer the same order is repeated instead.
      if (!done && done.error().code != Code::unavailable)
        (void)remove_all(made);
      if (!done)
        return done;
    }
    return {};
  };
  if (const Status done = all(); !done)
    return std::unexpected(refusal_for(done.error()));
  return {};
}

// ---- listing

Result<std::map<std::string, KubernetesPool::Members>> KubernetesPool::list() {
  std::map<std::string, Members> machines;
  std::vector<PodSeen> pods = BILLOW_TRY(watch_->pods());
  Members discarded;
  {
    auto known = known_.lock();
    std::set<std::string> still;
    for (PodSeen& pod : pods)
      if (known->discarded.contains(pod.uid)) {
        still.insert(pod.uid);
        discarded.push_back(std::move(pod));
      } else {
        machines[pod.machine].push_back(std::move(pod));
      }
    known->discarded = std::move(still);
  }
  // Their deletion may not have reached the server.
  BILLOW_TRY_VOID(remove_all(discarded));
  // The order of the ranks.
  for (auto& [name, members] : machines)
    std::ranges::sort(members, {}, &PodSeen::name);
  return machines;
}

NodeFacts KubernetesPool::facts_of(const std::string& node) {
  NodeFacts out;
  PodSeen pod;
  {
    auto known = known_.lock();
    const auto found = known->nodes.find(node);
    if (found == known->nodes.end())
      return out;
    pod = found->second;
  }
  out.address = pod.address;
  if (pod.stage == PodStage::leaving || pod.stage == PodStage::ended)
    out.leaving = pod.has_reason ? pod.note : "its pod is being deleted";
  // The node cannot say hello before find_cluster() has succeeded and its pod was seen.
  out.labels = place_labels(labels_->of(pod.node), pods_.rack_label);
  return out;
}

// Whether the pod's secret exists. It is not read: a rehearsal of creating it tells.
Result<bool> KubernetesPool::is_complete(const PodSeen& pod) {
  if (known_.lock()->complete.contains(pod.uid))
    return true;
  const Json secret = Json::object({{"apiVersion", "v1"},
                                    {"kind", "Secret"},
                                    {"metadata", Json::object({{"name", pod.secret}})}});
  const auto answer = BILLOW_TRY(client_->ask(
      {.method = net::Method::post, .target = target("secrets", "?dryRun=All"), .body = secret}));
  if (!answer.ok() && answer.reason() != "AlreadyExists")
    return pass(answer.error("looking for the secret of " + pod.name));
  if (!answer.ok())
    known_.lock()->complete.insert(pod.uid);
  return !answer.ok();
}

// Why a machine that has not ended by itself is given up. Empty: it is not.
std::string KubernetesPool::given_up(const Members& members) const {
  const std::int64_t now_s = clock_.wall().ns / seconds(1).ns;
  const std::int64_t patience_s = settings_.patience.ns / seconds(1).ns;
  const PodSeen* waits = nullptr;
  bool some_run = false;
  for (const PodSeen& pod : members) {
    if (pod.stage == PodStage::stuck && pod.created_s + patience_s < now_s)
      return pod.note;
    if (pod.stage == PodStage::waiting)
      waits = &pod;
    else
      some_run = true;
  }
  // A part of a gang would hold its GPUs while the rest waits.
  if (waits && some_run && waits->created_s + patience_s < now_s)
    return fmt::format("not all of its {} pods got a node: {}", members.front().nodes, waits->note);
  return {};
}

// The order broke off before all pods of a gang were created. (A pod that is missing later was
// deleted by somebody.)
bool KubernetesPool::was_ordered_in_part(const std::string& machine, const Members& members) {
  return members.size() < members.front().nodes && !known_.lock()->machines.contains(machine) &&
         std::ranges::all_of(members, [](const PodSeen& pod) {
           return pod.stage == PodStage::waiting || pod.stage == PodStage::starting;
         });
}

// One machine as it is. If one of its pods has ended, or it is given up, the others are asked to
// end; they save their jobs first, so the machine has ended only when all of them have.
Result<MachineSighting> KubernetesPool::sighting(const std::string& machine,
                                                 const Members& members) {
  MachineSighting out;
  out.name = machine;
  out.external = name_space_ + "/" + members.front().name;
  out.note = members.front().note;
  if (was_ordered_in_part(machine, members)) {
    BILLOW_TRY_VOID(discard(members));
    return fail(Code::not_found, fmt::format("{} was not created completely", machine));
  }
  Ending end{.why = given_up(members)};
  if (end.why.empty() && members.size() < members.front().nodes)
    end = {.why = "one of its pods was deleted", .taken = true};
  bool all_ended = true;
  for (const PodSeen& pod : members) {
    const bool ended = pod.stage == PodStage::ended;
    all_ended = all_ended && ended;
    if ((ended && end.why.empty()) || pod.stage == PodStage::leaving)
      end = {.why = pod.note, .taken = pod.taken};
    // The pod that hinders the others is the one to be told of.
    if (pod.stage == PodStage::waiting || pod.stage == PodStage::stuck)
      out.note = pod.note;
    const bool is_new = pod.stage == PodStage::waiting || pod.stage == PodStage::starting;
    if (is_new && !BILLOW_TRY(is_complete(pod))) {
      BILLOW_TRY_VOID(discard(members));
      return fail(Code::not_found, fmt::format("{} was created without its secret", machine));
    }
    if (pod.ends_at_s > 0)
      out.ends_at = WallTime{} + seconds(pod.ends_at_s);
  }
  if (end.why.empty())
    return out;
  BILLOW_TRY_VOID(remove_all(members));
  auto known = known_.lock();
  const Ending& first = known->ending.try_emplace(machine, end).first->second;
  out.note = first.why;
  // Of one that was released nobody asks why it has ended.
  out.ended = all_ended && !known->released.contains(machine);
  if (out.ended && first.taken)
    out.failed = RefusalKind::capacity;
  return out;
}

Result<std::vector<MachineSighting>> KubernetesPool::nodes() {
  const std::unique_lock not_while_ordering(ordering_);
  BILLOW_TRY_VOID(find_cluster());
  auto machines = BILLOW_TRY(list());
  std::vector<MachineSighting> out;
  std::vector<std::string> discarded;
  for (const auto& [name, members] : machines) {
    auto seen = sighting(name, members);
    if (seen)
      out.push_back(std::move(*seen));
    else if (seen.error().code != Code::not_found)
      return pass(seen.error());
    else {
      log_warn("pool {}: {}", settings_.name, seen.error().message);
      discarded.push_back(name);
    }
  }
  for (const std::string& name : discarded)
    machines.erase(name);
  auto known = known_.lock();
  for (const auto& [name, members] : known->machines) {
    if (machines.contains(name))
      continue;
    for (const PodSeen& pod : members) {
      known->complete.erase(pod.uid);
      known->nodes.erase(billow_node_of(pod));
    }
    const std::string words = watch_->last_words(name);
    if (known->released.erase(name) > 0) {
      known->ending.erase(name);
      continue;
    }
    MachineSighting gone;
    gone.name = name;
    const auto why = known->ending.find(name);
    gone.note = why != known->ending.end() ? why->second.why
                : words.empty()            ? "its pod was deleted"
                                           : words;
    if (why == known->ending.end() || why->second.taken)
      gone.failed = RefusalKind::capacity;
    gone.ended = true;
    gone.may_linger = true;  // of a pod that was deleted by force its node may not know yet
    out.push_back(std::move(gone));
  }
  // A machine that was reported as ended is reported once.
  for (const MachineSighting& seen : out)
    if (seen.ended) {
      machines.erase(seen.name);
      known->ending.erase(seen.name);
    }
  known->machines = std::move(machines);
  return out;
}

// ---- releasing

Status KubernetesPool::remove_pod(const std::string& name, const std::string& uid) {
  const auto answer = BILLOW_TRY(client_->ask({.method = net::Method::del,
                                               .target = target("pods", "/" + name),
                                               .body = delete_options(uid)}));
  // 409: the uid differs, so the pod is gone and its name belongs to a later one.
  if (!answer.ok() && answer.status != 404 && answer.status != 409)
    return pass(answer.error("deleting the pod " + name));
  return {};
}

Status KubernetesPool::remove_all(const Members& members) {
  Status out;
  for (const PodSeen& pod : members)
    if (pod.stage == PodStage::leaving)
      continue;
    else if (Status removed = remove_pod(pod.name, pod.uid); !removed)
      out = std::move(removed);
  return out;
}

// Removes what an order left half made, and forgets it: the machine does not exist yet, and the
// order is repeated. Were its pods reported, their end would count as a failure of the cluster.
Status KubernetesPool::discard(const Members& members) {
  {
    auto known = known_.lock();
    for (const PodSeen& pod : members)
      known->discarded.insert(pod.uid);
  }
  return remove_all(members);
}

Status KubernetesPool::release(const MachineSighting& machine) {
  Members members;
  if (auto known = known_.lock(); known->machines.contains(machine.name)) {
    members = known->machines.at(machine.name);
    // One that ends by itself is released as well, when its agent says so; the reason stays.
    if (!known->ending.contains(machine.name))
      known->released.insert(machine.name);
  }
  return remove_all(members);
}

namespace {

Status check_kubernetes_pool(const billow::Pool& settings) {
  const PodSettings pods = BILLOW_TRY(read_pod_settings(settings));
  if (settings.gpus > 0 && !pods.gpu_resource.empty() &&
      pods.gpu_resource.find('/') == std::string::npos)
    return fail(Code::invalid,
                fmt::format("option gpu-resource: \"{}\" is not DOMAIN/NAME", pods.gpu_resource),
                "for example nvidia.com/mig-1g.10gb");
  return {};
}

std::unique_ptr<Pool> make_kubernetes_pool(const billow::Pool& settings, const Options& options) {
  // The options were checked when the pool was added.
  auto pods = read_pod_settings(settings);
  return std::make_unique<KubernetesPool>(settings, pods ? std::move(*pods) : PodSettings{},
                                          options, system_clock(), KubeSurroundings::ours());
}

}  // namespace

// The API server's list is complete: a pod that it no longer lists has ended.
const Kind kubernetes_kind = {
    .name = "kubernetes",
    .capabilities = {.sizes_to_demand = true,
                     .several_nodes_at_once = true,
                     .list_is_final = true,
                     .gangs_share_nodes = true},
    .options = kubernetes_options(),
    .token_life = hours(24 * 7),  // a pod may wait long for a node
    .fetches_program = true,
    .check = check_kubernetes_pool,
    .make = make_kubernetes_pool,
};

}  // namespace billow::pool
