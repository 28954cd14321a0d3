// What is kept of one request and its answer while it passes through (record/samples.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace billow::gateway {

inline constexpr std::string_view endpoint_key_prefix = "bwk_";  // of every endpoint's keys

struct Sample {
  static constexpr std::size_t body_bytes_max = 64 << 10;
  struct Side {
    std::vector<std::pair<std::string, std::string>> fields;
    std::string body;         // its beginning
    std::uint64_t bytes = 0;  // of the whole
    void add(std::string_view data) {
      bytes += data.size();
      body.append(data.substr(0, body_bytes_max - std::min(body.size(), body_bytes_max)));
    }
  };
  Side request, answer;
  std::shared_ptr<void> place;  // of the memory for samples
};

// Whether a header field is kept: only names that hold no credential.
bool sampled_field(std::string_view name);
// Keys of endpoints, which a client may have put into a body, are blanked.
void blank_keys(std::string& text);

}  // namespace billow::gateway
