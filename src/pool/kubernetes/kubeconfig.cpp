#include "pool/kubernetes/kubeconfig.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/crypto.h"
#include "base/file.h"
#include "base/formats/utc.h"
#include "base/text.h"
#include "pool/kubernetes/yaml.h"
#include "process/command.h"

namespace billow::pool {
namespace {

constexpr std::size_t credential_bytes_max = 1 << 20;
constexpr Duration plugin_timeout = seconds(60);

// A scalar as text: an unquoted number or boolean is a text here as well.
std::string kube_text(const Json& value) {
  if (value.is_string())
    return value.as_string();
  return value.is_null() || value.is_array() || value.is_object() ? "" : value.dump();
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string from_folder(const std::string& folder, const std::string& path) {
  return path.empty() || path.starts_with("/") ? path : folder + "/" + path;
}

// One named entry of "clusters", "users" or "contexts", and the folder its file names start from.
struct Entry {
  Json value;
  std::string folder;
};

// Several files as one: the first that sets a value or a name wins.
struct Merged {
  std::string current_context;
  std::map<std::string, Entry> clusters, users, contexts;
  std::vector<std::string> files;

  void add(const std::string& path, const Json& file) {
    files.push_back(path);
    if (current_context.empty())
      current_context = kube_text(file["current-context"]);
    take(file["clusters"], "cluster", path, clusters);
    take(file["users"], "user", path, users);
    take(file["contexts"], "context", path, contexts);
  }
  static void take(const Json& list,
                   const char* member,
                   const std::string& path,
                   std::map<std::string, Entry>& into) {
    for (const Json& item : list.items())
      into.try_emplace(kube_text(item["name"]), Entry{item[member], folder_of(path)});
  }
};

Result<Merged> read_files(const std::vector<std::string>& paths, bool all_must_exist) {
  Merged merged;
  for (const std::string& path : paths) {
    if (path.empty() || (!all_must_exist && !file_exists(path)))
      continue;
    const std::string text = BILLOW_TRY(read_file(path, 8 << 20));
    auto file = parse_yaml(text);
    if (!file)
      return pass(file.error(), "kubeconfig " + path);
    if (!file->is_object() && !file->is_null())
      return fail(Code::invalid, fmt::format("kubeconfig {} is not a YAML mapping", path));
    merged.add(path, *file);
  }
  return merged;
}

Result<Entry> entry_named(const std::map<std::string, Entry>& entries,
                          const std::string& name,
                          const char* what,
                          const Merged& merged) {
  const auto found = entries.find(name);
  if (found != entries.end())
    return found->second;
  std::vector<std::string> known;
  for (const auto& [key, entry] : entries)
    known.push_back(key);
  return fail(Code::invalid,
              fmt::format("kubeconfig {} has no {} \"{}\"", join(merged.files, ":"), what, name),
              known.empty() ? "" : fmt::format("it has: {}", join(known, ", ")));
}

// "NAME-data" (base64) wins over "NAME" (a file).
Result<std::string> data_or_file(const Entry& entry, const std::string& name) {
  if (const std::string data = kube_text(entry.value[name + "-data"]); !data.empty()) {
    std::string compact, out;
    for (const char c : data)
      if (c != '\n' && c != '\r' && c != ' ')
        compact += c;
    if (!base64_decode(compact, out))
      return fail(Code::invalid, fmt::format("kubeconfig: {}-data is not base64", name));
    return out;
  }
  const std::string path = from_folder(entry.folder, kube_text(entry.value[name]));
  if (path.empty())
    return std::string();
  auto text = read_file(path, credential_bytes_max);
  if (!text)
    return pass(text.error(), fmt::format("kubeconfig: {}", name));
  return text;
}

Status read_cluster(const Entry& cluster, ClusterAccess& access) {
  access.server = kube_text(cluster.value["server"]);
  if (access.server.empty())
    return fail(Code::invalid, "kubeconfig: the cluster has no server");
  if (!kube_text(cluster.value["proxy-url"]).empty())
    return fail(Code::unsupported, "kubeconfig: proxy-url is not supported",
                "use a server address that the head reaches directly, e.g. through a tunnel");
  access.ca_pem = BILLOW_TRY(data_or_file(cluster, "certificate-authority"));
  access.tls_server_name = kube_text(cluster.value["tls-server-name"]);
  access.accept_any_cert = cluster.value["insecure-skip-tls-verify"].bool_or(false);
  return {};
}

ExecPlugin plugin_of(const Json& exec, const std::string& folder) {
  ExecPlugin plugin;
  plugin.api_version = kube_text(exec["apiVersion"]);
  plugin.command = kube_text(exec["command"]);
  // With a slash it is relative to the kubeconfig; without, it is looked up in PATH.
  if (plugin.command.find('/') != std::string::npos)
    plugin.command = from_folder(folder, plugin.command);
  for (const Json& word : exec["args"].items())
    plugin.args.push_back(kube_text(word));
  for (const Json& pair : exec["env"].items())
    plugin.env[kube_text(pair["name"])] = kube_text(pair["value"]);
  plugin.install_hint = kube_text(exec["installHint"]);
  return plugin;
}

Status read_user(const Entry& user, ClusterAccess& access) {
  if (!user.value["auth-provider"].is_null())
    return fail(Code::unsupported,
                "kubeconfig: auth-provider was removed from Kubernetes in version 1.26",
                "let your cloud's tool write a new kubeconfig, which uses an exec plugin");
  if (!kube_text(user.value["username"]).empty())
    return fail(Code::unsupported, "kubeconfig: username and password are not supported",
                "use a client certificate, a token or an exec plugin");
  access.cert_pem = BILLOW_TRY(data_or_file(user, "client-certificate"));
  access.key_pem = BILLOW_TRY(data_or_file(user, "client-key"));
  access.token = kube_text(user.value["token"]);
  if (const std::string path = kube_text(user.value["tokenFile"]); !path.empty()) {
    access.token_file = from_folder(user.folder, path);
    access.token = trim(BILLOW_TRY(read_file(access.token_file, credential_bytes_max)));
  }
  if (user.value["exec"].is_object())
    access.exec = plugin_of(user.value["exec"], user.folder);
  access.as_user = kube_text(user.value["as"]);
  for (const Json& group : user.value["as-groups"].items())
    access.as_groups.push_back(kube_text(group));
  return {};
}

Result<ClusterAccess> access_of(const Merged& merged, const std::string& wanted) {
  const std::string name = wanted.empty() ? merged.current_context : wanted;
  if (name.empty())
    return fail(Code::invalid,
                fmt::format("kubeconfig {} has no current context", join(merged.files, ":")),
                "name one with --context, or run `kubectl config use-context NAME`");
  const Entry context = BILLOW_TRY(entry_named(merged.contexts, name, "context", merged));
  ClusterAccess access;
  access.context = name;
  access.name_space = kube_text(context.value["namespace"]);
  if (access.name_space.empty())
    access.name_space = "default";
  BILLOW_TRY_VOID(
      read_cluster(BILLOW_TRY(entry_named(merged.clusters, kube_text(context.value["cluster"]),
                                          "cluster", merged)),
                   access));
  // A context without a user is allowed: the server may accept anybody, or ask a proxy.
  if (const std::string user = kube_text(context.value["user"]); !user.empty())
    BILLOW_TRY_VOID(read_user(BILLOW_TRY(entry_named(merged.users, user, "user", merged)), access));
  return access;
}

Result<ClusterAccess> service_account(const KubeSurroundings& around) {
  const std::string host = around.env("KUBERNETES_SERVICE_HOST");
  const std::string port = around.env("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty())
    return fail(Code::not_found, "there is no kubeconfig, and this process does not run in a pod",
                "put one at ~/.kube/config, or name it with --option kubeconfig=FILE");
  ClusterAccess access;
  access.server = host.find(':') == std::string::npos ? fmt::format("https://{}:{}", host, port)
                                                      : fmt::format("https://[{}]:{}", host, port);
  const auto file = [&](const char* name) {
    return read_file(around.service_account + "/" + name, credential_bytes_max);
  };
  access.ca_pem = BILLOW_TRY(file("ca.crt"));
  access.token_file = around.service_account + "/token";
  access.token = trim(BILLOW_TRY(file("token")));
  const auto name_space = file("namespace");
  access.name_space = name_space ? std::string(trim(*name_space)) : "default";
  return access;
}

}  // namespace

KubeSurroundings KubeSurroundings::ours() {
  return {.env = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  }};
}

Result<ClusterAccess> read_access(const KubeChoice& choice, const KubeSurroundings& around) {
  if (choice.kubeconfig == "in-cluster")
    return service_account(around);
  std::vector<std::string> paths = {choice.kubeconfig};
  if (choice.kubeconfig.empty())
    paths = split(around.env("KUBECONFIG"), ':');
  if (paths == std::vector<std::string>{""})
    paths = {around.env("HOME") + "/.kube/config"};
  const Merged merged = BILLOW_TRY(read_files(paths, !choice.kubeconfig.empty()));
  if (merged.files.empty()) {
    if (!choice.context.empty())
      return fail(Code::not_found,
                  fmt::format("there is no kubeconfig at {}, so context \"{}\" is unknown",
                              join(paths, ":"), choice.context),
                  "name the file with --option kubeconfig=FILE");
    return service_account(around);
  }
  return access_of(merged, choice.context);
}

Result<PluginCredential> read_plugin_output(const std::string& text) {
  const auto json = parse_json(text);
  if (!json || (*json)["kind"].str_or("") != "ExecCredential")
    return fail(Code::unavailable, "the credential plugin printed no ExecCredential");
  const Json& status = (*json)["status"];
  PluginCredential out{
      .token = std::string(status["token"].str_or("")),
      .cert_pem = std::string(status["clientCertificateData"].str_or("")),
      .key_pem = std::string(status["clientKeyData"].str_or("")),
      .expires_at_s = utc_or_zero(status["expirationTimestamp"].str_or("")).ns / 1'000'000'000};
  if (out.token.empty() && out.cert_pem.empty())
    return fail(Code::unavailable,
                "the credential plugin printed neither a token nor a certificate");
  return out;
}

Result<PluginCredential> run_plugin(const ExecPlugin& plugin) {
  process::CommandSpec command{
      .argv = {plugin.command}, .env = plugin.env, .input = {}, .timeout = plugin_timeout};
  command.argv.insert(command.argv.end(), plugin.args.begin(), plugin.args.end());
  command.env["KUBERNETES_EXEC_INFO"] =
      Json::object({{"kind", "ExecCredential"},
                    {"apiVersion", plugin.api_version},
                    {"spec", Json::object({{"interactive", false}})}})
          .dump();
  const auto done = process::run_command(command);
  const std::string context = fmt::format("the credential plugin {}", plugin.command);
  if (!done || done->code != 0)
    return fail(
        Code::unavailable,
        fmt::format("{} failed: {}", context, done ? done->complaint() : done.error().message),
        plugin.install_hint);
  return read_plugin_output(done->out);
}

}  // namespace billow::pool
