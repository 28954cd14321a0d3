// SHA-256 of several pieces at once. The instructions that processors have for it wait for their
// own results: with two pieces in turn they do not, and one core hashes half as much again. Wide
// vectors (AVX-512) hash sixteen pieces, twice as fast as OpenSSL hashes one after the other.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "base/crypto.h"
#include "files/sha256_blocks.h"

namespace billow::files {

std::array<Sha256, 2> sha256_pair(std::string_view first, std::string_view second);

// Of pieces of one size, chunk by chunk.
class LaneDigest {
 public:
  static constexpr std::size_t lanes_max = sha256_wide_lanes;
  // False: this processor has nothing that makes it worthwhile, and the class must not be used.
  static bool available();
  explicit LaneDigest(std::size_t lanes);
  // The next octets of each piece: as many of each, in whole blocks.
  void add(std::span<const char* const> data, std::size_t octets);
  std::vector<Sha256> finish();

 private:
  void add_blocks(std::size_t blocks);

  std::vector<Sha256Lane> lanes_;
  std::uint64_t octets_ = 0;
};

}  // namespace billow::files
