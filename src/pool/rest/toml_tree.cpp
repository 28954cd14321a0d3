// toml++ is slow to compile, so it stays in this file; its exceptions are caught here.
#include "pool/rest/toml_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

// Damaged files can reach assertions of version 3.3's parser; here those are refusals of the file,
// not the end of the program.
[[noreturn, maybe_unused]] static void refuse_damaged_provider_file() {
  throw std::logic_error("it is not TOML");
}
#define TOML_ASSERT(condition) ((condition) ? void() : refuse_damaged_provider_file())
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "base/text.h"

namespace billow::pool::rest {
namespace {

constexpr int toml_depth_max = 24;

TomlNode from_toml(const toml::node& node, int depth) {
  TomlNode out;
  out.line = static_cast<int>(node.source().begin.line);
  if (depth > toml_depth_max)
    throw std::logic_error("it is nested too deeply");
  if (const auto* table = node.as_table()) {
    for (const auto& [key, value] : *table) {
      out.members.push_back(from_toml(value, depth + 1));
      out.members.back().key = key.str();
    }
    // toml++ sorts by name; JSON bodies keep the order in which the file has them.
    std::ranges::stable_sort(out.members, {}, &TomlNode::line);
  } else if (const auto* array = node.as_array()) {
    out.kind = TomlNode::Kind::array;
    for (const toml::node& item : *array)
      out.items.push_back(from_toml(item, depth + 1));
  } else if (const auto* text = node.as_string()) {
    out.kind = TomlNode::Kind::text;
    out.text = text->get();
  } else if (const auto* whole = node.as_integer()) {
    out.kind = TomlNode::Kind::integer;
    out.integer = whole->get();
  } else if (const auto* real = node.as_floating_point()) {
    out.kind = TomlNode::Kind::real;
    out.real = real->get();
  } else if (const auto* boolean = node.as_boolean()) {
    out.kind = TomlNode::Kind::boolean;
    out.boolean = boolean->get();
  } else {
    throw std::logic_error(fmt::format("line {}: dates and times have no meaning here", out.line));
  }
  return out;
}

}  // namespace

const TomlNode* TomlNode::find(std::string_view wanted) const {
  for (const TomlNode& member : members)
    if (member.key == wanted)
      return &member;
  return nullptr;
}

Json TomlNode::json() const {
  switch (kind) {
    case Kind::table: {
      Json out = Json::object();
      for (const TomlNode& member : members)
        out.set(member.key, member.json());
      return out;
    }
    case Kind::array: {
      Json out = Json::array();
      for (const TomlNode& item : items)
        out.push(item.json());
      return out;
    }
    case Kind::text:
      return Json(text);
    case Kind::integer:
      return Json(integer);
    case Kind::real:
      return Json(real);
    case Kind::boolean:
      return Json(boolean);
  }
  return {};
}

Result<TomlNode> parse_toml(std::string_view text, const std::string& shown_as) {
  if (!valid_utf8(text))
    return fail(Code::invalid, fmt::format("{} is not UTF-8 text", shown_as));
  try {
    return from_toml(toml::parse(text), 0);
  } catch (const toml::parse_error& e) {
    return fail(Code::invalid, fmt::format("{}:{}:{}: {}", shown_as, e.source().begin.line,
                                           e.source().begin.column, e.description()));
  } catch (const std::logic_error& e) {
    return fail(Code::invalid, fmt::format("{}: {}", shown_as, e.what()));
  }
}

}  // namespace billow::pool::rest
