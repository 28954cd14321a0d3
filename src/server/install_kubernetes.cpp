// install kubernetes: prints the manifests of a head in a cluster, or applies them.
#include <fmt/format.h>

#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "pool/kubernetes/apply.h"
#include "pool/kubernetes/manifests.h"
#include "pool/kubernetes/yaml.h"

namespace billow::client {
namespace {

constexpr OptionSpec install_options[] = {
    {"image", 0, "IMAGE",
     "container image that contains billow (required, except with --pool-only)"},
    {"namespace", 0, "NAME", "namespace of all objects (default billow)"},
    {"pool-only", 0, nullptr,
     "only what a head outside the cluster needs: service account, role, network policies"},
    {"storage", 0, "SIZE", "size of the head's volume (default 20Gi)"},
    {"postgres", 0, nullptr,
     "keep the state in the database named by the key `url` of the secret billow-store, and run a "
     "second head as a standby"},
    {"files-class", 0, "CLASS",
     "with --postgres: storage class of a volume that both heads can write (ReadWriteMany), for "
     "uploaded files and the key of secrets"},
    {"host", 0, "NAME", "also create an Ingress for this host name"},
    {"pod-monitor", 0, nullptr, "also create a PodMonitor for the Prometheus operator"},
    {"daemonset", 0, nullptr,
     "also create a privileged DaemonSet that makes every node with GPUs a Billow node"},
    {"apply", 0, nullptr,
     "apply the manifests to the cluster instead of printing them (server-side apply, field "
     "manager billow)"},
    {"dry-run", 0, nullptr,
     "with --apply: the API server checks the manifests and changes nothing"},
    {"force", 0, nullptr, "with --apply: also take over fields that another tool has set"},
    {"context", 0, "NAME", "with --apply: context of the kubeconfig (default: the current one)"},
    {"kubeconfig", 0, "FILE", "with --apply: default $KUBECONFIG, then ~/.kube/config"},
    {"rights", 0, nullptr, "print only the table of permissions that Billow uses"},
};

int apply(const std::vector<Json>& documents, const Parsed& parsed) {
  pool::StopSignal never;
  pool::KubeClient client(
      {.kubeconfig = parsed.get("kubeconfig"), .context = parsed.get("context")},
      pool::KubeSurroundings::ours(), never);
  const auto server = client.server();
  if (!server)
    return report(server.error());
  const bool rehearse = parsed.has("dry-run");
  print(fmt::format("{}{}\n", rehearse ? "nothing is changed: checking with " : "", *server));
  const Status done =
      pool::apply_documents(client, documents, {.rehearse = rehearse, .force = parsed.has("force")},
                            [](const std::string& what, bool is_new) {
                              print(fmt::format("{} {}\n", is_new ? "created" : "applied", what));
                            });
  return done ? 0 : report(done.error());
}

// --dry-run and the others say how to apply; without --apply they would be ignored.
const char* needless_option(const Parsed& parsed) {
  for (const char* name : {"dry-run", "force", "context", "kubeconfig"})
    if (parsed.has(name) && !parsed.has("apply"))
      return name;
  return nullptr;
}

int cmd_install_kubernetes(const Parsed& parsed) {
  if (parsed.has("rights")) {
    print(pool::rights_table());
    return 0;
  }
  pool::InstallSettings settings{.name_space = parsed.get("namespace", "billow"),
                                 .image = parsed.get("image"),
                                 .pool_only = parsed.has("pool-only"),
                                 .storage = parsed.get("storage", "20Gi"),
                                 .postgres = parsed.has("postgres"),
                                 .files_class = parsed.get("files-class"),
                                 .host = parsed.get("host"),
                                 .pod_monitor = parsed.has("pod-monitor"),
                                 .daemon_set = parsed.has("daemonset")};
  if (settings.image.empty() && !settings.pool_only)
    return report_usage({Code::invalid, "an image is required",
                         "name one that contains billow: --image registry.example/billow:0.1"});
  if (!settings.files_class.empty() && !settings.postgres)
    return report_usage({Code::invalid, "--files-class is for two heads",
                         "add --postgres; one head keeps its files in its own volume"});
  if (const char* name = needless_option(parsed))
    return report_usage({Code::invalid, fmt::format("--{} is for --apply", name),
                         "add --apply, or give the option to kubectl"});
  const std::vector<Json> documents = pool::install_manifests(settings);
  if (parsed.has("apply"))
    return apply(documents, parsed);
  std::string text;
  for (const Json& document : documents)
    text += "---\n" + pool::to_yaml(document);
  print(text);
  return 0;
}

}  // namespace

void add_install_commands(CommandTable& table) {
  table.push_back(
      {.name = "install kubernetes",
       .summary = "print or apply the manifests that run a head in a Kubernetes cluster",
       .example =
           "billow install kubernetes --image registry.example/billow:0.1 --apply\nbillow install "
           "kubernetes --pool-only --namespace team | kubectl apply --server-side -f -",
       .run = cmd_install_kubernetes,
       .details = "docs/kubernetes.md explains each part. Without --apply, the manifests are "
                  "printed and the cluster is not changed.",
       .options = {install_options},
       .group = "machines",
       .talks_to_head = false,
       .prints_json = false});
}

}  // namespace billow::client
