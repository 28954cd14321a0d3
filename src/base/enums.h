// Names of enumerators, declared once per enum: specialise EnumNames<E> with a table, and printing,
// parsing and JSON follow.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace billow {

template <class E>
struct EnumNames;  // static constexpr std::array<std::pair<E, const char*>, N> table

template <class E>
concept NamedEnum = requires {
  EnumNames<E>::table;
};

template <NamedEnum E>
constexpr const char* enum_name(E value) {
  for (const auto& [e, name] : EnumNames<E>::table)
    if (e == value)
      return name;
  return "?";
}

template <NamedEnum E>
constexpr std::optional<E> enum_value(std::string_view name) {
  for (const auto& [e, text] : EnumNames<E>::table)
    if (name == text)
      return e;
  return std::nullopt;
}

}  // namespace billow

// BILLOW_ENUM_NAMES(Colour, {Colour::red, "red"}, {Colour::green, "green"}) at namespace billow
// scope.
#define BILLOW_ENUM_NAMES(E, ...)                                                          \
  template <>                                                                              \
  struct EnumNames<E> {                                                                    \
    static constexpr auto table = std::to_array<std::pair<E, const char*>>({__VA_ARGS__}); \
  }
