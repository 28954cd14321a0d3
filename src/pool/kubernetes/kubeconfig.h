// Where a Kubernetes cluster is and who we are to it: from kubeconfig files (merged like kubectl
// does it) or, in a pod, from its service account. Reading it again gives the current credentials,
// because files and plugins may renew them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace billow::pool {

// A program that prints a credential (EKS, GKE, AKS, OIDC).
struct ExecPlugin {
  std::string api_version;
  std::string command;
  std::vector<std::string> args;
  std::map<std::string, std::string> env;
  std::string install_hint;
};

struct ClusterAccess {
  std::string context;     // its name; empty: the service account of a pod
  std::string server;      // "https://10.0.0.1:6443", maybe with a path
  std::string name_space;  // of the context; "default" if it names none
  std::string ca_pem;      // empty: the system's authorities
  std::string tls_server_name;
  bool accept_any_cert = false;
  std::string cert_pem, key_pem;  // secret
  std::string token;              // secret
  std::string token_file;         // `token` was read from it; it changes about every hour
  std::optional<ExecPlugin> exec;
  std::string as_user;
  std::vector<std::string> as_groups;
};

// What the reader needs to know of the process, so that tests can say it.
struct KubeSurroundings {
  std::function<std::string(const char*)> env;
  std::string service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
  static KubeSurroundings ours();
};

struct KubeChoice {
  std::string kubeconfig;  // a file; "in-cluster": the service account; empty: $KUBECONFIG, then
                           // ~/.kube/config, then the service account
  std::string context;     // empty: the current one
};

Result<ClusterAccess> read_access(const KubeChoice& choice, const KubeSurroundings& surroundings);

// The credential that an exec plugin printed.
struct PluginCredential {
  std::string token, cert_pem, key_pem;  // secret
  std::int64_t expires_at_s = 0;         // seconds since 1970; 0: not known
};
Result<PluginCredential> read_plugin_output(const std::string& text);
Result<PluginCredential> run_plugin(const ExecPlugin& plugin);

}  // namespace billow::pool
