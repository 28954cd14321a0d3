/* The 128-bit hash of one 2 MiB piece of device memory, the same on the GPU (src/gpumem/hash.cu)
 * and here.
 *
 * 256 lanes read 16 bytes at a time, lane l the words l, l+256, …; each folds what it reads into
 * two 64-bit states by multiply and rotate, starting from its lane number, so that swapping two
 * words anywhere changes the result. The lanes are then folded in order. It is not a cryptographic
 * hash: pieces are only ever compared within one job. */
#ifndef BILLOW_SHIM_HASH_H
#define BILLOW_SHIM_HASH_H

#include <stdint.h>
#include <string.h>

enum { BILLOW_HASH_LANES = 256 };
#define BILLOW_HASH_K0 0x9e3779b97f4a7c15ull
#define BILLOW_HASH_K1 0xd1b54a32d192ed03ull

typedef struct billow_piece_hash {
  uint64_t low, high;
  uint64_t any; /* the OR of all words: 0 for a piece of zeros */
} billow_piece_hash;

static inline uint64_t billow_hash_fold(uint64_t state, uint64_t word, uint64_t key) {
  state = (state ^ word) * key;
  return (state << 29 | state >> 35) + word;
}

static inline void billow_hash_piece(const void* data, uint64_t bytes, billow_piece_hash* out) {
  uint64_t low[BILLOW_HASH_LANES], high[BILLOW_HASH_LANES], any = 0;
  for (uint64_t lane = 0; lane < BILLOW_HASH_LANES; lane++) {
    low[lane] = (lane + 1) * BILLOW_HASH_K1;
    high[lane] = (lane + 1) * BILLOW_HASH_K0;
  }
  const unsigned char* at = (const unsigned char*)data;
  uint64_t vectors = bytes / 16;
  for (uint64_t i = 0; i < vectors; i++) {
    uint64_t words[2];
    memcpy(words, at + i * 16, 16);
    uint64_t lane = i % BILLOW_HASH_LANES;
    low[lane] = billow_hash_fold(low[lane], words[0], BILLOW_HASH_K0);
    high[lane] = billow_hash_fold(high[lane], words[1] ^ low[lane], BILLOW_HASH_K1);
    any |= words[0] | words[1];
  }
  uint64_t a = bytes, b = ~bytes;
  for (uint64_t lane = 0; lane < BILLOW_HASH_LANES; lane++) {
    a = billow_hash_fold(a, low[lane], BILLOW_HASH_K1);
    b = billow_hash_fold(b, high[lane] ^ a, BILLOW_HASH_K0);
  }
  out->low = a;
  out->high = b;
  out->any = any;
}

#endif
