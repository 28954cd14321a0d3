// libFuzzer over what a terminal sends to `billow top`: whatever the bytes and however they are cut
// into pieces, the same inputs come out, text is UTF-8, and nothing piles up.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "client/top/keys.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace billow::client::top;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  InputDecoder whole, pieces;
  const auto expected = whole.feed(bytes);
  std::vector<Input> seen;
  for (std::size_t i = 0; i < size; ++i)
    for (Input& input : pieces.feed(bytes.substr(i, 1)))
      seen.push_back(std::move(input));
  BILLOW_CHECK(seen == expected, "pieces make no difference");
  for (const Input& input : seen) {
    if (const auto* key = std::get_if<Key>(&input))
      BILLOW_CHECK(billow::valid_utf8(key->text) && key->text.size() <= 4, "a key is a character");
    if (const auto* mouse = std::get_if<Mouse>(&input))
      BILLOW_CHECK(mouse->row >= 0 && mouse->col >= 0, "a place on the screen");
  }
  (void)whole.flush();
  return 0;
}
