// What a canary is judged by: copies of requests, and errors inside of answers.
#include "gateway/grpc.h"
#include "gateway/proxy.h"

namespace billow::gateway {

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

void Front::note_grpc_status(const net::Headers& fields) {
  if (const auto status = fields.get("Grpc-Status"); !status.empty())
    ticket.failed_inside = is_grpc_server_fault(status);
}

}  // namespace billow::gateway
