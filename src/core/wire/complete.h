// Proves at compile time that a struct's `fields` names every member: a forgotten line would lose
// the member silently when a journal is replayed. The fields are counted by running `fields` in a
// constant expression over an object that is declared but never made; the members by a structured
// binding with that many names, which compiles only if there are exactly so many.
//
// A member left out stops the build with "N names provided for structured binding, while 'T'
// decomposes into N+1 elements".
#pragma once

#include <cstddef>

namespace billow::wire {

namespace detail {

// Never defined: only its members' addresses are formed, in constant expressions.
template <class T>
extern T undefined_object;

struct FieldCounter {
  std::size_t count = 0;
  template <class M>
  constexpr void operator()(const char*, const M&) {
    ++count;
  }
};

}  // namespace detail

template <class T>
consteval std::size_t field_count() {
  detail::FieldCounter counter;
  T::fields(detail::undefined_object<T>, counter);
  return counter.count;
}

namespace detail {

// clang-format off
template <std::size_t count, class T>
constexpr bool members_are(T& t) {
  if constexpr (count == 0) return sizeof(t) == 1;
  else if constexpr (count == 1) { [[maybe_unused]] auto& [m0] = t; }
  else if constexpr (count == 2) { [[maybe_unused]] auto& [m0, m1] = t; }
  else if constexpr (count == 3) { [[maybe_unused]] auto& [m0, m1, m2] = t; }
  else if constexpr (count == 4) { [[maybe_unused]] auto& [m0, m1, m2, m3] = t; }
  else if constexpr (count == 5) { [[maybe_unused]] auto& [m0, m1, m2, m3, m4] = t; }
  else if constexpr (count == 6) { [[maybe_unused]] auto& [m0, m1, m2, m3, m4, m5] = t; }
  else if constexpr (count == 7) { [[maybe_unused]] auto& [m0, m1, m2, m3, m4, m5, m6] = t; }
  else if constexpr (count == 8) { [[maybe_unused]] auto& [m0, m1, m2, m3, m4, m5, m6, m7] = t; }
  else if constexpr (count == 9) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8] = t;
  }
  else if constexpr (count == 10) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9] = t;
  }
  else if constexpr (count == 11) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10] = t;
  }
  else if constexpr (count == 12) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11] = t;
  }
  else if constexpr (count == 13) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12] = t;
  }
  else if constexpr (count == 14) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13] = t;
  }
  else if constexpr (count == 15) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14] = t;
  }
  else if constexpr (count == 16) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15] = t;
  }
  else if constexpr (count == 17) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16] = t;
  }
  else if constexpr (count == 18) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17] = t;
  }
  else if constexpr (count == 19) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18] = t;
  }
  else if constexpr (count == 20) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19] = t;
  }
  else if constexpr (count == 21) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20] = t;
  }
  else if constexpr (count == 22) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21] = t;
  }
  else if constexpr (count == 23) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22] = t;
  }
  else if constexpr (count == 24) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23] = t;
  }
  else if constexpr (count == 25) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24] = t;
  }
  else if constexpr (count == 26) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25] = t;
  }
  else if constexpr (count == 27) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26] = t;
  }
  else if constexpr (count == 28) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27] = t;
  }
  else if constexpr (count == 29) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28] = t;
  }
  else if constexpr (count == 30) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29] = t;
  }
  else if constexpr (count == 31) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30] = t;
  }
  else if constexpr (count == 32) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31] = t;
  }
  else if constexpr (count == 33) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32] = t;
  }
  else if constexpr (count == 34) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33] = t;
  }
  else if constexpr (count == 35) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34] = t;
  }
  else if constexpr (count == 36) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35] = t;
  }
  else if constexpr (count == 37) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35,
      m36] = t;
  }
  else if constexpr (count == 38) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35,
      m36, m37] = t;
  }
  else if constexpr (count == 39) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35,
      m36, m37, m38] = t;
  }
  else if constexpr (count == 40) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35,
      m36, m37, m38, m39] = t;
  }
  else if constexpr (count == 41) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35,
      m36, m37, m38, m39, m40] = t;
  }
  else if constexpr (count == 42) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35,
      m36, m37, m38, m39, m40, m41] = t;
  }
  else if constexpr (count == 43) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35,
      m36, m37, m38, m39, m40, m41, m42] = t;
  }
  else if constexpr (count == 44) {
    [[maybe_unused]] auto& [
      m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35,
      m36, m37, m38, m39, m40, m41, m42, m43] = t;
  }
  else static_assert(count <= 44, "add longer bindings to core/wire/complete.h");
  return true;
}
// clang-format on

}  // namespace detail

// True, or it does not compile.
template <class T>
inline constexpr bool fields_complete =
    detail::members_are<field_count<T>()>(detail::undefined_object<T>);

}  // namespace billow::wire
