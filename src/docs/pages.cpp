// The pack is a zstd frame. Inside: a line of JSON that lists the files and pages with their sizes,
// then their contents, one after the other.
#include "docs/pages.h"

#include <zstd.h>

#include <algorithm>

#include "base/json.h"
#include "base/log.h"

std::string_view billow_embedded_docs();

namespace billow::docs {
namespace {

constexpr unsigned long long unpacked_bytes_max = 64 << 20;

struct Pack {
  std::string bytes;
  std::vector<File> files;
  std::vector<Page> pages;
};

Result<std::string> decompress(std::string_view packed) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN ||
      size > unpacked_bytes_max)
    return fail(Code::internal, "the documentation in this program is damaged");
  std::string out(size, '\0');
  const std::size_t n = ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size());
  if (ZSTD_isError(n) || n != size)
    return fail(Code::internal, "the documentation in this program is damaged");
  return out;
}

Status read_pack(Pack& pack) {
  if (billow_embedded_docs().empty())
    return {};  // built without Python
  pack.bytes = BILLOW_TRY(decompress(billow_embedded_docs()));
  std::string_view rest = pack.bytes;
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  const Json list = BILLOW_TRY(parse_json(rest.substr(0, end)));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  const auto content = [&](const Json& item) {
    const std::string_view text = rest.substr(0, item["bytes"].uint_or(0));
    rest.remove_prefix(text.size());
    return text;
  };
  const auto text = [](const Json& item, const char* name) {
    return std::string(item[name].str_or(""));
  };
  for (const Json& item : list["files"].items())
    pack.files.push_back({text(item, "name"), text(item, "type"), content(item)});
  for (const Json& item : list["pages"].items())
    pack.pages.push_back({text(item, "topic"), text(item, "title"), text(item, "about"),
                          text(item, "group"), content(item)});
  std::ranges::sort(pack.files, {}, &File::name);
  return {};
}

const Pack& the_pack() {
  static const Pack pack = [] {
    Pack made;
    if (const Status read = read_pack(made); !read)
      log_error("{}", read.error().message);
    return made;
  }();
  return pack;
}

}  // namespace

const File* find_file(std::string_view name) {
  const auto& files = the_pack().files;
  const auto found = std::ranges::lower_bound(files, name, {}, &File::name);
  return found != files.end() && found->name == name ? &*found : nullptr;
}

const std::vector<Page>& pages() {
  return the_pack().pages;
}

}  // namespace billow::docs
