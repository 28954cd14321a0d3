// libFuzzer over provider files, JSON pointers and templates. A file is read or refused with a
// message; a pointer finds only what is in its document; a template gives the same bytes for the
// same values. The first byte chooses. Built with clang and -DBILLOW_FUZZ=ON only, by `./dev fuzz`.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "pool/rest/json_path.h"
#include "pool/rest/provider.h"
#include "pool/rest/template.h"

namespace {
using namespace billow;
using namespace billow::pool::rest;

void file(std::string_view text) {
  const auto read = read_provider(text, "fuzz.toml");
  if (!read)
    BILLOW_CHECK(read.error().message.starts_with("fuzz.toml"), "a message without its file");
  else
    BILLOW_CHECK(!read->lists.empty() && !read->name.empty(),
                 "an incomplete provider was accepted");
}

// "POINTER\nDOCUMENT"
void pointer(std::string_view text) {
  const auto line = text.find('\n');
  const auto path = JsonPath::parse(text.substr(0, line));
  if (!path || line == std::string_view::npos)
    return;
  const auto document = parse_json(text.substr(line + 1));
  if (!document)
    return;
  const auto all = path->all(*document);
  BILLOW_CHECK(all.empty() || path->first(*document) == *all.front(), "first and all disagree");
  for (const Json* value : all)
    (void)scalar_text(*value);
  (void)path->has_list(*document);
}

// "VALUE\nDOCUMENT"
void filling(std::string_view text) {
  const auto line = text.find('\n');
  if (line == std::string_view::npos)
    return;
  const auto document = parse_json(text.substr(line + 1));
  if (!document)
    return;
  std::set<std::string> names;
  const bool valid = collect_names(*document, names).has_value();
  Values values;
  for (const std::string& name : names)
    values[name] = std::string(text.substr(0, line));
  const auto once = fill(*document, values);
  const auto twice = fill(*document, values);
  BILLOW_CHECK(once.has_value() == twice.has_value(), "a template decides differently");
  BILLOW_CHECK(!once || once->dump() == twice->dump(), "a template gives other bytes");
  BILLOW_CHECK(valid || !once, "an invalid template was filled");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1)
    return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 0)
    file(text);
  else if (data[0] % 3 == 1)
    pointer(text);
  else
    filling(text);
  return 0;
}
