#include "gateway/record/spans.h"

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/json.h"
#include "gateway/pure/trace_context.h"

namespace billow::gateway {
namespace {

constexpr std::size_t text_bytes_max = 256;  // of an attribute

// Kinds and status codes of OTLP.
constexpr int kind_server = 2, kind_client = 3, status_error = 2;

struct Span {
  std::string text = "{";
  bool first_attribute = true;

  void member(std::string_view name, std::string_view value) {
    append_format(text, "{}\"{}\":", text.size() == 1 ? "" : ",", name);
    append_json_string(text, value);
  }
  void begin_attributes() { text += ",\"attributes\":["; }
  void attribute(std::string_view name, std::string_view value) {
    append_format(text, "{}{{\"key\":\"{}\",\"value\":{{\"stringValue\":",
                  std::exchange(first_attribute, false) ? "" : ",", name);
    append_json_string(text, value.substr(0, text_bytes_max));
    text += "}}";
  }
  void attribute(std::string_view name, std::int64_t value) {
    append_format(text, "{}{{\"key\":\"{}\",\"value\":{{\"intValue\":\"{}\"}}}}",
                  std::exchange(first_attribute, false) ? "" : ",", name, value);
  }
  std::string end(bool error) {
    text += "]";
    if (error)
      append_format(text, ",\"status\":{{\"code\":{}}}", status_error);
    text += "}";
    return std::move(text);
  }
};

Span begin_span(const TraceContext& trace, std::uint64_t id, std::uint64_t parent, int kind) {
  Span span;
  span.member("traceId", trace_id_text(trace));
  span.member("spanId", span_id_text(id));
  if (parent != 0)
    span.member("parentSpanId", span_id_text(parent));
  append_format(span.text, ",\"kind\":{}", kind);
  return span;
}

}  // namespace

Result<std::unique_ptr<Spans>> Spans::create(net::Loop& loop, const std::string& url) {
  auto sender = BILLOW_TRY(OtlpSender::create(
      loop,
      {.kind = OtlpKind::spans, .url = url, .option = "--otlp", .service = "billow-gateway"}));
  return std::unique_ptr<Spans>(new Spans(std::move(sender)));
}

void Spans::add(const std::vector<std::string>& spans) {
  for (const std::string& each : spans)
    sender_->push(each);
}

std::vector<std::string> Spans::of(const Front& front,
                                   std::string_view endpoint,
                                   End end,
                                   SteadyTime now) {
  const Ticket& ticket = front.ticket;
  const TraceContext& trace = ticket.trace;
  const WallTime wall = system_clock().wall();
  const auto unix_ns = [&](SteadyTime at) {
    return std::to_string((wall - (now - at)).ns);
  };
  const bool error = end == End::replica_failed || end == End::timed_out || ticket.status >= 500;
  Span span = begin_span(trace, trace.span, trace.parent, kind_server);
  span.member("name", fmt::format("{} {}", front.head().method, endpoint));
  span.member("startTimeUnixNano", unix_ns(ticket.arrived));
  span.member("endTimeUnixNano", unix_ns(now));
  span.begin_attributes();
  span.attribute("http.request.method", front.head().method);
  // Without the query, which may hold secrets.
  span.attribute("url.path", front.path());
  span.attribute("http.response.status_code", ticket.status);
  span.attribute("billow.endpoint", endpoint);
  span.attribute("billow.request_id", front.request_id());
  span.attribute("billow.tries", ticket.tries);
  if (!ticket.key.empty())
    span.attribute("billow.key", ticket.key);
  std::vector<std::string> out = {span.end(error)};
  if (ticket.given.ns == 0)
    return out;
  Span call = begin_span(trace, trace.call, trace.span, kind_client);
  call.member("name", "replica");
  call.member("startTimeUnixNano", unix_ns(ticket.given));
  call.member("endTimeUnixNano", unix_ns(now));
  call.begin_attributes();
  call.attribute("server.address", ticket.upstream ? ticket.upstream->name : "");
  if (ticket.upstream)
    call.attribute("billow.replica", static_cast<std::int64_t>(ticket.upstream->key));
  if (ticket.first_byte.ns != 0)
    call.attribute("billow.first_byte_us", (ticket.first_byte - ticket.given).ns / 1000);
  out.push_back(call.end(error));
  return out;
}

}  // namespace billow::gateway
