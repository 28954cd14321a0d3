#include "files/pair_digest.h"

#if defined(__aarch64__) && __has_include(<sys/auxv.h>)
#include <arm_neon.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#define BILLOW_SHA256_PAIRS 1
#endif

namespace billow::files {

#ifdef BILLOW_SHA256_PAIRS
namespace {

constexpr std::size_t block_bytes = 64;
constexpr unsigned long hwcap_sha2 = 1 << 6;  // in AT_HWCAP of Linux on ARM

// FIPS 180-4: the constants of the rounds, and the state before the first block.
constexpr std::uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

struct Lane {
  std::uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const char* at = nullptr;
};

// Whole blocks of each lane, in turn.
template <std::size_t lanes>
__attribute__((target("+crypto"))) void add_blocks(Lane* const (&to)[lanes], std::size_t blocks) {
  uint32x4_t abcd[lanes], efgh[lanes];
  for (std::size_t i = 0; i < lanes; ++i) {
    abcd[i] = vld1q_u32(to[i]->state);
    efgh[i] = vld1q_u32(to[i]->state + 4);
  }
  for (; blocks > 0; --blocks) {
    uint32x4_t words[lanes][4], abcd_before[lanes], efgh_before[lanes];
    for (std::size_t i = 0; i < lanes; ++i) {
      abcd_before[i] = abcd[i];
      efgh_before[i] = efgh[i];
      for (int j = 0; j < 4; ++j)
        words[i][j] = vreinterpretq_u32_u8(
            vrev32q_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(to[i]->at) + 16 * j)));
      to[i]->at += block_bytes;
    }
#pragma GCC unroll 16
    for (int four = 0; four < 16; ++four) {
      const uint32x4_t constants = vld1q_u32(round_constants + 4 * four);
#pragma GCC unroll 2
      for (std::size_t i = 0; i < lanes; ++i) {
        uint32x4_t& word = words[i][four & 3];
        const uint32x4_t added = vaddq_u32(word, constants);
        if (four < 12)
          word = vsha256su1q_u32(vsha256su0q_u32(word, words[i][(four + 1) & 3]),
                                 words[i][(four + 2) & 3], words[i][(four + 3) & 3]);
        const uint32x4_t before = abcd[i];
        abcd[i] = vsha256hq_u32(before, efgh[i], added);
        efgh[i] = vsha256h2q_u32(efgh[i], before, added);
      }
    }
    for (std::size_t i = 0; i < lanes; ++i) {
      abcd[i] = vaddq_u32(abcd[i], abcd_before[i]);
      efgh[i] = vaddq_u32(efgh[i], efgh_before[i]);
    }
  }
  for (std::size_t i = 0; i < lanes; ++i) {
    vst1q_u32(to[i]->state, abcd[i]);
    vst1q_u32(to[i]->state + 4, efgh[i]);
  }
}

// The rest of the data, the bit that ends it, and its size in bits.
Sha256 finish(Lane& lane, std::string_view data) {
  const std::size_t left = data.size() - static_cast<std::size_t>(lane.at - data.data());
  add_blocks<1>({&lane}, left / block_bytes);
  char end[2 * block_bytes] = {};
  const std::size_t rest = left % block_bytes;
  if (rest > 0)
    std::memcpy(end, lane.at, rest);
  end[rest] = static_cast<char>(0x80);
  const std::size_t size = rest < block_bytes - 8 ? block_bytes : 2 * block_bytes;
  for (std::size_t i = 0; i < 8; ++i)
    end[size - 1 - i] = static_cast<char>(static_cast<std::uint64_t>(data.size()) * 8 >> (8 * i));
  lane.at = end;
  add_blocks<1>({&lane}, size / block_bytes);
  Sha256 out;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<unsigned char>(lane.state[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

}  // namespace

std::array<Sha256, 2> sha256_pair(std::string_view first, std::string_view second) {
  static const bool can = (::getauxval(AT_HWCAP) & hwcap_sha2) != 0;
  const std::size_t both = std::min(first.size(), second.size()) / block_bytes;
  if (!can || both == 0)
    return {sha256(first), sha256(second)};
  Lane a, b;
  a.at = first.data();
  b.at = second.data();
  add_blocks<2>({&a, &b}, both);
  return {finish(a, first), finish(b, second)};
}

#else

std::array<Sha256, 2> sha256_pair(std::string_view first, std::string_view second) {
  return {sha256(first), sha256(second)};
}

#endif

}  // namespace billow::files
