// Approvals: the routes for people, and the way of an agent's request through them.
#include <fmt/format.h>

#include "api/call.h"
#include "base/crypto.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "core/control/agent_tokens.h"

namespace billow::api {
namespace {

// What an approval is for: exactly this request.
std::string request_digest(const Call& call) {
  const net::Request& request = call.request();
  return sha256_hex(
      fmt::format("{}\n{}\n{}", static_cast<int>(request.method), request.target, request.body));
}

Json approval_document(const control::State& state, const Approval& a) {
  const auto project = state.projects.find(a.project);
  const auto user = state.users.find(a.user);
  return Json::object({{"id", a.id},
                       {"agent", a.agent},
                       {"token", a.token.value},
                       {"user", user == state.users.end() ? "" : user->second.name},
                       {"project", project == state.projects.end() ? "" : project->second.name},
                       {"action", enum_name(a.action)},
                       {"text", a.text},
                       {"state", enum_name(a.state)},
                       {"asked_at", format_utc(a.asked_at)},
                       {"expires_at", format_utc(a.expires_at)},
                       {"decided_by", a.decided_by}});
}

void fail_pending(const Call& call, const Approval& a) {
  net::Response response = net::problem(
      Error{Code::forbidden,
            fmt::format("this needs a person's approval: {}; approval {} waits for a decision and "
                        "expires {}",
                        a.text, a.id, relative_time(a.expires_at, call.host.now(), Zone::utc)),
            fmt::format("a person decides with `billow approvals approve {}` or in the dashboard; "
                        "then repeat the same request",
                        a.id)},
      call.request().request_id);
  if (auto document = parse_json(response.body)) {
    document->set("approval", approval_document(call.host.state(), a));
    response.body = document->dump();
  }
  call.exchange->respond(std::move(response));
}

// The owner of the agent token, and admins of its project. An agent sees its own requests.
bool may_see_approval(const Call& call, const Approval& a) {
  if (call.principal.agent)
    return a.token == call.principal.agent;
  if (call.principal.scope == TokenScope::submit)
    return false;
  return a.user == call.principal.user || call.may(Permission::jobs_any, a.project);
}

}  // namespace

void with_approval(CallPtr call,
                   ApprovalAction action,
                   std::string text,
                   std::function<void()> then) {
  if (!call->principal.agent)
    return then();
  AskApproval command;
  command.approval.token = call->principal.agent;
  command.approval.action = action;
  command.approval.text = std::move(text);
  command.approval.digest = request_digest(*call);
  const std::string digest = command.approval.digest;
  call->host.execute(
      std::move(command), call->cause(), [call, digest, then](Result<std::vector<Event>> events) {
        if (!events)
          return call->fail(events.error());
        for (const Event& event : *events)
          if (const auto* changed = get_if<ApprovalChanged>(&event.body);
              changed && changed->state == ApprovalState::used)
            return then();
        const Approval* open =
            control::open_approval(call->host.state(), call->principal.agent, digest);
        if (open)
          return fail_pending(*call, *open);
        call->fail({Code::conflict, "the approval was decided just now", "repeat the request"});
      });
}

void submit_for(CallPtr call,
                SubmitJob command,
                std::function<Json(const std::vector<Event>&)> answer) {
  if (!call->principal.agent)
    return call->execute(std::move(command), 201, std::move(answer));
  command.agent = call->principal.agent;
  command.digest = request_digest(*call);
  const std::string digest = command.digest;
  call->host.execute(
      std::move(command), call->cause(), [call, digest, answer](Result<std::vector<Event>> events) {
        if (!events)
          return call->fail(events.error());
        bool submitted = false;
        for (const Event& event : *events)
          submitted |= holds_alternative<JobsSubmitted>(event.body);
        const Approval* open =
            submitted ? nullptr
                      : control::open_approval(call->host.state(), call->principal.agent, digest);
        if (open)
          return fail_pending(*call, *open);
        call->reply(201, answer(*events));
      });
}

namespace approvals {

void list(CallPtr call) {
  const auto& state = call->host.state();
  const bool all = call->request().param("all") == "true";
  Json out = Json::array();
  for (const auto& [id, approval] : state.approvals)
    if ((all || approval.open()) && may_see_approval(*call, approval))
      out.push(approval_document(state, approval));
  call->reply_durable(200, Json::object({{"approvals", std::move(out)}}));
}

namespace {

struct DecisionBody {
  std::string decision;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("decision", s.decision);
  }
};

}  // namespace

void decide(CallPtr call) {
  const auto body = read_body<DecisionBody>(call);
  if (!body)
    return;
  const auto id = parse_int(call->parts[0], 1, INT64_MAX);
  const auto& approvals = call->host.state().approvals;
  const auto found = id ? approvals.find(static_cast<std::uint64_t>(*id)) : approvals.end();
  if (found == approvals.end() || !may_see_approval(*call, found->second))
    return call->fail({Code::not_found, fmt::format("there is no approval {}", call->parts[0]),
                       "see `billow approvals list`"});
  const std::string& decision = body->decision;
  if (decision != "approve" && decision != "deny")
    return call->fail({Code::invalid, "decision must be approve or deny", ""});
  const std::uint64_t number = found->first;
  call->execute(
      DecideApproval{number,
                     decision == "approve" ? ApprovalState::approved : ApprovalState::denied,
                     call->principal.name},
      200, [call, number](const std::vector<Event>&) {
        const auto& all = call->host.state().approvals;
        const auto at = all.find(number);
        return at == all.end() ? Json::object() : approval_document(call->host.state(), at->second);
      });
}

}  // namespace approvals
}  // namespace billow::api
