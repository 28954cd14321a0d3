#include "gateway/pure/trace_context.h"

#include "gateway/pure/digits.h"

namespace billow::gateway {
namespace {

// Lower-case hexadecimal digits, as the standard demands.
std::optional<std::uint64_t> hex(std::string_view text) {
  std::uint64_t out = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9')
      out = out << 4 | static_cast<std::uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f')
      out = out << 4 | static_cast<std::uint64_t>(c - 'a' + 10);
    else
      return std::nullopt;
  }
  return out;
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view text) {
  if (text.size() < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-')
    return std::nullopt;
  const auto version = hex(text.substr(0, 2)), high = hex(text.substr(3, 16)),
             low = hex(text.substr(19, 16)), parent = hex(text.substr(36, 16)),
             flags = hex(text.substr(53, 2));
  if (!version || !high || !low || !parent || !flags || *version == 0xff)
    return std::nullopt;
  // Later versions may append fields.
  if (text.size() > 55 && (*version == 0 || text[55] != '-'))
    return std::nullopt;
  if ((*high == 0 && *low == 0) || *parent == 0)
    return std::nullopt;
  return TraceContext{.trace = {*high, *low}, .parent = *parent, .sampled = (*flags & 1) != 0};
}

std::string trace_id_text(const TraceContext& context) {
  std::string out;
  append_hex(out, context.trace[0]);
  append_hex(out, context.trace[1]);
  return out;
}

std::string span_id_text(std::uint64_t span) {
  std::string out;
  append_hex(out, span);
  return out;
}

std::string traceparent(const TraceContext& context) {
  std::string out = "00-";
  append_hex(out, context.trace[0]);
  append_hex(out, context.trace[1]);
  out += '-';
  append_hex(out, context.call);
  out += context.sampled ? "-01" : "-00";
  return out;
}

// splitmix64: numbers that do not repeat, at the price of a few instructions. They are no secrets.
std::uint64_t Tracer::next() {
  while (true) {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    if ((z ^= z >> 31) != 0)
      return z;
  }
}

TraceContext Tracer::begin(std::string_view text) {
  TraceContext out;
  if (const auto given = text.empty() ? std::nullopt : parse_traceparent(text)) {
    out = *given;
  } else {
    out.trace = {next(), next()};
    out.sampled = sample_ > 0 && static_cast<double>(next() >> 11) * 0x1p-53 < sample_;
  }
  out.span = next();
  out.call = next();
  return out;
}

}  // namespace billow::gateway
