#include "s3/answers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "net/xml.h"

namespace billow::s3 {
namespace {

// The name of an object becomes a path below a directory.
Status check_name_of_object(std::string_view name) {
  const auto bad = [&](std::string_view why) {
    return fail(Code::invalid, fmt::format("the object \"{}\" {}", name.substr(0, 200), why),
                "choose other objects, or rename this one in its bucket");
  };
  if (name.size() > 4096 || name.find('\0') != std::string_view::npos || !valid_utf8(name))
    return bad("has a name that is not a valid file name");
  for (const std::string& part : split(name, '/')) {
    if (part == "..")
      return bad("has a name that leaves its directory (\"..\")");
    if (part.empty() || part == "." || part.size() > 255)
      return bad("has a name that is not a valid file name");
  }
  return {};
}

// One <Contents> of a listing. Directory markers, which some tools create, have an empty name.
Result<Object> listed_object(const net::XmlElement& item,
                             const std::string& prefix,
                             const Place& place) {
  Object object;
  object.key = item.child_text("Key");
  object.tag = item.child_text("ETag");
  const auto size = parse_int(item.child_text("Size"), 0, INT64_MAX);
  if (!size || !object.key.starts_with(prefix))
    return fail(Code::unavailable, fmt::format("{}: the server's listing is invalid", place.url));
  object.size = static_cast<std::uint64_t>(*size);
  object.name = object.key.substr(prefix.size());
  if (object.name.ends_with('/'))
    object.name.clear();
  if (!object.name.empty())
    BILLOW_TRY_VOID(check_name_of_object(object.name));
  return object;
}

}  // namespace

Status Listing::take(std::string_view page) {
  const auto listing = net::parse_xml(page);
  if (!listing)
    return fail(Code::unavailable, fmt::format("{}: the server's listing is invalid: {}",
                                               place_.url, listing.error().message));
  for (const net::XmlElement& item : listing->children) {
    if (item.name != "Contents")
      continue;
    Object object = BILLOW_TRY(listed_object(item, prefix_, place_));
    if (object.name.empty())
      continue;
    objects_.push_back(std::move(object));
    if (objects_.size() > objects_per_place_max)
      return fail(
          Code::too_large,
          fmt::format("{} contains more than {} objects", place_.url, objects_per_place_max),
          "use a longer prefix");
  }
  const std::string before = std::move(next_);
  next_.clear();
  if (listing->child_text("IsTruncated") == "true")
    next_ = listing->child_text("NextContinuationToken");
  // A page without objects adds nothing to their limit, so the pages have one of their own.
  if (!next_.empty() && (next_ == before || ++pages_ >= listing_pages_max))
    return fail(Code::unavailable,
                fmt::format("{}: the server's listing does not end ({} pages)", place_.url, pages_),
                "use a longer prefix, or ask who runs the store");
  return {};
}

std::vector<Object> Listing::objects() && {
  std::sort(objects_.begin(), objects_.end(),
            [](const Object& a, const Object& b) { return a.name < b.name; });
  return std::move(objects_);
}

std::string error_in(std::string_view body) {
  const auto document = net::parse_xml(body);
  if (!document)
    return {};
  const net::XmlElement* nested = document->child("Error");
  const net::XmlElement& error = nested ? *nested : *document;
  const std::string_view code = error.child_text("Code"), message = error.child_text("Message");
  if (code.empty() || message.empty())
    return std::string(code);
  return fmt::format("{}: {}", code, utf8_prefix(message, 300));
}

std::string upload_in(std::string_view body) {
  const auto document = net::parse_xml(body);
  return std::string(document ? document->child_text("UploadId") : "");
}

}  // namespace billow::s3
