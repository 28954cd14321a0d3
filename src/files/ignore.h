// What is left out of a tree: the patterns of .gitignore and .billowignore, as git reads them
// (comments, "!", "/" at either end, "*",
// "?", "[a-z]", "**"). Files deeper in the tree add to those above, and the last pattern that
// matches decides.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace billow::files {

class IgnoreRules {
 public:
  // The content of an ignore file that lies in `directory` (relative to the root; empty: the root).
  void add(std::string_view directory, std::string_view content);
  bool ignored(std::string_view path, bool is_directory) const {
    return verdict(path, is_directory) == Verdict::left_out;
  }
  // `taken`: a "!" pattern asks for it by name.
  enum class Verdict { none, left_out, taken };
  Verdict verdict(std::string_view path, bool is_directory) const;

 private:
  struct Rule {
    std::string base;  // "" or "a/b/"
    std::string pattern;
    bool negated = false, directories_only = false, anchored = false;
  };
  std::vector<Rule> rules_;
};

// One glob against a text: "*" stops at "/", "**" does not.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace billow::files
