// The kernels of probe.cpp; kernels_ptx.h is made from this by  nvcc -ptx -arch=compute_75 kernels.cu  with .version 7.0.
typedef unsigned long long u64;

// Numbers that look random and differ everywhere: no two pieces are alike, none is zero.
__device__ u64 number(u64 i) {
  i += 0x9e3779b97f4a7c15ull;
  i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9ull;
  i = (i ^ (i >> 27)) * 0x94d049bb133111ebull;
  return i ^ (i >> 31);
}
extern "C" __global__ void probe_fill(u64* at, u64 count, u64 seed) {
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) at[i] = number(seed + i);
}
// Counts the words that are not what probe_fill wrote.
extern "C" __global__ void probe_check(const u64* at, u64 count, u64 seed, u64* wrong) {
  u64 bad = 0;
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) bad += at[i] != number(seed + i);
  if (bad) atomicAdd(wrong, bad);
}
extern "C" __global__ void probe_nothing() {}
extern "C" __global__ void probe_spin(u64 cycles) {
  const long long start = clock64();
  while ((u64)(clock64() - start) < cycles) {}
}
