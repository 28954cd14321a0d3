#include "gpumem/squeeze.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace billow::gpumem {

Squeeze Squeeze::load() {
  const char* named = std::getenv("BILLOW_ZSTD");
  Squeeze out;
  void* library = dlopen(named && *named ? named : "libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return out;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (!find(out.compress_, "ZSTD_compress") || !find(out.decompress_, "ZSTD_decompress") ||
      !find(out.is_error_, "ZSTD_isError") || !find(out.bound_, "ZSTD_compressBound"))
    return {};
  return out;
}

std::size_t Squeeze::bound(std::size_t bytes) const {
  return compress_ ? bound_(bytes) : bytes;
}

std::size_t Squeeze::pack(
    const void* from, std::size_t bytes, void* into, std::size_t space, int level) const {
  if (!compress_)
    return 0;
  const std::size_t n = compress_(into, space, from, bytes, level);
  return is_error_(n) ? 0 : n;
}

bool Squeeze::unpack(const void* from, std::size_t stored, void* into, std::size_t bytes) const {
  if (!decompress_)
    return false;
  const std::size_t n = decompress_(into, bytes, from, stored);
  return !is_error_(n) && n == bytes;
}

double Squeeze::sampled_ratio(const char* data, std::size_t bytes, int level) const {
  constexpr std::size_t sample = 16u << 10, samples = 3;
  if (!compress_)
    return 1;
  if (bytes < sample * samples * 2)
    return 0.5;  // so small that packing it is as cheap as a sample
  std::vector<char> into(bound(sample));
  std::size_t packed = 0;
  for (std::size_t i = 0; i < samples; i++) {
    const std::size_t at = (bytes - sample) / (samples - 1) * i / 64 * 64;
    const std::size_t n = pack(data + at, sample, into.data(), into.size(), level);
    packed += n ? n : sample;
  }
  return std::min(1.0, static_cast<double>(packed) / static_cast<double>(sample * samples));
}

}  // namespace billow::gpumem
