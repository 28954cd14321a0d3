// Read by `./dev lint` in place of src/core/wire/complete.h. That one proves, in every build, that
// a struct's `fields` names every member, over a variable that is declared and never made. clang
// refuses such a variable if the struct is local to a source.
#pragma once

namespace billow::wire {

template <class T>
inline constexpr bool fields_complete = true;

}  // namespace billow::wire
