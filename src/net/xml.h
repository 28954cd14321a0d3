// Reads XML answers of other people's servers: S3 today, cloud providers later. The parser
// (pugixml) stays in xml.cpp; documents leave it as plain values, like Json.
//
// Strict where leniency would let a server surprise us: one root element, valid UTF-8, no document
// type (so no entity definitions), no unknown entities, and limits on size, depth and the number of
// elements. Namespaces are not resolved: element names lose their prefix.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace billow::net {

inline constexpr std::size_t xml_bytes_max = 8 << 20;
inline constexpr std::size_t xml_depth_max = 64;
inline constexpr std::size_t xml_elements_max = 200'000;

struct XmlElement {
  std::string name;                                             // without its namespace prefix
  std::vector<std::pair<std::string, std::string>> attributes;  // names as written
  std::string text;  // the element's own character data and CDATA sections, joined and unescaped
  std::vector<XmlElement> children;

  // The first child of that name, or null.
  const XmlElement* child(std::string_view wanted) const;
  // The text of the first child of that name; empty if there is none.
  std::string_view child_text(std::string_view wanted) const;
};

// The root element. Code::too_large beyond a limit, else Code::invalid.
Result<XmlElement> parse_xml(std::string_view text);
// For text and attribute values.
std::string escape_xml(std::string_view text);

}  // namespace billow::net
