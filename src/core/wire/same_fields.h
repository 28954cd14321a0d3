// Copies what two structs declare alike: every field of `to` whose name and type `from` also
// declares. An option of a job that its agent needs travels this way, without a line per option.
#pragma once

#include <string_view>
#include <type_traits>

namespace billow::wire {

namespace detail {

template <class M>
struct FieldWithName {
  std::string_view name;
  M& into;
  template <class T>
  void operator()(const char* other, const T& value) {
    if constexpr (std::is_same_v<T, M>)
      if (name == other)
        into = value;
  }
};

template <class From>
struct SameFieldCopier {
  const From& from;
  template <class M>
  void operator()(const char* name, M& into) {
    FieldWithName<M> find{name, into};
    From::fields(from, find);
  }
};

}  // namespace detail

template <class From, class To>
void copy_same_fields(const From& from, To& to) {
  detail::SameFieldCopier<From> copier{from};
  To::fields(to, copier);
}

}  // namespace billow::wire
