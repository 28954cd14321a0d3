#include "files/ignore.h"

#include "base/text.h"

namespace billow::files {
namespace {

// "[a-z]", "[!abc]" at the pattern's front: whether the character is one of them; the class is
// taken off. False where it is no class.
bool take_class(std::string_view& pattern, char c, bool& matched) {
  std::size_t i = 1;
  const bool negated = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (negated)
    ++i;
  bool found = false;
  for (const std::size_t first = i; i < pattern.size(); ++i) {
    if (pattern[i] == ']' && i > first) {
      matched = found != negated && c != '/';
      pattern.remove_prefix(i + 1);
      return true;
    }
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      if (pattern[i] <= c && c <= pattern[i + 2])
        found = true;
      i += 2;
    } else if (pattern[i] == c) {
      found = true;
    }
  }
  return false;
}

}  // namespace

// Going back is only ever to the last "*" and the last "**", so the time is bounded by the product
// of the lengths, squared at worst for "**"; patterns and paths are short.
bool glob_matches(std::string_view pattern, std::string_view text) {
  while (!pattern.empty()) {
    if (pattern.starts_with("**/")) {
      for (std::string_view rest = text;;) {
        if (glob_matches(pattern.substr(3), rest))
          return true;
        const auto slash = rest.find('/');
        if (slash == std::string_view::npos)
          return false;
        rest.remove_prefix(slash + 1);
      }
    }
    if (pattern == "**")
      return true;
    if (pattern.front() == '*') {
      while (!pattern.empty() && pattern.front() == '*')
        pattern.remove_prefix(1);
      if (pattern.empty())
        return text.find('/') == std::string_view::npos;
      for (std::size_t i = 0; i <= text.size(); ++i) {
        if (glob_matches(pattern, text.substr(i)))
          return true;
        if (i < text.size() && text[i] == '/')
          return false;
      }
      return false;
    }
    if (text.empty())
      return false;
    if (pattern.front() == '?') {
      if (text.front() == '/')
        return false;
      pattern.remove_prefix(1);
    } else if (bool matched = false;
               pattern.front() == '[' && take_class(pattern, text.front(), matched)) {
      if (!matched)
        return false;
    } else {
      if (pattern.front() == '\\' && pattern.size() > 1)
        pattern.remove_prefix(1);
      if (pattern.front() != text.front())
        return false;
      pattern.remove_prefix(1);
    }
    text.remove_prefix(1);
  }
  return text.empty();
}

void IgnoreRules::add(std::string_view directory, std::string_view content) {
  for (const std::string& raw : split(content, '\n')) {
    std::string_view line = raw;
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    while (line.ends_with(' ') && !line.ends_with("\\ "))
      line.remove_suffix(1);
    if (line.empty() || line.front() == '#')
      continue;
    Rule rule;
    if (line.front() == '!')
      rule.negated = true, line.remove_prefix(1);
    if (line.ends_with('/'))
      rule.directories_only = true, line.remove_suffix(1);
    rule.anchored = line.find('/') != std::string_view::npos;
    if (line.starts_with('/'))
      line.remove_prefix(1);
    if (line.empty() || line.size() > 1024)
      continue;
    rule.base = directory.empty() ? "" : std::string(directory) + "/";
    rule.pattern = std::string(line);
    rules_.push_back(std::move(rule));
  }
}

IgnoreRules::Verdict IgnoreRules::verdict(std::string_view path, bool is_directory) const {
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->directories_only && !is_directory)
      continue;
    if (!path.starts_with(rule->base))
      continue;
    const std::string_view rest = path.substr(rule->base.size());
    const std::string_view name = rest.substr(rest.rfind('/') + 1);
    if (glob_matches(rule->pattern, rule->anchored ? rest : name))
      return rule->negated ? Verdict::taken : Verdict::left_out;
  }
  return Verdict::none;
}

}  // namespace billow::files
