// SHA-256 on x86-64: with the instructions for it (SHA-NI) two lanes in turn, and with AVX-512
// sixteen lanes, of which each vector holds one word.
#include "files/sha256_blocks.h"

#if defined(__x86_64__)
#include <cpuid.h>
// GCC 12 takes the "undefined" operands in its own header for mistakes; Clang has no such warning.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace billow::files {
namespace {

#define BILLOW_TARGET_SHA __attribute__((target("sha,sse4.1")))

// The instructions want the state as ABEF and CDGH.
struct ShaState {
  __m128i abef, cdgh;
};

BILLOW_TARGET_SHA inline ShaState load_state(const std::uint32_t* from) {
  const __m128i cdab =
      _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)), 0xB1);
  const __m128i efgh =
      _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 4)), 0x1B);
  return {_mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xF0)};
}

BILLOW_TARGET_SHA inline void store_state(const ShaState& state, std::uint32_t* to) {
  const __m128i feba = _mm_shuffle_epi32(state.abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(state.cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 4), _mm_alignr_epi8(dchg, feba, 8));
}

// Four rounds. `words[four & 3]` is the message of these rounds and becomes that of the rounds 16
// later.
BILLOW_TARGET_SHA inline void four_rounds(ShaState& state, __m128i (&words)[4], int four) {
  const __m128i constants =
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(sha256_constants + 4 * four));
  __m128i& word = words[four & 3];
  const __m128i last = words[(four + 3) & 3];
  const __m128i added = _mm_add_epi32(word, constants);
  if (four < 12) {
    const __m128i middle = _mm_alignr_epi8(last, words[(four + 2) & 3], 4);
    word = _mm_add_epi32(_mm_sha256msg1_epu32(word, words[(four + 1) & 3]), middle);
    word = _mm_sha256msg2_epu32(word, last);
  }
  state.cdgh = _mm_sha256rnds2_epu32(state.cdgh, state.abef, added);
  state.abef = _mm_sha256rnds2_epu32(state.abef, state.cdgh, _mm_shuffle_epi32(added, 0x0E));
}

template <std::size_t lanes>
BILLOW_TARGET_SHA void add_blocks(Sha256Lane* const (&to)[lanes], std::size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  ShaState state[lanes];
  for (std::size_t i = 0; i < lanes; ++i)
    state[i] = load_state(to[i]->state);
  for (; blocks > 0; --blocks) {
    __m128i words[lanes][4];
    ShaState before[lanes];
    for (std::size_t i = 0; i < lanes; ++i) {
      before[i] = state[i];
      const auto* data = reinterpret_cast<const __m128i*>(to[i]->at);
      for (int j = 0; j < 4; ++j)
        words[i][j] = _mm_shuffle_epi8(_mm_loadu_si128(data + j), swap);
      to[i]->at += sha256_block_bytes;
    }
#pragma GCC unroll 16
    for (int four = 0; four < 16; ++four)
#pragma GCC unroll 2
      for (std::size_t i = 0; i < lanes; ++i)
        four_rounds(state[i], words[i], four);
    for (std::size_t i = 0; i < lanes; ++i) {
      state[i].abef = _mm_add_epi32(state[i].abef, before[i].abef);
      state[i].cdgh = _mm_add_epi32(state[i].cdgh, before[i].cdgh);
    }
  }
  for (std::size_t i = 0; i < lanes; ++i)
    store_state(state[i], to[i]->state);
}

#define BILLOW_TARGET_WIDE __attribute__((target("avx512f,avx512bw"), always_inline)) inline

using Wide = __m512i;
constexpr int parity = 0x96, choice = 0xCA, majority = 0xE8;  // of three bits

BILLOW_TARGET_WIDE Wide sum(Wide a, Wide b) {
  return _mm512_add_epi32(a, b);
}
template <int a, int b, int c>
BILLOW_TARGET_WIDE Wide rotations(Wide x) {
  return _mm512_ternarylogic_epi32(_mm512_ror_epi32(x, a), _mm512_ror_epi32(x, b),
                                   _mm512_ror_epi32(x, c), parity);
}
template <int a, int b, int shift>
BILLOW_TARGET_WIDE Wide mixed(Wide x) {
  return _mm512_ternarylogic_epi32(_mm512_ror_epi32(x, a), _mm512_ror_epi32(x, b),
                                   _mm512_srli_epi32(x, shift), parity);
}

// Rows become columns.
BILLOW_TARGET_WIDE void transpose(Wide (&rows)[16]) {
  Wide pairs[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pairs[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
    pairs[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xDD);
    pairs[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
    pairs[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xDD);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    rows[i] = _mm512_shuffle_i32x4(pairs[i], pairs[i + 8], 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(pairs[i], pairs[i + 8], 0xDD);
  }
}

// The rounds of one block of each lane: `w` holds its words.
BILLOW_TARGET_WIDE void wide_rounds(Wide (&state)[8], Wide (&w)[16]) {
  Wide a = state[0], b = state[1], c = state[2], d = state[3];
  Wide e = state[4], f = state[5], g = state[6], h = state[7];
#pragma GCC unroll 64
  for (int i = 0; i < 64; ++i) {
    Wide& word = w[i & 15];
    const Wide constant = _mm512_set1_epi32(static_cast<int>(sha256_constants[i]));
    const Wide first =
        sum(sum(h, sum(word, constant)),
            sum(rotations<6, 11, 25>(e), _mm512_ternarylogic_epi32(e, f, g, choice)));
    const Wide second = sum(rotations<2, 13, 22>(a), _mm512_ternarylogic_epi32(a, b, c, majority));
    if (i < 48)
      word = sum(sum(word, mixed<7, 18, 3>(w[(i + 1) & 15])),
                 sum(w[(i + 9) & 15], mixed<17, 19, 10>(w[(i + 14) & 15])));
    h = g;
    g = f;
    f = e;
    e = sum(d, first);
    d = c;
    c = b;
    b = a;
    a = sum(first, second);
  }
  const Wide after[8] = {a, b, c, d, e, f, g, h};
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    state[i] = sum(state[i], after[i]);
}

}  // namespace

bool has_sha256_instructions() {
  static const bool has = [] {
    constexpr unsigned sha_bit = 1u << 29;  // leaf 7, EBX
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
           (b & sha_bit) != 0;
  }();
  return has;
}

void add_sha256_blocks(Sha256Lane& lane, std::size_t blocks) {
  add_blocks<1>({&lane}, blocks);
}

void add_sha256_blocks(Sha256Lane& first, Sha256Lane& second, std::size_t blocks) {
  add_blocks<2>({&first, &second}, blocks);
}

bool has_wide_sha256() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  return has;
}

__attribute__((target("avx512f,avx512bw"))) void add_wide_sha256_blocks(
    Sha256Lane* const (&lanes)[sha256_wide_lanes], std::size_t blocks) {
  alignas(64) std::uint32_t words[8][sha256_wide_lanes];
  Wide state[8];
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t lane = 0; lane < sha256_wide_lanes; ++lane)
      words[i][lane] = lanes[lane]->state[i];
    state[i] = _mm512_load_si512(words[i]);
  }
  const char* from[sha256_wide_lanes];
  for (std::size_t lane = 0; lane < sha256_wide_lanes; ++lane)
    from[lane] = lanes[lane]->at;
  const Wide swap = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
  for (std::size_t done = 0; done < blocks * sha256_block_bytes; done += sha256_block_bytes) {
    Wide w[sha256_wide_lanes];
#pragma GCC unroll 16
    for (std::size_t lane = 0; lane < sha256_wide_lanes; ++lane)
      w[lane] = _mm512_shuffle_epi8(_mm512_loadu_si512(from[lane] + done), swap);
    transpose(w);
    wide_rounds(state, w);
  }
  for (std::size_t i = 0; i < 8; ++i)
    _mm512_store_si512(words[i], state[i]);
  for (std::size_t lane = 0; lane < sha256_wide_lanes; ++lane) {
    for (std::size_t i = 0; i < 8; ++i)
      lanes[lane]->state[i] = words[i][lane];
    lanes[lane]->at = from[lane] + blocks * sha256_block_bytes;
  }
}

}  // namespace billow::files

#endif
