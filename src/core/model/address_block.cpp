#include "core/model/address_block.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace billow {
namespace {

bool same_start(const unsigned char* a, const unsigned char* b, int bits) {
  const int whole = bits / 8, rest = bits % 8;
  if (!std::equal(a, a + whole, b))
    return false;
  return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

}  // namespace

Result<AddressBlock> AddressBlock::parse(std::string_view text) {
  const auto slash = text.find('/');
  const std::string address(text.substr(0, slash));
  AddressBlock out;
  out.v6 = address.find(':') != std::string::npos;
  const int most = out.v6 ? 128 : 32;
  out.bits = most;
  const auto bits = slash == std::string_view::npos ? Result<std::int64_t>(most)
                                                    : parse_int(text.substr(slash + 1), 0, most);
  if (!bits || address.find('\0') != std::string::npos ||
      ::inet_pton(out.v6 ? AF_INET6 : AF_INET, address.c_str(), out.bytes.data()) != 1)
    return fail(Code::invalid,
                fmt::format("\"{}\" is not an address or a block of addresses", text),
                "examples: 10.1.2.3, 10.1.0.0/16, fd12::/48");
  out.bits = static_cast<int>(*bits);
  for (int bit = out.bits; bit < most; ++bit)
    if (out.bytes[static_cast<std::size_t>(bit / 8)] & (0x80 >> (bit % 8)))
      return fail(Code::invalid, fmt::format("\"{}\" has bits beyond its /{}", text, out.bits),
                  "write the first address of the block, or a single address without /n");
  return out;
}

std::string AddressBlock::text() const {
  char buffer[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(v6 ? AF_INET6 : AF_INET, bytes.data(), buffer, sizeof buffer);
  return bits == (v6 ? 128 : 32) ? std::string(buffer) : fmt::format("{}/{}", buffer, bits);
}

bool AddressBlock::contains(bool is_v6, const unsigned char* address) const {
  return is_v6 == v6 && same_start(bytes.data(), address, bits);
}

bool AddressBlock::within(const AddressBlock& other) const {
  return bits >= other.bits && other.contains(v6, bytes.data());
}

const std::vector<AddressBlock>& private_blocks() {
  static const std::vector<AddressBlock> blocks = {
      {false, {10}, 8},       {false, {172, 16}, 12}, {false, {192, 168}, 16},
      {false, {100, 64}, 10}, {true, {0xfc}, 7},
  };
  return blocks;
}

Result<std::vector<AddressBlock>> parse_allowed(const std::vector<std::string>& texts,
                                                std::size_t most) {
  if (texts.size() > most)
    return fail(Code::invalid, fmt::format("at most {} blocks of addresses can be allowed, not {}",
                                           most, texts.size()));
  std::vector<AddressBlock> out;
  for (const std::string& text : texts) {
    const AddressBlock block = BILLOW_TRY(AddressBlock::parse(text));
    if (std::ranges::none_of(private_blocks(), [&](const auto& one) { return block.within(one); }))
      return fail(Code::invalid, fmt::format("{} is not a private network", text),
                  "only private networks can be allowed (10.0.0.0/8, 172.16.0.0/12, "
                  "192.168.0.0/16, 100.64.0.0/10, fc00::/7); public addresses need no permission");
    out.push_back(block);
  }
  return out;
}

}  // namespace billow
