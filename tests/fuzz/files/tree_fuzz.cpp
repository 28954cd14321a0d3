// libFuzzer over the lists of files that clients, jobs and heads send each other: trees, packs,
// digests, places, manifests of environments and ignore files. The first byte chooses the reader.
// No accepted path leads out of its tree, and what is accepted reads back as the same.
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "files/ignore.h"
#include "files/image.h"
#include "files/pack.h"
#include "files/tree.h"

namespace {

using namespace billow;
using namespace billow::files;

void check_path(std::string_view path) {
  BILLOW_CHECK(!path.empty() && path.front() != '/' && path.back() != '/', "a relative path");
  BILLOW_CHECK(path.find('\0') == path.npos, "as the kernel reads it");
  for (std::size_t from = 0; from <= path.size();) {
    const auto end = std::min(path.find('/', from), path.size());
    const std::string_view part = path.substr(from, end - from);
    BILLOW_CHECK(!part.empty() && part != "." && part != "..", "plain names");
    from = end + 1;
  }
}

void tree(std::string_view bytes) {
  const auto read = decode(bytes);
  if (!read)
    return;
  for (const Entry& entry : read->entries) {
    check_path(entry.path);
    BILLOW_CHECK((entry.mode & ~0777u) == 0, "permission bits only");
    if (entry.kind == Kind::link)
      BILLOW_CHECK(link_stays_inside(entry.path, entry.target) ||
                       is_interpreter_link(entry.path, entry.target),
                   "links stay inside");
    for (std::size_t i = 0; i < entry.pieces.size(); ++i)
      BILLOW_CHECK(piece_size(entry, i) <= piece_bytes, "pieces are small");
  }
  const std::string written = encode(*read);
  const auto again = decode(written);
  BILLOW_CHECK(again && encode(*again) == written, "reads back as the same");
}

void pack(std::string_view bytes) {
  std::size_t total = 0;
  (void)each_piece(bytes, [&](const Sha256& digest, std::string_view piece) -> Status {
    BILLOW_CHECK(sha256(piece) == digest, "named by its content");
    total += piece.size();
    return {};
  });
  BILLOW_CHECK(total <= bytes.size(), "no more than was sent");
  // With the right digests, whole packs are read too.
  std::string named(bytes);
  if (name_pieces({named.data(), named.size()}))
    BILLOW_CHECK(
        each_piece(named, [](const Sha256&, std::string_view) { return Status{}; }).has_value(),
        "a pack whose pieces are named can be read");
  (void)decode_digests(bytes);
  if (const auto places = decode_places(bytes)) {
    const auto again = decode_places(encode_places(*places));
    BILLOW_CHECK(again && again->size() == places->size(), "reads back");
  }
}

void manifest(std::string_view bytes) {
  const auto read = decode_manifest(bytes);
  if (!read)
    return;
  for (const ImageEntry& entry : read->entries)
    check_path(entry.path);
  const auto again = decode_manifest(encode_manifest(*read));
  BILLOW_CHECK(again && again->entries == read->entries, "reads back as the same");
}

// Its text is compressed: bytes of chance would never get past that.
std::string packed(std::string_view bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1));
  return out;
}

void ignore(std::string_view bytes) {
  const auto cut = std::min(bytes.find('\0'), bytes.size());
  IgnoreRules rules;
  rules.add("", bytes.substr(0, cut));
  const std::string_view path = bytes.substr(std::min(cut + 1, bytes.size()));
  (void)rules.verdict(path, true);
  (void)rules.verdict(path, false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      tree(bytes);
      break;
    case 1:
      pack(bytes);
      break;
    case 2:
      manifest(bytes);
      break;
    case 3:
      ignore(bytes);
      break;
    default:
      manifest(packed(bytes));
  }
  return 0;
}
