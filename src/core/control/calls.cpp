// Asynchronous calls of endpoints: accepted, ended, and forgotten when their answers have been kept
// for long enough.
#include <fmt/format.h>
#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/model/call_limits.h"

namespace billow::control {
namespace {

// ---- limits of waiting calls and kept answers

struct Weight {
  std::size_t calls = 0;
  std::size_t bytes = 0;
  void add(const Weight& more) {
    calls += more.calls;
    bytes += more.bytes;
  }
  void remove(const Weight& less) {
    calls -= less.calls;
    bytes -= less.bytes;
  }
  bool within(std::size_t calls_max, std::size_t bytes_max) const {
    return calls <= calls_max && bytes <= bytes_max;
  }
};

Weight weight(const AsyncCall& call) {
  constexpr std::size_t itself = 512;
  std::size_t bytes = itself + call.target.size() + call.body.size() + call.answer.size();
  for (const auto* fields : {&call.headers, &call.answer_headers})
    for (const auto& [name, value] : *fields)
      bytes += name.size() + value.size() + 64;
  return {1, bytes};
}

std::unordered_map<std::string_view, Weight> weights(const State& state, bool waiting) {
  std::unordered_map<std::string_view, Weight> by_endpoint;
  for (const auto& [id, call] : state.calls)
    if ((call.state == CallState::waiting) == waiting)
      by_endpoint[call.endpoint].add(weight(call));
  return by_endpoint;
}

bool is_open(const Endpoint& endpoint) {
  const Revision* current = endpoint.current();
  return current && current->policy.access == EndpointAccess::open;
}

// A flood of calls to one endpoint leaves capacity for the others.
Status check_call_space(const State& state, const AsyncCall& call) {
  const Endpoint& endpoint = state.endpoints.at(call.endpoint);
  const bool open = is_open(endpoint);
  const Weight one = weight(call);
  Weight all = one, here = one, of_open = one, of_project = one;
  for (const auto& [name, sum] : weights(state, true)) {
    const auto other = state.endpoints.find(std::string(name));
    if (other == state.endpoints.end())
      continue;
    all.add(sum);
    if (name == call.endpoint)
      here.add(sum);
    if (is_open(other->second))
      of_open.add(sum);
    if (other->second.project == endpoint.project)
      of_project.add(sum);
  }
  const auto full = [&](std::string_view whose, const Weight& sum) {
    return fail(Code::exhausted,
                fmt::format("{} asynchronous calls with {} wait{} already", sum.calls - one.calls,
                            format_bytes(sum.bytes - one.bytes), whose),
                "retry after the time in Retry-After, or call without Prefer: respond-async");
  };
  const std::string mine = fmt::format(" for endpoint {}", call.endpoint);
  if (!here.within(limits::async_waiting_of_endpoint_max,
                   limits::async_waiting_of_endpoint_bytes_max))
    return full(mine, here);
  if (open && !here.within(limits::async_waiting_of_open_endpoint_max,
                           limits::async_waiting_of_open_endpoint_bytes_max))
    return full(mine, here);
  if (of_project.within(limits::async_sure_of_project, limits::async_sure_of_project_bytes))
    return {};
  if (open &&
      !of_open.within(limits::async_waiting_of_open_max, limits::async_waiting_of_open_bytes_max))
    return full(" for open endpoints", of_open);
  if (!all.within(limits::async_calls_max, limits::async_waiting_bytes_max))
    return full("", all);
  return {};
}

// Answers are kept for a time while there is space; after that the endpoint with the most answers
// loses its oldest.
std::vector<std::string> answers_to_drop(const State& state, const AsyncCall& ended) {
  std::vector<std::string> out;
  auto kept = weights(state, false);
  Weight all = weight(ended);
  for (const auto& [name, sum] : kept)
    all.add(sum);
  std::set<std::string_view> gone;
  while (!all.within(limits::async_calls_max, limits::async_kept_bytes_max)) {
    const bool by_bytes = all.bytes > limits::async_kept_bytes_max;
    const auto most = std::max_element(kept.begin(), kept.end(), [&](const auto& a, const auto& b) {
      const auto of = [&](const auto& each) {
        return std::pair(by_bytes ? each.second.bytes : each.second.calls, each.first);
      };
      return of(a) < of(b);
    });
    const AsyncCall* oldest = nullptr;
    if (most != kept.end())
      for (const auto& [id, call] : state.calls)
        if (call.state != CallState::waiting && call.endpoint == most->first &&
            !gone.contains(id) && (!oldest || call.ended_at < oldest->ended_at))
          oldest = &call;
    if (!oldest)
      break;
    const Weight one = weight(*oldest);
    all.remove(one);
    most->second.remove(one);
    gone.insert(oldest->id);
    out.push_back(oldest->id);
  }
  return out;
}

// A gateway that authenticates its callers sends the key "bound:CALLER:DIGEST", where the digest is
// that of the request.
std::string_view whose_key(std::string_view key) {
  return key.starts_with("bound:") ? key.substr(0, key.rfind(':')) : std::string_view();
}

}  // namespace

// ---- decisions

Decision Decider::operator()(const AcceptCall& c) {
  BILLOW_TRY_VOID(endpoint_named(c.call.endpoint));
  if (c.call.id.empty() || state.calls.contains(c.call.id))
    return fail(Code::conflict, "this call exists already");
  if (!c.call.idempotency_key.empty())
    for (const auto& [id, old] : state.calls) {
      if (old.endpoint != c.call.endpoint)
        continue;
      // The shell answers with the id of the first one.
      if (old.idempotency_key == c.call.idempotency_key)
        return Events{};
      if (const auto whose = whose_key(c.call.idempotency_key);
          !whose.empty() && whose == whose_key(old.idempotency_key))
        return fail(Code::conflict, "this Idempotency-Key was used with another request",
                    "send the same request, or use another key");
    }
  if (c.call.body.size() > limits::async_body_bytes_max * 4 / 3 + 4)
    return fail(Code::too_large, "the call's body is too large");
  BILLOW_TRY_VOID(check_call_space(state, c.call));
  AsyncCall call = c.call;
  call.made_at = context.now;
  call.state = CallState::waiting;
  call.ended_at = {};
  return Events{CallAccepted{std::move(call)}};
}

Decision Decider::operator()(const EndCall& c) {
  const auto found = state.calls.find(c.call.id);
  if (found == state.calls.end())
    return fail(Code::not_found, "no such call, or its answer is no longer stored");
  if (found->second.state != CallState::waiting) {
    if (c.call.state == CallState::cancelled)
      return fail(Code::conflict, "the call has already ended");
    return Events{};
  }
  if (c.call.state == CallState::waiting)
    return fail(Code::invalid, "a call does not end by waiting");
  Events events{CallEnded{c.call.id, c.call.state, c.call.status, c.call.answer_headers,
                          c.call.answer, c.call.reason}};
  if (auto ids = answers_to_drop(state, c.call); !ids.empty())
    events.push_back(CallsForgotten{std::move(ids)});
  return events;
}

void Decider::forget_calls(Events& events) {
  CallsForgotten forgotten;
  for (const auto& [id, call] : state.calls)
    if (call.ended_at && context.now - call.ended_at > limits::async_result_life)
      forgotten.ids.push_back(id);
  if (!forgotten.ids.empty())
    events.push_back(std::move(forgotten));
}

// ---- folding

void Applier::operator()(const CallAccepted& c) {
  state.calls[c.call.id] = c.call;
}

void Applier::operator()(const CallEnded& c) {
  const auto found = state.calls.find(c.id);
  BILLOW_CHECK(found != state.calls.end(), "an event names a call that is not there");
  AsyncCall& call = found->second;
  call.state = c.state;
  call.status = c.status;
  call.answer_headers = c.answer_headers;
  call.answer = c.answer;
  call.reason = c.reason;
  call.ended_at = event.at;
  call.body.clear();
  call.headers.clear();
}

void Applier::operator()(const CallsForgotten& c) {
  for (const auto& id : c.ids)
    state.calls.erase(id);
}

}  // namespace billow::control
