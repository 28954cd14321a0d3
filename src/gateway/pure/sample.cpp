#include "gateway/pure/sample.h"

#include <algorithm>
#include <array>

namespace billow::gateway {
namespace {

constexpr std::array<std::string_view, 8> kept_fields = {
    "accept",       "accept-language", "content-encoding", "content-length",
    "content-type", "traceparent",     "user-agent",       "x-request-id"};

char small(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool of_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

}  // namespace

bool sampled_field(std::string_view name) {
  return std::ranges::any_of(kept_fields, [&](std::string_view kept) {
    return std::ranges::equal(kept, name, [](char a, char b) { return a == small(b); });
  });
}

void blank_keys(std::string& text) {
  for (auto at = text.find(endpoint_key_prefix); at != text.npos;
       at = text.find(endpoint_key_prefix, at)) {
    at += endpoint_key_prefix.size();
    for (; at < text.size() && of_key(text[at]); ++at)
      text[at] = '*';
  }
}

}  // namespace billow::gateway
