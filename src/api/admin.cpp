// The routes of the installation: status, nodes, projects, users, tokens, schedules, shutdown.
#include <fmt/format.h>
#include <algorithm>

#include "api/call.h"
#include "api/files.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "core/wire/codec.h"
#include "view/fleet_documents.h"

std::string_view billow_embedded_openapi();

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

// Only an admin of the project or of the installation may change its members.
bool may_manage(const CallPtr& call, const std::string& project_name) {
  const auto project = visible_project(*call, project_name);
  if (!project) {
    call->fail(project.error());
    return false;
  }
  if (control::role_in(call->host.state(), call->principal, (*project)->id) == Role::admin)
    return true;
  call->fail(
      {Code::forbidden, fmt::format("only an admin of project {} may do this", project_name), ""});
  return false;
}

// When a token expires, or the token that a session came from; 0: never.
WallTime end_of(const control::State& state, TokenId id) {
  const auto token = state.tokens.find(id);
  if (token == state.tokens.end())
    return {};
  const auto parent = control::session_parent(token->second);
  return parent ? end_of(state, *parent) : token->second.expires_at;
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
struct TokenBody {
  std::string name, user, project;
  TokenScope scope = TokenScope::full;
  std::int64_t life_s = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("user", s.user);
    v("scope", s.scope);
    v("project", s.project);
    v("life_s", s.life_s);
  }
};
struct UserBody {
  std::string name, unix_name;
  Role role = Role::member;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("unix_name", s.unix_name);
    v("role", s.role);
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
  }
};
struct MemberBody {
  Role role = Role::member;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("role", s.role);
  }
};

}  // namespace

void status(CallPtr call) {
  const auto& state = call->host.state();
  Json document = call->host.about();
  std::int64_t gpus = 0, free_milli = 0, instances = 0, instances_held = 0;
  std::uint64_t ready = 0;
  for (const auto& [id, node] : state.nodes) {
    if (std::any_of(node.offer.gpus.begin(), node.offer.gpus.end(),
                    [](const NodeGpu& g) { return !g.mig.empty(); })) {
      const Json cut = view::node_document(state, node, nullptr);
      for (const Json& gpu : cut["gpus"].items())
        for (const Json& instance : gpu["mig_instances"].items())
          ++instances, instances_held += instance["job"].is_number() ? 1 : 0;
    }
    gpus += static_cast<std::int64_t>(node.offer.gpus.size());
    if (node.reachable)
      ++ready, free_milli += state.index.free_milli(id);
  }
  const auto count = [&](JobState s) {
    const auto found = state.count.find(s);
    return found == state.count.end() ? std::uint64_t{0} : found->second;
  };
  document.set("epoch", state.epoch);
  document.set("seq", state.seq);
  document.set("nodes", Json::object({{"total", state.nodes.size()}, {"ready", ready}}));
  document.set("gpus",
               Json::object({{"total", gpus}, {"free", static_cast<double>(free_milli) / 1000.0}}));
  if (instances > 0)
    document.set("mig", Json::object({{"instances", instances}, {"held", instances_held}}));
  document.set("jobs", Json::object({{"held", count(JobState::held)},
                                     {"queued", count(JobState::queued)},
                                     {"running", count(JobState::running)},
                                     {"suspended", count(JobState::suspended)}}));
  document.set("store", store_health_name(call->host.journal().health()));
  Json you = Json::object({{"user", call->principal.name},
                           {"role", enum_name(call->principal.role)},
                           {"scope", enum_name(call->principal.scope)}});
  if (const auto project = state.projects.find(call->principal.project);
      project != state.projects.end())
    you.set("project", project->second.name);
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
void drain(CallPtr call) {
  const Node* node = find_node(call);
  if (!node)
    return;
  const auto body = call->body();
  if (!body)
    return call->fail(body.error());
  std::string reason((*body)["reason"].str_or(""));
  if (reason.empty())
    reason = "drained by " + call->principal.name;
  answer_ok(call, DrainNode{node->id, reason, (*body)["reclaim"].bool_or(false)});
}
void undrain(CallPtr call) {
  if (const Node* node = find_node(call))
    answer_ok(call, DrainNode{node->id, ""});
}
void remove_node(CallPtr call) {
  if (const Node* node = find_node(call))
    answer_ok(call, RemoveNode{node->id});
}

void projects(CallPtr call) {
  Json list = Json::array();
  for (const auto& [id, project] : call->host.state().projects) {
    if (!control::role_in(call->host.state(), call->principal, id))
      continue;
    Json members = Json::object();
    for (const auto& [name, role] : project.members)
      members.set(name, enum_name(role));
    Json document = Json::object({{"id", id.value},
                                  {"name", project.name},
                                  {"weight", project.weight},
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
                     .pools = body->pools};
  call->execute(std::move(command), 200, [call](const std::vector<Event>&) {
    const Project* project = call->host.state().project_by_name(call->parts[0]);
    Json document = Json::object({{"name", project->name}, {"weight", project->weight}});
    view::add_quota(document, call->host.state(), *project, call->host.now());
    return document;
  });
}
void set_member(CallPtr call) {
  auto body = read_body<MemberBody>(call);
  if (body && may_manage(call, call->parts[0]))
    answer_ok(call, SetMember{call->parts[0], call->parts[1], body->role});
}
void remove_member(CallPtr call) {
  if (may_manage(call, call->parts[0]))
    answer_ok(call, SetMember{call->parts[0], call->parts[1], std::nullopt});
}

void users(CallPtr call) {
  Json list = Json::array();
  for (const auto& [id, user] : call->host.state().users)
    list.push(Json::object({{"id", id.value},
                            {"name", user.name},
                            {"unix_name", user.unix_name},
                            {"role", enum_name(user.role)}}));
  call->reply_durable(200, Json::object({{"users", std::move(list)}}));
}
void add_user(CallPtr call) {
  if (auto body = read_body<UserBody>(call))
    answer_ok(call, AddUser{body->name, body->unix_name, body->role}, 201);
}

void tokens(CallPtr call) {
  const auto& state = call->host.state();
  Json list = Json::array();
  for (const auto& [id, token] : state.tokens) {
    if (!call->as_admin() && token.user != call->principal.user)
      continue;
    Json document = Json::object({{"id", id.value},
                                  {"name", token.name},
                                  {"user", state.users.at(token.user).name},
                                  {"scope", enum_name(token.scope)},
                                  {"created_at", format_utc(token.created_at)}});
    document.set("expires_at", token.expires_at ? Json(format_utc(token.expires_at)) : Json());
    if (const auto project = state.projects.find(token.project); project != state.projects.end())
      document.set("project", project->second.name);
    list.push(std::move(document));
  }
  call->reply_durable(200, Json::object({{"tokens", std::move(list)}}));
}
void create_token(CallPtr call) {
  auto body = read_body<TokenBody>(call);
  if (!body)
    return;
  if (body->user.empty())
    body->user = call->principal.name;
  if (body->life_s < 0 || body->life_s > 3650ll * 86400)
    return call->fail(
        {Code::invalid, "life_s must be between 0 (never expires) and ten years", ""});
  if (!call->as_admin() && (body->user != call->principal.name || body->scope == TokenScope::node ||
                            body->scope == TokenScope::join))
    return call->fail(
        {Code::forbidden, "you can create tokens only for yourself, and none for nodes", ""});
  if (body->scope == TokenScope::join && body->life_s == 0)
    body->life_s = limits::join_token_life_default.ns / 1'000'000'000;
  // A token with an expiry date cannot create tokens of its user that outlive it. (Only admins
  // create tokens for machines and for others.)
  if (const WallTime end = end_of(call->host.state(), call->principal.token);
      end && body->user == call->principal.name && body->scope != TokenScope::join &&
      body->scope != TokenScope::node) {
    const std::int64_t left =
        std::max<std::int64_t>(1, (end - call->host.now()).ns / 1'000'000'000);
    if (body->life_s > left)
      return call->fail(
          {Code::forbidden,
           fmt::format("your token expires {}; tokens created with it cannot outlive it",
                       relative_time(end, call->host.now(), Zone::utc)),
           "ask for a shorter life, or use a token that does not expire"});
    if (body->life_s == 0)
      body->life_s = left;
  }
  std::string secret = (body->scope == TokenScope::join ? "bwj_" : "bw_") + random_token(30);
  CreateToken command{body->name,  sha256_hex(secret), body->user,
                      body->scope, body->project,      seconds(body->life_s)};
  // If the head is its own authority, the token carries the fingerprint to trust.
  if (const std::string pin = call->host.authority_fingerprint(); !pin.empty())
    secret += "." + pin;
  call->execute(std::move(command), 201, [secret](const std::vector<Event>& events) {
    Json document = Json::object({{"token", secret}});
    for (const Event& event : events)
      if (const auto* made = get_if<TokenCreated>(&event.body))
        document.set("id", made->token.id.value);
    return document;
  });
}
void revoke_token(CallPtr call) {
  const auto id = parse_int(call->parts[0], 1, INT64_MAX);
  if (!id)
    return call->fail({Code::invalid, fmt::format("\"{}\" is not a token number", call->parts[0]),
                       "see `billow token list`"});
  const auto& tokens = call->host.state().tokens;
  const auto found = tokens.find(TokenId(static_cast<std::uint64_t>(*id)));
  const bool visible =
      found != tokens.end() && (call->as_admin() || found->second.user == call->principal.user);
  if (!visible)
    return call->fail(
        {Code::not_found, fmt::format("there is no token {}", *id), "see `billow token list`"});
  answer_ok(call, RevokeToken{found->first});
}

void schedules(CallPtr call) {
  const auto& state = call->host.state();
  Json list = Json::array();
  for (const auto& [id, s] : state.schedules) {
    if (!control::role_in(state, call->principal, s.project))
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
  command.job.spec.surroundings.environment_digest
      .clear();  // only what the name stands for now counts
  command.job.env = std::move(body->env);
  command.job.project = std::move(*project);
  command.job.user = call->principal.user;
  if (const Status files = files::may_use(*call, command.job.env, command.job.project); !files)
    return call->fail(files.error());
  answer_ok(call, std::move(command), 201);
}
void remove_schedule(CallPtr call) {
  const auto found = one_named(*call, call->host.state().schedules, call->parts[0], "schedule",
                               "billow schedule rm");
  if (!found)
    return call->fail(found.error());
  if (const Status act = may_act(*call, (*found)->project, (*found)->user); !act)
    return call->fail(act.error());
  answer_ok(call, RemoveSchedule{(*found)->id});
}

void shutdown(CallPtr call) {
  const auto body = call->body();
  if (!body)
    return call->fail(body.error());
  const auto& count = call->host.state().count;
  const auto running = count.find(JobState::running);
  call->reply(
      202, Json::object({{"ok", true}, {"running", running == count.end() ? 0 : running->second}}));
  call->host.shutdown((*body)["stop_jobs"].bool_or(false));
}

void openapi(CallPtr call) {
  net::Response response = net::Response::json(200, std::string(billow_embedded_openapi()));
  call->exchange->respond(std::move(response));
}

}  // namespace billow::api::admin
