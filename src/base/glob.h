// Patterns for names and paths. The time to match is bounded by the length of the pattern times the
// length of the text.
#pragma once

#include <bitset>
#include <cstddef>
#include <string_view>
#include <vector>

namespace billow {

// A path pattern with git's semantics, compiled once and matched many times: "?", "*" and "[a-z]"
// do not match "/"; "**" between slashes or at an end matches any number of directories; "\" makes
// the next character literal. Brackets take ranges, "!" or "^" for all other characters, and
// classes such as "[:alpha:]". A pattern that is not well-formed matches nothing.
//
// All ways to match advance together, character by character, so nothing is tried twice.
class PathGlob {
 public:
  explicit PathGlob(std::string_view pattern);
  // `steps`, if given, is increased by the work done: for tests of the bound.
  bool matches(std::string_view text, std::size_t* steps = nullptr) const;

 private:
  using Characters = std::bitset<256>;
  struct Token {
    // many: any number of the characters. directories: nothing, or any text that ends with "/".
    enum class Kind { one, many, directories } kind;
    Characters characters;
  };

  void add_character(unsigned char c);
  std::size_t add_stars(std::string_view pattern, std::size_t at);
  std::size_t add_brackets(std::string_view pattern, std::size_t at);
  void follow_empty_matches(std::vector<bool>& states) const;

  bool well_formed_ = true;
  std::vector<Token> tokens_;
};

// A pattern in which only "*" is special and matches any text: for names of modules.
bool star_matches(std::string_view pattern, std::string_view text);

}  // namespace billow
