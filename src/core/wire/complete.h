// Proves at compile time that a struct's `fields` names every member: a forgotten line would lose
// the member silently when a journal is replayed. The fields are counted by running `fields` in a
// constant expression over an object that is declared but never made; the members by a structured
// binding with that many names, which compiles only if there are exactly so many.
//
// A member left out stops the build with "N names provided for structured binding, while 'T'
// decomposes into N+1 elements".
//
// A struct may take members from a base, which it names as `FieldsBase` and whose `fields` it
// calls. A structured binding cannot see both, so its own members are counted by how many
// initialisers it takes.
#pragma once

#include <cstddef>
#include <utility>

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
constexpr void few_members_are([[maybe_unused]] T& it) {
  if constexpr (count == 1) { [[maybe_unused]] auto& [a] = it; }
  else if constexpr (count == 2) { [[maybe_unused]] auto& [a, b] = it; }
  else if constexpr (count == 3) { [[maybe_unused]] auto& [a, b, c] = it; }
  else if constexpr (count == 4) { [[maybe_unused]] auto& [a, b, c, d] = it; }
  else if constexpr (count == 5) { [[maybe_unused]] auto& [a, b, c, d, e] = it; }
  else if constexpr (count == 6) { [[maybe_unused]] auto& [a, b, c, d, e, f] = it; }
  else if constexpr (count == 7) { [[maybe_unused]] auto& [a, b, c, d, e, f, g] = it; }
  else if constexpr (count == 8) { [[maybe_unused]] auto& [a, b, c, d, e, f, g, h] = it; }
  else if constexpr (count == 9) { [[maybe_unused]] auto& [a, b, c, d, e, f, g, h, i] = it; }
  else if constexpr (count == 10) { [[maybe_unused]] auto& [a, b, c, d, e, f, g, h, i, j] = it; }
  else if constexpr (count == 11) { [[maybe_unused]] auto& [a, b, c, d, e, f, g, h, i, j, k] = it; }
  else if constexpr (count == 12) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l] = it;
  }
  else if constexpr (count == 13) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m] = it;
  }
  else if constexpr (count == 14) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n] = it;
  }
  else if constexpr (count == 15) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = it;
  }
  else if constexpr (count == 16) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = it;
  }
  else if constexpr (count == 17) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = it;
  }
  else if constexpr (count == 18) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = it;
  }
}
template <std::size_t count, class T>
constexpr void members_are_up_to_32([[maybe_unused]] T& it) {
  if constexpr (count == 19) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = it;
  }
  else if constexpr (count == 20) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = it;
  }
  else if constexpr (count == 21) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = it;
  }
  else if constexpr (count == 22) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = it;
  }
  else if constexpr (count == 23) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = it;
  }
  else if constexpr (count == 24) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x] = it;
  }
  else if constexpr (count == 25) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y] = it;
  }
  else if constexpr (count == 26) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z] = it;
  }
  else if constexpr (count == 27) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2] = it;
  }
  else if constexpr (count == 28) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2] = it;
  }
  else if constexpr (count == 29) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2] = it;
  }
  else if constexpr (count == 30) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2] = it;
  }
  else if constexpr (count == 31) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2] = it;
  }
  else if constexpr (count == 32) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2] = it;
  }
}
template <std::size_t count, class T>
constexpr void members_are_up_to_44([[maybe_unused]] T& it) {
  if constexpr (count == 33) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2] = it;
  }
  else if constexpr (count == 34) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2, h2] = it;
  }
  else if constexpr (count == 35) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2, h2, i2] = it;
  }
  else if constexpr (count == 36) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2, h2, i2, j2] = it;
  }
  else if constexpr (count == 37) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2, h2, i2, j2, k2] = it;
  }
  else if constexpr (count == 38) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2, h2, i2, j2, k2, l2] = it;
  }
  else if constexpr (count == 39) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2, h2, i2, j2, k2, l2, m2] = it;
  }
  else if constexpr (count == 40) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2, h2, i2, j2, k2, l2, m2, n2] = it;
  }
  else if constexpr (count == 41) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2, h2, i2, j2, k2, l2, m2, n2, o2] = it;
  }
  else if constexpr (count == 42) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2, h2, i2, j2, k2, l2, m2, n2, o2, p2] = it;
  }
  else if constexpr (count == 43) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2, h2, i2, j2, k2, l2, m2, n2, o2, p2, q2] = it;
  }
  else if constexpr (count == 44) {
    [[maybe_unused]] auto& [
      a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, a2, b2,
      c2, d2, e2, f2, g2, h2, i2, j2, k2, l2, m2, n2, o2, p2, q2, r2] = it;
  }
}
// clang-format on

template <std::size_t count, class T>
constexpr bool members_are([[maybe_unused]] T& it) {
  static_assert(count <= 44, "add longer bindings to core/wire/complete.h");
  if constexpr (count == 0)
    static_assert(sizeof(T) == 1, "a struct without fields has members");
  else if constexpr (count <= 18)
    few_members_are<count>(it);
  else if constexpr (count <= 32)
    members_are_up_to_32<count>(it);
  else
    members_are_up_to_44<count>(it);
  return true;
}

struct AnyInitialiser {
  template <class M>
  operator M() const;
};
// Whether T can be made of its base and so many more initialisers: it has at least as many members.
template <class T, std::size_t... own>
consteval bool takes(std::index_sequence<own...>) {
  return requires {
    T{typename T::FieldsBase(), (static_cast<void>(own), AnyInitialiser())...};
  };
}

template <class T>
consteval bool every_member_is_named() {
  if constexpr (requires { typename T::FieldsBase; }) {
    using Base = typename T::FieldsBase;
    constexpr std::size_t own = field_count<T>() - field_count<Base>();
    static_assert(takes<T>(std::make_index_sequence<own>()),
                  "`fields` names more members than the struct has");
    static_assert(!takes<T>(std::make_index_sequence<own + 1>()),
                  "`fields` leaves a member of the struct out");
    return every_member_is_named<Base>();
  } else {
    return members_are<field_count<T>()>(undefined_object<T>);
  }
}

}  // namespace detail

// True, or it does not compile.
template <class T>
inline constexpr bool fields_complete = detail::every_member_is_named<T>();

}  // namespace billow::wire
