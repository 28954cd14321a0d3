// The W3C trace context of a request (traceparent): taken from the caller or begun here, and passed
// to the replica with a span of ours as its parent.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace billow::gateway {

struct TraceContext {
  std::array<std::uint64_t, 2> trace{};
  std::uint64_t parent = 0;  // the caller's span; 0: the trace begins here
  std::uint64_t span = 0;    // of the request in this gateway; 0: no trace
  std::uint64_t call = 0;    // of the call to the replica
  bool sampled = false;
};

// "00-4bf9…-00f0…-01": its trace, its span as `parent`, and whether it is sampled. Nothing if it is
// not valid: then a new trace begins.
std::optional<TraceContext> parse_traceparent(std::string_view text);
// For the replica: the trace, with the call as its parent.
std::string traceparent(const TraceContext& context);
std::string trace_id_text(const TraceContext& context);
std::string span_id_text(std::uint64_t span);

// Continues the caller's trace, or begins one. `random` gives the numbers of spans; a trace that
// begins here is sampled with the given probability.
class Tracer {
 public:
  Tracer(std::uint64_t seed, double sample) : state_(seed | 1), sample_(sample) {}
  TraceContext begin(std::string_view traceparent);

 private:
  std::uint64_t next();
  std::uint64_t state_;
  double sample_;
};

}  // namespace billow::gateway
