// Which files are left out of a tree: the patterns of .gitignore and .billowignore with git's
// semantics (comments, "!", "/" at either end, "*", "?", "[a-z]", "**", escapes). Files deeper in
// the tree add to those above, and the last pattern that matches decides.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/glob.h"

namespace billow::files {

class IgnoreRules {
 public:
  // Adds the content of an ignore file in `directory` (relative to the root; empty: the root).
  void add(std::string_view directory, std::string_view content);
  bool ignored(std::string_view path, bool is_directory) const {
    return verdict(path, is_directory) == Verdict::left_out;
  }
  // `taken`: a "!" pattern includes it explicitly.
  enum class Verdict { none, left_out, taken };
  // Does not look at the directories above; the caller skips those that are left out.
  Verdict verdict(std::string_view path, bool is_directory) const;

 private:
  struct Rule {
    std::string base;              // "" or "a/b/"
    std::string prefix;            // the pattern up to its first special character
    std::optional<PathGlob> glob;  // the rest; empty if there is none
    std::string suffix;            // instead of both, of "*.log": ".log"
    bool negated = false, directories_only = false, anchored = false;
    bool matches(std::string_view text) const;
  };
  static std::optional<Rule> parse(std::string_view line);

  std::vector<Rule> rules_;
};

}  // namespace billow::files
