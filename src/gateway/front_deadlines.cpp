// When a client's connection ends: its deadlines, and what others decide.
#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "gateway/proxy.h"

namespace billow::gateway {

void Front::close_when_idle() {
  closing_ = true;
  if (state_ == State::idle && !(parser_ && parser_->started()))
    close();
}

void Front::drop() {
  if (active() || state_ == State::tunnel)
    place_->stay();
  else
    close();
}

void Front::close_after(SteadyTime idle_until) {
  closing_ = true;
  if (state_ == State::idle)
    deadline_ = std::min(deadline_, idle_until);
}

void Front::give_up(const Upstream& upstream) {
  if (state_ != State::serving || answer_began_ || ticket.upstream.get() != &upstream)
    return;
  back_failed("it has ended", true);
}

// The answer must begin within the endpoint's time. A body that is long on its way gets more, but
// no more than its bytes take at the least rate: a client that sends a byte now and then would hold
// its place at the replica forever.
SteadyTime Front::answer_deadline() const {
  const Duration taken = std::max(ticket.body_at - ticket.arrived, Duration{});
  const Duration earned =
      seconds(static_cast<std::int64_t>(ticket.bytes_in / proxy_.options().body_bytes_per_s_min));
  return ticket.arrived + ticket.timeout + std::min(taken, earned);
}

// While reading is paused, the loop does not report that the client has disconnected. What it has
// sent into a tunnel still goes to the replica, unless it hung up.
bool Front::client_lost(SteadyTime now) {
  return stream_->paused_peer_has_gone(state_ == State::tunnel) ||
         (stream_->queued() > 0 &&
          now - stream_->last_write_progress() > proxy_.options().write_stall_timeout);
}

void Proxy::end_streams(const std::function<bool(const Ticket&)>& which) {
  const auto all = fronts_;
  for (const auto& [key, front] : all)
    if (front->streams() && which(front->ticket))
      front->close();
}

void Front::check_deadlines(SteadyTime now) {
  const auto keep = shared_from_this();
  const auto& options = proxy_.options();
  if (state_ == State::closed)
    return;
  if (client_lost(now))
    return close();
  if (state_ == State::serving && back_ && !back_->connected() &&
      now - back_->connecting_since > options.connect_timeout)
    return back_failed("it does not accept connections", false);
  if (now < deadline_)
    return;
  switch (state_) {
    case State::idle:
      if (parser_ && parser_->started())
        return bad_request(408, "the request's header did not arrive in time");
      return close();
    case State::waiting:
      if (!body_complete_ && kept_body_.size() < limits::gateway_held_body_bytes_max)
        return bad_request(408, "the request's body did not arrive in time");
      return;  // the gateway decides how long it may wait
    case State::serving:
      if (answer_began_)
        return close();
      drop_back(false);
      ticket.status = body_complete_ ? 504 : 408;
      send_whole(net::problem(
          ticket.status,
          body_complete_
              ? fmt::format("the replica did not answer within {}", format_duration(ticket.timeout))
              : "the request's body did not arrive in time",
          body_complete_
              ? "deploy the endpoint with a longer --timeout, or call it with Prefer: respond-async"
              : "",
          request_id_));
      done(End::timed_out);
      return end_of_answer();
    case State::tunnel:
    case State::goodbye:
      return close();
    case State::closed:
      return;
  }
}

}  // namespace billow::gateway
