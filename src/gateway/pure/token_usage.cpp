#include "gateway/pure/token_usage.h"

#include <algorithm>

#include "base/text.h"
#include "gateway/pure/json_cursor.h"

namespace billow::gateway {
namespace {

constexpr std::uint64_t tokens_max = 1'000'000'000;
constexpr std::uint64_t bytes_per_token = 4;
// An event with one token of a chat, as vLLM and others write it.
constexpr std::uint64_t event_bytes = 256;

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t n = 0;
  std::size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits)
    n = std::min(n * 10 + static_cast<std::uint64_t>(text[digits] - '0'), tokens_max);
  return digits == 0 ? std::nullopt : std::optional(n);
}

// The quote that begins the string which ends before `end`; npos: it is not in the text.
std::size_t quote_before(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t at = text.rfind('"', end - 1);
    if (at == text.npos)
      return at;
    std::size_t slashes = 0;
    while (slashes < at && text[at - 1 - slashes] == '\\')
      ++slashes;
    if (slashes % 2 == 0)
      return at;
    end = at;
  }
  return text.npos;
}

// The value behind a key, if it is an object.
std::string_view object_behind(std::string_view text, std::size_t key_end) {
  JsonCursor cursor{text, key_end};
  if (!cursor.take(':'))
    return {};
  cursor.skip_space();
  const std::size_t start = cursor.at;
  return cursor.is('{') && cursor.value() ? text.substr(start, cursor.at - start)
                                          : std::string_view();
}

bool is_wrapped(std::string_view before) {
  before = trim(before);
  if (!before.ends_with(':'))
    return false;
  before = trim(before.substr(0, before.size() - 1));
  return before.ends_with("\"response\"") || before.ends_with("\"message\"");
}

// Walks backwards from the end of an object, so that a missing beginning does not matter: outside
// of strings, JSON has no backslashes, so every quote is known to be one.
std::string_view usage_object(std::string_view text, bool wrapped) {
  text = trim(text);
  if (!text.ends_with('}'))
    return {};
  std::size_t depth = 0;
  std::string_view inner;
  for (std::size_t at = text.size(); at > 0;) {
    const char c = text[--at];
    if (c == '}' || c == ']') {
      ++depth;
    } else if (c == '{' || c == '[') {
      if (--depth == 0)
        return {};
      if (depth == 1 && !inner.empty() && is_wrapped(text.substr(0, at)))
        return inner;
      if (depth == 1)
        inner = {};
    } else if (c == '"') {
      const std::size_t end = at + 1;
      at = quote_before(text, at);
      if (at == text.npos)
        return inner;
      if (text.substr(at, end - at) != "\"usage\"" || depth > (wrapped ? 2U : 1U))
        continue;
      const std::string_view found = object_behind(text, end);
      if (depth == 1 && !found.empty())
        return found;
      if (inner.empty())
        inner = found;
    }
  }
  return inner;
}

TokenUsage read_usage(std::string_view object) {
  TokenUsage usage;
  each_member(object, [&](std::string_view key, std::string_view value) {
    const auto n = number_in(value);
    if (n && (key == "\"prompt_tokens\"" || key == "\"input_tokens\"")) {
      usage.in = std::max(usage.in, *n);
      usage.knows_in = true;
    } else if (n && (key == "\"completion_tokens\"" || key == "\"output_tokens\"")) {
      usage.out = std::max(usage.out, *n);
      usage.knows_out = true;
    } else if (key == "\"prompt_tokens_details\"" || key == "\"input_tokens_details\"") {
      each_member(value, [&](std::string_view detail, std::string_view text) {
        if (detail == "\"cached_tokens\"")
          usage.cached = number_in(text);
      });
    }
  });
  return usage;
}

}  // namespace

TokenUsage usage_of(std::string_view tail, bool events) {
  if (!events)
    return read_usage(usage_object(tail, false));
  while (!tail.empty()) {
    const std::size_t end_of_last = tail.rfind('\n');
    std::string_view line = end_of_last == tail.npos ? tail : tail.substr(end_of_last + 1);
    tail = end_of_last == tail.npos ? std::string_view() : tail.substr(0, end_of_last);
    if (line.starts_with("data:"))
      line.remove_prefix(5);
    if (const std::string_view object = usage_object(line, true); !object.empty())
      return read_usage(object);
  }
  return {};
}

AnswerForm AnswerForm::of(const net::Headers& headers) {
  const std::string_view type = headers.get("Content-Type");
  const std::string_view coding = headers.get("Content-Encoding");
  AnswerForm form;
  form.packed = !coding.empty() && !net::equal_nocase(coding, "identity");
  form.events = starts_with_nocase(type, "text/event-stream");
  form.text = starts_with_nocase(type, "text/") || type.find("json") != type.npos;
  return form;
}

void AnswerForm::count(std::string_view data) {
  if (!events)
    return;
  while (!data.empty()) {
    parts += line_begins && data[0] == 'd';
    const std::size_t end = data.find('\n');
    line_begins = end != data.npos;
    data.remove_prefix(line_begins ? end + 1 : data.size());
  }
}

TokenUsage estimated(TokenUsage reported,
                     const AnswerForm& form,
                     std::uint64_t bytes_in,
                     std::uint64_t bytes_out) {
  const bool says_nothing = !reported.knows_in && !reported.knows_out;
  if (!reported.knows_in)
    reported.in = (bytes_in + bytes_per_token - 1) / bytes_per_token;
  if (!says_nothing || !form.text)
    return reported;
  const std::uint64_t common = form.parts * event_bytes;
  if (form.packed)
    reported.out = bytes_out;
  else if (form.events)
    reported.out = form.parts + (bytes_out > common ? (bytes_out - common) / bytes_per_token : 0);
  else
    reported.out = (bytes_out + bytes_per_token - 1) / bytes_per_token;
  return reported;
}

}  // namespace billow::gateway
