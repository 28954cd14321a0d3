#include "files/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/text.h"
#include "files/lane_digest.h"

namespace billow::files {

void add_piece(std::string& pack, const Sha256& digest, std::string_view bytes) {
  pack.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  for (int i = 0; i < 8; ++i)
    pack += static_cast<char>(static_cast<std::uint64_t>(bytes.size()) >> (8 * i));
  pack += bytes;
}

namespace {

// Calls `fn` with where each piece begins, of its header, and its content's size.
Status each_header(std::string_view pack,
                   const std::function<Status(std::size_t at, std::size_t size)>& fn) {
  for (std::size_t at = 0; at < pack.size();) {
    if (pack.size() - at < pack_header_bytes)
      return fail(Code::invalid, "the pack of files is truncated");
    std::uint64_t size = 0;
    for (std::size_t i = 0; i < 8; ++i)
      size |= static_cast<std::uint64_t>(static_cast<unsigned char>(pack[at + 32 + i])) << (8 * i);
    if (size > piece_bytes)
      return fail(Code::invalid, "the pack of files contains a piece that is too large");
    if (size > pack.size() - at - pack_header_bytes)
      return fail(Code::invalid, "the pack of files is truncated");
    BILLOW_TRY_VOID(fn(at, size));
    at += pack_header_bytes + size;
  }
  return {};
}

}  // namespace

Status each_piece(std::string_view pack,
                  const std::function<Status(const Sha256&, std::string_view)>& fn) {
  return each_header(pack, [&](std::size_t at, std::size_t size) -> Status {
    Sha256 digest;
    std::memcpy(digest.data(), pack.data() + at, digest.size());
    const std::string_view bytes = pack.substr(at + pack_header_bytes, size);
    if (sha256(bytes) != digest)
      return fail(Code::invalid, "a piece of a file does not match its digest",
                  "the data was damaged in transit; try again");
    return fn(digest, bytes);
  });
}

Result<std::vector<Sha256>> name_pieces(std::span<char> pack) {
  std::vector<std::string_view> pieces;
  BILLOW_TRY_VOID(each_header({pack.data(), pack.size()}, [&](std::size_t at, std::size_t size) {
    pieces.emplace_back(pack.data() + at + pack_header_bytes, size);
    return Status{};
  }));
  // Two at once are faster, most of all if they are of about the same size.
  std::vector<std::size_t> by_size(pieces.size());
  std::iota(by_size.begin(), by_size.end(), 0u);
  std::ranges::sort(by_size, {}, [&](std::size_t i) { return pieces[i].size(); });
  std::vector<Sha256> out(pieces.size());
  for (std::size_t i = 0; i + 1 < by_size.size(); i += 2) {
    const std::size_t a = by_size[by_size.size() - 1 - i], b = by_size[by_size.size() - 2 - i];
    const auto [of_a, of_b] = sha256_pair(pieces[a], pieces[b]);
    out[a] = of_a;
    out[b] = of_b;
  }
  if (by_size.size() % 2 == 1)
    out[by_size[0]] = sha256(pieces[by_size[0]]);
  for (std::size_t i = 0; i < out.size(); ++i)
    std::memcpy(pack.data() + (pieces[i].data() - pack.data()) - pack_header_bytes, out[i].data(),
                out[i].size());
  return out;
}

namespace {
constexpr std::string_view places_magic = "billow-places-1\n";
}

// A line for each piece: offset, size and path. A path that is that of the piece before is left
// out: hundreds of small files are in one pack.
std::string encode_places(const std::vector<PieceFile>& places) {
  std::string out(places_magic);
  const std::string* before = nullptr;
  for (const PieceFile& place : places) {
    const bool same = before && *before == place.path;
    out += fmt::format("{} {} {}\n", place.offset, place.size, same ? "" : place.path);
    before = &place.path;
  }
  return out;
}

Result<std::vector<PieceFile>> decode_places(std::string_view text) {
  if (!text.starts_with(places_magic))
    return fail(Code::invalid, "invalid list of places");
  text.remove_prefix(places_magic.size());
  std::vector<PieceFile> out;
  while (!text.empty()) {
    const auto end = text.find('\n'), first = text.find(' '), second = text.find(' ', first + 1);
    if (end == text.npos || first >= end || second >= end)
      return fail(Code::invalid, "invalid list of places");
    PieceFile place;
    place.offset =
        static_cast<std::uint64_t>(BILLOW_TRY(parse_int(text.substr(0, first), 0, INT64_MAX)));
    place.size = static_cast<std::uint32_t>(
        BILLOW_TRY(parse_int(text.substr(first + 1, second - first - 1), 0, piece_bytes)));
    place.path = text.substr(second + 1, end - second - 1);
    if (place.path.empty() && !out.empty())
      place.path = out.back().path;
    out.push_back(std::move(place));
    text.remove_prefix(end + 1);
  }
  return out;
}

std::string encode_digests(const std::vector<Sha256>& digests) {
  std::string out;
  out.reserve(digests.size() * 32);
  for (const Sha256& digest : digests)
    out.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  return out;
}

Result<std::vector<Sha256>> decode_digests(std::string_view bytes) {
  if (bytes.size() % 32 != 0)
    return fail(Code::invalid, "invalid list of digests");
  std::vector<Sha256> out(bytes.size() / 32);
  for (std::size_t i = 0; i < out.size(); ++i)
    std::memcpy(out[i].data(), bytes.data() + i * 32, 32);
  return out;
}

}  // namespace billow::files
