#include "pool/kubernetes/pod.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crypto.h"
#include "gpu/types.h"
#include "pool/kubernetes/node_labels.h"
#include "pool/kubernetes/pod_program.h"

namespace billow::pool {
namespace {

constexpr const char* home_dir = "/billow";
constexpr const char* token_dir = "/billow-token";

// Kubernetes expands $(NAME) in commands; a doubled dollar sign stands for itself.
std::string literal(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == '$')
      out += c;
  }
  return out;
}

Json text_map(const std::map<std::string, std::string>& map) {
  Json out = Json::object();
  for (const auto& [key, value] : map)
    out.set(key, value);
  return out;
}

Json labels_of(const PodRequest& r) {
  Json labels = Json::object({{"app.kubernetes.io/name", "billow-node"},
                              {label_installation, r.installation},
                              {label_pool, r.pool.name},
                              {label_machine, r.order.machine.name}});
  if (!r.settings.queue.empty() && r.settings.queue_system == QueueSystem::kueue) {
    labels.set("kueue.x-k8s.io/queue-name", r.settings.queue);
    // Kueue admits the pods of a group together.
    if (r.order.machine.nodes > 1)
      labels.set("kueue.x-k8s.io/pod-group-name", pod_name(r.installation, r.order.machine, 0));
  }
  return labels;
}

Json annotations_of(const PodRequest& r) {
  Json out = Json::object({{annotation_nodes, std::to_string(r.order.machine.nodes)}});
  if (r.settings.queue.empty())
    return out;
  if (r.settings.queue_system == QueueSystem::volcano)
    out.set("scheduling.volcano.sh/queue-name", r.settings.queue);
  else if (r.order.machine.nodes > 1)
    out.set("kueue.x-k8s.io/pod-group-total-count", std::to_string(r.order.machine.nodes));
  return out;
}

// An image that has the program may lack a shell.
bool needs_download(const PodRequest& r) {
  return r.settings.program.empty() && !r.order.program_sha256.empty();
}

Json command_of(const PodRequest& r) {
  const Machine& m = r.order.machine;
  const std::string node = m.nodes > 1 ? fmt::format("{}.{}", m.name, r.rank) : m.name;
  Json words = Json::array();
  const auto add = [&](std::initializer_list<std::string> more) {
    for (const std::string& word : more)
      words.push(word);
  };
  if (needs_download(r))
    add({"/bin/sh", "-c", literal(program_script(home_dir, token_dir)), "billow"});
  else
    add({r.settings.program.empty() ? "billow" : literal(r.settings.program)});
  add({"join", literal(r.order.head_url), "--token-file", fmt::format("{}/token", token_dir),
       "--data", fmt::format("{}/data", home_dir), "--node-name", node, "--in-allocation"});
  if (r.order.head_url.find("http://") != std::string::npos)
    add({"--insecure"});
  if (!r.settings.privileged)
    add({"--jobs-as-agent"});
  for (const auto& [key, value] : r.pool.labels)
    add({"--label", literal(key + "=" + value)});
  add({"--label", "pool=" + r.pool.name, "--label", "kubernetes-node=$(NODE_NAME)"});
  if (r.pool.spot)
    add({"--reclaim-notices", "auto"});
  if (!r.pool.sim.empty())
    add({"--sim", literal(r.pool.sim)});
  // The device plugin gives the pod its GPUs. Without any, an image may still ask for all of the
  // node's; and simulated ones are as many as the pool's machines have.
  if (m.gpus == 0) {
    add({"--only-gpus", "none"});
  } else if (!r.pool.sim.empty()) {
    std::string numbers = "0";
    for (std::int32_t i = 1; i < m.gpus; ++i)
      numbers += fmt::format(",{}", i);
    add({"--only-gpus", numbers});
  }
  return words;
}

Json field_variable(const char* name, const char* path) {
  return Json::object(
      {{"name", name},
       {"valueFrom", Json::object({{"fieldRef", Json::object({{"fieldPath", path}})}})}});
}

// The agent leaves a little before the pod is killed.
Duration leave_within(const PodRequest& r) {
  return std::max(seconds(1), r.settings.grace - std::min(seconds(5), r.settings.grace / 10));
}

Json environment_of(const PodRequest& r) {
  Json env = Json::array();
  env.push(field_variable("NODE_NAME", "spec.nodeName"));
  env.push(field_variable("POD_IP", "status.podIP"));
  env.push(Json::object({{"name", "HOME"}, {"value", home_dir}}));
  env.push(Json::object({{"name", "BILLOW_LEAVE_WITHIN"},
                         {"value", fmt::format("{}s", leave_within(r).ns / seconds(1).ns)}}));
  // Images seldom have accounts for Billow's users.
  if (r.settings.privileged)
    env.push(Json::object({{"name", "BILLOW_WITHOUT_ACCOUNT"},
                           {"value", fmt::format("{}:{}", r.settings.user, r.settings.group)}}));
  if (needs_download(r)) {
    // The first of several heads: the program is the same on all of them.
    const std::string head = r.order.head_url.substr(0, r.order.head_url.find(','));
    env.push(
        Json::object({{"name", program_url_variable}, {"value", literal(head) + "/v1/program"}}));
    env.push(Json::object({{"name", program_hash_variable}, {"value", r.order.program_sha256}}));
  }
  if (r.order.machine.gpus == 0)
    env.push(Json::object({{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}}));
  return env;
}

Json resources_of(const PodRequest& r) {
  Json limits = Json::object();
  if (!r.settings.cpus.empty())
    limits.set("cpu", r.settings.cpus);
  if (!r.settings.memory.empty())
    limits.set("memory", r.settings.memory);
  if (r.order.machine.gpus > 0)
    limits.set(gpu_resource_of(r.settings, r.pool), std::to_string(r.order.machine.gpus));
  // Requests that are not given are the same as the limits.
  return Json::object({{"limits", std::move(limits)}});
}

// Exactly what the "restricted" profile of pod security asks for.
Json container_security(const PodSettings& settings) {
  if (settings.privileged)
    return Json::object({{"privileged", true}});
  return Json::object({{"allowPrivilegeEscalation", false},
                       {"capabilities", Json::object({{"drop", Json(Json::Array{"ALL"})}})}});
}

Json pod_security(const PodSettings& settings) {
  if (settings.privileged)
    return Json::object({{"runAsUser", 0}});
  return Json::object({{"runAsNonRoot", true},
                       {"runAsUser", settings.user},
                       {"runAsGroup", settings.group},
                       {"fsGroup", settings.group},
                       {"seccompProfile", Json::object({{"type", "RuntimeDefault"}})}});
}

Json tolerations_of(const PodRequest& r) {
  Json out = Json::array();
  // A node's GPUs are usually tainted with the name of their resource.
  if (r.order.machine.gpus > 0)
    out.push(Json::object({{"key", gpu_resource_of(r.settings, r.pool)}, {"operator", "Exists"}}));
  for (const Toleration& one : r.settings.tolerations) {
    Json toleration =
        Json::object({{"key", one.key}, {"operator", one.value.empty() ? "Exists" : "Equal"}});
    if (!one.value.empty())
      toleration.set("value", one.value);
    if (!one.effect.empty())
      toleration.set("effect", one.effect);
    out.push(std::move(toleration));
  }
  for (const char* key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
    out.push(Json::object({{"key", key},
                           {"operator", "Exists"},
                           {"effect", "NoExecute"},
                           {"tolerationSeconds", r.settings.lost_after.ns / seconds(1).ns}}));
  return out;
}

Json affinity_of(const PodRequest& r) {
  Json out = Json::object();
  const auto& products = r.settings.gpu_products;
  if (r.order.machine.gpus > 0 && !products.empty() && products.front() != "any") {
    Json values = Json::array();
    for (const std::string& product : products)
      values.push(product);
    const Json term =
        Json::object({{"matchExpressions",
                       Json(Json::Array{Json::object({{"key", model_label(r.pool.gpu_type).name},
                                                      {"operator", "In"},
                                                      {"values", std::move(values)}})})}});
    out.set("nodeAffinity",
            Json::object({{"requiredDuringSchedulingIgnoredDuringExecution",
                           Json::object({{"nodeSelectorTerms", Json(Json::Array{term})}})}}));
  }
  if (r.order.machine.nodes > 1 && !r.settings.topology_key.empty()) {
    const Json term = Json::object(
        {{"topologyKey", r.settings.topology_key},
         {"labelSelector",
          Json::object({{"matchLabels", Json::object({{label_installation, r.installation},
                                                      {label_machine, r.order.machine.name}})}})}});
    out.set("podAffinity", Json::object({{"requiredDuringSchedulingIgnoredDuringExecution",
                                          Json(Json::Array{term})}}));
  }
  return out;
}

struct Mounts {
  Json volumes = Json::array(), mounts = Json::array();
  void add(const std::string& name,
           const char* kind,
           Json source,
           const std::string& path,
           bool read_only) {
    volumes.push(Json::object({{"name", name}, {kind, std::move(source)}}));
    Json mount = Json::object({{"name", name}, {"mountPath", path}});
    if (read_only)
      mount.set("readOnly", true);
    mounts.push(std::move(mount));
  }
};

Mounts mounts_of(const PodRequest& r) {
  Mounts out;
  out.add("home", "emptyDir", Json::object(), home_dir, false);
  out.add(token_volume, "secret",
          Json::object({{"secretName", secret_name(r)}, {"defaultMode", 0440}}), token_dir, true);
  Json memory = Json::object({{"medium", "Memory"}});
  if (!r.settings.shared_memory.empty())
    memory.set("sizeLimit", r.settings.shared_memory);
  out.add("shm", "emptyDir", std::move(memory), "/dev/shm", false);
  int number = 0;
  for (const PodVolume& volume : r.settings.volumes) {
    const std::string volume_name = fmt::format("volume-{}", number++);
    switch (volume.kind) {
      case PodVolume::Kind::claim:
        out.add(volume_name, "persistentVolumeClaim", Json::object({{"claimName", volume.source}}),
                volume.path, volume.read_only);
        break;
      case PodVolume::Kind::host:
        out.add(volume_name, "hostPath", Json::object({{"path", volume.source}}), volume.path,
                volume.read_only);
        break;
    }
  }
  return out;
}

Json spec_of(const PodRequest& r) {
  const PodSettings& s = r.settings;
  Mounts mounts = mounts_of(r);
  Json container = Json::object({{"name", "node"},
                                 {"image", s.image},
                                 {"command", command_of(r)},
                                 {"env", environment_of(r)},
                                 {"resources", resources_of(r)},
                                 {"securityContext", container_security(s)},
                                 {"volumeMounts", std::move(mounts.mounts)},
                                 {"terminationMessagePolicy", "FallbackToLogsOnError"}});
  Json spec = Json::object({{"restartPolicy", "Never"},
                            {"automountServiceAccountToken", false},
                            {"enableServiceLinks", false},
                            {"terminationGracePeriodSeconds", s.grace.ns / seconds(1).ns},
                            // The pod's first process collects what jobs leave behind.
                            {"shareProcessNamespace", true},
                            {"securityContext", pod_security(s)},
                            {"tolerations", tolerations_of(r)},
                            {"volumes", std::move(mounts.volumes)},
                            {"containers", Json(Json::Array{std::move(container)})}});
  if (Json affinity = affinity_of(r); affinity.size() > 0)
    spec.set("affinity", std::move(affinity));
  if (!s.node_selector.empty())
    spec.set("nodeSelector", text_map(s.node_selector));
  if (!s.runtime_class.empty())
    spec.set("runtimeClassName", s.runtime_class);
  if (!s.priority_class.empty())
    spec.set("priorityClassName", s.priority_class);
  if (!s.queue.empty() && s.queue_system == QueueSystem::volcano)
    spec.set("schedulerName", "volcano");
  if (r.pool.time.ns > 0)
    spec.set("activeDeadlineSeconds", r.pool.time.ns / seconds(1).ns);
  Json secrets = Json::array();
  for (const std::string& secret : s.pull_secrets)
    secrets.push(Json::object({{"name", secret}}));
  if (secrets.size() > 0)
    spec.set("imagePullSecrets", std::move(secrets));
  return spec;
}

}  // namespace

std::string pod_name(const std::string& installation, const Machine& machine, std::uint32_t rank) {
  std::string name = fmt::format("billow-{}-{}", installation, machine.name);
  return machine.nodes > 1 ? fmt::format("{}-r{}", name, rank) : name;
}

std::string gpu_resource_of(const PodSettings& settings, const billow::Pool& pool) {
  if (!settings.gpu_resource.empty())
    return settings.gpu_resource;
  const GpuTypeFacts* facts = find_gpu_type(pool.gpu_type);
  return facts && facts->vendor == Vendor::amd ? "amd.com/gpu" : "nvidia.com/gpu";
}

Json pod_document(const PodRequest& r) {
  const std::string name = pod_name(r.installation, r.order.machine, r.rank);
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "Pod"},
                       {"metadata", Json::object({{"name", name},
                                                  {"labels", labels_of(r)},
                                                  {"annotations", annotations_of(r)}})},
                       {"spec", spec_of(r)}});
}

std::string secret_name(const PodRequest& r) {
  return fmt::format("{}-{}", pod_name(r.installation, r.order.machine, r.rank),
                     sha256_hex(r.order.token).substr(0, 8));
}

Json secret_document(const PodRequest& r, const std::string& name, const std::string& pod_uid) {
  const Json owner = Json::object({{"apiVersion", "v1"},
                                   {"kind", "Pod"},
                                   {"name", pod_name(r.installation, r.order.machine, r.rank)},
                                   {"uid", pod_uid}});
  return Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Secret"},
       {"metadata", Json::object({{"name", name},
                                  {"labels", labels_of(r)},
                                  {"ownerReferences", Json(Json::Array{owner})}})},
       {"stringData", Json::object({{"token", r.order.token}, {"authority", r.order.authority}})}});
}

}  // namespace billow::pool
