#include "pool/rest/section.h"

#include <fmt/format.h>

#include "base/text.h"

namespace billow::pool::rest {
namespace {

constexpr std::size_t problems_max = 100;

std::string text_of_node(const TomlNode& node) {
  return node.kind == TomlNode::Kind::text ? node.text : scalar_text(node.json());
}

}  // namespace

void Problems::add(int line, const std::string& key, const std::string& message) {
  if (lines.size() < problems_max)
    lines.push_back(fmt::format("{}:{}: {}: {}", file, line, key, message));
}

Section::Section(const TomlNode* node, std::string where, Problems& problems)
    : node_(node), where_(std::move(where)), problems_(&problems) {
  if (node_ && node_->kind != TomlNode::Kind::table) {
    problems_->add(node_->line, where_, "must be a table");
    node_ = nullptr;
  }
}

Section::Section(Section&& other) noexcept
    : node_(std::exchange(other.node_, nullptr)),
      where_(std::move(other.where_)),
      problems_(other.problems_),
      read_(std::move(other.read_)) {}

Section::~Section() {
  if (!node_)
    return;
  for (const TomlNode& member : node_->members) {
    if (read_.contains(member.key))
      continue;
    const std::string near = nearest(member.key, {read_.begin(), read_.end()});
    problems_->add(member.line, key_name(member.key.c_str()),
                   near.empty() ? "is not a key of this table"
                                : fmt::format("is not a key of this table; is it {}?", near));
  }
}

std::string Section::key_name(const char* key) const {
  return where_.empty() ? key : where_ + "." + key;
}

int Section::line_of(const char* key) const {
  const TomlNode* at = node_ ? node_->find(key) : nullptr;
  return at ? at->line : line();
}

void Section::problem(const char* key, const std::string& message) {
  problem_at(line_of(key), key, message);
}

void Section::problem_at(int line, const char* key, const std::string& message) {
  problems_->add(line, *key ? key_name(key) : where_, message);
}

const TomlNode* Section::take(const char* key) {
  read_.insert(key);
  return node_ ? node_->find(key) : nullptr;
}

std::string Section::text(const char* key, Need need, std::string fallback) {
  const TomlNode* at = take(key);
  if (!at) {
    if (need == required)
      problem(key, "is missing");
    return fallback;
  }
  if (at->kind != TomlNode::Kind::text) {
    problem(key, "must be a string");
    return fallback;
  }
  if (need == required && at->text.empty())
    problem(key, "must not be empty");
  return at->text;
}

std::vector<std::string> Section::texts(const char* key) {
  const TomlNode* at = take(key);
  if (!at)
    return {};
  if (at->kind == TomlNode::Kind::table) {
    problem(key, "must be a value or a list of values");
    return {};
  }
  if (at->kind != TomlNode::Kind::array)
    return {text_of_node(*at)};
  std::vector<std::string> out;
  for (const TomlNode& item : at->items) {
    if (item.kind == TomlNode::Kind::table || item.kind == TomlNode::Kind::array)
      problem(key, "must be a list of plain values");
    else
      out.push_back(text_of_node(item));
  }
  return out;
}

double Section::number(const char* key, double fallback, double min, double max) {
  const TomlNode* at = take(key);
  if (!at)
    return fallback;
  const double value = at->kind == TomlNode::Kind::integer ? static_cast<double>(at->integer)
                       : at->kind == TomlNode::Kind::real  ? at->real
                                                           : min - 1;
  if (!(value >= min && value <= max)) {
    problem(key, fmt::format("must be a number between {} and {}", min, max));
    return fallback;
  }
  return value;
}

std::int64_t Section::whole(const char* key,
                            std::int64_t fallback,
                            std::int64_t min,
                            std::int64_t max) {
  const TomlNode* at = take(key);
  if (!at)
    return fallback;
  if (at->kind != TomlNode::Kind::integer || at->integer < min || at->integer > max) {
    problem(key, fmt::format("must be a whole number between {} and {}", min, max));
    return fallback;
  }
  return at->integer;
}

bool Section::flag(const char* key, bool fallback) {
  const TomlNode* at = take(key);
  if (!at)
    return fallback;
  if (at->kind != TomlNode::Kind::boolean) {
    problem(key, "must be true or false");
    return fallback;
  }
  return at->boolean;
}

JsonPath Section::path(const char* key, Need need) {
  if (need == required && node_ && !node_->find(key)) {
    take(key);
    problem(key, "is missing: a JSON pointer such as \"/data/*\"");
    return {};
  }
  auto parsed = JsonPath::parse(text(key));
  if (parsed)
    return std::move(*parsed);
  problem(key, parsed.error().message);
  return {};
}

std::optional<JsonPath> Section::path_if(const char* key) {
  if (!has(key)) {
    take(key);
    return std::nullopt;
  }
  return path(key);
}

void Section::unknown_choice(const char* key,
                             const std::string& given,
                             const std::vector<std::string>& known) {
  problem(key, fmt::format("\"{}\" is not one of {}", given, join(known, ", ")));
}

const TomlNode* Section::raw(const char* key) {
  return take(key);
}

Section Section::section(const char* key) {
  return Section(take(key), key_name(key), *problems_);
}

std::vector<Section> Section::sections(const char* key) {
  const TomlNode* at = take(key);
  std::vector<Section> out;
  if (!at)
    return out;
  if (at->kind == TomlNode::Kind::table) {
    out.emplace_back(at, key_name(key), *problems_);
    return out;
  }
  if (at->kind != TomlNode::Kind::array) {
    problem(key, "must be a table, or tables as [[...]]");
    return out;
  }
  for (const TomlNode& item : at->items)
    out.emplace_back(&item, key_name(key), *problems_);
  return out;
}

std::vector<std::pair<std::string, const TomlNode*>> Section::members() {
  std::vector<std::pair<std::string, const TomlNode*>> out;
  if (!node_)
    return out;
  for (const TomlNode& member : node_->members) {
    read_.insert(member.key);
    out.emplace_back(member.key, &member);
  }
  return out;
}

}  // namespace billow::pool::rest
