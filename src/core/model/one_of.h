// A value of one type out of a list, like std::variant, for lists of many types. std::variant
// instantiates copy, move and destruction of every alternative in every file that holds one: with
// 86 events that took 33 s of compile time. Here an object carries a pointer to the operations of
// the type it holds, so a file pays only for the alternatives it names. The list is a named struct,
// which keeps symbol names short.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace billow {

// The list of alternatives. Derive a named struct from it: struct Shapes : Kinds<Disc, Box> {};
template <class T0, class... Ts>
struct Kinds {
  using First = T0;
  static constexpr std::size_t count = 1 + sizeof...(Ts);
  static constexpr std::size_t size_max = std::max({sizeof(T0), sizeof(Ts)...});
  static constexpr std::size_t align_max = std::max({alignof(T0), alignof(Ts)...});

  // The index of T in the list; `count` if it is not in it.
  template <class T>
  static consteval std::size_t index_of() {
    const bool same[] = {__is_same(T, T0), __is_same(T, Ts)...};
    return static_cast<std::size_t>(std::find(same, same + count, true) - same);
  }
  // One entry per alternative, in order: Entry::template of<T>().
  template <class Entry>
  static consteval auto table() {
    return std::array{Entry::template of<T0>(), Entry::template of<Ts>()...};
  }
  // Calls fn.template operator()<T>() for each alternative, in order.
  template <class Fn>
  static void each(Fn&& fn) {
    fn.template operator()<T0>();
    (fn.template operator()<Ts>(), ...);
  }
};

namespace detail {

struct OneOfOps {
  void (*copy)(void* to, const void* from);
  void (*move)(void* to, void* from) noexcept;
  void (*destroy)(void* at) noexcept;
};

template <class T>
inline constexpr OneOfOps one_of_ops{
    [](void* to, const void* from) { ::new (to) T(*static_cast<const T*>(from)); },
    [](void* to, void* from) noexcept { ::new (to) T(std::move(*static_cast<T*>(from))); },
    [](void* at) noexcept {
      static_cast<T*>(at)->~T();
    }};

template <class Fn, class Result, bool constant>
struct OneOfCall {
  using Bytes = std::conditional_t<constant, const void, void>;
  using Call = Result (*)(Fn&, Bytes*);
  template <class T>
  static consteval Call of() {
    using Value = std::conditional_t<constant, const T, T>;
    return [](Fn& fn, Bytes* at) -> Result {
      return fn(*static_cast<Value*>(at));
    };
  }
};

template <class List, class Fn, class Result, bool constant>
inline constexpr auto one_of_calls = List::template table<OneOfCall<Fn, Result, constant>>();

}  // namespace detail

template <class List>
class OneOf {
 public:
  using Alternatives = List;
  using First = typename List::First;

  OneOf() : OneOf(First{}) {}
  template <class T>
  requires(List::template index_of<std::remove_cvref_t<T>>() < List::count) OneOf(T&& value) {
    hold(std::forward<T>(value));
  }
  OneOf(const OneOf& other) : ops_(other.ops_), index_(other.index_) {
    ops_->copy(bytes_, other.bytes_);
  }
  OneOf(OneOf&& other) noexcept : ops_(other.ops_), index_(other.index_) {
    ops_->move(bytes_, other.bytes_);
  }
  OneOf& operator=(const OneOf& other) {
    return *this = OneOf(other);  // if the copy throws, this object stays unchanged
  }
  OneOf& operator=(OneOf&& other) noexcept {
    if (this == &other)
      return *this;
    ops_->destroy(bytes_);
    ops_ = other.ops_;
    index_ = other.index_;
    ops_->move(bytes_, other.bytes_);
    return *this;
  }
  ~OneOf() { ops_->destroy(bytes_); }

  std::size_t index() const { return index_; }

  template <class T>
  T* get_if() {
    return holds<T>() ? reinterpret_cast<T*>(bytes_) : nullptr;
  }
  template <class T>
  const T* get_if() const {
    return holds<T>() ? reinterpret_cast<const T*>(bytes_) : nullptr;
  }
  template <class T>
  bool holds() const {
    constexpr std::size_t index = List::template index_of<T>();
    static_assert(index < List::count, "this type is not among the alternatives");
    return index_ == index;
  }
  void* bytes() { return bytes_; }
  const void* bytes() const { return bytes_; }

 private:
  template <class T>
  void hold(T&& value) {
    using Value = std::remove_cvref_t<T>;
    ::new (static_cast<void*>(bytes_)) Value(std::forward<T>(value));
    ops_ = &detail::one_of_ops<Value>;
    index_ = static_cast<std::uint32_t>(List::template index_of<Value>());
  }

  alignas(List::align_max) std::byte bytes_[List::size_max];
  const detail::OneOfOps* ops_;
  std::uint32_t index_;
};

// The functions of std::variant under their usual names.
template <class T, class List>
T* get_if(OneOf<List>* value) {
  return value->template get_if<T>();
}
template <class T, class List>
const T* get_if(const OneOf<List>* value) {
  return value->template get_if<T>();
}
template <class T, class List>
bool holds_alternative(const OneOf<List>& value) {
  return value.template holds<T>();
}
template <class T, class List>
T& get(OneOf<List>& value) {
  BILLOW_CHECK(value.template holds<T>(), "another alternative is held");
  return *value.template get_if<T>();
}
template <class T, class List>
const T& get(const OneOf<List>& value) {
  BILLOW_CHECK(value.template holds<T>(), "another alternative is held");
  return *value.template get_if<T>();
}
template <class Fn, class List>
decltype(auto) visit(Fn&& fn, OneOf<List>& value) {
  using Visitor = std::remove_reference_t<Fn>;
  using Result = decltype(fn(std::declval<typename OneOf<List>::First&>()));
  const auto call = detail::one_of_calls<List, Visitor, Result, false>[value.index()];
  return call(fn, value.bytes());
}
template <class Fn, class List>
decltype(auto) visit(Fn&& fn, const OneOf<List>& value) {
  using Visitor = std::remove_reference_t<Fn>;
  using Result = decltype(fn(std::declval<const typename OneOf<List>::First&>()));
  const auto call = detail::one_of_calls<List, Visitor, Result, true>[value.index()];
  return call(fn, value.bytes());
}

}  // namespace billow
