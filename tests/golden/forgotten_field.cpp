// Compiled by a test, twice: as it stands, and with FORGOTTEN, which must be an error.
#include "core/wire/complete.h"

#include <map>
#include <string>

struct Kept {
  std::string name;
  int count = 1;
  std::map<std::string, std::string> labels;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("count", s.count);
#ifndef FORGOTTEN
    v("labels", s.labels);
#endif
  }
};

static_assert(billow::wire::fields_complete<Kept>);

// The same for a struct that takes members from a base.
struct Derived : Kept {
  using FieldsBase = Kept;
  std::string more;
  std::map<std::string, Kept> nested;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    Kept::fields(s, v);
    v("more", s.more);
#ifndef FORGOTTEN_IN_DERIVED
    v("nested", s.nested);
#endif
  }
};

static_assert(billow::wire::fields_complete<Derived>);
