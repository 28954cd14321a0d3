#include "net/xml.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <pugixml.hpp>

#include "base/text.h"

namespace billow::net {
namespace {

std::unexpected<Error> unreadable(std::string_view why) {
  return fail(Code::invalid, fmt::format("the XML document cannot be read: {}", why));
}

void append_utf8(std::string& out, std::uint32_t point) {
  const auto byte = [&](std::uint32_t value) {
    out += static_cast<char>(value);
  };
  if (point < 0x80) {
    byte(point);
  } else if (point < 0x800) {
    byte(0xc0 | point >> 6);
    byte(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    byte(0xe0 | point >> 12);
    byte(0x80 | (point >> 6 & 0x3f));
    byte(0x80 | (point & 0x3f));
  } else {
    byte(0xf0 | point >> 18);
    byte(0x80 | (point >> 12 & 0x3f));
    byte(0x80 | (point >> 6 & 0x3f));
    byte(0x80 | (point & 0x3f));
  }
}

// `name` is what stands between "&" and ";". Control characters are accepted although XML 1.0
// forbids them: S3 writes them in the names of objects.
Status append_entity(std::string& out, std::string_view name) {
  static constexpr std::pair<std::string_view, char> known[] = {
      {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}, {"amp", '&'}};
  for (const auto& [text, c] : known)
    if (name == text) {
      out += c;
      return {};
    }
  const bool hexadecimal = name.starts_with("#x");
  const std::string_view digits =
      name.substr(std::min<std::size_t>(hexadecimal ? 2 : 1, name.size()));
  std::uint32_t point = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), point, hexadecimal ? 16 : 10);
  const bool number = name.starts_with('#') && !digits.empty() && error == std::errc() &&
                      end == digits.data() + digits.size();
  if (!number || point == 0 || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
    return unreadable(fmt::format("it contains the unknown entity \"&{};\"", name.substr(0, 40)));
  append_utf8(out, point);
  return {};
}

Status append_unescaped(std::string& out, std::string_view text) {
  while (true) {
    const std::size_t at = text.find('&');
    out += text.substr(0, at);
    if (at == std::string_view::npos)
      return {};
    const std::size_t end = text.find(';', at);
    if (end == std::string_view::npos)
      return unreadable("it contains a \"&\" without \";\"");
    BILLOW_TRY_VOID(append_entity(out, text.substr(at + 1, end - at - 1)));
    text.remove_prefix(end + 1);
  }
}

class Reader {
 public:
  Result<XmlElement> element(const pugi::xml_node& node, std::size_t depth) {
    if (depth > xml_depth_max)
      return fail(Code::too_large,
                  fmt::format("the XML document is nested deeper than {} elements", xml_depth_max));
    if (++elements_ > xml_elements_max)
      return too_many();
    XmlElement out;
    const std::string_view name = node.name();
    out.name = name.substr(name.find(':') == std::string_view::npos ? 0 : name.find(':') + 1);
    for (const pugi::xml_attribute& attribute : node.attributes()) {
      std::string value;
      BILLOW_TRY_VOID(append_unescaped(value, attribute.value()));
      out.attributes.emplace_back(attribute.name(), std::move(value));
    }
    for (const pugi::xml_node& inner : node.children()) {
      if (inner.type() == pugi::node_element)
        out.children.push_back(BILLOW_TRY(element(inner, depth + 1)));
      else if (inner.type() == pugi::node_cdata)
        out.text += inner.value();
      else if (inner.type() == pugi::node_pcdata)
        BILLOW_TRY_VOID(append_unescaped(out.text, inner.value()));
    }
    return out;
  }
  static std::unexpected<Error> too_many() {
    return fail(Code::too_large,
                fmt::format("the XML document has more than {} elements", xml_elements_max));
  }

 private:
  std::size_t elements_ = 0;
};

// pugixml accepts several top-level elements and skips document types.
Result<pugi::xml_node> only_root(const pugi::xml_document& document) {
  pugi::xml_node root;
  for (const pugi::xml_node& node : document.children()) {
    if (node.type() == pugi::node_doctype)
      return unreadable("document types are not accepted");
    if (node.type() != pugi::node_element)
      continue;
    if (root)
      return unreadable("it has more than one root element");
    root = node;
  }
  if (!root)
    return unreadable("it has no root element");
  return root;
}

}  // namespace

const XmlElement* XmlElement::child(std::string_view wanted) const {
  const auto found = std::find_if(children.begin(), children.end(),
                                  [&](const XmlElement& e) { return e.name == wanted; });
  return found == children.end() ? nullptr : &*found;
}

std::string_view XmlElement::child_text(std::string_view wanted) const {
  const XmlElement* found = child(wanted);
  return found ? std::string_view(found->text) : std::string_view();
}

Result<XmlElement> parse_xml(std::string_view text) {
  if (text.size() > xml_bytes_max)
    return fail(Code::too_large, fmt::format("the XML document has {} bytes; the limit is {}",
                                             text.size(), xml_bytes_max));
  // Before parsing, because the parser needs far more memory per element than the text does. An
  // element has at most two "<"; comments and the declaration have one each.
  if (static_cast<std::size_t>(std::count(text.begin(), text.end(), '<')) > 2 * xml_elements_max)
    return Reader::too_many();
  if (text.find('\0') != std::string_view::npos || !valid_utf8(text))
    return unreadable("it is not UTF-8 text");
  // Entities are unescaped here and not by pugixml, which keeps unknown ones and accepts "&#0;".
  constexpr unsigned flags = pugi::parse_cdata | pugi::parse_eol | pugi::parse_doctype |
                             pugi::parse_wconv_attribute | pugi::parse_ws_pcdata_single;
  pugi::xml_document document;
  const pugi::xml_parse_result parsed =
      document.load_buffer(text.data(), text.size(), flags, pugi::encoding_utf8);
  if (!parsed)
    return unreadable(fmt::format("{} at byte {}", parsed.description(), parsed.offset));
  return Reader().element(BILLOW_TRY(only_root(document)), 1);
}

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

}  // namespace billow::net
