#include "view/endpoint_document.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "core/control/money.h"
#include "core/wire/codec.h"
#include "gateway/pure/key_meter.h"
#include "view/cost.h"
#include "view/names.h"
#include "view/waiting.h"

namespace billow::view {
namespace {

double usd(NanoUsd amount) {
  return static_cast<double>(amount.value) / 1e9;
}

// Behind a long queue every explanation walks all of it, so only the first replicas get one.
constexpr std::size_t explained_max = 8;

std::uint64_t revision_of(const Job& replica) {
  return static_cast<std::uint64_t>(std::stoul(replica.spec->labels.at(label_revision)));
}

Json replica_document(const control::State& state, const Job& job, std::string reason) {
  Json one = Json::object({{"job", job.id.value},
                           {"revision", revision_of(job)},
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
  if (!reason.empty())
    one.set("reason", std::move(reason));
  return one;
}

std::string trouble_of(const GatewayView& gateways, const Job& replica) {
  return replica.tasks.empty() || !gateways.trouble_of ? std::string()
                                                       : gateways.trouble_of(replica.tasks.front());
}

Json replicas_document(const control::State& state,
                       const std::string& name,
                       const GatewayView& gateways,
                       WallTime now) {
  Json list = Json::array();
  const auto replicas = state.replicas.find(name);
  if (replicas == state.replicas.end())
    return list;
  std::size_t explained = 0;
  for (const JobId id : replicas->second) {
    const Job& job = state.jobs.at(id);
    const bool explain = waits(job) && explained++ < explained_max;
    Json one = replica_document(state, job, explain ? waiting_reason(state, job, now) : job.reason);
    if (std::string trouble = trouble_of(gateways, job); !trouble.empty())
      one.set("trouble", std::move(trouble));
    list.push(std::move(one));
  }
  return list;
}

// Why the last replica ended, until another one has become healthy since.
std::string last_failure(const Endpoint& e, const gateway::EndpointFigures* figures) {
  return figures && e.failed_job && figures->recovered_from == e.failed_job.value ? std::string()
                                                                                  : e.failed_reason;
}

std::string status_of(const Endpoint& e) {
  if (e.serving != 0 && e.canary != 0 && e.rolling == 0)
    return "canary";
  if (e.serving != 0)
    return e.rolling != 0 ? "updating" : "serving";
  return e.rolling != 0 ? "starting" : "failed";
}

Json release_document(const ReleasePlan& plan) {
  return Json::object({{"traffic_pct", static_cast<double>(plan.traffic) / 10},
                       {"mirror_pct", static_cast<double>(plan.mirror) / 10},
                       {"mirror_post", plan.mirror_post},
                       {"auto_rollback", enum_name(plan.guard)}});
}

Json revisions_document(const Endpoint& e) {
  Json revisions = Json::array();
  for (const Revision& r : e.revisions) {
    Json one = Json::object({{"number", r.number},
                             {"state", enum_name(r.state)},
                             {"made_at", format_utc(r.made_at)},
                             {"command", shell_join(r.spec->argv)},
                             {"reason", r.reason}});
    if (r.failed_job)
      one.set("failed_job", r.failed_job.value);
    if (r.release.any())
      one.set("release", release_document(r.release));
    revisions.push(std::move(one));
  }
  return revisions;
}

Json key_document(const control::State& state,
                  const Endpoint& e,
                  const EndpointKey& key,
                  WallTime now) {
  Json out = Json::object({{"name", key.name}, {"made_at", format_utc(key.made_at)}});
  if (key.project)
    out.set("project", project_name(state, key.project));
  if (key.expires_at) {
    out.set("expires_at", format_utc(key.expires_at));
    out.set("expired", key.expires_at <= now);
  }
  if (!key.limits.empty()) {
    Json limits = Json::array();
    for (const KeyLimit& limit : key.limits)
      limits.push(gateway::limit_text(limit));
    out.set("limits", std::move(limits));
  }
  const std::int64_t today = now.ns / hours(24).ns;
  KeyUse used;
  for (auto at = state.key_uses.lower_bound({.day = today, .endpoint = e.name, .key = key.name});
       at != state.key_uses.end() && at->day == today && at->endpoint == e.name &&
       at->key == key.name;
       ++at) {
    used.requests += at->requests;
    used.refused += at->refused;
    used.tokens_in += at->tokens_in;
    used.tokens_out += at->tokens_out;
    used.charge += at->charge;
  }
  out.set("today", Json::object({{"requests", used.requests},
                                 {"refused", used.refused},
                                 {"tokens_in", used.tokens_in},
                                 {"tokens_out", used.tokens_out},
                                 {"charge_nano_usd", used.charge.value},
                                 {"charge", format_usd(used.charge)}}));
  return out;
}

// The revision that serves or will; of an endpoint that has failed, the one that did.
const Revision* shown_revision(const Endpoint& e) {
  const Revision* current = e.current();
  return current || e.revisions.empty() ? current : &e.revisions.back();
}

void add_current(Json& out, const Endpoint& e) {
  const Revision* current = shown_revision(e);
  if (!current)
    return;
  out.set("command", shell_join(current->spec->argv));
  out.set("policy", parse_json(wire::to_json_text(current->policy)).value_or(Json::object()));
  out.set("min", current->policy.min);
  out.set("max", current->policy.max);
  out.set("access", enum_name(current->policy.access));
}

void add_figures(Json& out, const gateway::EndpointFigures& f, NanoUsd cost) {
  out.set("ready", f.ready);
  out.set("queued", f.held);
  out.set("in_flight", f.in_flight);
  if (f.first_byte_p50_us > 0)
    out.set("p50_ms", static_cast<double>(f.first_byte_p50_us) / 1000);
  if (f.first_byte_p99_us > 0)
    out.set("p99_ms", static_cast<double>(f.first_byte_p99_us) / 1000);
  Json figures = parse_json(wire::to_json_text(f)).value_or(Json::object());
  for (const char* name : {"requests", "held", "in_flight", "ready", "sleeping", "coming", "sick"})
    if (!figures.find(name))
      figures.set(name, 0);
  out.set("figures", std::move(figures));
  if (!f.notes.empty()) {
    Json notes = Json::array();
    for (const std::string& note : f.notes)
      notes.push(note);
    out.set("notes", std::move(notes));
  }
  if (f.requests > 0)
    out.set("usd_per_request", usd(cost) / static_cast<double>(f.requests));
  if (f.tokens_out > 0)
    out.set("usd_per_1000_tokens", usd(cost) / static_cast<double>(f.tokens_out) * 1000);
}

void add_replicas(Json& out,
                  const control::State& state,
                  const Endpoint& e,
                  const GatewayView& gateways,
                  WallTime now) {
  Json replicas = replicas_document(state, e.name, gateways, now);
  for (const Json& r : replicas.items())
    if (r.find("trouble")) {
      out.set("trouble", fmt::format("replica (job {}) does not serve: {}", r["job"].uint_or(0),
                                     r["trouble"].str_or("")));
      break;
    }
  // The reason of the first waiting replica stands for the endpoint.
  for (const Json& r : replicas.items())
    if (r["waits"].bool_or(false) && !r["reason"].str_or("").empty()) {
      out.set("waiting", r["reason"]);
      break;
    }
  out.set("replicas", std::move(replicas));
}

}  // namespace

Json endpoint_document(const control::State& state,
                       const Endpoint& e,
                       const GatewayView& gateways,
                       Moment at) {
  const std::string status = status_of(e);
  Json urls = Json::array();
  for (const std::string& address : gateways.addresses)
    urls.push(fmt::format("{}/f/{}/", address, e.name));
  Json keys = Json::array();
  for (const EndpointKey& k : e.keys)
    keys.push(key_document(state, e, k, at.now));
  Json out = Json::object({{"name", e.name},
                           {"project", project_name(state, e.project)},
                           {"user", user_name(state, e.user)},
                           {"status", status},
                           {"urls", std::move(urls)},
                           {"revision", e.serving},
                           {"rolling", e.rolling},
                           {"canary", e.canary},
                           {"made_at", format_utc(e.made_at)}});
  add_current(out, e);
  out.set("revisions", revisions_document(e));
  out.set("keys", std::move(keys));
  add_replicas(out, state, e, gateways, at.now);
  if (const std::string failure = last_failure(e, gateways.figures); !failure.empty()) {
    out.set("last_failure", failure);
    out.set("failed_job", e.failed_job.value);
  }
  const NanoUsd cost = cost_so_far(state, e, at.billed);
  out.set("cost_usd", usd(cost));
  if (!gateways.addresses.empty())
    out.set("url", fmt::format("{}/f/{}/", gateways.addresses.front(), e.name));
  if (!gateways.fingerprint.empty())
    out.set("tls_fingerprint", gateways.fingerprint);
  out.set("state", status == "failed"                          ? "failed"
                   : status == "serving" || status == "canary" ? "running"
                                                               : "starting");
  if (gateways.figures)
    add_figures(out, *gateways.figures, cost);
  return out;
}

Json explain_endpoint_document(const control::State& state,
                               const Endpoint& e,
                               const GatewayView& gateways,
                               Moment at) {
  Json reasons = Json::array();
  const auto because = [&](const char* kind, std::string text) {
    reasons.push(Json::object({{"kind", kind}, {"text", std::move(text)}}));
  };
  if (gateways.addresses.empty())
    because("gateway", "no gateway is connected: replicas are not started and requests fail");
  Json replicas = Json::array();
  std::size_t explained = 0;
  if (const auto mine = state.replicas.find(e.name); mine != state.replicas.end()) {
    if (std::string budget = control::held_back(state, mine->second, at.billed); !budget.empty())
      because("budget", std::move(budget));
    for (const JobId id : mine->second) {
      const Job& job = state.jobs.at(id);
      if (const std::string trouble = trouble_of(gateways, job); !trouble.empty())
        because("replica", fmt::format("replica (job {}) does not serve: {}", id.value, trouble));
      if (!waits(job) || explained++ >= explained_max)
        continue;
      Json one = explain_document(state, job, at);
      one.set("revision", revision_of(job));
      replicas.push(std::move(one));
    }
  }
  if (e.serving == 0 && e.rolling == 0 && !e.revisions.empty())
    if (const Revision& r = e.revisions.back(); r.state == RevisionState::failed)
      because("failed", fmt::format("revision {} did not become healthy: {}", r.number, r.reason));
  if (const std::string failure = last_failure(e, gateways.figures); !failure.empty())
    because("failure", "last: " + failure);
  const Revision* current = shown_revision(e);
  const gateway::EndpointFigures none;
  const gateway::EndpointFigures& figures = gateways.figures ? *gateways.figures : none;
  for (const std::string& note : figures.notes)
    because("note", note);
  return Json::object({{"name", e.name},
                       {"status", status_of(e)},
                       {"ready", figures.ready},
                       {"sleeping", figures.sleeping},
                       {"coming", figures.coming},
                       {"sick", figures.sick},
                       {"max", current ? current->policy.max : 0},
                       {"reasons", std::move(reasons)},
                       {"replicas", std::move(replicas)}});
}

std::size_t endpoints_running(const control::State& state) {
  return static_cast<std::size_t>(std::ranges::count_if(state.replicas, [&](const auto& each) {
    return std::ranges::any_of(each.second, [&](JobId id) {
      const Job* job = state.find_job(id);
      return job && job->state == JobState::running;
    });
  }));
}

}  // namespace billow::view
