// A byte string made from a value's `fields`, equal exactly if the values are equal. For interning
// and hashing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace billow::sched {

class KeyWriter {
 public:
  std::string out;

  template <class T>
  void operator()(const char*, T& value) {
    add(value);
  }

  template <class T>
  void add(const T& value) {
    if constexpr (std::is_enum_v<T> || std::is_integral_v<T>)
      number(static_cast<std::uint64_t>(value));
    else if constexpr (requires { value.ns; })
      number(static_cast<std::uint64_t>(value.ns));
    else if constexpr (requires { value.value; })
      number(value.value);
    else
      T::fields(value, *this);
  }
  void add(const std::string& text) {
    number(text.size());
    out += text;
  }
  template <class T>
  void add(const std::vector<T>& items) {
    number(items.size());
    for (const T& item : items)
      add(item);
  }
  void add(const std::map<std::string, std::string>& items) {
    number(items.size());
    for (const auto& [k, v] : items) {
      add(k);
      add(v);
    }
  }
  // Seven bits per byte: small numbers, the common case in requests, stay small.
  void number(std::uint64_t n) {
    char bytes[10];
    std::size_t count = 0;
    for (; n >= 0x80; n >>= 7)
      bytes[count++] = static_cast<char>(n | 0x80);
    bytes[count++] = static_cast<char>(n);
    out.append(bytes, count);
  }
};

template <class... T>
std::string key_of(const T&... values) {
  KeyWriter w;
  (w.add(values), ...);
  return std::move(w.out);
}

inline std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull + (h << 12) + (h >> 4);
  h *= 0xff51afd7ed558ccdull;
  return h ^ (h >> 32);
}
inline std::uint64_t hash_text(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (char c : text)
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h ^ (h >> 29);
}

}  // namespace billow::sched
