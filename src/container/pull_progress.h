// The progress of a pull, read from what podman draws on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace billow::container {

class PullProgress {
 public:
  // Takes printed text. True: a figure changed.
  bool take(std::string_view text);
  std::int64_t done_bytes() const;
  std::int64_t total_bytes() const;                  // of the layers begun so far
  std::string text(const std::string& image) const;  // "pulling docker.io/x: 312 of 1,900 MB"

 private:
  struct Layer {
    std::string name;
    std::int64_t done = 0, total = 0;
  };
  void line(std::string_view text);
  std::string partial_;
  std::vector<Layer> layers_;
  bool changed_ = false;
};

}  // namespace billow::container
