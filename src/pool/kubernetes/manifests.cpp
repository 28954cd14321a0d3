#include "pool/kubernetes/manifests.h"

#include <fmt/format.h>

#include <map>

#include "pool/kubernetes/rights.h"

namespace billow::pool {
namespace {

constexpr int api_port = 7070;
constexpr int gateway_port = 7071;
// Kubernetes opens the files of a volume to its group whenever the mode of the volume's own
// directory is not what it wants. So the data directory, which only its owner may enter, is below.
constexpr const char* volume_dir = "/var/lib/billow";
constexpr const char* data_dir = "/var/lib/billow/data";
constexpr const char* shared_dir = "/var/lib/billow-shared";

template <class... Items>
Json list_of(Items... items) {
  Json out = Json::array();
  (out.push(Json(std::move(items))), ...);
  return out;
}

Json app_labels(const char* name) {
  return Json::object({{"app.kubernetes.io/name", name}, {"app.kubernetes.io/part-of", "billow"}});
}

Json document(const InstallSettings& s, const char* version, const char* kind, const char* name) {
  return Json::object({{"apiVersion", version},
                       {"kind", kind},
                       {"metadata", Json::object({{"name", name},
                                                  {"namespace", s.name_space},
                                                  {"labels", app_labels("billow")}})}});
}

Json without_namespace(Json doc) {
  Json metadata = Json::object(
      {{"name", doc.at("metadata", "name")}, {"labels", doc.at("metadata", "labels")}});
  doc.set("metadata", std::move(metadata));
  return doc;
}

// One rule for each resource, with its verbs.
Json rules(bool whole_cluster) {
  std::map<std::string, Json> verbs;
  for (const KubeRight& right : kube_rights())
    if (right.whole_cluster == whole_cluster)
      verbs[std::string(right.resource)].push(right.verb);
  Json out = Json::array();
  for (auto& [resource, list] : verbs)
    out.push(Json::object({{"apiGroups", list_of("")},
                           {"resources", list_of(resource)},
                           {"verbs", std::move(list)}}));
  return out;
}

// Bindings for the whole cluster are named after the namespace: several may have an account.
Json binding(const InstallSettings& s, bool whole_cluster, const char* role) {
  const std::string name = whole_cluster ? fmt::format("{}-{}", role, s.name_space) : role;
  Json doc = document(s, "rbac.authorization.k8s.io/v1",
                      whole_cluster ? "ClusterRoleBinding" : "RoleBinding", name.c_str());
  doc.set("roleRef", Json::object({{"apiGroup", "rbac.authorization.k8s.io"},
                                   {"kind", whole_cluster ? "ClusterRole" : "Role"},
                                   {"name", role}}));
  doc.set("subjects",
          list_of(Json::object(
              {{"kind", "ServiceAccount"}, {"name", "billow"}, {"namespace", s.name_space}})));
  return whole_cluster ? without_namespace(std::move(doc)) : doc;
}

void add_account(const InstallSettings& s, std::vector<Json>& out) {
  out.push_back(document(s, "v1", "ServiceAccount", "billow"));
  Json role = document(s, "rbac.authorization.k8s.io/v1", "Role", "billow-pool");
  role.set("rules", rules(false));
  out.push_back(std::move(role));
  out.push_back(binding(s, false, "billow-pool"));
  Json nodes =
      without_namespace(document(s, "rbac.authorization.k8s.io/v1", "ClusterRole", "billow-nodes"));
  nodes.set("rules", rules(true));
  out.push_back(std::move(nodes));
  out.push_back(binding(s, true, "billow-nodes"));
}

Json restricted_pod() {
  return Json::object({{"runAsNonRoot", true},
                       {"runAsUser", 1000},
                       {"runAsGroup", 1000},
                       {"fsGroup", 1000},
                       {"fsGroupChangePolicy", "OnRootMismatch"},
                       {"seccompProfile", Json::object({{"type", "RuntimeDefault"}})}});
}

Json restricted_container() {
  return Json::object({{"allowPrivilegeEscalation", false},
                       {"capabilities", Json::object({{"drop", list_of("ALL")}})}});
}

Json probe() {
  return Json::object(
      {{"httpGet", Json::object({{"path", "/healthz"}, {"port", api_port}, {"scheme", "HTTPS"}})},
       {"periodSeconds", 2}});
}

Json head_container(const InstallSettings& s) {
  Json command =
      list_of("billow", "up", "--data", data_dir, "--listen", fmt::format("0.0.0.0:{}", api_port),
              "--gateway", fmt::format("0.0.0.0:{}", gateway_port), "--no-agent");
  std::vector<std::string> names = {"billow", "billow." + s.name_space,
                                    "billow." + s.name_space + ".svc"};
  if (!s.host.empty())
    names.push_back(s.host);
  for (const std::string& name : names) {
    command.push("--tls-name");
    command.push(name);
  }
  Json env = list_of(Json::object({{"name", "HOME"}, {"value", data_dir}}),
                     Json::object({{"name", "BILLOW_DATA"}, {"value", data_dir}}));
  Json mounts = list_of(Json::object({{"name", "data"}, {"mountPath", volume_dir}}));
  if (s.postgres) {
    command.push("--standby");
    env.push(Json::object(
        {{"name", "BILLOW_STORE"},
         {"valueFrom", Json::object({{"secretKeyRef", Json::object({{"name", "billow-store"},
                                                                    {"key", "url"}})}})}}));
  }
  if (!s.files_class.empty()) {
    for (const std::string& word :
         {std::string("--files-dir"), fmt::format("{}/files", shared_dir),
          std::string("--secrets-key"), fmt::format("{}/secrets.key", shared_dir)})
      command.push(word);
    mounts.push(Json::object({{"name", "shared"}, {"mountPath", shared_dir}}));
  }
  return Json::object(
      {{"name", "head"},
       {"image", s.image},
       {"command", std::move(command)},
       {"env", std::move(env)},
       {"ports", list_of(Json::object({{"name", "api"}, {"containerPort", api_port}}),
                         Json::object({{"name", "gateway"}, {"containerPort", gateway_port}}))},
       {"readinessProbe", probe()},
       {"securityContext", restricted_container()},
       {"volumeMounts", std::move(mounts)}});
}

Json claim_of(const char* mode, const std::string& size) {
  return Json::object(
      {{"accessModes", list_of(mode)},
       {"resources", Json::object({{"requests", Json::object({{"storage", size}})}})}});
}

Json head_pod(const InstallSettings& s) {
  Json spec = Json::object({{"serviceAccountName", "billow"},
                            {"securityContext", restricted_pod()},
                            {"terminationGracePeriodSeconds", 30},
                            {"containers", list_of(head_container(s))}});
  if (s.postgres) {
    // One machine that fails does not take both heads with it.
    const Json term = Json::object(
        {{"topologyKey", "kubernetes.io/hostname"},
         {"labelSelector", Json::object({{"matchLabels", app_labels("billow-head")}})}});
    const Json wish = Json::object({{"weight", 100}, {"podAffinityTerm", term}});
    spec.set("affinity",
             Json::object({{"podAntiAffinity",
                            Json::object({{"preferredDuringSchedulingIgnoredDuringExecution",
                                           list_of(wish)}})}}));
  }
  if (!s.files_class.empty())
    spec.set("volumes", list_of(Json::object({{"name", "shared"},
                                              {"persistentVolumeClaim",
                                               Json::object({{"claimName", "billow-shared"}})}})));
  return spec;
}

void add_shared_volume(const InstallSettings& s, std::vector<Json>& out) {
  Json claim = document(s, "v1", "PersistentVolumeClaim", "billow-shared");
  Json spec = claim_of("ReadWriteMany", s.storage);
  spec.set("storageClassName", s.files_class);
  claim.set("spec", std::move(spec));
  out.push_back(std::move(claim));
}

// A head with a volume of its own is stopped before its successor starts. With a database there are
// two, and the one that stands by passes connections on to the other: both are ready, so an upgrade
// replaces one after the other.
void add_head(const InstallSettings& s, std::vector<Json>& out) {
  Json head = document(s, "apps/v1", "StatefulSet", "billow-head");
  const Json volume = Json::object({{"metadata", Json::object({{"name", "data"}})},
                                    {"spec", claim_of("ReadWriteOnce", s.storage)}});
  head.set("spec",
           Json::object(
               {{"replicas", s.postgres ? 2 : 1},
                {"serviceName", "billow"},
                {"podManagementPolicy", "Parallel"},
                {"selector", Json::object({{"matchLabels", app_labels("billow-head")}})},
                {"template",
                 Json::object({{"metadata", Json::object({{"labels", app_labels("billow-head")}})},
                               {"spec", head_pod(s)}})},
                {"volumeClaimTemplates", list_of(volume)}}));
  out.push_back(std::move(head));
  Json service = document(s, "v1", "Service", "billow");
  service.set(
      "spec",
      Json::object(
          {{"selector", app_labels("billow-head")},
           {"ports", list_of(Json::object({{"name", "api"}, {"port", api_port}}),
                             Json::object({{"name", "gateway"}, {"port", gateway_port}}))}}));
  out.push_back(std::move(service));
}

void add_ingress(const InstallSettings& s, std::vector<Json>& out) {
  Json ingress = document(s, "networking.k8s.io/v1", "Ingress", "billow");
  Json metadata = ingress["metadata"];
  metadata.set("annotations",
               Json::object({{"nginx.ingress.kubernetes.io/backend-protocol", "HTTPS"},
                             {"nginx.ingress.kubernetes.io/proxy-body-size", "0"},
                             {"nginx.ingress.kubernetes.io/proxy-read-timeout", "3600"}}));
  ingress.set("metadata", std::move(metadata));
  const Json backend = Json::object(
      {{"service", Json::object({{"name", "billow"}, {"port", Json::object({{"name", "api"}})}})}});
  const Json path = Json::object({{"path", "/"}, {"pathType", "Prefix"}, {"backend", backend}});
  ingress.set("spec",
              Json::object(
                  {{"rules",
                    list_of(Json::object({{"host", s.host},
                                          {"http", Json::object({{"paths", list_of(path)}})}}))}}));
  out.push_back(std::move(ingress));
}

// Nodes are reached by each other alone (the ranks of a gang), and do not reach the metadata
// services of clouds.
void add_network_policies(const InstallSettings& s, std::vector<Json>& out) {
  Json nodes = document(s, "networking.k8s.io/v1", "NetworkPolicy", "billow-nodes");
  const Json node_pods =
      Json::object({{"matchLabels", Json::object({{"app.kubernetes.io/name", "billow-node"}})}});
  const Json anywhere = Json::object(
      {{"ipBlock", Json::object({{"cidr", "0.0.0.0/0"}, {"except", list_of("169.254.0.0/16")}})}});
  nodes.set(
      "spec",
      Json::object(
          {{"podSelector", node_pods},
           {"policyTypes", list_of("Ingress", "Egress")},
           {"ingress",
            list_of(Json::object({{"from", list_of(Json::object({{"podSelector", node_pods}}))}}))},
           {"egress", list_of(Json::object({{"to", list_of(anywhere)}}))}}));
  out.push_back(std::move(nodes));
  Json head = document(s, "networking.k8s.io/v1", "NetworkPolicy", "billow-head");
  head.set(
      "spec",
      Json::object(
          {{"podSelector", Json::object({{"matchLabels", app_labels("billow-head")}})},
           {"policyTypes", list_of("Ingress")},
           {"ingress",
            list_of(Json::object({{"ports", list_of(Json::object({{"port", api_port}}),
                                                    Json::object({{"port", gateway_port}}))}}))}}));
  out.push_back(std::move(head));
}

void add_pod_monitor(const InstallSettings& s, std::vector<Json>& out) {
  Json monitor = document(s, "monitoring.coreos.com/v1", "PodMonitor", "billow-head");
  const Json credentials = Json::object({{"name", "billow-metrics"}, {"key", "token"}});
  const Json endpoint = Json::object(
      {{"port", "api"},
       {"scheme", "https"},
       {"path", "/metrics"},
       {"tlsConfig", Json::object({{"insecureSkipVerify", true}})},
       {"authorization", Json::object({{"type", "Bearer"}, {"credentials", credentials}})}});
  monitor.set("spec", Json::object(
                          {{"selector", Json::object({{"matchLabels", app_labels("billow-head")}})},
                           {"podMetricsEndpoints", list_of(endpoint)}}));
  out.push_back(std::move(monitor));
}

// Every node with GPUs becomes a Billow node with all of its GPUs. It is privileged: it runs jobs
// of several users, slices and containers like an agent outside of Kubernetes. Its jobs end with
// its pod, so a new image does not replace the pods: each is replaced when somebody deletes it.
void add_daemon_set(const InstallSettings& s, std::vector<Json>& out) {
  const Json agent = Json::object(
      {{"name", "node"},
       {"image", s.image},
       {"command",
        list_of("billow", "join", fmt::format("https://billow:{}", api_port), "--token-file",
                "/billow-token/token", "--data", "/var/lib/billow", "--node-name", "$(NODE_NAME)",
                "--in-allocation", "--label", "kubernetes-node=$(NODE_NAME)")},
       {"env",
        list_of(Json::object({{"name", "NODE_NAME"},
                              {"valueFrom",
                               Json::object({{"fieldRef",
                                              Json::object({{"fieldPath", "spec.nodeName"}})}})}}),
                Json::object({{"name", "BILLOW_LEAVE_WITHIN"}, {"value", "55s"}}),
                Json::object({{"name", "BILLOW_WITHOUT_ACCOUNT"}, {"value", "1000:1000"}}),
                Json::object({{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "all"}}))},
       {"securityContext", Json::object({{"privileged", true}})},
       {"volumeMounts",
        list_of(Json::object({{"name", "data"}, {"mountPath", "/var/lib/billow"}}),
                Json::object({{"name", "token"}, {"mountPath", "/billow-token"}}))}});
  Json set = document(s, "apps/v1", "DaemonSet", "billow-node");
  set.set(
      "spec",
      Json::object(
          {{"selector", Json::object({{"matchLabels", app_labels("billow-node")}})},
           {"updateStrategy", Json::object({{"type", "OnDelete"}})},
           {"template",
            Json::object(
                {{"metadata", Json::object({{"labels", app_labels("billow-node")}})},
                 {"spec",
                  Json::object(
                      {{"automountServiceAccountToken", false},
                       {"hostPID", true},
                       {"terminationGracePeriodSeconds", 60},
                       {"nodeSelector", Json::object({{"nvidia.com/gpu.present", "true"}})},
                       {"tolerations",
                        list_of(Json::object({{"key", "nvidia.com/gpu"}, {"operator", "Exists"}}))},
                       {"containers", list_of(agent)},
                       {"volumes",
                        list_of(Json::object(
                                    {{"name", "data"},
                                     {"hostPath", Json::object({{"path", "/var/lib/billow-node"},
                                                                {"type", "DirectoryOrCreate"}})}}),
                                Json::object(
                                    {{"name", "token"},
                                     {"secret",
                                      Json::object({{"secretName", "billow-join"}})}}))}})}})}}));
  out.push_back(std::move(set));
}

}  // namespace

std::vector<Json> install_manifests(const InstallSettings& s) {
  std::vector<Json> out;
  Json space = without_namespace(document(s, "v1", "Namespace", s.name_space.c_str()));
  out.push_back(std::move(space));
  add_account(s, out);
  add_network_policies(s, out);
  if (s.pool_only)
    return out;
  if (!s.files_class.empty())
    add_shared_volume(s, out);
  add_head(s, out);
  if (!s.host.empty())
    add_ingress(s, out);
  if (s.pod_monitor)
    add_pod_monitor(s, out);
  if (s.daemon_set)
    add_daemon_set(s, out);
  return out;
}

std::string rights_table() {
  std::string out = "| resource | verb | where | what for |\n|---|---|---|---|\n";
  for (const KubeRight& right : kube_rights())
    out += fmt::format("| {} | {} | {} | {} |\n", right.resource, right.verb,
                       right.whole_cluster ? "the cluster (optional)" : "the pool's namespace",
                       right.why);
  return out;
}

}  // namespace billow::pool
