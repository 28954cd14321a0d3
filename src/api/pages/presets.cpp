// Presets of the form that runs a job: job specs under a name that a project keeps on the head, so
// that all its members can choose them. They are never run by themselves.
//
// A preset is an entry of the head's own secrets: command lines and variables may hold passwords,
// so it is sealed in the journal and in backups, and a new key reseals it with the others.
#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "base/text.h"
#include "core/control/decide/installation_secrets.h"
#include "core/wire/codec.h"
#include "view/spec_document.h"

namespace billow::api::presets {
namespace {

constexpr std::size_t presets_per_project_max = 100;
constexpr std::size_t name_bytes_max = 60;

struct PresetBody {
  JobSpec spec;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("spec", s.spec);
  }
};

std::string prefix_of(ProjectId project) {
  return fmt::format("preset.{}.", project.value);
}

// The presets of a project, by their records among the head's secrets.
template <class Each>
void each_preset(const control::State& state, ProjectId project, Each each) {
  const std::string prefix = prefix_of(project);
  const auto& all = state.secrets;
  for (auto at = all.lower_bound({ProjectId{}, prefix});
       at != all.end() && at->first.first == ProjectId{} && at->first.second.starts_with(prefix);
       ++at)
    each(at->first.second.substr(prefix.size()), at->second);
}

const Project* project_to_change(const CallPtr& call) {
  const auto& state = call->host.state();
  const std::string_view name = call->request().param("project");
  const Project* found = state.project_by_name(name);
  if (!found || !control::sees(state, call->principal, found->id)) {
    call->fail({Code::not_found,
                name.empty() ? "the request names no project"
                             : fmt::format("there is no project \"{}\"", name),
                "add ?project=NAME; see `billow project list`"});
    return nullptr;
  }
  if (const Status ok = may_in(*call, Permission::jobs_run, found->id); !ok) {
    call->fail(ok.error());
    return nullptr;
  }
  return found;
}

// Names are shown in a list that people choose from, so they may have spaces.
Status check_preset_name(const std::string& name) {
  if (name.empty() || name.size() > name_bytes_max || !valid_utf8(name) || trim(name) != name ||
      std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c == 127; }))
    return fail(Code::invalid,
                fmt::format("a preset's name is one line of at most {} bytes", name_bytes_max));
  return {};
}

Json document_of(const CallPtr& call,
                 const Project& project,
                 const std::string& name,
                 const Secret& kept) {
  Json out = Json::object({{"name", name},
                           {"project", project.name},
                           {"set_by", kept.by},
                           {"set_at", format_utc(kept.at)}});
  const auto text = call->host.unseal_secret(kept.name, kept.sealed);
  if (text)
    out.set("spec", parse_json(*text).value_or(Json()));
  else
    out.set("trouble", text.error().message);
  // Who can run the preset could print its variables; others see their names, as in jobs.
  if (!call->may(Permission::jobs_run, project.id))
    view::cover_variables(out);
  return out;
}

// A preset can be changed by its author and by users who control all jobs of the project.
Status may_change_preset(const Call& call,
                         const Project& project,
                         const std::string& name,
                         const Secret& kept) {
  const auto& state = call.host.state();
  if (kept.by == state.users.at(call.principal.user).name ||
      call.may(Permission::jobs_any, project.id))
    return {};
  return fail(
      Code::forbidden,
      fmt::format("preset \"{}\" of project {} was saved by {}", name, project.name, kept.by),
      fmt::format("{} or an admin of the project can change it; save yours under another name",
                  kept.by));
}

// The values of variables are covered in the documents of jobs, so a preset made of one has none.
Status check_variables(const JobSpec& spec) {
  for (const RoleSpec& role : spec.roles)
    for (const auto& [name, value] : role.env)
      if (value == view::covered)
        return fail(
            Code::invalid,
            fmt::format("the value of variable {} of role {} is not known", name, role.name),
            "documents of jobs do not contain the values of variables: set or remove it");
  return {};
}

}  // namespace

void list(CallPtr call) {
  const std::string_view wanted = call->request().param("project");
  Json out = Json::array();
  for (const auto& [id, project] : call->host.state().projects) {
    if ((!wanted.empty() && project.name != wanted) || !call->may(Permission::jobs_read, id))
      continue;
    each_preset(call->host.state(), id, [&](const std::string& name, const Secret& kept) {
      out.push(document_of(call, project, name, kept));
    });
  }
  call->reply_durable(200, Json::object({{"presets", std::move(out)}}));
}

void set(CallPtr call) {
  const Project* project = project_to_change(call);
  if (!project)
    return;
  const std::string name = call->parts[0];
  if (const Status good = check_preset_name(name); !good)
    return call->fail(good.error());
  const auto body = read_body<PresetBody>(call);
  if (!body)
    return;
  if (const Status good = check_variables(body->spec); !good)
    return call->fail(good.error());
  const auto& secrets = call->host.state().secrets;
  if (const auto kept = secrets.find({ProjectId{}, prefix_of(project->id) + name});
      kept != secrets.end())
    if (const Status ok = may_change_preset(*call, *project, name, kept->second); !ok)
      return call->fail(ok.error());
  std::size_t others = 0;
  each_preset(call->host.state(), project->id,
              [&](const std::string& each, const Secret&) { others += each != name; });
  if (others >= presets_per_project_max)
    return call->fail({Code::exhausted,
                       fmt::format("project {} has {} presets already, which is the limit",
                                   project->name, others),
                       "remove one first"});
  const std::string text = wire::to_json_text(body->spec);
  if (text.size() > limits::secret_bytes_max)
    return call->fail({Code::too_large,
                       fmt::format("a preset has at most {} bytes, this one {}",
                                   limits::secret_bytes_max, text.size()),
                       ""});
  const std::string record = prefix_of(project->id) + name;
  auto sealed = call->host.seal_secret(ProjectId{}, record, text);
  if (!sealed)
    return call->fail(sealed.error());
  call->execute(
      SetSecret{control::installation_secrets, call->principal.user, record, std::move(*sealed)},
      200, [name, project = project->name](const std::vector<Event>&) {
        return Json::object({{"name", name}, {"project", project}});
      });
}

void remove(CallPtr call) {
  const Project* project = project_to_change(call);
  if (!project)
    return;
  const std::string record = prefix_of(project->id) + call->parts[0];
  const auto& secrets = call->host.state().secrets;
  const auto kept = secrets.find({ProjectId{}, record});
  if (kept == secrets.end())
    return call->fail(
        {Code::not_found,
         fmt::format("project {} has no preset \"{}\"", project->name, call->parts[0]), ""});
  if (const Status ok = may_change_preset(*call, *project, call->parts[0], kept->second); !ok)
    return call->fail(ok.error());
  call->execute(RemoveSecret{control::installation_secrets, call->principal.user, record}, 200,
                [](const std::vector<Event>&) {
                  return Json::object({{"ok", true}});
                });
}

}  // namespace billow::api::presets
