// The texts of a struct, by its `fields` declaration: for rules that apply to every text, whatever
// its origin and name.
#pragma once

#include "base/text.h"
#include "core/wire/codec.h"

namespace billow::wire {

template <class T, class Fn>
void each_text(T& value, Fn& fn);

namespace detail {
template <class Fn>
struct TextVisitor {
  Fn& fn;
  template <class M>
  void operator()(const char*, M& member) {
    each_text(member, fn);
  }
};
}  // namespace detail

// Calls fn(std::string&) for each text of `value`, those in lists, maps (their keys aside) and
// parts included. What is shared is left alone: it was checked before it came to be.
template <class T, class Fn>
void each_text(T& value, Fn& fn) {
  if constexpr (std::is_same_v<T, std::string>) {
    fn(value);
  } else if constexpr (detail::IsOptional<T>::value) {
    if (value)
      each_text(*value, fn);
  } else if constexpr (detail::IsVector<T>::value) {
    if constexpr (!std::is_arithmetic_v<typename T::value_type>)
      for (auto& item : value)
        each_text(item, fn);
  } else if constexpr (detail::IsStringMap<T>::value) {
    for (auto& [key, item] : value)
      each_text(item, fn);
  } else if constexpr (HasFields<T>) {
    detail::TextVisitor<Fn> visitor{fn};
    T::fields(value, visitor);
  }
}

// The texts are UTF-8 from here on: nothing else can be read again from where they are kept.
template <class T>
void repair_texts(T& value) {
  auto repair = [](std::string& text) {
    if (!valid_utf8(text))
      text = repaired_utf8(text);
  };
  each_text(value, repair);
}

template <class T>
std::size_t text_bytes(const T& value) {
  std::size_t bytes = 0;
  auto count = [&](const std::string& text) {
    bytes += text.size();
  };
  each_text(const_cast<T&>(value), count);
  return bytes;
}

}  // namespace billow::wire
