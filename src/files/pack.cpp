#include "files/pack.h"

#include <cstring>

namespace billow::files {

void add_piece(std::string& pack, const Sha256& digest, std::string_view bytes) {
  pack.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  for (int i = 0; i < 8; ++i)
    pack += static_cast<char>(static_cast<std::uint64_t>(bytes.size()) >> (8 * i));
  pack += bytes;
}

Status each_piece(std::string_view pack,
                  const std::function<Status(const Sha256&, std::string_view)>& fn) {
  while (!pack.empty()) {
    if (pack.size() < pack_header_bytes)
      return fail(Code::invalid, "the pack of files is truncated");
    Sha256 digest;
    std::memcpy(digest.data(), pack.data(), digest.size());
    std::uint64_t size = 0;
    for (std::size_t i = 0; i < 8; ++i)
      size |= static_cast<std::uint64_t>(static_cast<unsigned char>(pack[32 + i])) << (8 * i);
    pack.remove_prefix(pack_header_bytes);
    if (size > piece_bytes)
      return fail(Code::invalid, "the pack of files contains a piece that is too large");
    if (size > pack.size())
      return fail(Code::invalid, "the pack of files is truncated");
    const std::string_view bytes = pack.substr(0, size);
    if (sha256(bytes) != digest)
      return fail(Code::invalid, "a piece of a file does not match its digest",
                  "the data was damaged in transit; try again");
    BILLOW_TRY_VOID(fn(digest, bytes));
    pack.remove_prefix(size);
  }
  return {};
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
