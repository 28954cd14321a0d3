// What is taken from requests in passing: whole bodies, copies for a canary, errors inside of
// answers, samples.
#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "gateway/grpc.h"
#include "gateway/proxy.h"

namespace billow::gateway {

net::Response api_error(int status, std::string_view code, const std::string& message) {
  return net::Response::json(
      status, Json::object({{"error", Json::object({{"message", message},
                                                    {"type", status < 500 ? "invalid_request_error"
                                                                          : "server_error"},
                                                    {"code", code}})}})
                  .dump());
}

net::Response body_too_large(const Front& front) {
  const std::string message =
      fmt::format("the body exceeds the limit of {}", format_bytes(front.ticket.body_bytes_max));
  return front.path().starts_with("/v1/") && !front.ticket.by_host
             ? api_error(413, "request_too_large", message)
             : net::problem(413, message, "", front.request_id());
}

// A piece of the body (perhaps empty, when its end has come).
void Front::forward_body(std::string_view data) {
  ticket.bytes_in += data.size();
  ticket.body_at = proxy_.loop().steady();
  if (ticket.body_bytes_max > 0 && ticket.bytes_in > ticket.body_bytes_max)
    return answer_began_ ? close() : refuse(body_too_large(*this));
  if (ticket.sample)
    ticket.sample->request.add(data);
  if (on_body_) {
    whole_body_.append(data);
    if (whole_body_.size() > on_body_max_) {
      on_body_ = nullptr;
      return refuse(
          net::problem(413, fmt::format("the body exceeds the limit of {} bytes", on_body_max_), "",
                       request_id_));
    }
    if (!proxy_.host().grown(shared_from_this(), whole_body_.size()))
      return;
    deadline_ =
        std::min(proxy_.loop().steady() + proxy_.options().body_idle_timeout, on_body_until_);
    if (body_complete_)
      std::exchange(on_body_, nullptr)(std::exchange(whole_body_, {}));
    return;
  }
  if (copied_body_) {
    copied_body_->append(data);
    if (copied_body_->size() > copied_body_max_)
      copied_body_.reset();
  }
  if (body_kept_ && !answer_began_) {
    if (state_ == State::serving &&
        kept_body_.size() + data.size() > limits::gateway_held_body_bytes_max) {
      body_kept_ = false;
      kept_body_ = {};
    } else {
      kept_body_.append(data);
    }
  }
  if (state_ == State::waiting) {
    deadline_ = proxy_.loop().steady() + proxy_.options().body_idle_timeout;
    if (kept_body_.size() >= limits::gateway_held_body_bytes_max)
      pause_client();
    return;
  }
  if (!back_)
    return;
  deadline_ =
      answer_began_ ? ticket.body_at + proxy_.options().stream_idle_timeout : answer_deadline();
  back_->send_body(data, body_complete_);
  if (back_ && back_->congested())
    pause_client();
}

void Front::read_body(std::size_t bytes_max, std::function<void(std::string)> done) {
  if (body_complete_) {
    if (kept_body_.size() > bytes_max)
      return refuse(net::problem(
          413, fmt::format("the body exceeds the limit of {} bytes", bytes_max), "", request_id_));
    return done(std::exchange(kept_body_, {}));
  }
  whole_body_ = std::exchange(kept_body_, {});
  on_body_max_ = bytes_max;
  const std::size_t bytes = std::min(body_size().value_or(bytes_max), bytes_max);
  on_body_until_ =
      proxy_.loop().steady() + proxy_.options().body_grace +
      seconds(static_cast<std::int64_t>(bytes / proxy_.options().body_bytes_per_s_min));
  deadline_ = std::min(deadline_, on_body_until_);
  on_body_ = std::move(done);
  if (expects_continue_)
    go_on();
  expects_continue_ = false;
}

bool Front::holds_connection(const Upstream& upstream) const {
  return ticket.upstream.get() == &upstream && back_ && back_->alive();
}

void Front::copy_body(std::size_t bytes_max) {
  copied_body_max_ = bytes_max;
  if (kept_body_.size() <= bytes_max)
    copied_body_ = kept_body_;
}

std::optional<std::string> Front::take_copied_body() {
  return body_complete_ ? std::exchange(copied_body_, std::nullopt) : std::nullopt;
}

void Front::begin_copy(const Front& of, std::string body) {
  head_ = of.head_;
  head_only_ = of.head_only_;
  request_id_ = of.request_id_;
  peer_ = of.peer_;
  kept_body_ = std::move(body);
  body_complete_ = true;
  keep_alive_ = false;
  over_told_ = false;
  state_ = State::waiting;
  ticket.prefix_bytes = of.ticket.prefix_bytes;
  ticket.timeout = of.ticket.timeout;
  ticket.strip_header = of.ticket.strip_header;
  ticket.strip_credentials = of.ticket.strip_credentials;
  ticket.http2 = of.ticket.http2;
  ticket.endpoint = of.ticket.endpoint;
  ticket.arrived = proxy_.loop().steady();
  ticket.copy = true;
}

void Front::begin_sample(std::shared_ptr<Sample> sample) {
  sample_fields(sample->request, head_.headers);
  sample->request.add(kept_body_);
  ticket.sample = std::move(sample);
}

void sample_fields(Sample::Side& side, const net::Headers& headers) {
  for (const auto& [name, value] : headers)
    if (sampled_field(name))
      side.fields.emplace_back(name, value);
}

void Front::note_grpc_status(const net::Headers& fields) {
  if (const auto status = fields.get("Grpc-Status"); !status.empty())
    ticket.failed_inside = is_grpc_server_fault(status);
}

}  // namespace billow::gateway
