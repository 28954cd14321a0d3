#include "s3/xml.h"

#include "base/text.h"

namespace billow::s3 {
namespace {

std::string unescape(std::string_view text) {
  static constexpr std::pair<std::string_view, char> names[] = {
      {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&amp;", '&'}};
  std::string out;
  while (!text.empty()) {
    if (text.front() == '&') {
      bool found = false;
      for (const auto& [name, c] : names)
        if (text.starts_with(name)) {
          out += c;
          text.remove_prefix(name.size());
          found = true;
          break;
        }
      if (found)
        continue;
      const auto end = text.find(';');
      if (text.starts_with("&#") && end != std::string_view::npos && end < 10) {
        const auto number = text[2] == 'x'
                                ? Result<std::int64_t>(static_cast<std::int64_t>(std::strtol(
                                      std::string(text.substr(3, end - 3)).c_str(), nullptr, 16)))
                                : parse_int(text.substr(2, end - 2), 0, 127);
        if (number && *number > 0 && *number < 128) {
          out += static_cast<char>(*number);
          text.remove_prefix(end + 1);
          continue;
        }
      }
    }
    out += text.front();
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace

std::vector<std::string_view> elements(std::string_view xml, std::string_view name) {
  std::vector<std::string_view> out;
  const std::string open = "<" + std::string(name) + ">", close = "</" + std::string(name) + ">";
  for (std::size_t at = xml.find(open); at != std::string_view::npos;) {
    const std::size_t from = at + open.size(), to = xml.find(close, from);
    if (to == std::string_view::npos)
      break;
    out.push_back(xml.substr(from, to - from));
    at = xml.find(open, to);
  }
  return out;
}

std::string element(std::string_view xml, std::string_view name) {
  const auto all = elements(xml, name);
  return all.empty() ? std::string() : unescape(all.front());
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

}  // namespace billow::s3
