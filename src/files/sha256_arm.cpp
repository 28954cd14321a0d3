// SHA-256 with ARM's instructions, two lanes in turn; and nothing, for processors that have none.
#include "files/sha256_blocks.h"

#if defined(__aarch64__) && __has_include(<sys/auxv.h>)
#include <arm_neon.h>
#include <sys/auxv.h>

namespace billow::files {
namespace {

constexpr unsigned long hwcap_sha2 = 1 << 6;  // in AT_HWCAP of Linux on ARM

// Whole blocks of each lane, in turn.
template <std::size_t lanes>
__attribute__((target("+crypto"))) void add_blocks(Sha256Lane* const (&to)[lanes],
                                                   std::size_t blocks) {
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
      to[i]->at += sha256_block_bytes;
    }
#pragma GCC unroll 16
    for (int four = 0; four < 16; ++four) {
      const uint32x4_t constants = vld1q_u32(sha256_constants + 4 * four);
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

}  // namespace

bool has_sha256_instructions() {
  static const bool has = (::getauxval(AT_HWCAP) & hwcap_sha2) != 0;
  return has;
}

void add_sha256_blocks(Sha256Lane& lane, std::size_t blocks) {
  add_blocks<1>({&lane}, blocks);
}

void add_sha256_blocks(Sha256Lane& first, Sha256Lane& second, std::size_t blocks) {
  add_blocks<2>({&first, &second}, blocks);
}

bool has_wide_sha256() {
  return false;
}
void add_wide_sha256_blocks(Sha256Lane* const (&)[sha256_wide_lanes], std::size_t) {}

}  // namespace billow::files

#elif !defined(__x86_64__)

namespace billow::files {

bool has_sha256_instructions() {
  return false;
}
void add_sha256_blocks(Sha256Lane&, std::size_t) {}
void add_sha256_blocks(Sha256Lane&, Sha256Lane&, std::size_t) {}
bool has_wide_sha256() {
  return false;
}
void add_wide_sha256_blocks(Sha256Lane* const (&)[sha256_wide_lanes], std::size_t) {}

}  // namespace billow::files

#endif
