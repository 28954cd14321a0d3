// libFuzzer over what S3-compatible stores answer: pages of listings, errors, uploads. Pages are
// separated by the byte 0xFF. What is listed lies below the place, under a name that is a plain
// path, and a listing does not go on with the page that it has just had.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "net/xml.h"
#include "s3/answers.h"

namespace {

using namespace billow;

void check_name(std::string_view name) {
  BILLOW_CHECK(!name.empty() && name.front() != '/' && name.back() != '/', "a plain path");
  BILLOW_CHECK(name.find('\0') == name.npos, "as the kernel reads it");
  BILLOW_CHECK(!("/" + std::string(name) + "/").contains("/../"), "inside its directory");
}

void written_again(std::string_view text) {
  const auto document = net::parse_xml(text);
  if (!document)
    return;
  const auto again = net::parse_xml("<a>" + net::escape_xml(document->text) + "</a>");
  BILLOW_CHECK(again && again->children.empty(), "escaped text is text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)s3::error_in(bytes);
  (void)s3::upload_in(bytes);
  (void)s3::parse_place(bytes);
  written_again(bytes);
  static const auto place = s3::parse_place("s3://bucket/data/");
  BILLOW_CHECK(place.has_value(), "a place");
  s3::Listing listing(*place, "data/");
  while (!bytes.empty()) {
    const auto end = std::min(bytes.find('\xff'), bytes.size());
    const std::string before = listing.next();
    if (!listing.take(bytes.substr(0, end)))
      return 0;
    BILLOW_CHECK(listing.next().empty() || listing.next() != before, "the listing goes on");
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  for (const s3::Object& object : std::move(listing).objects()) {
    check_name(object.name);
    BILLOW_CHECK(object.key == "data/" + object.name, "below the place");
  }
  return 0;
}
