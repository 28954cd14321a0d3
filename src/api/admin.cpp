// The routes of the installation: status, nodes, projects, schedules, shutdown.
#include <fmt/format.h>
#include <algorithm>

#include "api/call.h"
#include "api/files.h"
#include "base/text.h"
#include "core/wire/codec.h"
#include "view/endpoint_document.h"
#include "view/fleet_documents.h"

namespace billow::api::admin {
namespace {

const Json ok = Json::object({{"ok", true}});

const Node* find_node(const CallPtr& call) {
  const Node* node = call->host.state().node_by_name(call->parts[0]);
  if (!node)
    call->fail({Code::not_found, fmt::format("there is no node \"{}\"", call->parts[0]),
                "see `billow nodes`"});
  return node;
}

void answer_ok(const CallPtr& call, Command command, int status = 200) {
  call->execute(std::move(command), status, [](const std::vector<Event>&) { return ok; });
}

bool may_manage(const CallPtr& call, const std::string& project_name) {
  const auto project = visible_project(*call, project_name);
  if (!project) {
    call->fail(project.error());
    return false;
  }
  const Status ok = may_in(*call, Permission::members_change, (*project)->id);
  if (!ok)
    call->fail(ok.error());
  return ok.has_value();
}

struct ScheduleBody {
  std::string name, cron, project;
  JobSpec spec;
  Environment env;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("cron", s.cron);
    v("spec", s.spec);
    v("env", s.env);
    v("project", s.project);
  }
};
struct ProjectBody {
  std::string name;
  std::uint32_t weight = 100;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("weight", s.weight);
  }
};
struct SetProjectBody {
  std::optional<std::uint32_t> weight;
  std::optional<std::int64_t> guaranteed_milli, limit_milli, user_limit_milli;
  std::optional<std::int32_t> user_running_max;
  std::optional<bool> may_borrow;
  std::optional<OrderPolicy> policy;
  std::optional<std::vector<std::string>> regions, pools;
  std::optional<bool> admins_enter;
  std::optional<Isolation> isolation;
  std::optional<ContainerNetwork> network;
  std::optional<std::vector<std::string>> allow;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("weight", s.weight);
    v("guaranteed_milli", s.guaranteed_milli);
    v("limit_milli", s.limit_milli);
    v("user_limit_milli", s.user_limit_milli);
    v("user_running_max", s.user_running_max);
    v("may_borrow", s.may_borrow);
    v("policy", s.policy);
    v("regions", s.regions);
    v("pools", s.pools);
    v("admins_enter", s.admins_enter);
    v("isolation", s.isolation);
    v("network", s.network);
    v("allow", s.allow);
  }
};
struct MemberBody {
  std::string role = roles::member;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("role", s.role);
  }
};

}  // namespace

namespace {

// What the caller may do with this token: everywhere, and in projects that the caller is a member
// of. So clients show what works, whatever the caller's role is called.
void add_permissions(const Call& call, Json& you) {
  Json everywhere = Json::array(), in_projects = Json::object();
  for (const control::PermissionInfo& each : control::permission_table())
    if (call.may(each.permission))
      everywhere.push(enum_name(each.permission));
  for (const auto& [id, project] : call.host.state().projects) {
    if (!project.members.contains(call.principal.name))
      continue;
    Json here = Json::array();
    for (const control::PermissionInfo& each : control::permission_table())
      if (each.of_project && call.may(each.permission, id))
        here.push(enum_name(each.permission));
    in_projects.set(project.name, std::move(here));
  }
  you.set("permissions", std::move(everywhere));
  you.set("permissions_in", std::move(in_projects));
}

}  // namespace

void status(CallPtr call) {
  const auto& state = call->host.state();
  Json document = call->host.about();
  std::int64_t instances = 0, instances_held = 0;
  for (const auto& [id, node] : state.nodes) {
    if (std::any_of(node.offer.gpus.begin(), node.offer.gpus.end(),
                    [](const NodeGpu& g) { return !g.mig.empty(); })) {
      const Json cut = view::node_document(state, node, nullptr);
      for (const Json& gpu : cut["gpus"].items())
        for (const Json& instance : gpu["mig_instances"].items()) {
          ++instances;
          instances_held += instance["job"].is_number() ? 1 : 0;
        }
    }
  }
  const view::FleetCounts fleet = view::fleet_counts(
      state, [&](NodeId node) { return call->host.readings(node); }, call->host.now());
  const auto cards = [](std::int64_t milli) {
    return static_cast<double>(milli) / 1000.0;
  };
  const auto count = [&](JobState s) {
    const auto found = state.count.find(s);
    return found == state.count.end() ? std::uint64_t{0} : found->second;
  };
  document.set("epoch", state.epoch);
  document.set("seq", state.seq);
  document.set("nodes", Json::object({{"total", fleet.nodes},
                                      {"ready", fleet.nodes_ready},
                                      {"drained", fleet.nodes_drained},
                                      {"unreachable", fleet.nodes_unreachable}}));
  document.set("gpus", Json::object({{"total", fleet.gpus},
                                     {"free", cards(fleet.free_milli)},
                                     {"held", cards(fleet.held_milli)},
                                     {"drained", cards(fleet.drained_milli)},
                                     {"lost", cards(fleet.lost_milli)},
                                     {"reserved", cards(fleet.reserved_milli)}}));
  if (instances > 0)
    document.set("mig", Json::object({{"instances", instances}, {"held", instances_held}}));
  document.set("jobs", Json::object({{"held", count(JobState::held)},
                                     {"queued", count(JobState::queued)},
                                     {"running", count(JobState::running)},
                                     {"suspended", count(JobState::suspended)}}));
  document.set("store", store_health_name(call->host.journal().health()));
  Json you = Json::object({{"user", call->principal.name},
                           {"role", call->principal.role},
                           {"scope", enum_name(call->principal.scope)}});
  add_permissions(*call, you);
  if (const auto project = state.projects.find(call->principal.project);
      project != state.projects.end())
    you.set("project", project->second.name);
  if (const auto chosen = control::default_project(state, call->principal.user))
    you.set("default_project", state.projects.at(*chosen).name);
  document.set("you", std::move(you));
  call->reply(200, document);
}

void nodes(CallPtr call) {
  Json list = Json::array();
  for (const auto& [id, node] : call->host.state().nodes)
    list.push(view::node_document(call->host.state(), node, call->host.readings(id)));
  call->reply_durable(200, Json::object({{"nodes", std::move(list)}}));
}
void node(CallPtr call) {
  if (const Node* node = find_node(call))
    call->reply_durable(
        200, view::node_document(call->host.state(), *node, call->host.readings(node->id)));
}
namespace {

struct DrainBody {
  std::string reason;
  bool reclaim = false;  // the machine is being removed
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("reason", s.reason);
    v("reclaim", s.reclaim);
  }
};

}  // namespace

void drain(CallPtr call) {
  const Node* node = find_node(call);
  if (!node)
    return;
  const auto body = read_body<DrainBody>(call);
  if (!body)
    return;
  const std::string reason =
      body->reason.empty() ? "drained by " + call->principal.name : body->reason;
  answer_ok(call, DrainNode{node->id, reason, body->reclaim});
}
void undrain(CallPtr call) {
  if (const Node* node = find_node(call))
    answer_ok(call, DrainNode{node->id, ""});
}
void remove_node(CallPtr call) {
  if (const Node* node = find_node(call))
    answer_ok(call, RemoveNode{node->id});
}

Json names_json(const std::vector<std::string>& names) {
  Json out = Json::array();
  for (const std::string& name : names)
    out.push(name);
  return out;
}

void projects(CallPtr call) {
  Json list = Json::array();
  for (const auto& [id, project] : call->host.state().projects) {
    if (!control::sees(call->host.state(), call->principal, id))
      continue;
    Json members = Json::object();
    for (const auto& [name, role] : project.members)
      members.set(name, role);
    Json document = Json::object({{"id", id.value},
                                  {"name", project.name},
                                  {"weight", project.weight},
                                  {"admins_enter", project.admins_enter},
                                  {"isolation", enum_name(project.isolation)},
                                  {"network", enum_name(project.network)},
                                  {"allow", names_json(project.allow)},
                                  {"members", std::move(members)}});
    view::add_quota(document, call->host.state(), project, call->host.now());
    list.push(std::move(document));
  }
  call->reply_durable(200, Json::object({{"projects", std::move(list)}}));
}
void add_project(CallPtr call) {
  if (auto body = read_body<ProjectBody>(call))
    answer_ok(call, AddProject{body->name, body->weight}, 201);
}
void set_project(CallPtr call) {
  auto body = read_body<SetProjectBody>(call);
  if (!body)
    return;
  SetProject command{.name = call->parts[0],
                     .weight = body->weight,
                     .guaranteed_milli = body->guaranteed_milli,
                     .limit_milli = body->limit_milli,
                     .user_limit_milli = body->user_limit_milli,
                     .user_running_max = body->user_running_max,
                     .may_borrow = body->may_borrow,
                     .policy = body->policy,
                     .regions = body->regions,
                     .pools = body->pools,
                     .admins_enter = body->admins_enter,
                     .isolation = body->isolation,
                     .network = body->network,
                     .allow = body->allow};
  call->execute(std::move(command), 200, [call](const std::vector<Event>&) {
    const Project* project = call->host.state().project_by_name(call->parts[0]);
    Json document = Json::object({{"name", project->name},
                                  {"weight", project->weight},
                                  {"admins_enter", project->admins_enter},
                                  {"isolation", enum_name(project->isolation)},
                                  {"network", enum_name(project->network)},
                                  {"allow", names_json(project->allow)}});
    view::add_quota(document, call->host.state(), *project, call->host.now());
    return document;
  });
}
void set_member(CallPtr call) {
  auto body = read_body<MemberBody>(call);
  if (body && may_manage(call, call->parts[0]))
    answer_ok(call, SetMember{call->parts[0], call->parts[1], body->role, call->principal.user});
}
void remove_member(CallPtr call) {
  if (may_manage(call, call->parts[0]))
    answer_ok(call, SetMember{call->parts[0], call->parts[1], std::nullopt, call->principal.user});
}

void schedules(CallPtr call) {
  const auto& state = call->host.state();
  Json list = Json::array();
  for (const auto& [id, s] : state.schedules) {
    if (!call->may(Permission::jobs_read, s.project))
      continue;
    list.push(Json::object({{"id", id.value},
                            {"name", s.name},
                            {"cron", s.cron},
                            {"command", shell_join(s.spec->argv)},
                            {"project", state.projects.at(s.project).name},
                            {"user", state.users.at(s.user).name},
                            {"next_at", format_utc(s.next_at)},
                            {"last_job", s.last_job ? Json(s.last_job.value) : Json()}}));
  }
  call->reply_durable(200, Json::object({{"schedules", std::move(list)}}));
}
void add_schedule(CallPtr call) {
  auto body = read_body<ScheduleBody>(call);
  if (!body)
    return;
  auto project = project_to_submit_to(*call, body->project);
  if (!project)
    return call->fail(project.error());
  AddSchedule command{body->name, body->cron, {}};
  command.job.spec = std::move(body->spec);
  each_options(command.job.spec, [](auto& options) {
    options.surroundings.environment_digest.clear();  // only what the name stands for now counts
  });
  command.job.env = std::move(body->env);
  command.job.project = std::move(*project);
  command.job.user = call->principal.user;
  command.job.agent = call->principal.agent;
  if (const Status files = files::may_use(*call, command.job.env, command.job.project); !files)
    return call->fail(files.error());
  answer_ok(call, std::move(command), 201);
}
void remove_schedule(CallPtr call) {
  const auto found = one_named(*call, call->host.state().schedules, call->parts[0], "schedule",
                               "billow schedule rm");
  if (!found)
    return call->fail(found.error());
  if (const Status act = may_act(*call, {(*found)->project, (*found)->user, (*found)->agent}); !act)
    return call->fail(act.error());
  answer_ok(call, RemoveSchedule{(*found)->id});
}

namespace {

struct ShutdownBody {
  bool stop_jobs = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("stop_jobs", s.stop_jobs);
  }
};

}  // namespace

void shutdown(CallPtr call) {
  const auto body = read_body<ShutdownBody>(call);
  if (!body)
    return;
  const auto& count = call->host.state().count;
  const auto running = count.find(JobState::running);
  std::map<PoolId, std::int64_t> machines;
  for (const auto& [name, machine] : call->host.state().machines)
    if (!machine.is_disk())
      ++machines[machine.pool];
  Json left = Json::array();
  for (const auto& [id, number] : machines)
    if (const auto pool = call->host.state().pools.find(id); pool != call->host.state().pools.end())
      left.push(Json::object({{"pool", pool->second.name}, {"machines", number}}));
  call->reply(202, Json::object({{"ok", true},
                                 {"running", running == count.end() ? 0 : running->second},
                                 {"endpoints", view::endpoints_running(call->host.state())},
                                 {"pools", std::move(left)}}));
  call->host.shutdown(body->stop_jobs);
}

}  // namespace billow::api::admin
