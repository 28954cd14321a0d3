#include "pool/kubernetes/apply.h"

#include <fmt/format.h>

#include "base/text.h"

namespace billow::pool {
namespace {

// The name of a kind in addresses: "NetworkPolicy" is "networkpolicies".
std::string plural(std::string_view kind) {
  std::string out = lower(kind);
  if (out.ends_with('s'))
    return out + "es";
  if (out.ends_with('y')) {
    out.pop_back();
    return out + "ies";
  }
  return out + "s";
}

std::string title(const Json& document) {
  const std::string_view space = document.at("metadata", "namespace").str_or("");
  return fmt::format("{} {}{}{}", document["kind"].str_or(""), space, space.empty() ? "" : "/",
                     document.at("metadata", "name").str_or(""));
}

// A lost answer does no harm: what was applied can be applied again.
Result<KubeAnswer> ask_until_answered(KubeClient& client, const KubeCall& call) {
  constexpr int tries_max = 3;
  for (int tries = 1;; ++tries) {
    auto answer = client.ask(call);
    if (answer || answer.error().code != Code::unavailable || tries == tries_max)
      return answer;
  }
}

std::string hint_for(const KubeAnswer& answer, const Json& document) {
  if (answer.status == 409)
    return "others have set these fields: give them up there, or take them with --force";
  if (answer.status == 404)
    return fmt::format("the cluster must know {} of {}, and its namespace must exist",
                       document["kind"].str_or(""), document["apiVersion"].str_or(""));
  return {};
}

}  // namespace

std::string object_path(const Json& document) {
  const std::string_view version = document["apiVersion"].str_or("");
  const std::string_view space = document.at("metadata", "namespace").str_or("");
  return fmt::format("/{}/{}{}{}/{}/{}", version.contains('/') ? "apis" : "api", version,
                     space.empty() ? "" : "/namespaces/", space,
                     plural(document["kind"].str_or("")),
                     document.at("metadata", "name").str_or(""));
}

Status apply_documents(
    KubeClient& client,
    const std::vector<Json>& documents,
    ApplyOptions options,
    const std::function<void(const std::string& what, bool is_new)>& on_applied) {
  for (const Json& document : documents) {
    const std::string what = title(document);
    const auto answer = BILLOW_TRY(ask_until_answered(
        client, {.method = net::Method::patch,
                 .target = fmt::format("{}?fieldManager=billow&fieldValidation=Strict&force={}{}",
                                       object_path(document), options.force,
                                       options.rehearse ? "&dryRun=All" : ""),
                 .body = document,
                 .content_type = "application/apply-patch+yaml"}));
    if (!answer.ok()) {
      Error error = answer.error("applying " + what);
      if (std::string hint = hint_for(answer, document); !hint.empty())
        error.hint = std::move(hint);
      return pass(std::move(error));
    }
    on_applied(what, answer.status == 201);
  }
  return {};
}

}  // namespace billow::pool
