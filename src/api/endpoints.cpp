// The routes of serverless endpoints, and the gateways' line to the head.
#include <fmt/format.h>

#include "api/call.h"
#include "api/documents.h"
#include "api/files.h"
#include "base/crypto.h"
#include "base/text.h"
#include "core/control/money.h"
#include "core/ledger/meter.h"
#include "core/wire/codec.h"

namespace billow::api::endpoints {
namespace {

struct DeployBody {
  std::string name, project;
  JobSpec spec;
  Environment env;
  EndpointPolicy policy;
  template <class V>
  void fields(V& v) {
    v("name", name);
    v("spec", spec);
    v("env", env);
    v("project", project);
    v("policy", policy);
  }
};
struct ScaleBody {
  std::optional<std::uint32_t> min, max, concurrency;
  template <class V>
  void fields(V& v) {
    v("min", min);
    v("max", max);
    v("concurrency", concurrency);
  }
};
struct RollbackBody {
  std::uint32_t revision = 0;
  template <class V>
  void fields(V& v) {
    v("revision", revision);
  }
};
struct KeyBody {
  std::string name = "default";
  template <class V>
  void fields(V& v) {
    v("name", name);
  }
};

void missing(const CallPtr& call, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [n, e] : call->host.state().endpoints)
    if (control::role_in(call->host.state(), call->principal, e.project))
      names.push_back(n);
  const std::string near = nearest(name, names);
  call->fail({Code::not_found, fmt::format("there is no endpoint \"{}\"", name),
              near.empty() ? "see `billow endpoints`" : fmt::format("did you mean \"{}\"?", near)});
}

// The endpoint of the address, if the caller may see it, or change it.
const Endpoint* find(const CallPtr& call, bool change) {
  const auto found = call->host.state().endpoints.find(call->parts[0]);
  if (found == call->host.state().endpoints.end() || !may_see(*call, found->second.project))
    return missing(call, call->parts[0]), nullptr;
  if (change)
    if (const Status act = may_act(*call, found->second.project, found->second.user); !act)
      return call->fail(act.error()), nullptr;
  return &found->second;
}

double usd(NanoUsd amount) {
  return static_cast<double>(amount.value) / 1e9;
}

// What its replicas have cost so far, open leases up to now included.
NanoUsd cost_of(const control::State& state, const Endpoint& e, WallTime now) {
  NanoUsd cost = e.replicas_cost;
  const auto replicas = state.replicas.find(e.name);
  if (replicas == state.replicas.end())
    return cost;
  for (JobId id : replicas->second) {
    const Job& job = state.jobs.at(id);
    cost += job.cost;
    for (TaskId task : job.tasks)
      if (const Task& t = state.tasks.at(task); t.state != TaskState::ended)
        cost += ledger::lease_cost(
            t, std::max(t.lease_from, t.state == TaskState::unreachable
                                          ? std::min(now, state.nodes.at(t.node).unreachable_since)
                                          : now));
  }
  return cost;
}

bool waits(const Job& job) {
  return job.state == JobState::queued ||
         (job.state == JobState::suspended && job.suspension.resume_wanted);
}

// Each says why it waits, if it does. Behind a long queue every such answer costs a look at all of
// it: the first ones tell enough.
constexpr std::size_t explained_max = 8;

Json replicas_document(const control::State& state, const std::string& name, WallTime now) {
  Json list = Json::array();
  const auto replicas = state.replicas.find(name);
  if (replicas == state.replicas.end())
    return list;
  std::size_t explained = 0;
  for (JobId id : replicas->second) {
    const Job& job = state.jobs.at(id);
    Json one = Json::object(
        {{"job", id.value},
         {"revision", static_cast<std::uint64_t>(std::stoul(job.spec->labels.at(label_revision)))},
         {"state", enum_name(job.state)},
         {"spot", job.spec->spot},
         {"waits", waits(job)}});
    if (!job.tasks.empty()) {
      const Task& task = state.tasks.at(job.tasks.front());
      one.set("task_state", enum_name(task.state));
      one.set("node", state.nodes.contains(task.node) ? state.nodes.at(task.node).offer.name : "");
    }
    if (const auto region = job.spec->labels.find(label_region); region != job.spec->labels.end())
      one.set("region", region->second);
    if (std::string reason = waits(job) && explained++ < explained_max
                                 ? waiting_reason(state, job, now)
                                 : job.reason;
        !reason.empty())
      one.set("reason", std::move(reason));
    list.push(std::move(one));
  }
  return list;
}

// Why its last replica ended, until another has become healthy since.
std::string last_failure(const CallPtr& call, const Endpoint& e) {
  const auto* figures = call->host.endpoint_figures(e.name);
  return figures && e.failed_job && figures->recovered_from == e.failed_job.value ? std::string()
                                                                                  : e.failed_reason;
}

Json document(const CallPtr& call, const Endpoint& e) {
  const control::State& state = call->host.state();
  const Revision* current = e.current();
  Json urls = Json::array();
  for (const auto& address : call->host.gateway_addresses())
    urls.push(fmt::format("{}/f/{}/", address, e.name));
  std::string status = e.serving != 0   ? (e.rolling != 0 ? "updating" : "serving")
                       : e.rolling != 0 ? "starting"
                                        : "failed";
  Json out = Json::object({{"name", e.name},
                           {"project", state.projects.at(e.project).name},
                           {"user", state.users.at(e.user).name},
                           {"status", status},
                           {"urls", std::move(urls)},
                           {"revision", e.serving},
                           {"rolling", e.rolling},
                           {"made_at", format_utc(e.made_at)}});
  if (current) {
    out.set("command", shell_join(current->spec->argv));
    out.set("policy", parse_json(wire::to_json_text(current->policy)).value_or(Json::object()));
    out.set("min", current->policy.min);
    out.set("max", current->policy.max);
    out.set("access", enum_name(current->policy.access));
  }
  Json revisions = Json::array();
  for (const Revision& r : e.revisions) {
    Json one = Json::object({{"number", r.number},
                             {"state", enum_name(r.state)},
                             {"made_at", format_utc(r.made_at)},
                             {"command", shell_join(r.spec->argv)},
                             {"reason", r.reason}});
    if (r.failed_job)
      one.set("failed_job", r.failed_job.value);
    revisions.push(std::move(one));
  }
  out.set("revisions", std::move(revisions));
  Json keys = Json::array();
  for (const EndpointKey& k : e.keys)
    keys.push(Json::object({{"name", k.name}, {"made_at", format_utc(k.made_at)}}));
  out.set("keys", std::move(keys));
  Json replicas = replicas_document(state, e.name, call->host.now());
  // What somebody who waits for it wants to know first.
  for (const Json& r : replicas.items())
    if (r["waits"].bool_or(false) && !r["reason"].str_or("").empty()) {
      out.set("waiting", r["reason"]);
      break;
    }
  out.set("replicas", std::move(replicas));
  if (const std::string failure = last_failure(call, e); !failure.empty()) {
    out.set("last_failure", failure);
    out.set("failed_job", e.failed_job.value);
  }
  const NanoUsd cost = cost_of(state, e, call->host.now());
  out.set("cost_usd", usd(cost));
  if (const auto addresses = call->host.gateway_addresses(); !addresses.empty())
    out.set("url", fmt::format("{}/f/{}/", addresses.front(), e.name));
  out.set("state", status == "failed" ? "failed" : status == "serving" ? "running" : "starting");
  if (const auto* f = call->host.endpoint_figures(e.name)) {
    out.set("ready", f->ready);
    out.set("queued", f->held);
    out.set("in_flight", f->in_flight);
    if (f->first_byte_p50_us > 0)
      out.set("p50_ms", static_cast<double>(f->first_byte_p50_us) / 1000);
    if (f->first_byte_p99_us > 0)
      out.set("p99_ms", static_cast<double>(f->first_byte_p99_us) / 1000);
    Json figures = parse_json(wire::to_json_text(*f)).value_or(Json::object());
    for (const char* name : {"requests", "held", "in_flight", "ready", "sleeping", "coming"})
      if (!figures.find(name))
        figures.set(name, 0);
    out.set("figures", std::move(figures));
    if (f->requests > 0)
      out.set("usd_per_request", usd(cost) / static_cast<double>(f->requests));
    if (f->tokens_out > 0)
      out.set("usd_per_1000_tokens", usd(cost) / static_cast<double>(f->tokens_out) * 1000);
  }
  return out;
}

}  // namespace

void deploy(CallPtr call) {
  auto body = read_body<DeployBody>(call);
  if (!body)
    return;
  DeployEndpoint command;
  if (const auto found = call->host.state().endpoints.find(body->name);
      found != call->host.state().endpoints.end()) {
    if (!may_see(*call, found->second.project))
      return call->fail(
          {Code::conflict, fmt::format("the name \"{}\" is taken", body->name), "choose another"});
    if (const Status act = may_act(*call, found->second.project, found->second.user); !act)
      return call->fail(act.error());
  } else {
    auto project = project_to_submit_to(*call, body->project);
    if (!project)
      return call->fail(project.error());
    command.project = std::move(*project);
  }
  command.name = body->name;
  command.spec = std::move(body->spec);
  command.spec.surroundings.environment_digest.clear();  // what the name stands for decides
  command.env = std::move(body->env);
  if (const Status files = files::may_use(*call, command.env, command.project); !files)
    return call->fail(files.error());
  command.policy = std::move(body->policy);
  command.user = call->principal.user;
  call->execute(std::move(command), 201, [call, name = body->name](const std::vector<Event>&) {
    const auto found = call->host.state().endpoints.find(name);
    return found == call->host.state().endpoints.end() ? Json::object({{"name", name}})
                                                       : document(call, found->second);
  });
}

void list(CallPtr call) {
  Json all = Json::array();
  for (const auto& [name, e] : call->host.state().endpoints)
    if (control::role_in(call->host.state(), call->principal, e.project))
      all.push(document(call, e));
  call->reply_durable(200, Json::object({{"endpoints", std::move(all)}}));
}

void get(CallPtr call) {
  if (const Endpoint* e = find(call, false))
    call->reply_durable(200, document(call, *e));
}

// Why it does not serve, or not with more: what holds each of its replicas back, and what holds the
// endpoint itself.
void explain(CallPtr call) {
  const Endpoint* e = find(call, false);
  if (!e)
    return;
  const control::State& state = call->host.state();
  Json reasons = Json::array();
  const auto because = [&](const char* kind, std::string text) {
    reasons.push(Json::object({{"kind", kind}, {"text", std::move(text)}}));
  };
  const Json shown = document(call, *e);
  if (call->host.gateway_addresses().empty())
    because("gateway", "no gateway is connected, so nobody brings its replicas up or serves it");
  Json replicas = Json::array();
  std::size_t explained = 0;
  if (const auto mine = state.replicas.find(e->name); mine != state.replicas.end()) {
    if (std::string budget = control::held_back(state, mine->second, call->host.now());
        !budget.empty())
      because("budget", std::move(budget));
    for (JobId id : mine->second) {
      const Job& job = state.jobs.at(id);
      if (!waits(job) || explained++ >= explained_max)
        continue;
      Json one = explain_document(state, job, call->host.now());
      one.set("revision",
              static_cast<std::uint64_t>(std::stoul(job.spec->labels.at(label_revision))));
      replicas.push(std::move(one));
    }
  }
  if (e->serving == 0 && e->rolling == 0)
    for (const Revision& r : e->revisions)
      if (r.state == RevisionState::failed && &r == &e->revisions.back())
        because("failed",
                fmt::format("revision {} did not become healthy: {}", r.number, r.reason));
  if (const std::string failure = last_failure(call, *e); !failure.empty())
    because("failure", "last: " + failure);
  call->reply_durable(200, Json::object({{"name", e->name},
                                         {"status", shown["status"]},
                                         {"ready", shown.at("figures", "ready").uint_or(0)},
                                         {"sleeping", shown.at("figures", "sleeping").uint_or(0)},
                                         {"coming", shown.at("figures", "coming").uint_or(0)},
                                         {"max", shown["max"].uint_or(0)},
                                         {"reasons", std::move(reasons)},
                                         {"replicas", std::move(replicas)}}));
}

void scale(CallPtr call) {
  auto body = read_body<ScaleBody>(call);
  if (!body || !find(call, true))
    return;
  call->execute(ScaleEndpoint{call->parts[0], body->min, body->max, body->concurrency}, 200,
                [call, name = call->parts[0]](const std::vector<Event>& events) {
                  Json out = Json::object({{"ok", true}, {"changed", !events.empty()}});
                  const auto found = call->host.state().endpoints.find(name);
                  if (const Revision* current = found == call->host.state().endpoints.end()
                                                    ? nullptr
                                                    : found->second.current()) {
                    out.set("min", current->policy.min);
                    out.set("max", current->policy.max);
                    out.set("concurrency", current->policy.concurrency);
                  }
                  return out;
                });
}

void rollback(CallPtr call) {
  auto body = read_body<RollbackBody>(call);
  if (!body || !find(call, true))
    return;
  call->execute(RollbackEndpoint{call->parts[0], body->revision}, 200,
                [](const std::vector<Event>& events) {
                  Json out = Json::object({{"ok", true}});
                  for (const Event& event : events)
                    if (const auto* made = std::get_if<EndpointDeployed>(&event.body))
                      out.set("revision", made->revision.number);
                  return out;
                });
}

void remove(CallPtr call) {
  if (!find(call, true))
    return;
  call->execute(DeleteEndpoint{call->parts[0]}, 200, [](const std::vector<Event>&) {
    return Json::object({{"ok", true}});
  });
}

void add_key(CallPtr call) {
  auto body = read_body<KeyBody>(call);
  if (!body || !find(call, true))
    return;
  const std::string secret = "bwk_" + random_token(30);
  call->execute(SetEndpointKey{call->parts[0], body->name, sha256_hex(secret)}, 201,
                [secret, name = body->name](const std::vector<Event>&) {
                  return Json::object({{"name", name}, {"key", secret}});
                });
}

void remove_key(CallPtr call) {
  if (!find(call, true))
    return;
  call->execute(SetEndpointKey{call->parts[0], call->parts[1], ""}, 200,
                [](const std::vector<Event>&) {
                  return Json::object({{"ok", true}});
                });
}

void gateway(CallPtr call) {
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
  // It is told of everybody's endpoints for as long as its token may be.
  struct Watch {
    net::Timer timer;
  };
  auto watch = std::make_shared<Watch>();
  watch->timer = call->host.loop().every(rights_every, [call, watch,
                                                        weak = std::weak_ptr(*socket)] {
    const auto open = weak.lock();
    if (open && open->open() && call->still_allowed())
      return;
    if (open && open->open())
      open->close(net::WebSocket::close_policy, "the token of this gateway is not valid any more");
    call->host.loop().post([watch] { watch->timer.cancel(); });
  });
  call->host.adopt_gateway(std::move(*socket), std::move(region));
}

}  // namespace billow::api::endpoints
