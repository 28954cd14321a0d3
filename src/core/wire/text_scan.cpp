#include "core/wire/text_scan.h"

#include <algorithm>
#include <cstring>

namespace billow::wire {
namespace {

using Bytes = std::uint8_t __attribute__((vector_size(16)));
constexpr std::size_t width = sizeof(Bytes);

Bytes load(const char* at) {
  Bytes bytes;
  std::memcpy(&bytes, at, width);
  return bytes;
}
Bytes all_of(char c) {
  return Bytes{} + static_cast<std::uint8_t>(c);
}
Bytes same(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(a == b);
}
bool any(Bytes bytes) {
  std::uint64_t halves[2];
  std::memcpy(halves, &bytes, width);
  return (halves[0] | halves[1]) != 0;
}

// Roughly how rare a byte is in the output of programs: larger is rarer.
int rarity(char c) {
  constexpr std::string_view common = " e0t1a2o3i4n5s6r7h8l9dcumfpg.wyb:/=v-,kxjqz\n\t_";
  const auto at = common.find(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  const int place =
      at == std::string_view::npos ? static_cast<int>(common.size()) : static_cast<int>(at);
  return place * 2 + (c >= 'A' && c <= 'Z');
}

}  // namespace

std::uint64_t count_newlines(std::string_view text) {
  const Bytes newline = all_of('\n');
  std::uint64_t count = 0;
  std::size_t at = 0;
  while (text.size() - at >= width) {
    // One counter of a byte per lane, added up before any can overflow.
    Bytes counters{};
    const std::size_t blocks = std::min<std::size_t>((text.size() - at) / width, 255);
    for (std::size_t block = 0; block < blocks; ++block, at += width)
      counters -= same(load(text.data() + at), newline);
    for (std::size_t i = 0; i < width; ++i)
      count += counters[i];
  }
  for (; at < text.size(); ++at)
    count += text[at] == '\n';
  return count;
}

void fold_case(std::string_view text, std::string& out) {
  // Without filling it first. The buffer that the operation gets may be larger than requested.
  out.resize_and_overwrite(text.size(), [&](char*, std::size_t) { return text.size(); });
  std::size_t at = 0;
  for (; text.size() - at >= width; at += width) {
    const Bytes bytes = load(text.data() + at);
    const Bytes upper = reinterpret_cast<Bytes>((bytes - all_of('A')) < all_of(26));
    const Bytes folded = bytes | (upper & all_of(32));
    std::memcpy(out.data() + at, &folded, width);
  }
  for (; at < text.size(); ++at)
    out[at] = text[at] >= 'A' && text[at] <= 'Z' ? static_cast<char>(text[at] + 32) : text[at];
}

Needle::Needle(std::string text) : text_(std::move(text)) {
  for (std::size_t i = 1; i < text_.size(); ++i)
    if (rarity(text_[i]) > rarity(text_[rare_]))
      rare_ = i;
  other_ = rare_ == 0 ? text_.size() - 1 : 0;
  for (std::size_t i = 0; i < text_.size(); ++i)
    if (i != rare_ && rarity(text_[i]) > rarity(text_[other_]))
      other_ = i;
}

std::size_t Needle::find(std::string_view in, std::size_t from) const {
  if (text_.empty() || in.size() < text_.size() || from > in.size() - text_.size())
    return std::string_view::npos;
  const auto is_at = [&](std::size_t at) {
    return std::memcmp(in.data() + at, text_.data(), text_.size()) == 0;
  };
  const Bytes rare = all_of(text_[rare_]), other = all_of(text_[other_]);
  const std::size_t last = in.size() - text_.size();  // where a match can begin
  std::size_t at = from;
  const auto hits = [&](std::size_t where) {
    const char* begin = in.data() + where;
    return same(load(begin + rare_), rare) & same(load(begin + other_), other);
  };
  // A match may begin at any of the 64 places: the loads then stay within the text.
  constexpr std::size_t step = 4 * width;
  for (; last - at >= step && at <= last; at += step) {
    const Bytes found =
        (hits(at) | hits(at + width)) | (hits(at + 2 * width) | hits(at + 3 * width));
    if (!any(found))
      continue;
    for (std::size_t i = 0; i < step; ++i)
      if (in[at + i + rare_] == text_[rare_] && is_at(at + i))
        return at + i;
  }
  for (; at <= last; ++at)
    if (in[at + rare_] == text_[rare_] && is_at(at))
      return at;
  return std::string_view::npos;
}

}  // namespace billow::wire
