// Secret backends, and the key of the secrets that the head stores itself.
#include "api/call.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "core/control/decide/installation_secrets.h"
#include "core/wire/codec.h"
#include "net/wipe.h"
#include "secrets/backend.h"

namespace billow::api::secrets {

using billow::secrets::BackendSettings;

namespace {

struct BackendBody {
  BackendKind kind = BackendKind::vault;
  std::string address, mount, space, region, project, credential;
  std::map<std::string, std::string> allow;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("kind", s.kind);
    v("address", s.address);
    v("mount", s.mount);
    v("namespace", s.space);
    v("region", s.region);
    v("project", s.project);
    v("credential", s.credential);
    v("allow", s.allow);
  }
};

const Json ok = Json::object({{"ok", true}});

Result<BackendSettings> backend_named(const Call& call, const std::string& name) {
  const std::string record = billow::secrets::record_of(name);
  const auto& all = call.host.state().secrets;
  const auto found = all.find({ProjectId{}, record});
  if (found == all.end())
    return fail(Code::not_found, fmt::format("there is no secret backend \"{}\"", name),
                "see `billow secret-backend list`");
  std::string text = BILLOW_TRY(call.host.unseal_secret(record, found->second.sealed));
  auto settings = wire::from_json_text<BackendSettings>(text);
  wipe(text);
  return settings;
}

Json document_of(const BackendSettings& s) {
  Json allow = Json::object();
  for (const auto& [project, prefix] : s.allow)
    allow.set(project, prefix);
  Json out = Json::object({{"name", s.name},
                           {"kind", enum_name(s.kind)},
                           {"has_credential", !s.credential.empty()},
                           {"allow", std::move(allow)}});
  for (const auto& [name, value] :
       {std::pair("address", s.address), std::pair("namespace", s.space),
        std::pair("mount", s.kind == BackendKind::vault ? s.mount : std::string()),
        std::pair("region", s.region), std::pair("project", s.project)})
    if (!value.empty())
      out.set(name, value);
  return out;
}

// Which secrets are in the backend: "TOKEN of project vision".
std::vector<std::string> secrets_in(const control::State& state, const std::string& backend) {
  std::vector<std::string> out;
  for (const auto& [key, secret] : state.secrets)
    if (secret.reference.starts_with(backend + ":"))
      out.push_back(fmt::format(
          "{} of project {}", secret.name,
          state.projects.contains(key.first) ? state.projects.at(key.first).name : "?"));
  return out;
}

// Secrets whose references these settings close. Those of users who may refer to everything stay
// open (head/secrets/secret_fetcher.cpp).
Json closed_by(const control::State& state, const BackendSettings& settings) {
  Json out = Json::array();
  for (const auto& [key, secret] : state.secrets) {
    const auto reference = billow::secrets::parse_reference(secret.reference);
    const auto project = state.projects.find(key.first);
    if (!reference || reference->backend != settings.name || project == state.projects.end() ||
        billow::secrets::opens(settings, project->second.name, reference->path))
      continue;
    const User* by = state.user_by_name(secret.by);
    if (!by || !control::may(state, by->id, Permission::backends_change))
      out.push(Json::object(
          {{"name", secret.name}, {"project", project->second.name}, {"from", secret.reference}}));
  }
  return out;
}

}  // namespace

Status may_refer(const Call& call, const Project& project, const std::string& text) {
  const auto reference = BILLOW_TRY(billow::secrets::parse_reference(text));
  const auto backend = BILLOW_TRY(backend_named(call, reference.backend));
  if (call.may(Permission::backends_change))
    return {};
  if (billow::secrets::opens(backend, project.name, reference.path))
    return {};
  return fail(Code::forbidden,
              fmt::format("project {} may not refer to {} in the secret backend {}", project.name,
                          reference.path, reference.backend),
              fmt::format("an admin can allow it: billow secret-backend add … --allow {}=PREFIX",
                          project.name));
}

void rotate_key(CallPtr call) {
  call->host.rotate_secrets_key(
      call->cause(), [call](Result<std::pair<std::size_t, std::size_t>> done) {
        if (!done)
          return call->fail(done.error());
        call->reply(
            200, Json::object({{"ok", true}, {"resealed", done->first}, {"lost", done->second}}));
      });
}

void backends(CallPtr call) {
  const std::string prefix = billow::secrets::record_of("");
  const auto& all = call->host.state().secrets;
  Json list = Json::array();
  for (auto at = all.lower_bound({ProjectId{}, prefix});
       at != all.end() && at->first.first == ProjectId{} && at->first.second.starts_with(prefix);
       ++at) {
    const std::string name = at->first.second.substr(prefix.size());
    const auto settings = backend_named(*call, name);
    Json document = settings ? document_of(*settings) : Json::object({{"name", name}});
    if (!settings)
      document.set("trouble", settings.error().message);
    document.set("secrets", secrets_in(call->host.state(), name).size());
    list.push(std::move(document));
  }
  call->reply_durable(200, Json::object({{"backends", std::move(list)}}));
}

// The head asks it with the head's own network and logins, so it is for the user who has them.
void set_backend(CallPtr call) {
  if (!control::is_founder(call->host.state(), call->principal.user))
    return call->fail({Code::forbidden,
                       "only the user who started the head can add secret backends, because they "
                       "use the head's network and logins",
                       ""});
  net::wipe_freed_memory();  // before the credential is copied anywhere
  const auto body = read_body<BackendBody>(call);
  if (!body)
    return;
  BackendSettings settings{.name = call->parts[0],
                           .kind = body->kind,
                           .address = body->address,
                           .space = body->space,
                           .region = body->region,
                           .project = body->project,
                           .credential = std::string(trim(body->credential)),
                           .allow = body->allow};
  if (!body->mount.empty())
    settings.mount = body->mount;
  if (const Status good = billow::secrets::check_settings(settings); !good)
    return call->fail(good.error());
  for (const auto& [project, prefix] : settings.allow)
    if (!call->host.state().project_by_name(project))
      return call->fail({Code::not_found, fmt::format("there is no project \"{}\"", project),
                         "see `billow project list`"});
  const std::string record = billow::secrets::record_of(settings.name);
  std::string text = wire::to_json_text(settings);
  auto sealed = call->host.seal_secret(ProjectId{}, record, text);
  wipe(text);
  if (!sealed)
    return call->fail(sealed.error());
  wipe(settings.credential);
  call->execute(
      SetSecret{control::installation_secrets, call->principal.user, record, std::move(*sealed)},
      200, [call, settings](const std::vector<Event>&) {
        return Json::object({{"ok", true}, {"closed", closed_by(call->host.state(), settings)}});
      });
}

void remove_backend(CallPtr call) {
  const auto settings = backend_named(*call, call->parts[0]);
  if (!settings && settings.error().code == Code::not_found)
    return call->fail(settings.error());
  if (const auto used = secrets_in(call->host.state(), call->parts[0]); !used.empty())
    return call->fail({Code::conflict,
                       fmt::format("{} secret{} in this backend: {}", used.size(),
                                   used.size() == 1 ? " is" : "s are", join(used, ", ")),
                       "set them to another value first, or remove them: billow secret rm"});
  call->execute(RemoveSecret{control::installation_secrets, call->principal.user,
                             billow::secrets::record_of(call->parts[0])},
                200, [](const std::vector<Event>&) { return ok; });
}

// Signs in there, and fetches what `reference` names, of which only the size is told.
void check_backend(CallPtr call) {
  const auto settings = backend_named(*call, call->parts[0]);
  const auto body = call->body();
  if (!settings || !body)
    return call->fail(settings ? body.error() : settings.error());
  std::optional<billow::secrets::Reference> wanted;
  if (const std::string path((*body)["path"].str_or("")); !path.empty()) {
    auto reference = billow::secrets::parse_reference(call->parts[0] + ":" + path);
    if (!reference)
      return call->fail(reference.error());
    wanted = std::move(*reference);
  }
  const Status queued = call->host.workers().submit(
      [settings = *settings, wanted]() -> Result<Json> {
        const auto backend = BILLOW_TRY(billow::secrets::make_backend(settings, system_clock()));
        Json out = Json::object({{"ok", true}, {"as", BILLOW_TRY(backend->check())}});
        if (wanted) {
          std::string value = BILLOW_TRY(backend->fetch(*wanted));
          out.set("bytes", value.size());
          wipe(value);
        }
        return out;
      },
      [call](Result<Json> done) {
        if (!done)
          return call->fail(done.error());
        call->reply(200, *done);
      });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace billow::api::secrets
