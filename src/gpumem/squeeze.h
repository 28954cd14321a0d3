// Compression by zstd, loaded at run time: this program builds and runs without it. BILLOW_ZSTD
// names another library, for tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace billow::gpumem {

class Squeeze {
 public:
  static Squeeze load();
  explicit operator bool() const { return compress_ != nullptr; }

  static constexpr int thorough = 1, fast = -5;  // zstd's levels
  // Numbers compress better if all their first bytes come first, then all second ones, and so on:
  // the upper bytes of weights take few values. 1: as they are.
  static constexpr std::uint8_t word_sizes[] = {1, 2, 4};
  static void sort_bytes(const char* from, char* into, std::size_t bytes, std::uint8_t word);
  static void unsort_bytes(const char* from, char* into, std::size_t bytes, std::uint8_t word);
  std::size_t bound(std::size_t bytes) const;  // of the output
  // Bytes written, or 0: it does not fit or cannot be done.
  std::size_t pack(
      const void* from, std::size_t bytes, void* into, std::size_t space, int level) const;
  // True: exactly `bytes` were restored.
  bool unpack(const void* from, std::size_t stored, void* into, std::size_t bytes) const;
  struct Guess {
    double ratio = 1;
    std::uint8_t word = 1;
  };
  // What a piece probably shrinks to, and with which words, from three samples of it.
  Guess sample(const char* data, std::size_t bytes, int level) const;

 private:
  std::size_t (*compress_)(void*, std::size_t, const void*, std::size_t, int) = nullptr;
  std::size_t (*decompress_)(void*, std::size_t, const void*, std::size_t) = nullptr;
  unsigned (*is_error_)(std::size_t) = nullptr;
  std::size_t (*bound_)(std::size_t) = nullptr;
};

}  // namespace billow::gpumem
