#include "files/ignore.h"

#include "base/text.h"

namespace billow::files {
namespace {

constexpr std::string_view special = "*?[\\";
constexpr std::size_t pattern_bytes_max = 1024;

// Spaces at the end do not count unless a backslash precedes them.
std::string_view without_trailing_spaces(std::string_view line) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\')
      ++i;
    else if (line[i] == ' ')
      continue;
    end = std::min(i + 1, line.size());
  }
  return line.substr(0, end);
}

}  // namespace

bool IgnoreRules::Rule::matches(std::string_view text) const {
  if (!suffix.empty())
    return text.ends_with(suffix);
  if (!text.starts_with(prefix))
    return false;
  text.remove_prefix(prefix.size());
  return glob ? glob->matches(text) : text.empty();
}

std::optional<IgnoreRules::Rule> IgnoreRules::parse(std::string_view line) {
  if (line.ends_with('\r'))
    line.remove_suffix(1);
  line = without_trailing_spaces(line);
  if (line.empty() || line.front() == '#' || line.size() > pattern_bytes_max)
    return std::nullopt;
  Rule rule;
  rule.negated = line.starts_with('!');
  line.remove_prefix(rule.negated ? 1 : 0);
  rule.directories_only = line.ends_with('/');
  line.remove_suffix(rule.directories_only ? 1 : 0);
  rule.anchored = line.find('/') != std::string_view::npos;
  line.remove_prefix(line.starts_with('/') ? 1 : 0);
  if (line.empty())
    return std::nullopt;
  if (!rule.anchored && line.size() > 1 && line.front() == '*' &&
      line.find_first_of(special, 1) == std::string_view::npos) {
    rule.suffix = line.substr(1);
    return rule;
  }
  rule.prefix = line.substr(0, line.find_first_of(special));
  line.remove_prefix(rule.prefix.size());
  if (!line.empty())
    rule.glob.emplace(line);
  return rule;
}

void IgnoreRules::add(std::string_view directory, std::string_view content) {
  if (content.starts_with("\xef\xbb\xbf"))
    content.remove_prefix(3);
  for (const std::string& line : split(content, '\n')) {
    std::optional<Rule> rule = parse(line);
    if (!rule)
      continue;
    rule->base = directory.empty() ? "" : std::string(directory) + "/";
    rules_.push_back(std::move(*rule));
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
    if (rule->matches(rule->anchored ? rest : name))
      return rule->negated ? Verdict::taken : Verdict::left_out;
  }
  return Verdict::none;
}

}  // namespace billow::files
