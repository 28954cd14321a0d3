#include "files/lane_digest.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace billow::files {
namespace {

// With fewer pieces the vectors are too empty: pairs are faster, where there are instructions for
// them.
constexpr std::size_t wide_lanes_min = 11;

// The bit that ends the data, and its size in bits, after what is left of it.
void end_data(Sha256Lane& lane, std::string_view rest, std::uint64_t octets) {
  char end[2 * sha256_block_bytes] = {};
  std::copy(rest.begin(), rest.end(), end);
  end[rest.size()] = static_cast<char>(0x80);
  const std::size_t blocks = rest.size() < sha256_block_bytes - 8 ? 1 : 2;
  for (std::size_t i = 0; i < 8; ++i)
    end[blocks * sha256_block_bytes - 1 - i] = static_cast<char>(octets * 8 >> (8 * i));
  lane.at = end;
  add_sha256_blocks(lane, blocks);
}

Sha256 digest_of(const Sha256Lane& lane) {
  Sha256 out;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<unsigned char>(lane.state[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

Sha256 finish(Sha256Lane& lane, std::string_view data) {
  const std::size_t left = data.size() - static_cast<std::size_t>(lane.at - data.data());
  add_sha256_blocks(lane, left / sha256_block_bytes);
  end_data(lane, {lane.at, left % sha256_block_bytes}, data.size());
  return digest_of(lane);
}

}  // namespace

std::array<Sha256, 2> sha256_pair(std::string_view first, std::string_view second) {
  const std::size_t both = std::min(first.size(), second.size()) / sha256_block_bytes;
  if (both == 0 || !has_sha256_instructions())
    return {sha256(first), sha256(second)};
  Sha256Lane a, b;
  a.at = first.data();
  b.at = second.data();
  add_sha256_blocks(a, b, both);
  return {finish(a, first), finish(b, second)};
}

bool LaneDigest::available() {
  return has_sha256_instructions() || has_wide_sha256();
}

LaneDigest::LaneDigest(std::size_t lanes) : lanes_(lanes) {
  BILLOW_CHECK(lanes > 0 && lanes <= lanes_max && available(), "so many pieces are not hashed");
}

void LaneDigest::add(std::span<const char* const> data, std::size_t octets) {
  BILLOW_CHECK(data.size() == lanes_.size() && octets % sha256_block_bytes == 0,
               "pieces are hashed in whole blocks");
  for (std::size_t i = 0; i < lanes_.size(); ++i)
    lanes_[i].at = data[i];
  add_blocks(octets / sha256_block_bytes);
  octets_ += octets;
}

void LaneDigest::add_blocks(std::size_t blocks) {
  if (has_wide_sha256() && (lanes_.size() >= wide_lanes_min || !has_sha256_instructions())) {
    Sha256Lane idle;
    idle.at = lanes_[0].at;
    Sha256Lane* all[sha256_wide_lanes];
    for (std::size_t i = 0; i < sha256_wide_lanes; ++i)
      all[i] = i < lanes_.size() ? &lanes_[i] : &idle;
    return add_wide_sha256_blocks(all, blocks);
  }
  for (std::size_t i = 0; i + 1 < lanes_.size(); i += 2)
    add_sha256_blocks(lanes_[i], lanes_[i + 1], blocks);
  if (lanes_.size() % 2 == 1)
    add_sha256_blocks(lanes_.back(), blocks);
}

std::vector<Sha256> LaneDigest::finish() {
  char end[sha256_block_bytes] = {static_cast<char>(0x80)};
  for (std::size_t i = 0; i < 8; ++i)
    end[sha256_block_bytes - 1 - i] = static_cast<char>(octets_ * 8 >> (8 * i));
  for (Sha256Lane& lane : lanes_)
    lane.at = end;
  add_blocks(1);
  std::vector<Sha256> out;
  for (const Sha256Lane& lane : lanes_)
    out.push_back(digest_of(lane));
  return out;
}

}  // namespace billow::files
