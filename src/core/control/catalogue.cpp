// Named things of projects: secrets, saved environments and volumes, decided and folded here; and
// whether a job may use those it names. A job is refused at submission, not at its start; if
// something is removed in between, the start reports it.
#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/installation_secrets.h"
#include "core/control/decide/isolation.h"
#include "core/control/quotas.h"
#include "core/model/image_name.h"

namespace billow::control {
namespace {

// Fewer would not suffice for what runs before a job's command; the kernel has no more process
// numbers.
constexpr std::int64_t processes_asked_min = 64, processes_asked_max = 4'194'304;

// Of an environment's digest, so that nobody can make other content that fits.
constexpr std::size_t digest_prefix_min = 16;

template <class Map>
std::string near_hint(const Map& map,
                      ProjectId project,
                      const std::string& name,
                      const char* list,
                      std::string_view or_else = "") {
  std::vector<std::string> names;
  for (const auto& [key, value] : map)
    if (key.first == project)
      names.push_back(key.second);
  const std::string near = nearest(name, names);
  return near.empty() ? fmt::format("see `billow {} list`{}", list, or_else)
                      : fmt::format("did you mean \"{}\"?", near);
}

// A path without surprises: absolute, without `.` or `..`.
Status check_path(std::string_view what, std::string_view path) {
  const auto bad = [&](const char* why) {
    return fail(Code::invalid, fmt::format("{} \"{}\" {}", what, path, why),
                "write an absolute path, like /mnt/data");
  };
  if (path.empty() || path.front() != '/')
    return bad("does not begin with /");
  if (path.size() > 4096)
    return bad("is too long");
  if (path.find('\0') != std::string_view::npos || path.find('\n') != std::string_view::npos)
    return bad("contains a line break or a zero byte");
  for (const std::string& part : split(path, '/'))
    if (part == "." || part == "..")
      return bad("contains . or ..");
  return {};
}

// Whether a path that passed check_path lies in a system directory.
bool in_system(std::string_view path) {
  for (const std::string& part : split(path, '/'))
    if (!part.empty())
      return part == "proc" || part == "sys" || part == "dev";
  return false;
}

bool is_variable(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && name.size() <= 255 && letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

// Variables that would change how the loader or Billow itself behaves.
bool is_ours(std::string_view variable) {
  return variable.starts_with("BILLOW_") || variable.starts_with("LD_");
}

// What an endpoint's next replica needs cannot be removed, even while the endpoint is scaled to
// zero.
template <class Uses>
Status not_served(const State& state, const std::string& what, Uses uses) {
  for (const auto& [name, e] : state.endpoints)
    for (const Revision& r : e.revisions)
      if ((r.number == e.serving || r.number == e.rolling) && uses(e, r.spec->surroundings))
        return fail(
            Code::conflict, fmt::format("endpoint {} uses {}", name, what),
            fmt::format("deploy it without that, or delete the endpoint first: billow delete {}",
                        name));
  return {};
}

}  // namespace

// ---- what a job asks for
namespace {

// The project of "audio/torch"; zero: there is none.
ProjectId project_named(const State& state, std::string_view environment) {
  const Project* project = state.project_by_name(environment.substr(0, environment.find('/')));
  return project ? project->id : ProjectId{};
}

// An environment's name stands for its content at the time of submission. A rerun names the content
// that it ran with, which may be older. Content of other projects runs with the job's rights and
// secrets, so its name says whose it is ("audio/torch"), unless an admin has published it.
//
// "torch@DIGEST" is refused if the name stands for other content. Root's jobs need that for what
// somebody else saved: its owner could replace it, and root would run it.
Status pin_environment(const State& state, Surroundings& s, ProjectId project, const User& user) {
  if (s.environment.empty()) {
    s.environment_digest.clear();
    return {};
  }
  if (!s.environment_digest.empty())
    return {};
  const SavedEnvironment* found = nullptr;
  const SavedEnvironment* elsewhere = nullptr;  // shared, but not under its name alone
  const auto at = s.environment.find('@');
  const std::string wanted = at == std::string::npos ? "" : s.environment.substr(at + 1);
  s.environment = s.environment.substr(0, at);
  if (at != std::string::npos && wanted.size() < digest_prefix_min)
    return fail(Code::invalid,
                fmt::format("\"{}\" is too short for an environment's digest", wanted),
                fmt::format("give at least {} characters of it; see `billow env show {}`",
                            digest_prefix_min, s.environment));
  const auto slash = s.environment.find('/');
  const ProjectId of = slash == std::string::npos ? project : project_named(state, s.environment);
  const std::string name = s.environment.substr(slash == std::string::npos ? 0 : slash + 1);
  if (const auto named = state.saved_environments.find({of, name});
      named != state.saved_environments.end() && (of == project || named->second.shared))
    found = &named->second;
  for (const auto& [key, other] : state.saved_environments) {
    if (found || slash != std::string::npos || !other.shared || key.second != s.environment)
      continue;
    (other.published ? found : elsewhere) = &other;
  }
  if (!found)
    return fail(Code::not_found,
                fmt::format("project {} has no environment \"{}\"", state.projects.at(project).name,
                            s.environment),
                elsewhere ? fmt::format("project {0} shares one; to use it, write {0}/{1}",
                                        state.projects.at(elsewhere->project).name, name)
                          : near_hint(state.saved_environments, project, s.environment, "env"));
  if (!found->digest.starts_with(wanted))
    return fail(Code::conflict,
                fmt::format("environment {} has the digest {}, not {}", s.environment,
                            found->digest.substr(0, digest_prefix_min), wanted),
                fmt::format("{} has saved new content since; see `billow env show {}`", found->by,
                            s.environment));
  if (wanted.empty() && runs_as_root(user) && found->by != user.name)
    return fail(Code::forbidden,
                fmt::format("environment {} was saved by {}, and this job runs as root",
                            s.environment, found->by),
                fmt::format("if you trust its content, name it: --env {}@{}", s.environment,
                            found->digest.substr(0, digest_prefix_min)));
  s.environment_digest = found->digest;
  return {};
}

Status check_secret_file(const SecretWish& wish, const std::vector<SecretWish>& all) {
  BILLOW_TRY_VOID(check_path("the secret's file", wish.file));
  if (wish.file.ends_with('/') || in_system(wish.file))
    return fail(Code::invalid, fmt::format("a secret cannot be the file {}", wish.file),
                "choose another, such as /run/secrets/" + wish.name);
  const auto uses = std::count_if(all.begin(), all.end(),
                                  [&](const SecretWish& other) { return other.file == wish.file; });
  if (uses > 1)
    return fail(Code::invalid, fmt::format("two secrets use the same file {}", wish.file),
                "give each its own path");
  return {};
}

Status check_has_secret(const State& state, ProjectId project, const std::string& name) {
  if (state.secrets.contains({project, name}))
    return {};
  return fail(Code::not_found,
              fmt::format("project {} has no secret \"{}\"", state.projects.at(project).name, name),
              near_hint(state.secrets, project, name, "secret",
                        fmt::format(", or set it: billow secret set {}", name)));
}

Status check_secret(const State& state,
                    const SecretWish& wish,
                    const std::vector<SecretWish>& all,
                    ProjectId project) {
  BILLOW_TRY_VOID(check_has_secret(state, project, wish.name));
  if (wish.variable.empty() == wish.file.empty())
    return fail(Code::invalid,
                fmt::format("secret {} must be either a variable or a file", wish.name),
                "use --secret NAME, --secret NAME=VARIABLE or --secret NAME:/path");
  if (!wish.file.empty())
    return check_secret_file(wish, all);
  if (!is_variable(wish.variable))
    return fail(Code::invalid, fmt::format("\"{}\" is not a valid variable name", wish.variable),
                fmt::format("use --secret {0}=VARIABLE, or a file: --secret {0}:/path", wish.name));
  if (is_ours(wish.variable))
    return fail(Code::invalid, fmt::format("a secret cannot be the variable {}", wish.variable),
                "choose another: --secret NAME=VARIABLE");
  return {};
}

Status check_registry_secret(const State& state, const Surroundings& s, ProjectId project) {
  if (s.registry_secret.empty())
    return {};
  if (s.image.empty())
    return fail(Code::invalid, "a registry secret is for the image of a job, and this job has none",
                "add --image, or drop --registry-secret");
  return check_has_secret(state, project, s.registry_secret);
}

Result<const Volume*> find_volume(const State& state,
                                  const std::string& name,
                                  const std::string& project) {
  const auto allowed = [&](const Volume& v) {
    return v.projects.empty() ||
           std::find(v.projects.begin(), v.projects.end(), project) != v.projects.end();
  };
  if (const auto found = state.volumes.find(name);
      found != state.volumes.end() && allowed(found->second))
    return &found->second;
  std::vector<std::string> names;
  for (const auto& [other, v] : state.volumes)
    if (allowed(v))
      names.push_back(other);
  const std::string near = nearest(name, names);
  return fail(
      Code::not_found, fmt::format("project {} has no volume \"{}\"", project, name),
      near.empty() ? "see `billow volume list`" : fmt::format("did you mean \"{}\"?", near));
}

// The nodes that have a volume are the nodes that the job can run on.
Status add_volume(const Volume& volume, const VolumeWish& wish, JobSpec& spec) {
  BILLOW_TRY_VOID(check_path("the volume's path", wish.path));
  const std::string hint = fmt::format("use --volume {0}:/mnt/{0}", wish.name);
  if (wish.path.find_first_not_of('/') == std::string::npos)
    return fail(Code::invalid, "a volume cannot be mounted at /", hint);
  if (in_system(wish.path))
    return fail(Code::invalid,
                fmt::format("a volume cannot be mounted in /proc, /sys or /dev: {}", wish.path),
                hint);
  for (const auto& [key, value] : volume.node_labels) {
    const auto [at, fresh] = spec.node_labels.emplace(key, value);
    if (!fresh && at->second != value)
      return fail(Code::conflict,
                  fmt::format("volume {} is on nodes with {}={}, but the job requires {}={}",
                              wish.name, key, value, key, at->second));
  }
  if (volume.pool.empty())
    return {};
  std::vector<std::string>& pools = spec.place.pools;
  if (!pools.empty() && std::find(pools.begin(), pools.end(), volume.pool) == pools.end())
    return fail(Code::conflict,
                fmt::format("volume {} is on nodes of pool {}, but the job requires others",
                            wish.name, volume.pool),
                fmt::format("drop --pool, or use --pool {}", volume.pool));
  pools = {volume.pool};
  return {};
}

}  // namespace

Status Decider::check_surroundings(JobSpec& spec, ProjectId project, UserId user) {
  for (RoleSpec& role : spec.roles) {
    JobSpec part = spec;  // its volumes restrict the nodes of the whole group
    part.roles.clear();
    static_cast<TaskOptions&>(part) = role;
    if (auto ok = check_surroundings(part, project, user); !ok)
      return pass(std::move(ok.error()), fmt::format("role {}", role.name));
    role.surroundings = part.surroundings;
    spec.node_labels = part.node_labels;
    spec.place = part.place;
  }
  Surroundings& s = spec.surroundings;
  for (const std::size_t n :
       {s.volumes.size(), s.secrets.size(), s.inputs.size(), s.outputs.size()})
    if (n > limits::surroundings_max)
      return fail(
          Code::too_large,
          fmt::format("a job can have at most {} of each: volumes, secrets, inputs, outputs",
                      limits::surroundings_max));
  if (!s.image.empty()) {
    BILLOW_TRY(parse_image_name(s.image));
    if (!s.environment.empty())
      return fail(Code::invalid, "a job cannot have both an image and an environment",
                  "drop --image or --env");
  }
  BILLOW_TRY_VOID(pin_environment(state, s, project, state.users.at(user)));
  BILLOW_TRY_VOID(check_isolation(spec, state.projects.at(project)));
  if (s.processes_max != 0 &&
      (s.processes_max < processes_asked_min || s.processes_max > processes_asked_max))
    return fail(Code::invalid,
                fmt::format("the limit of processes and threads on a node must be between {} and "
                            "{}, not {}",
                            processes_asked_min, processes_asked_max, s.processes_max));
  for (const SecretWish& wish : s.secrets)
    BILLOW_TRY_VOID(check_secret(state, wish, s.secrets, project));
  BILLOW_TRY_VOID(check_registry_secret(state, s, project));
  for (const VolumeWish& wish : s.volumes) {
    const Volume* volume =
        BILLOW_TRY(find_volume(state, wish.name, state.projects.at(project).name));
    BILLOW_TRY_VOID(add_volume(*volume, wish, spec));
  }
  return {};
}

// ---- secrets
Decision Decider::operator()(const SetSecret& c) {
  // The head's own, such as the settings of identity providers: no job can ask for them.
  if (c.project == installation_secrets)
    return Events{SecretSet{{.project = {},
                             .name = c.name,
                             .sealed = c.sealed,
                             .by = state.users.at(c.user).name,
                             .at = context.now}}};
  BILLOW_TRY_VOID(check_name("secret", c.name));
  const ProjectId project = BILLOW_TRY(project_for(c.project, c.user));
  if (!state.secrets.contains({project, c.name}) && state.secrets.size() >= limits::secrets_max)
    return fail(Code::exhausted,
                fmt::format("{} secrets exist already, which is the limit", state.secrets.size()));
  if (!state.secrets.contains({project, c.name}))
    BILLOW_TRY_VOID(check_objects(state, c.user, project, context.now));
  return Events{SecretSet{{.project = project,
                           .name = c.name,
                           .sealed = c.sealed,
                           .by = state.users.at(c.user).name,
                           .at = context.now,
                           .reference = c.reference}}};
}

Decision Decider::operator()(const RemoveSecret& c) {
  if (c.project == installation_secrets)
    return state.secrets.contains({ProjectId{}, c.name})
               ? Decision(Events{SecretRemoved{{}, c.name}})
               : Decision(Events{});
  const ProjectId project = BILLOW_TRY(project_for(c.project, c.user));
  BILLOW_TRY_VOID(check_has_secret(state, project, c.name));
  BILLOW_TRY_VOID(not_served(
      state, fmt::format("secret \"{}\"", c.name), [&](const Endpoint& e, const Surroundings& s) {
        return e.project == project && std::ranges::count(secret_names(s), c.name) > 0;
      }));
  return Events{SecretRemoved{project, c.name}};
}

// Values that were set or removed since they were read stay as they are.
Decision Decider::operator()(const ResealSecrets& c) {
  SecretsResealed changed;
  for (std::size_t i = 0; i < c.secrets.size() && i < c.was.size(); ++i)
    if (const auto found = state.secrets.find({c.secrets[i].project, c.secrets[i].name});
        found != state.secrets.end() && found->second.sealed == c.was[i].sealed)
      changed.secrets.push_back(c.secrets[i]);
  for (std::size_t i = 0; i < c.pools.size() && i < c.pools_were.size(); ++i)
    if (const auto found = state.pools.find(c.pools[i].pool);
        found != state.pools.end() && found->second.sealed_credential == c.pools_were[i].sealed)
      changed.pools.push_back(c.pools[i]);
  if (changed.secrets.empty() && changed.pools.empty())
    return Events{};
  return Events{std::move(changed)};
}

void Applier::operator()(const SecretSet& e) {
  state.secrets[{e.secret.project, e.secret.name}] = e.secret;
}
void Applier::operator()(const SecretsResealed& e) {
  for (const ResealedSecret& each : e.secrets)
    if (const auto found = state.secrets.find({each.project, each.name});
        found != state.secrets.end())
      found->second.sealed = each.sealed;
  for (const ResealedPool& each : e.pools)
    if (const auto found = state.pools.find(each.pool); found != state.pools.end())
      found->second.sealed_credential = each.sealed;
}
void Applier::operator()(const SecretRemoved& e) {
  state.secrets.erase({e.project, e.name});
}

// ---- environments
namespace {
// Everybody's jobs run what a published name stands for, also those of users with more rights than
// the next admin: only its publisher and the user who started the head change it.
Status may_change_published(const State& state,
                            const SavedEnvironment& saved,
                            UserId user,
                            bool by_admin) {
  if (!saved.published ||
      (by_admin && (is_founder(state, user) || saved.by == state.users.at(user).name)))
    return {};
  return fail(
      Code::forbidden,
      fmt::format("environment \"{}\" is published for all projects by {}", saved.name, saved.by),
      "only that admin and the user who started the head may change it; save yours under another "
      "name");
}
}  // namespace

Decision Decider::operator()(const SaveEnvironment& c) {
  SavedEnvironment env = c.environment;
  BILLOW_TRY_VOID(check_name("environment", env.name));
  BILLOW_TRY_VOID(check_path("the environment's path", env.path));
  if (env.digest.empty())
    return fail(Code::invalid, "the environment has no content");
  for (const auto& [name, value] : env.variables)
    if (!is_variable(name) || is_ours(name) || value.find('\0') != std::string::npos)
      return fail(Code::invalid, fmt::format("an environment cannot set \"{}\"", name));
  env.project = BILLOW_TRY(project_for(c.project, c.user));
  if (!state.saved_environments.contains({env.project, env.name}) &&
      state.saved_environments.size() >= limits::saved_environments_max)
    return fail(Code::exhausted,
                fmt::format("{} environments exist already, which is the limit",
                            state.saved_environments.size()),
                "remove some: billow env rm NAME");
  const auto old = state.saved_environments.find({env.project, env.name});
  if (old == state.saved_environments.end())
    BILLOW_TRY_VOID(check_objects(state, c.user, env.project, context.now));
  env.published = env.shared && c.by_admin;
  if (old != state.saved_environments.end())
    BILLOW_TRY_VOID(may_change_published(state, old->second, c.user, c.by_admin));
  // Everybody's jobs may name a published one: what the name stands for must not change with who
  // else publishes one.
  if (env.published)
    for (const auto& [key, other] : state.saved_environments)
      if (other.published && key.second == env.name && key.first != env.project)
        return fail(Code::conflict,
                    fmt::format("project {} already publishes an environment \"{}\"",
                                state.projects.at(key.first).name, env.name),
                    "choose another name, or drop --shared to save it for your project only");
  env.by = state.users.at(c.user).name;
  env.at = context.now;
  return Events{EnvironmentSaved{std::move(env)}};
}

Decision Decider::operator()(const RemoveEnvironment& c) {
  const ProjectId project = BILLOW_TRY(project_for(c.project, c.user));
  if (!state.saved_environments.contains({project, c.name}))
    return fail(Code::not_found,
                fmt::format("project {} has no environment \"{}\"", state.projects.at(project).name,
                            c.name),
                near_hint(state.saved_environments, project, c.name, "env"));
  const SavedEnvironment& saved = state.saved_environments.at({project, c.name});
  BILLOW_TRY_VOID(may_change_published(state, saved, c.user, c.by_admin));
  BILLOW_TRY_VOID(not_served(
      state, fmt::format("environment \"{}\"", c.name),
      [&](const Endpoint& e, const Surroundings& s) {
        if (s.environment == state.projects.at(project).name + "/" + c.name)
          return true;
        return s.environment == c.name &&
               (e.project == project ||
                (saved.published && !state.saved_environments.contains({e.project, c.name})));
      }));
  return Events{SavedEnvironmentRemoved{project, c.name}};
}

void Applier::operator()(const EnvironmentSaved& e) {
  state.saved_environments[{e.environment.project, e.environment.name}] = e.environment;
}
void Applier::operator()(const SavedEnvironmentRemoved& e) {
  state.saved_environments.erase({e.project, e.name});
}

// ---- volumes
Decision Decider::operator()(const DeclareVolume& c) {
  Volume volume = c.volume;
  BILLOW_TRY_VOID(check_name("volume", volume.name));
  BILLOW_TRY_VOID(check_path("the volume's path", volume.path));
  if (volume.path == "/")
    return fail(Code::invalid, "a volume cannot be /", "name a directory");
  for (const std::string& name : volume.projects)
    if (!state.project_by_name(name))
      return fail(Code::not_found, fmt::format("there is no project \"{}\"", name),
                  "see `billow project list`");
  if (!volume.pool.empty())
    BILLOW_TRY_VOID(check_name("pool", volume.pool));
  // Never replaced silently: that could make a read-only volume writable for later jobs.
  if (state.volumes.contains(volume.name))
    return fail(Code::conflict, fmt::format("volume \"{}\" already exists", volume.name),
                "remove it first: billow volume rm " + volume.name);
  if (state.volumes.size() >= limits::volumes_max)
    return fail(Code::exhausted,
                fmt::format("{} volumes exist already, which is the limit", state.volumes.size()));
  volume.by = c.user && state.users.contains(c.user) ? state.users.at(c.user).name : "";
  volume.at = context.now;
  return Events{VolumeDeclared{std::move(volume)}};
}

Decision Decider::operator()(const RemoveVolume& c) {
  if (!state.volumes.contains(c.name)) {
    std::vector<std::string> names;
    for (const auto& [name, v] : state.volumes)
      names.push_back(name);
    const std::string near = nearest(c.name, names);
    return fail(
        Code::not_found, fmt::format("there is no volume \"{}\"", c.name),
        near.empty() ? "see `billow volume list`" : fmt::format("did you mean \"{}\"?", near));
  }
  BILLOW_TRY_VOID(not_served(
      state, fmt::format("volume \"{}\"", c.name), [&](const Endpoint&, const Surroundings& s) {
        return std::any_of(s.volumes.begin(), s.volumes.end(),
                           [&](const VolumeWish& wish) { return wish.name == c.name; });
      }));
  return Events{VolumeRemoved{c.name}};
}

void Applier::operator()(const VolumeDeclared& e) {
  state.volumes[e.volume.name] = e.volume;
}
void Applier::operator()(const VolumeRemoved& e) {
  state.volumes.erase(e.name);
}

// ---- images
// Every task of a gang and every attempt reports it: only a change is a fact.
Decision Decider::operator()(const ImageFound& c) {
  const Task* task = state.find_task(c.task);
  if (!task || task->state == TaskState::ended)
    return fail(Code::not_found, fmt::format("task {} is not running", c.task.value));
  const Job& job = state.jobs.at(task->job);
  if (options_of(*job.spec, task->rank).surroundings.image.empty())
    return fail(Code::conflict, fmt::format("job {} has no image", job.id.value));
  if (!is_image_digest(c.digest))
    return fail(Code::invalid, "not the digest of an image");
  Events events;
  if (!job.spec->roles.empty())
    return events;  // its roles may have different images, and a job has one digest
  if (job.image_digest != c.digest)
    events.push_back(JobImageFound{job.id, c.digest});
  return events;
}

void Applier::operator()(const JobImageFound& e) {
  job(e.job).image_digest = e.digest;
}

}  // namespace billow::control
