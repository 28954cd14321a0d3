// From one `fields` declaration per struct to JSON and back:
//
//   template <class S, class V>
//   static constexpr void fields(S& s, V& v) {
//     v("name", s.name);
//   }
//
// It is static so that it can be counted at compile time (complete.h). A field that is absent when
// read keeps its default, so a field added later reads as its default from an older record. What a
// writer leaves out is its choice, see Omit. Reading is lenient for what Billow wrote itself
// (unknown members are ignored: an older program reads the part of a newer record that it knows)
// and strict for what people and clients send (unknown members are errors that name the nearest
// known one).
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/money.h"
#include "base/result.h"
#include "core/model/one_of.h"
#include "core/wire/complete.h"

namespace billow::wire {

struct JsonWriter;
struct JsonReader;

template <class T>
concept HasFields = requires(T& t, JsonWriter& w) {
  T::fields(t, w);
};

// What a writer leaves out.
enum class Omit {
  defaults,  // messages and documents: a value that a default-made struct holds
  zeros,     // journal and snapshots: such a value only if it is also zero or empty, so a record
             // keeps its meaning when a default is changed later
  nothing,   // the whole struct, for tests of the format
};

namespace detail {
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsStringMap : std::false_type {};
template <class T>
struct IsStringMap<std::map<std::string, T>> : std::true_type {};
template <class T>
struct IsId : std::false_type {};
template <class T>
struct IsId<Id<T>> : std::true_type {};
template <class T>
struct IsSharedConst : std::false_type {};
template <class T>
struct IsSharedConst<std::shared_ptr<const T>> : std::true_type {};
}  // namespace detail

// Whether a member holds what a default-made struct holds; containers count as default only when
// both are empty.
template <class T>
bool same_as_default(const T& value, const T& standard) {
  if constexpr (detail::IsVector<T>::value || detail::IsStringMap<T>::value)
    return value.empty() && standard.empty();
  else if constexpr (detail::IsOptional<T>::value)
    return !value && !standard;
  else if constexpr (detail::IsSharedConst<T>::value)
    return !value;
  else if constexpr (HasFields<T> && !std::equality_comparable<T>)
    return false;
  else
    return value == standard;
}

// Appends JSON text directly: no intermediate value on the hot path.
struct JsonWriter {
  std::string& out;
  const char* object;  // the struct being written and a default-made one: a member lies at the same
                       // offset in both
  const char* standard;
  Omit omit = Omit::defaults;
  bool first = true;

  template <class T>
  void operator()(const char* name, const T& value) {
    const auto offset = reinterpret_cast<const char*>(&value) - object;
    const T& usual = *reinterpret_cast<const T*>(standard + offset);
    if (omit == Omit::defaults && same_as_default(value, usual))
      return;
    if constexpr (HasFields<T>) {
      static_assert(fields_complete<T>);
      write_member(name, &value, &usual, write_fields<T>);
    } else {
      if (omit == Omit::zeros && same_as_default(value, usual) && is_zero(usual))
        return;
      member(name);
      write(out, value, omit);
    }
  }
  void member(const char* name);
  // Asked only of a default that the value equals: containers are empty then.
  template <class T>
  static bool is_zero(const T& usual) {
    if constexpr (detail::IsVector<T>::value || detail::IsStringMap<T>::value ||
                  detail::IsOptional<T>::value || detail::IsSharedConst<T>::value)
      return true;
    else
      return usual == T{};
  }
  // What is the same for every struct is in codec.cpp and gets the struct's own part as a function:
  // as templates these took a tenth of the compile time of the rooms that use them.
  using WriteFields = void (*)(const void* object, JsonWriter& writer);
  template <class T>
  static void write_fields(const void* object, JsonWriter& writer) {
    T::fields(*static_cast<const T*>(object), writer);
  }
  void write_member(const char* name,
                    const void* value,
                    const void* usual,
                    WriteFields write_fields);
  static void write_object(
      std::string& out, const void* value, const void* usual, WriteFields write_fields, Omit omit);

  template <class T>
  static void write(std::string& out, const T& value, Omit omit = Omit::defaults) {
    if constexpr (std::is_same_v<T, bool>)
      out += value ? "true" : "false";
    else if constexpr (std::is_floating_point_v<T>)
      Json(static_cast<double>(value)).dump_to(out);
    else if constexpr (std::is_integral_v<T>)
      write_integer(out, value);
    else if constexpr (NamedEnum<T>)
      append_json_string(out, enum_name(value));
    else if constexpr (std::is_same_v<T, std::string>)
      append_json_string(out, value);
    else if constexpr (std::is_same_v<T, Json>)
      value.dump_to(out);
    else if constexpr (detail::IsId<T>::value)
      write_integer(out, value.value);
    else if constexpr (std::is_same_v<T, Duration> || std::is_same_v<T, WallTime> ||
                       std::is_same_v<T, SteadyTime>)
      write_integer(out, value.ns);
    else if constexpr (std::is_same_v<T, NanoUsd>)
      write_integer(out, value.value);
    else if constexpr (std::is_same_v<T, Rate>)
      write_integer(out, value.nano_usd_per_s);
    else if constexpr (detail::IsOptional<T>::value) {
      if (value)
        write(out, *value, omit);
      else
        out += "null";
    } else if constexpr (detail::IsSharedConst<T>::value) {
      if (value)
        write(out, *value, omit);
      else
        out += "null";
    } else if constexpr (detail::IsVector<T>::value) {
      out += '[';
      bool first = true;
      for (const auto& item : value) {
        if (!first)
          out += ',';
        first = false;
        write(out, item, omit);
      }
      out += ']';
    } else if constexpr (detail::IsStringMap<T>::value) {
      out += '{';
      bool first = true;
      for (const auto& [key, item] : value) {
        if (!first)
          out += ',';
        first = false;
        append_json_string(out, key);
        out += ':';
        write(out, item, omit);
      }
      out += '}';
    } else {
      static_assert(HasFields<T>, "declare fields as codec.h shows");
      static_assert(fields_complete<T>);
      static const T standard{};
      write_object(out, &value, &standard, write_fields<T>, omit);
    }
  }
  static void write_integer(std::string& out, std::int64_t value);
  static void write_integer(std::string& out, std::uint64_t value);
  template <class I>
  requires std::is_integral_v<I>
  static void write_integer(std::string& out, I value) {
    if constexpr (std::is_signed_v<I>)
      write_integer(out, static_cast<std::int64_t>(value));
    else
      write_integer(out, static_cast<std::uint64_t>(value));
  }
};

// Where a value lies in its document. A chain on the stack: only an error makes text of it
// ("resources.share", "tasks[2].gpus").
struct JsonPath {
  const JsonPath* up = nullptr;
  std::string_view name;
  std::ptrdiff_t index = -1;  // an element of an array, if not negative
  std::string text() const;
};

struct JsonReader {
  const Json& object;
  bool strict = false;
  const JsonPath* path = nullptr;  // of the object being read
  std::optional<Error> error;      // the first one; reading goes on harmlessly after it
  std::vector<std::string> known;  // names asked for, in strict mode

  template <class T>
  void operator()(const char* name, T& value) {
    if (const Json* member = find(name))
      read(*member, value, {path, name});
  }

  template <class T>
  void read(const Json& json, T& value, const JsonPath& where) {
    if (error)
      return;
    if constexpr (std::is_same_v<T, bool>)
      read_bool(json, value, where);
    else if constexpr (std::is_floating_point_v<T>) {
      if (json.is_number())
        value = static_cast<T>(json.double_or(0));
      else
        wrong(where, "a number", json);
    } else if constexpr (std::is_integral_v<T>)
      read_integer(json, value, where);
    else if constexpr (NamedEnum<T>) {
      if (const auto parsed = enum_value<T>(json.str_or("")))
        value = *parsed;
      else
        wrong_name(where, json, EnumNames<T>::table.size(),
                   [](std::size_t i) { return EnumNames<T>::table[i].second; });
    } else if constexpr (std::is_same_v<T, std::string>)
      read_text(json, value, where);
    else if constexpr (std::is_same_v<T, Json>)
      value = json;
    else if constexpr (detail::IsId<T>::value)
      read_integer(json, value.value, where);
    else if constexpr (std::is_same_v<T, Duration> || std::is_same_v<T, WallTime> ||
                       std::is_same_v<T, SteadyTime>)
      read_integer(json, value.ns, where);
    else if constexpr (std::is_same_v<T, NanoUsd>)
      read_integer(json, value.value, where);
    else if constexpr (std::is_same_v<T, Rate>)
      read_integer(json, value.nano_usd_per_s, where);
    else if constexpr (detail::IsOptional<T>::value) {
      value.emplace();
      read(json, *value, where);
    } else if constexpr (detail::IsSharedConst<T>::value) {
      auto made = std::make_shared<std::remove_const_t<typename T::element_type>>();
      read(json, *made, where);
      value = std::move(made);
    } else if constexpr (detail::IsVector<T>::value)
      return read_vector(json, value, where);
    else if constexpr (detail::IsStringMap<T>::value)
      return read_map(json, value, where);
    else
      return read_object(json, value, where);
  }
  const Json* find(const char* name);  // none: absent, null, or nothing is read after an error
  void finish();  // in strict mode: an error for a member that no field is named after
  void wrong(const JsonPath& where, std::string_view wanted, const Json& got);

  // Reads a value whose type only the function knows (see JsonWriter::WriteFields for the reason).
  using ReadAt = void (*)(JsonReader& reader, const Json& json, void* at, const JsonPath& where);
  template <class T>
  static void read_at(JsonReader& reader, const Json& json, void* at, const JsonPath& where) {
    reader.read(json, *static_cast<T*>(at), where);
  }
  static std::optional<Error> read_document(const Json& json, bool strict, void* at, ReadAt read);

 private:
  using ReadFields = void (*)(JsonReader& reader, void* object);
  void read_fields(const Json& json, void* object, ReadFields fields, const JsonPath& where);
  void read_items(
      const Json& json, void* first, std::size_t item_bytes, ReadAt read, const JsonPath& where);
  void wrong_name(const JsonPath& where,
                  const Json& got,
                  std::size_t names,
                  const char* (*name)(std::size_t));
  void read_bool(const Json& json, bool& value, const JsonPath& where);
  void read_text(const Json& json, std::string& value, const JsonPath& where);
  template <class T>
  void read_vector(const Json& json, T& value, const JsonPath& where) {
    if (!json.is_array())
      return wrong(where, "an array", json);
    using Item = typename T::value_type;
    value = T(json.size());
    read_items(json, value.data(), sizeof(Item), read_at<Item>, where);
  }
  template <class T>
  void read_map(const Json& json, T& value, const JsonPath& where) {
    if (!json.is_object())
      return wrong(where, "an object", json);
    value.clear();
    for (const auto& [key, item] : json.members())
      read(item, value[key], {&where, key});
  }
  template <class T>
  void read_object(const Json& json, T& value, const JsonPath& where) {
    static_assert(HasFields<T>, "declare fields as codec.h shows");
    static_assert(fields_complete<T>);
    read_fields(
        json, &value,
        [](JsonReader& inner, void* object) { T::fields(*static_cast<T*>(object), inner); }, where);
  }
  bool integer_in_range(const Json& json,
                        std::int64_t min,
                        std::uint64_t max,
                        const JsonPath& where);
  template <class I>
  void read_integer(const Json& json, I& value, const JsonPath& where) {
    if (!integer_in_range(
            json,
            std::is_signed_v<I> ? static_cast<std::int64_t>(std::numeric_limits<I>::min()) : 0,
            static_cast<std::uint64_t>(std::numeric_limits<I>::max()), where))
      return;
    if constexpr (std::is_signed_v<I>)
      value = static_cast<I>(json.int_or(0));
    else
      value = static_cast<I>(json.uint_or(0));
  }
};

template <class T>
std::string to_json_text(const T& value, Omit omit = Omit::defaults) {
  std::string out;
  JsonWriter::write(out, value, omit);
  return out;
}

template <class T>
Result<T> from_json(const Json& json, bool strict = false) {
  Result<T> result(std::in_place);
  if (auto error = JsonReader::read_document(json, strict, &*result, JsonReader::read_at<T>))
    result = pass(std::move(*error));
  return result;
}

template <class T>
Result<T> from_json_text(std::string_view text, bool strict = false) {
  auto json = parse_json(text);
  if (!json)
    return pass(std::move(json.error()));
  return from_json<T>(*json, strict);
}

// Tagged unions: each alternative T has `static constexpr const char* kind`. Written for OneOf and
// for the few small std::variants.
template <class V>
const char* variant_kind(const V& v) {
  return visit([](const auto& x) { return std::decay_t<decltype(x)>::kind; }, v);
}

namespace detail {
template <class V>
struct VariantReader {
  const char* kind;
  V (*make)();
  JsonReader::ReadAt read;  // into the V that make() returned
  template <class T>
  static V make_as() {
    return V(T{});
  }
  template <class T>
  static void read_as(JsonReader& reader, const Json& json, void* at, const JsonPath& where) {
    reader.read(json, *get_if<T>(static_cast<V*>(at)), where);
  }
  template <class T>
  static consteval VariantReader of() {
    return {T::kind, make_as<T>, read_as<T>};
  }
};
template <class V>
struct VariantList {
  using type = typename V::Alternatives;
};
template <class... Ts>
struct VariantList<std::variant<Ts...>> {
  using type = Kinds<Ts...>;
};
template <class V>
inline constexpr auto variant_readers = VariantList<V>::type::template table<VariantReader<V>>();
}  // namespace detail

template <class V>
Result<V> variant_from_json(std::string_view kind, const Json& json) {
  for (const auto& reader : detail::variant_readers<V>) {
    if (kind != reader.kind)
      continue;
    V value = reader.make();
    if (auto error = JsonReader::read_document(json, false, &value, reader.read))
      return pass(std::move(*error), reader.kind);
    return value;
  }
  return fail(Code::invalid, "unknown kind \"" + std::string(kind) + "\"");
}

}  // namespace billow::wire
