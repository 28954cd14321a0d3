// The routes of endpoints, and the connection of gateways to the head.
#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "api/call.h"
#include "api/files.h"
#include "base/crypto.h"
#include "base/text.h"
#include "core/control/agent_tokens.h"
#include "core/model/endpoint_program.h"
#include "core/wire/codec.h"
#include "view/endpoint_document.h"
#include "view/gateway_document.h"

namespace billow::api::endpoints {
namespace {

struct DeployBody {
  std::string name, project;
  JobSpec spec;
  Environment env;
  EndpointPolicy policy;
  ReleasePlan release;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("spec", s.spec);
    v("env", s.env);
    v("project", s.project);
    v("policy", s.policy);
    v("release", s.release);
  }
};
struct TrafficBody {
  std::optional<std::uint32_t> traffic;  // thousandths
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("traffic", s.traffic);
  }
};
struct RollbackBody {
  std::uint32_t revision = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("revision", s.revision);
  }
};
struct KeyBody {
  std::string name = "default";
  std::string project;
  std::int64_t lasts_s = 0;  // 0: it does not expire
  std::vector<KeyLimit> limits;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("project", s.project);
    v("lasts_s", s.lasts_s);
    v("limits", s.limits);
  }
};

// Answers that there is no such endpoint.
const Endpoint* missing_endpoint(const CallPtr& call, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [n, e] : call->host.state().endpoints)
    if (call->may(Permission::jobs_read, e.project))
      names.push_back(n);
  const std::string near = nearest(name, names);
  call->fail({Code::not_found, fmt::format("there is no endpoint \"{}\"", name),
              near.empty() ? "see `billow endpoints`" : fmt::format("did you mean \"{}\"?", near)});
  return nullptr;
}

Owner owner_of_endpoint(const Endpoint& e) {
  const Revision* current = e.current();
  return {e.project, e.user, current ? current->agent : TokenId{}};
}

// The endpoint that the path names, if the caller may see it (or change it). Null: the call has
// been answered.
const Endpoint* find_endpoint(const CallPtr& call, bool change) {
  const auto found = call->host.state().endpoints.find(call->parts[0]);
  if (found == call->host.state().endpoints.end() || !may_see(*call, found->second.project))
    return missing_endpoint(call, call->parts[0]);
  if (change)
    if (const Status act =
            may_act(*call, owner_of_endpoint(found->second), Permission::endpoints_deploy);
        !act) {
      call->fail(act.error());
      return nullptr;
    }
  return &found->second;
}

}  // namespace

Status may_change(const CallPtr& call, const std::string& name) {
  const auto found = call->host.state().endpoints.find(name);
  if (found == call->host.state().endpoints.end() || !may_see(*call, found->second.project))
    return billow::fail(Code::not_found, fmt::format("there is no endpoint \"{}\"", name),
                        "see `billow endpoints`");
  return may_act(*call, owner_of_endpoint(found->second), Permission::endpoints_deploy);
}

namespace {

view::GatewayView gateways_of(const CallPtr& call, const Endpoint& e) {
  return {.figures = call->host.endpoint_figures(e.name),
          .addresses = call->host.gateway_addresses(),
          .fingerprint = call->host.gateway_fingerprint(),
          .trouble_of = [&host = call->host](TaskId task) {
            return host.waits_for(task);
          }};
}

Json policy_document(const EndpointPolicy& policy) {
  return parse_json(wire::to_json_text(policy)).value_or(Json::object());
}

Json endpoint_document(const CallPtr& call, const Endpoint& e) {
  return view::endpoint_document(call->host.state(), e, gateways_of(call, e), call->host.moment());
}

}  // namespace

void deploy(CallPtr call) {
  const auto json = call->body();
  auto body =
      json ? wire::from_json<DeployBody>(*json, true) : Result<DeployBody>(pass(json.error()));
  if (!body)
    return call->fail(body.error());
  if (body->spec.argv.empty())
    return call->fail({Code::invalid, "the endpoint has no command", "give spec.argv"});
  // A request that does not say who may call gets the safest setting, or keeps the endpoint's.
  if (!(*json)["policy"].find("access")) {
    const auto found = call->host.state().endpoints.find(body->name);
    const Revision* before =
        found == call->host.state().endpoints.end() ? nullptr : found->second.current();
    body->policy.access = before ? before->policy.access : EndpointAccess::key;
  }
  DeployEndpoint command;
  if (const auto found = call->host.state().endpoints.find(body->name);
      found != call->host.state().endpoints.end()) {
    if (!may_see(*call, found->second.project))
      return call->fail({Code::conflict,
                         fmt::format("the name \"{}\" is already in use", body->name),
                         "choose another name"});
    if (const Status act =
            may_act(*call, owner_of_endpoint(found->second), Permission::endpoints_deploy);
        !act)
      return call->fail(act.error());
  } else {
    auto project = project_to_submit_to(*call, body->project, Permission::endpoints_deploy);
    if (!project)
      return call->fail(project.error());
    command.project = std::move(*project);
  }
  command.name = body->name;
  command.spec = std::move(body->spec);
  command.spec.surroundings.environment_digest.clear();  // only what the name stands for now counts
  command.env = std::move(body->env);
  if (const Status files = files::may_use(*call, command.env, command.project); !files)
    return call->fail(files.error());
  command.policy = std::move(body->policy);
  command.release = body->release;
  command.user = call->principal.user;
  command.agent = call->principal.agent;
  const auto run = [call, name = body->name, command] {
    call->execute(command, 201, [call, name](const std::vector<Event>&) {
      const auto found = call->host.state().endpoints.find(name);
      return found == call->host.state().endpoints.end() ? Json::object({{"name", name}})
                                                         : endpoint_document(call, found->second);
    });
  };
  std::string secrets;
  for (const std::string& secret : secret_names(command.spec.surroundings))
    secrets += fmt::format("; it reads the secret {}", secret);
  if (command.policy.access == EndpointAccess::local && secrets.empty())
    return run();
  with_approval(
      call, ApprovalAction::expose,
      fmt::format("deploy endpoint {} with access {}: {}{}", command.name,
                  enum_name(command.policy.access), control::command_text(command.spec), secrets),
      run);
}

void list(CallPtr call) {
  Json all = Json::array();
  for (const auto& [name, e] : call->host.state().endpoints)
    if (call->may(Permission::jobs_read, e.project))
      all.push(endpoint_document(call, e));
  call->reply_durable(200, Json::object({{"endpoints", std::move(all)}}));
}

void get(CallPtr call) {
  const Endpoint* e = find_endpoint(call, false);
  if (!e)
    return;
  Json document = endpoint_document(call, *e);
  // What the next deployment is compared with. Lists go without it, because of its size.
  if (const Revision* current = e->current()) {
    document.set("spec", parse_json(wire::to_json_text(*current->spec)).value_or(Json()));
    Json variables = Json::array();
    for (const auto& [name, value] : call->host.state().environment(current->spec->env_digest))
      variables.push(name);
    document.set("variables", std::move(variables));
  }
  document.set("gateways", view::gateway_shares(call->host.gateway_list(), e->name));
  call->reply_durable(200, document);
}

void explain(CallPtr call) {
  if (const Endpoint* e = find_endpoint(call, false))
    call->reply_durable(
        200, view::explain_endpoint_document(call->host.state(), *e, gateways_of(call, *e),
                                             call->host.moment()));
}

void scale(CallPtr call) {
  const auto body = read_body<ScaleChange>(call);
  const Endpoint* e = body ? find_endpoint(call, true) : nullptr;
  if (!e)
    return;
  // Without a command: only settings change.
  DeployEndpoint command{.name = e->name};
  if (const Revision* current = e->current())
    command.policy = current->policy;
  body->apply(command.policy);
  call->execute(
      std::move(command), 200, [call, name = call->parts[0]](const std::vector<Event>& events) {
        Json out = Json::object({{"ok", true}, {"changed", !events.empty()}});
        const auto found = call->host.state().endpoints.find(name);
        if (const Revision* current =
                found == call->host.state().endpoints.end() ? nullptr : found->second.current()) {
          out.set("min", current->policy.min);
          out.set("max", current->policy.max);
          out.set("concurrency", current->policy.concurrency);
          out.set("policy", policy_document(current->policy));
        }
        return out;
      });
}

void rollback(CallPtr call) {
  auto body = read_body<RollbackBody>(call);
  if (!body || !find_endpoint(call, true))
    return;
  // An older revision can have secrets, and belong to a person.
  with_approval(
      call, ApprovalAction::expose,
      fmt::format("roll endpoint {} back to {}", call->parts[0],
                  body->revision ? fmt::format("revision {}", body->revision) : "the one before"),
      [call, revision = body->revision] {
        call->execute(RollbackEndpoint{call->parts[0], revision}, 200,
                      [](const std::vector<Event>& events) {
                        Json out = Json::object({{"ok", true}});
                        for (const Event& event : events)
                          if (const auto* made = get_if<EndpointDeployed>(&event.body)) {
                            out.set("revision", made->revision.number);
                            out.set("reason", made->revision.reason);
                            out.set("policy", policy_document(made->revision.policy));
                          } else if (const auto* ended = get_if<ReleaseEnded>(&event.body))
                            out.set("ended", ended->revision);
                        return out;
                      });
      });
}

namespace {

void change_release(const CallPtr& call, ChangeRelease command) {
  call->execute(std::move(command), 200,
                [call, name = call->parts[0]](const std::vector<Event>& events) {
                  Json out = Json::object({{"ok", true}, {"changed", !events.empty()}});
                  for (const Event& event : events)
                    if (const auto* changed = get_if<ReleaseChanged>(&event.body)) {
                      out.set("revision", changed->revision);
                      out.set("traffic", changed->release.traffic);
                    }
                  return out;
                });
}

}  // namespace

void traffic(CallPtr call) {
  auto body = read_body<TrafficBody>(call);
  if (body && find_endpoint(call, true))
    change_release(call, {.endpoint = call->parts[0], .traffic = body->traffic});
}

void promote(CallPtr call) {
  if (find_endpoint(call, true))
    change_release(call, {.endpoint = call->parts[0], .promote = true});
}

void remove(CallPtr call) {
  if (!find_endpoint(call, true))
    return;
  call->execute(DeleteEndpoint{call->parts[0]}, 200, [](const std::vector<Event>&) {
    return Json::object({{"ok", true}});
  });
}

namespace {

constexpr std::size_t calls_shown_max = 200;

// Without its id, body and answer: the id alone opens the answer at the gateway. The query of the
// address is left out too, as it may carry a secret.
Json call_summary(const AsyncCall& c) {
  Json out = Json::object({{"method", c.method},
                           {"path", c.target.substr(0, c.target.find('?'))},
                           {"state", enum_name(c.state)},
                           {"made_at", format_utc(c.made_at)}});
  if (c.ended_at)
    out.set("ended_at", format_utc(c.ended_at));
  if (c.status != 0)
    out.set("status", c.status);
  if (!c.reason.empty())
    out.set("reason", c.reason);
  return out;
}

// The call that the path names. Null: the call has been answered.
const AsyncCall* find_call(const CallPtr& call) {
  if (!find_endpoint(call, true))
    return nullptr;
  const auto& known = call->host.state().calls;
  const auto found = known.find(call->parts[1]);
  if (found != known.end() && found->second.endpoint == call->parts[0])
    return &found->second;
  call->fail(
      {Code::not_found,
       fmt::format("endpoint {} has no call with this id: it is wrong, or its answer has expired",
                   call->parts[0]),
       "list the calls again"});
  return nullptr;
}

}  // namespace

// The newest asynchronous calls. Those who may change the endpoint also get their ids.
void calls(CallPtr call) {
  const Endpoint* e = find_endpoint(call, false);
  if (!e)
    return;
  std::vector<const AsyncCall*> all;
  std::size_t waiting = 0;
  for (const auto& [id, one] : call->host.state().calls)
    if (one.endpoint == e->name) {
      all.push_back(&one);
      waiting += one.state == CallState::waiting;
    }
  const std::size_t shown = std::min(all.size(), calls_shown_max);
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), all.end(),
                    [](const AsyncCall* a, const AsyncCall* b) {
                      return std::tie(b->made_at, b->id) < std::tie(a->made_at, a->id);
                    });
  const bool opens =
      may_act(*call, owner_of_endpoint(*e), Permission::endpoints_deploy).has_value();
  Json list = Json::array();
  for (std::size_t i = 0; i < shown; ++i) {
    Json one = call_summary(*all[i]);
    if (opens)
      one.set("id", all[i]->id);
    list.push(std::move(one));
  }
  call->reply_durable(200, Json::object({{"calls", std::move(list)},
                                         {"waiting", waiting},
                                         {"ended", all.size() - waiting},
                                         {"left_off", all.size() - shown}}));
}

void asynchronous_call(CallPtr call) {
  const AsyncCall* found = find_call(call);
  if (!found)
    return;
  Json out = call_summary(*found);
  out.set("id", found->id);
  if (found->state == CallState::done) {
    for (const auto& [name, value] : found->answer_headers)
      if (lower(name) == "content-type")
        out.set("answer_type", value);
    out.set("answer", found->answer);
  }
  call->reply_durable(200, std::move(out));
}

void cancel_call(CallPtr call) {
  const AsyncCall* found = find_call(call);
  if (!found)
    return;
  EndCall command;
  command.call.id = found->id;
  command.call.endpoint = found->endpoint;
  command.call.state = CallState::cancelled;
  command.call.reason = fmt::format("cancelled by {}", call->principal.name);
  call->execute(std::move(command), 200, [](const std::vector<Event>&) {
    return Json::object({{"ok", true}});
  });
}

void gateways(CallPtr call) {
  Json list = Json::array();
  for (const auto& row : call->host.gateway_list())
    list.push(view::gateway_document(row));
  call->reply(200, Json::object({{"gateways", std::move(list)}}));
}

namespace {

// Answers when the gateways know it: a new key works at once, and a removed one no longer.
void change_key(const CallPtr& call, SetEndpointKey command, int status, Json answer) {
  call->host.execute(
      std::move(command), call->cause(),
      [call, status, answer](const Result<std::vector<Event>>& events) {
        if (!events)
          return call->fail(events.error());
        call->host.when_gateways_know([call, status, answer] { call->reply(status, answer); });
      });
}

}  // namespace

void add_key(CallPtr call) {
  auto body = read_body<KeyBody>(call);
  if (!body || !find_endpoint(call, true))
    return;
  SetEndpointKey command{.endpoint = call->parts[0], .name = body->name, .hash = {}};
  command.limits = std::move(body->limits);
  constexpr std::int64_t lasts_max_s = std::int64_t{10} * 366 * 86'400;
  if (body->lasts_s < 0 || body->lasts_s > lasts_max_s)
    return call->fail({Code::invalid, "a key can last ten years at most", "shorten --expires"});
  if (body->lasts_s > 0)
    command.expires_at = system_clock().wall() + seconds(body->lasts_s);
  if (!body->project.empty()) {
    const Project* project = call->host.state().project_by_name(body->project);
    if (!project || !may_see(*call, project->id))
      return call->fail({Code::not_found, fmt::format("there is no project \"{}\"", body->project),
                         "see `billow project list`"});
    command.project = project->id;
  }
  with_approval(call, ApprovalAction::expose,
                fmt::format("give out a key for endpoint {}", call->parts[0]),
                [call, command]() mutable {
                  const std::string secret = "bwk_" + random_token(30);
                  command.hash = sha256_hex(secret);
                  Json answer = Json::object({{"name", command.name}, {"key", secret}});
                  if (command.expires_at)
                    answer.set("expires_at", format_utc(command.expires_at));
                  change_key(call, command, 201, std::move(answer));
                });
}

void remove_key(CallPtr call) {
  if (!find_endpoint(call, true))
    return;
  change_key(call, {.endpoint = call->parts[0], .name = call->parts[1], .hash = {}}, 200,
             Json::object({{"ok", true}}));
}

void gateway(CallPtr call) {
  // The token that a head makes for its machine's gateway has this name.
  const control::Principal& who = call->principal;
  const bool own = who.scope == TokenScope::gateway && who.token_name.starts_with("local-gateway");
  std::string region;
  for (const auto& [key, value] : call->request().query)
    if (key == "region")
      region = value;
  if (!region.empty())
    if (const Status named = check_name("region", region); !named)
      return call->fail(named.error());
  auto socket = call->exchange->upgrade_websocket(
      {.subprotocol = "", .message_bytes_max = 16 << 20, .queue_bytes_max = 64 << 20});
  if (!socket)
    return call->fail(socket.error());
  // A gateway is sent everybody's endpoints for as long as its token is valid.
  struct Watch {
    net::Timer timer;
  };
  auto watch = std::make_shared<Watch>();
  watch->timer =
      call->host.loop().every(rights_every, [call, watch, weak = std::weak_ptr(*socket)] {
        const auto open = weak.lock();
        if (open && open->open() && call->still_allowed())
          return;
        if (open && open->open())
          open->close(net::WebSocket::close_policy, "the token of this gateway is no longer valid");
        call->host.loop().post([watch] { watch->timer.cancel(); });
      });
  call->host.adopt_gateway(std::move(*socket),
                           {.region = std::move(region),
                            .name = who.scope == TokenScope::gateway ? who.token_name : who.name,
                            .own = own});
}

}  // namespace billow::api::endpoints
