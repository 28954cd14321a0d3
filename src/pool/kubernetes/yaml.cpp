#include "pool/kubernetes/yaml.h"

#include <fmt/format.h>
#include <yaml.h>

#include <cstring>

#include "base/text.h"

namespace billow::pool {
namespace {

constexpr std::size_t yaml_bytes_max = 8 << 20;
constexpr int yaml_depth_max = 64;
// Counted with every alias expanded, so that a short text cannot become a huge value.
constexpr std::size_t yaml_values_max = 50'000;

struct YamlParser {
  yaml_parser_t parser;
  yaml_document_t document;
  bool loaded = false;
  explicit YamlParser(std::string_view text) {
    yaml_parser_initialize(&parser);
    yaml_parser_set_input_string(&parser, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
    loaded = yaml_parser_load(&parser, &document) == 1;
  }
  ~YamlParser() {
    if (loaded)
      yaml_document_delete(&document);
    yaml_parser_delete(&parser);
  }
  YamlParser(const YamlParser&) = delete;
};

Json plain_scalar(std::string_view text) {
  if (text.empty() || text == "~" || text == "null")
    return {};
  if (text == "true" || text == "false")
    return text == "true";
  // Only what is written back the same way, so that a token of digits loses no zero.
  if (const auto number = parse_int(text, INT64_MIN, INT64_MAX);
      number && std::to_string(*number) == text)
    return *number;
  return text;
}

class YamlReader {
 public:
  explicit YamlReader(yaml_document_t& document) : document_(document) {}

  Result<Json> value(int index, int depth) {
    const yaml_node_t* node = yaml_document_get_node(&document_, index);
    if (!node)
      return Json();
    if (depth > yaml_depth_max || ++values_ > yaml_values_max)
      return fail(Code::too_large,
                  fmt::format("line {}: the YAML text is nested or expands too far",
                              node->start_mark.line + 1));
    switch (node->type) {
      case YAML_NO_NODE:
        return Json();
      case YAML_SCALAR_NODE:
        return scalar(*node);
      case YAML_SEQUENCE_NODE: {
        Json list = Json::array();
        for (const int* item = node->data.sequence.items.start;
             item != node->data.sequence.items.top; ++item)
          list.push(BILLOW_TRY(value(*item, depth + 1)));
        return list;
      }
      case YAML_MAPPING_NODE: {
        Json map = Json::object();
        for (const yaml_node_pair_t* pair = node->data.mapping.pairs.start;
             pair != node->data.mapping.pairs.top; ++pair) {
          const yaml_node_t* key = yaml_document_get_node(&document_, pair->key);
          if (!key || key->type != YAML_SCALAR_NODE)
            return fail(Code::invalid, fmt::format("line {}: a key must be a plain text",
                                                   node->start_mark.line + 1));
          map.set(text_of(*key), BILLOW_TRY(value(pair->value, depth + 1)));
        }
        return map;
      }
    }
    return Json();
  }

 private:
  static std::string_view text_of(const yaml_node_t& node) {
    return {reinterpret_cast<const char*>(node.data.scalar.value), node.data.scalar.length};
  }
  static Result<Json> scalar(const yaml_node_t& node) {
    const std::string_view text = text_of(node);
    if (node.data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
      return plain_scalar(text);
    return Json(text);
  }
  yaml_document_t& document_;
  std::size_t values_ = 0;
};

bool needs_quotes(std::string_view text) {
  if (text.empty() || (text[0] != '/' && !std::isalpha(static_cast<unsigned char>(text[0]))))
    return true;
  for (const char c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && !std::strchr("-._/", c))
      return true;
  for (const char* word : {"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
    if (lower(text) == word)
      return true;
  return false;
}

void write_yaml(const Json& value, int indent, std::string& out);

void write_inline(const Json& value, std::string& out) {
  if (value.is_string() && !needs_quotes(value.as_string()))
    out += value.as_string();
  else
    value.dump_to(out);
  out += '\n';
}

// What follows a "key:" or "- " whose line has begun.
void write_member(const Json& value, int indent, std::string& out) {
  if ((value.is_array() || value.is_object()) && value.size() > 0) {
    out += '\n';
    write_yaml(value, indent, out);
  } else {
    out += ' ';
    write_inline(value, out);
  }
}

void write_yaml(const Json& value, int indent, std::string& out) {
  const std::string spaces(static_cast<std::size_t>(indent), ' ');
  for (const Json& item : value.items()) {
    if (item.is_object() && item.size() > 0) {
      std::string block;
      write_yaml(item, indent + 2, block);
      block.replace(0, static_cast<std::size_t>(indent) + 2, spaces + "- ");
      out += block;
    } else {
      out += spaces + "-";
      write_member(item, indent + 2, out);
    }
  }
  for (const auto& [key, member] : value.members()) {
    out += spaces;
    if (needs_quotes(key))
      append_json_string(out, key);
    else
      out += key;
    out += ':';
    write_member(member, indent + 2, out);
  }
}

}  // namespace

std::string to_yaml(const Json& value) {
  std::string out;
  if ((value.is_array() || value.is_object()) && value.size() > 0)
    write_yaml(value, 0, out);
  else
    write_inline(value, out);
  return out;
}

Result<Json> parse_yaml(std::string_view text) {
  if (text.size() > yaml_bytes_max)
    return fail(Code::too_large,
                fmt::format("the YAML text is larger than {}", format_bytes(yaml_bytes_max)));
  YamlParser yaml(text);
  if (!yaml.loaded)
    return fail(Code::invalid,
                fmt::format("line {}, column {}: {}", yaml.parser.problem_mark.line + 1,
                            yaml.parser.problem_mark.column + 1,
                            yaml.parser.problem ? yaml.parser.problem : "not YAML"));
  return YamlReader(yaml.document).value(1, 0);
}

}  // namespace billow::pool
