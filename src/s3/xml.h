// As much of XML as the answers of S3 need: elements without attributes, one after the other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace billow::s3 {

// The texts inside every <name>…</name>, in order, not unescaped.
std::vector<std::string_view> elements(std::string_view xml, std::string_view name);
// The first one, unescaped; empty where there is none.
std::string element(std::string_view xml, std::string_view name);
std::string escape_xml(std::string_view text);

}  // namespace billow::s3
