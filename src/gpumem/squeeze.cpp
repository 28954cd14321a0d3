#include "gpumem/squeeze.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
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

void Squeeze::sort_bytes(const char* from, char* into, std::size_t bytes, std::uint8_t word) {
  const std::size_t words = bytes / word;
  for (std::size_t plane = 0; plane < word; plane++)
    for (std::size_t i = 0; i < words; i++)
      into[plane * words + i] = from[i * word + plane];
  std::memcpy(into + words * word, from + words * word, bytes - words * word);
}

void Squeeze::unsort_bytes(const char* from, char* into, std::size_t bytes, std::uint8_t word) {
  const std::size_t words = bytes / word;
  for (std::size_t plane = 0; plane < word; plane++)
    for (std::size_t i = 0; i < words; i++)
      into[i * word + plane] = from[plane * words + i];
  std::memcpy(into + words * word, from + words * word, bytes - words * word);
}

Squeeze::Guess Squeeze::sample(const char* data, std::size_t bytes, int level) const {
  constexpr std::size_t sample = 16u << 10, samples = 3;
  Guess best;
  if (!compress_)
    return best;
  if (bytes < sample * samples * 2)
    return {0.5, 1};  // so small that packing it is as cheap as a sample
  char sorted[sample];
  std::vector<char> into(bound(sample));
  for (const std::uint8_t word : word_sizes) {
    std::size_t packed = 0;
    for (std::size_t i = 0; i < samples; i++) {
      const std::size_t at = (bytes - sample) / (samples - 1) * i / 64 * 64;
      sort_bytes(data + at, sorted, sample, word);
      const std::size_t n = pack(sorted, sample, into.data(), into.size(), level);
      packed += n ? n : sample;
    }
    const double ratio = static_cast<double>(packed) / static_cast<double>(sample * samples);
    if (ratio < best.ratio * 0.97)  // sorting costs time, too
      best = {ratio, word};
  }
  return best;
}

}  // namespace billow::gpumem
