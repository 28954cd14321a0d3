// Secrets of projects: who may set them, and who may see their names. A value is never sent back.
#include "api/call.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "net/wipe.h"

namespace billow::api::secrets {
namespace {

// The project a call names, by `?project=`; without one the caller's first.
const Project* secrets_project(const CallPtr& call, bool to_change) {
  const auto& state = call->host.state();
  const std::string_view name = call->request().param("project");
  const Project* found = nullptr;
  if (!name.empty())
    found = state.project_by_name(name);
  else if (call->principal.project)
    found = &state.projects.at(call->principal.project);
  for (const auto& [id, project] : state.projects) {
    if (found || !name.empty())
      break;
    if (call->may(Permission::secrets_read, id))
      found = &project;
  }
  if (!found || !control::sees(state, call->principal, found->id)) {
    call->fail({Code::not_found,
                name.empty() ? "you are not a member of any project"
                             : fmt::format("there is no project \"{}\"", name),
                "see `billow project list`"});
    return nullptr;
  }
  const Permission needed = to_change ? Permission::secrets_set : Permission::secrets_read;
  if (const Status ok = may_in(*call, needed, found->id); !ok) {
    call->fail(ok.error());
    return nullptr;
  }
  return found;
}

}  // namespace

void list(CallPtr call) {
  const Project* project = secrets_project(call, false);
  if (!project)
    return;
  Json out = Json::array();
  for (const auto& [key, secret] : call->host.state().secrets) {
    if (key.first != project->id)
      continue;
    Json document = Json::object({{"name", secret.name},
                                  {"project", project->name},
                                  {"set_by", secret.by},
                                  {"set_at", format_utc(secret.at)}});
    if (!secret.reference.empty())
      document.set("from", secret.reference);
    if (const std::string trouble = call->host.trouble_with(secret); !trouble.empty())
      document.set("trouble", trouble);
    out.push(std::move(document));
  }
  call->reply_durable(200, Json::object({{"secrets", std::move(out)}}));
}

void set(CallPtr call) {
  const Project* project = secrets_project(call, true);
  if (!project)
    return;
  net::wipe_freed_memory();  // before the value is copied anywhere
  const std::string name = call->parts[0];
  if (const Status good = check_name("secret", name); !good)
    return call->fail(good.error());
  const auto body = call->body();
  // What stands in a body that cannot be read may be the value: nothing of it is said back.
  if (!body)
    return call->fail({Code::invalid, "the body is not a JSON object",
                       R"({"value": "…"}, or {"value_base64": "…"} for what is not text)"});
  if (const Json& from = (*body)["from"]; from.is_string()) {
    if (const Status ok = may_refer(*call, *project, from.as_string()); !ok)
      return call->fail(ok.error());
    return call->execute(SetSecret{project->name, call->principal.user, name, "", from.as_string()},
                         200, [name, project = project->name](const std::vector<Event>&) {
                           return Json::object({{"name", name}, {"project", project}});
                         });
  }
  std::string value;
  if ((*body)["value"].is_string())
    value = (*body)["value"].as_string();
  else if (!(*body)["value_base64"].is_string() ||
           !base64_decode((*body)["value_base64"].as_string(), value))
    return call->fail({Code::invalid, "the body has no value",
                       R"({"value": "…"}, or {"value_base64": "…"} for what is not text)"});
  if (value.empty())
    return call->fail({Code::invalid, fmt::format("the value of secret {} is empty", name),
                       "to remove it: billow secret rm " + name});
  if (value.size() > limits::secret_bytes_max)
    return call->fail({Code::too_large,
                       fmt::format("a secret has at most {} bytes, this one {}",
                                   limits::secret_bytes_max, value.size()),
                       ""});
  auto sealed = call->host.seal_secret(project->id, name, value);
  wipe(value);
  if (!sealed)
    return call->fail(sealed.error());
  call->execute(SetSecret{project->name, call->principal.user, name, std::move(*sealed)}, 200,
                [name, project = project->name](const std::vector<Event>&) {
                  return Json::object({{"name", name}, {"project", project}});
                });
}

void remove(CallPtr call) {
  const Project* project = secrets_project(call, true);
  if (!project)
    return;
  call->execute(RemoveSecret{project->name, call->principal.user, call->parts[0]}, 200,
                [](const std::vector<Event>&) {
                  return Json::object({{"ok", true}});
                });
}

}  // namespace billow::api::secrets
