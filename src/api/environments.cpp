// The routes of saved environments. Their content travels as files do; here they get a name in a
// project.
#include <fmt/format.h>

#include "api/call.h"
#include "api/files.h"
#include "core/wire/codec.h"
#include "files/tree.h"

namespace billow::api::environments {
namespace {

struct NewEnvironment {
  std::string project, digest, path, origin;
  std::int64_t bytes = 0, stored_bytes = 0;
  std::map<std::string, std::string> variables;
  bool shared = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("digest", s.digest);
    v("path", s.path);
    v("origin", s.origin);
    v("bytes", s.bytes);
    v("stored_bytes", s.stored_bytes);
    v("variables", s.variables);
    v("shared", s.shared);
  }
};

Json environment_document(const Call& call, const SavedEnvironment& e) {
  const auto& state = call.host.state();
  const auto project = state.projects.find(e.project);
  Json variables = Json::object();
  for (const auto& [name, value] : e.variables)
    variables.set(name, value);
  std::uint64_t jobs = 0;
  for (const auto& [id, job] : state.jobs)
    for (const JobSpec& part : parts_of(*job.spec))
      jobs += part.surroundings.environment_digest == e.digest;
  return Json::object({{"name", e.name},
                       {"project", project == state.projects.end() ? "" : project->second.name},
                       {"digest", e.digest},
                       {"path", e.path},
                       {"origin", e.origin},
                       {"bytes", e.bytes},
                       {"stored_bytes", e.stored_bytes},
                       {"variables", std::move(variables)},
                       {"shared", e.shared},
                       {"published", e.published},
                       {"by", e.by},
                       {"at", format_utc(e.at)},
                       {"jobs", jobs}});
}

bool visible(const Call& call, const SavedEnvironment& e) {
  return e.shared || call.may(Permission::jobs_read, e.project);
}

}  // namespace

void list(CallPtr call) {
  Json out = Json::array();
  for (const auto& [key, e] : call->host.state().saved_environments)
    if (visible(*call, e))
      out.push(environment_document(*call, e));
  call->reply_durable(200, Json::object({{"environments", std::move(out)}}));
}

// Of the project asked for, or of any the caller can see; the own one before a shared one of the
// same name.
void get(CallPtr call) {
  const auto& state = call->host.state();
  const std::string wanted(call->request().param("project"));
  const std::string name = call->parts[0].substr(0, call->parts[0].find('@'));  // "torch@DIGEST"
  const SavedEnvironment* found = nullptr;
  std::string elsewhere = "see `billow env list`";
  for (const auto& [key, e] : state.saved_environments) {
    if (key.second != name || !visible(*call, e))
      continue;
    const auto project = state.projects.find(e.project);
    if (!wanted.empty() && (project == state.projects.end() || project->second.name != wanted))
      continue;
    // Other projects' need their project's name, unless an admin has published them.
    const bool own = call->may(Permission::jobs_read, e.project) || !wanted.empty();
    if (!own && !e.published) {
      elsewhere = fmt::format("project {0} shares one; to use it, write {0}/{1}",
                              project->second.name, e.name);
      continue;
    }
    if (!found || (found->shared && !e.shared))
      found = &e;
  }
  if (!found)
    return call->fail({Code::not_found,
                       fmt::format("there is no environment \"{}\"", call->parts[0]), elsewhere});
  call->reply_durable(200, environment_document(*call, *found));
}

void save(CallPtr call) {
  auto body = read_body<NewEnvironment>(call);
  if (!body)
    return;
  const auto project = project_to_submit_to(*call, body->project);
  if (!project)
    return call->fail(project.error());
  const auto digest = billow::files::parse_digest(body->digest);
  if (!digest)
    return call->fail(digest.error());
  // Knowing a digest is not enough: content is for those who uploaded it, and for the projects it
  // was given to.
  if (const Status has = files::may_give(*call, *digest, *project);
      !has || !call->host.files().read_tree(*digest))
    return call->fail({Code::not_found, "the environment's content has not been uploaded",
                       "upload it first: billow env save"});
  SavedEnvironment env{.project = {},
                       .name = call->parts[0],
                       .digest = body->digest,
                       .path = body->path,
                       .origin = body->origin,
                       .bytes = body->bytes,
                       .stored_bytes = body->stored_bytes,
                       .variables = body->variables,
                       .shared = body->shared,
                       .by = {},
                       .at = {}};
  const auto run = [call, env, project = *project] {
    call->execute(SaveEnvironment{.project = project,
                                  .user = call->principal.user,
                                  .environment = env,
                                  .by_admin = call->may(Permission::environments_publish)},
                  200, [call](const std::vector<Event>& events) {
                    for (const Event& event : events)
                      if (const auto* saved = get_if<EnvironmentSaved>(&event.body))
                        return environment_document(*call, saved->environment);
                    return Json::object();
                  });
  };
  // Jobs of others use environments by their names, and a project's own name comes before a
  // published one.
  with_approval(call, ApprovalAction::change_environment,
                fmt::format("save environment {} in project {}{}", env.name, *project,
                            env.shared ? ", shared with others" : ""),
                run);
}

void remove(CallPtr call) {
  const auto project = project_to_submit_to(*call, std::string(call->request().param("project")));
  if (!project)
    return call->fail(project.error());
  with_approval(call, ApprovalAction::remove_environment,
                fmt::format("remove environment {}", call->parts[0]), [call, project = *project] {
                  call->execute(
                      RemoveEnvironment{.project = project,
                                        .user = call->principal.user,
                                        .name = call->parts[0],
                                        .by_admin = call->may(Permission::environments_publish)},
                      200, [](const std::vector<Event>&) {
                        return Json::object({{"ok", true}});
                      });
                });
}

}  // namespace billow::api::environments
