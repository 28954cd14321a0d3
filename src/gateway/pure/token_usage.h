// The tokens of a model's request: as its answer reports them, else estimated by what has passed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "net/http/http.h"

namespace billow::gateway {

// What an answer's "usage" says.
struct TokenUsage {
  std::uint64_t in = 0, out = 0;
  std::optional<std::uint64_t> cached;       // of `in`; none: it does not say
  bool knows_in = false, knows_out = false;  // whether it says so
};

// Reads the end of an answer; its beginning may be missing. Only the answer's own member "usage"
// counts, or of an event also that of its "response" or "message": what else an answer contains, a
// client may have sent. `events`: a stream of events, of which the last with a usage counts.
TokenUsage usage_of(std::string_view tail, bool events);

// An answer from outside.
struct AnswerForm {
  bool events = false;      // a stream of events
  bool text = false;        // in characters
  bool packed = false;      // compressed
  std::uint64_t parts = 0;  // events so far
  bool line_begins = true;
  static AnswerForm of(const net::Headers& headers);
  void count(std::string_view data);
};

// Fills in what is not reported: a token for four bytes, or for an event and four bytes of what
// events are longer than they commonly are, or for a byte that is compressed.
TokenUsage estimated(TokenUsage reported,
                     const AnswerForm& form,
                     std::uint64_t bytes_in,
                     std::uint64_t bytes_out);

}  // namespace billow::gateway
