// The GPU half of shim/hash.h: one block of 256 threads hashes one 2 MiB piece. hash.ptx is made from this file by
//   nvcc -ptx -arch=compute_75 -o hash.ptx hash.cu
// with its .version lowered to 7.0, so that every driver since CUDA 11 accepts it; the GPU memory service carries that text and has the driver
// compile it, so neither the build nor a node needs nvcc.
typedef unsigned long long u64;

__device__ __forceinline__ u64 fold(u64 state, u64 word, u64 key) {
  state = (state ^ word) * key;
  return (state << 29 | state >> 35) + word;
}

struct Piece { u64 address, bytes; };
struct Hash { u64 low, high, any; };

extern "C" __global__ void __launch_bounds__(256) billow_hash_pieces(const Piece* pieces, Hash* out) {
  const u64 k0 = 0x9e3779b97f4a7c15ull, k1 = 0xd1b54a32d192ed03ull;
  __shared__ u64 lows[256], highs[256], anys[256];
  const unsigned lane = threadIdx.x;
  const Piece piece = pieces[blockIdx.x];
  const ulonglong2* data = (const ulonglong2*)piece.address;
  const u64 vectors = piece.bytes / 16;
  u64 low = (lane + 1) * k1, high = (lane + 1) * k0, any = 0;
  u64 i = lane;
  for (; i + 3 * 256 < vectors; i += 4 * 256) {
    ulonglong2 w[4];
#pragma unroll
    for (int j = 0; j < 4; j++) w[j] = data[i + j * 256];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      low = fold(low, w[j].x, k0);
      high = fold(high, w[j].y ^ low, k1);
      any |= w[j].x | w[j].y;
    }
  }
  for (; i < vectors; i += 256) {
    const ulonglong2 w = data[i];
    low = fold(low, w.x, k0);
    high = fold(high, w.y ^ low, k1);
    any |= w.x | w.y;
  }
  lows[lane] = low;
  highs[lane] = high;
  anys[lane] = any;
  __syncthreads();
  if (lane == 0) {
    u64 a = piece.bytes, b = ~piece.bytes, all = 0;
#pragma unroll 1
    for (int l = 0; l < 256; l++) {
      a = fold(a, lows[l], k1);
      b = fold(b, highs[l] ^ a, k0);
      all |= anys[l];
    }
    out[blockIdx.x].low = a;
    out[blockIdx.x].high = b;
    out[blockIdx.x].any = all;
  }
}
