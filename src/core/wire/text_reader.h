// Reads the JSON text that JsonWriter writes straight into structs, without a document in between:
// a head reads its snapshot and journal several times as fast. It reads only what cannot be
// misread: members in the order of `fields`, no white space, no rare escapes. Anything else, such
// as a record that an older program wrote in another order or damaged text, is left to the reader
// of documents (codec.h), which also says what is wrong. What both read, they read alike.
#pragma once

#include "core/wire/codec.h"

namespace billow::wire {

class TextReader {
 public:
  explicit TextReader(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

  bool failed() const { return failed_; }
  bool complete() const { return !failed_ && at_ == end_; }  // the whole text was read
  void fail() { failed_ = true; }

  template <class T>
  void read(T& value) {
    if (failed_)
      return;
    if constexpr (std::is_same_v<T, bool>)
      read_bool(value);
    else if constexpr (std::is_floating_point_v<T>)
      value = static_cast<T>(read_double());
    else if constexpr (std::is_integral_v<T>)
      read_integer(value);
    else if constexpr (NamedEnum<T>) {
      const auto named = enum_value<T>(plain_text());
      failed_ = failed_ || !named;
      value = named.value_or(value);
    } else if constexpr (std::is_same_v<T, std::string>)
      read_text(value);
    else if constexpr (std::is_same_v<T, Json>)
      fail();
    else if constexpr (detail::IsId<T>::value || std::is_same_v<T, NanoUsd>)
      read_integer(value.value);
    else if constexpr (std::is_same_v<T, Duration> || std::is_same_v<T, WallTime> ||
                       std::is_same_v<T, SteadyTime>)
      read_integer(value.ns);
    else if constexpr (std::is_same_v<T, Rate>)
      read_integer(value.nano_usd_per_s);
    else if constexpr (detail::IsOptional<T>::value)
      read(value.emplace());
    else if constexpr (detail::IsSharedConst<T>::value) {
      auto made = std::make_shared<std::remove_const_t<typename T::element_type>>();
      read(*made);
      value = std::move(made);
    } else if constexpr (detail::IsVector<T>::value)
      read_vector(value);
    else if constexpr (detail::IsStringMap<T>::value)
      read_map(value);
    else
      read_object(value);
  }

  // ---- for objects that are no structs
  bool take(char c) {  // false: something else is here
    if (at_ == end_ || *at_ != c)
      return false;
    ++at_;
    return true;
  }
  void expect(char c) { failed_ = !take(c) || failed_; }
  bool take_null();
  // A text without escapes, as it lies in the source; fails on any other.
  std::string_view plain_text();

 private:
  void read_bool(bool& value);
  double read_double();
  void read_text(std::string& value);
  std::int64_t read_signed(std::int64_t min, std::int64_t max);
  std::uint64_t read_unsigned(std::uint64_t max);
  template <class I>
  void read_integer(I& value) {
    using Limits = std::numeric_limits<I>;
    if constexpr (std::is_signed_v<I>)
      value = static_cast<I>(read_signed(Limits::min(), Limits::max()));
    else
      value = static_cast<I>(read_unsigned(Limits::max()));
  }
  template <class T>
  void read_vector(T& value) {
    value.clear();
    expect('[');
    if (take(']'))
      return;
    do
      read(value.emplace_back());
    while (!failed_ && take(','));
    expect(']');
  }
  // In rising order, as a map is written: then no name repeats.
  template <class T>
  void read_map(T& value) {
    value.clear();
    expect('{');
    if (take('}'))
      return;
    do {
      std::string name;
      read_text(name);
      expect(':');
      if (failed_ || (!value.empty() && !(value.rbegin()->first < name)))
        return fail();
      read(value.emplace_hint(value.end(), std::move(name), typename T::mapped_type())->second);
    } while (!failed_ && take(','));
    expect('}');
  }
  template <class T>
  void read_object(T& value);

  const char* at_;
  const char* end_;
  bool failed_ = false;
  int depth_ = 0;  // of objects; documents are limited, too
};

// The members of one object, asked for in the order in which they were written. A member that is
// not there, or null, keeps its value.
class TextMembers {
 public:
  explicit TextMembers(TextReader& reader) : reader_(reader) {
    reader_.expect('{');
    if (!reader_.take('}'))
      find_name();
  }
  template <class T>
  void operator()(const char* name, T& value) {
    if (next_is(name))
      read(value);
  }
  bool next_is(std::string_view name) const { return more_ && name_ == name; }
  template <class T>
  void read(T& value) {
    if (!reader_.take_null())
      reader_.read(value);
    passed();
  }
  void passed() {  // the value of the next member has been read
    more_ = false;
    if (reader_.take(','))
      find_name();
    else
      reader_.expect('}');
  }
  void finish() {
    if (more_)
      reader_.fail();  // a member that no one asked for, or in another order
  }

 private:
  void find_name() {
    name_ = reader_.plain_text();
    reader_.expect(':');
    more_ = !reader_.failed();
  }

  TextReader& reader_;
  std::string_view name_;
  bool more_ = false;
};

template <class T>
void TextReader::read_object(T& value) {
  static_assert(HasFields<T>, "declare fields as codec.h shows");
  static_assert(fields_complete<T>);
  constexpr int depth_max = 24;
  if (++depth_ > depth_max)
    return fail();
  TextMembers members(*this);
  T::fields(value, members);
  members.finish();
  --depth_;
}

// False: the text is not in the form described above, and `value` is of no use.
template <class T>
bool read_as_written(std::string_view text, T& value) {
  TextReader reader(text);
  reader.read(value);
  return reader.complete();
}

// As from_json_text reads it.
template <class T>
Result<T> from_written_text(std::string_view text) {
  Result<T> result(std::in_place);
  if (!read_as_written(text, *result))
    result = from_json_text<T>(text);
  return result;
}

// The alternatives of a tagged union, as variant_from_json makes them.
template <class V>
struct VariantTextReader {
  const char* kind;
  V (*make)();
  void (*read)(TextReader& reader, V& value);
  void (*read_fields)(TextMembers& members, V& value);
  template <class T>
  static V make_as() {
    return V(T{});
  }
  template <class T>
  static void read_as(TextReader& reader, V& value) {
    reader.read(*get_if<T>(&value));
  }
  template <class T>
  static void read_fields_as(TextMembers& members, V& value) {
    T::fields(*get_if<T>(&value), members);
  }
  template <class T>
  static consteval VariantTextReader of() {
    return {T::kind, make_as<T>, read_as<T>, read_fields_as<T>};
  }
  static const VariantTextReader* find(std::string_view kind);
};
template <class V>
inline constexpr auto variant_text_readers =
    detail::VariantList<V>::type::template table<VariantTextReader<V>>();

template <class V>
const VariantTextReader<V>* VariantTextReader<V>::find(std::string_view kind) {
  for (const auto& reader : variant_text_readers<V>)
    if (kind == reader.kind)
      return &reader;
  return nullptr;
}

}  // namespace billow::wire
