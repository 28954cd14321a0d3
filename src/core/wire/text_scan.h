// Scanning text at the speed of memory, for searches through logs of gigabytes: sixteen bytes at a
// time with the vectors of the compiler, which every machine that Billow runs on has.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace billow::wire {

std::uint64_t count_newlines(std::string_view text);
// ASCII letters in lower case.
void fold_case(std::string_view text, std::string& out);

// Finds a text by its two rarest bytes: only where both stand is the rest compared. `memmem` looks
// at each byte in turn, which takes several times as long.
class Needle {
 public:
  explicit Needle(std::string text);
  // The first place at or after `from`; npos if there is none.
  std::size_t find(std::string_view in, std::size_t from) const;

 private:
  std::string text_;
  std::size_t rare_ = 0, other_ = 0;  // where the two stand in it
};

}  // namespace billow::wire
