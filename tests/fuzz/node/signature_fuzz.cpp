// libFuzzer over what registries send beside images, and over keys in PEM that files and heads
// name: public keys, signatures and their statements, challenges, node credentials, keys for
// signing. The first byte chooses. No statement is believed whose signature nobody made.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "container/registry.h"
#include "container/signature.h"
#include "net/http/node_credential.h"
#include "net/jws.h"

namespace {

using namespace billow;

constexpr const char* public_key =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEACI5Pxr6yQrZIZ8hVG/5rQlvpJo7NMi5XNxP2if3Tm98=\n"
    "-----END PUBLIC KEY-----\n";

// "SIGNATURE\nSTATEMENT", of a key whose secret nobody here has.
void statement(std::string_view bytes) {
  const auto cut = std::min(bytes.find('\n'), bytes.size());
  const std::string_view said = bytes.substr(std::min(cut + 1, bytes.size()));
  BILLOW_CHECK(!container::is_signed(public_key, said, bytes.substr(0, cut), "sha256:00"),
               "nobody has signed it");
}

void challenge(std::string_view text) {
  const auto read = container::Challenge::parse(text);
  BILLOW_CHECK(read.realm.size() + read.service.size() + read.scope.size() <= text.size(),
               "its parts are parts of it");
}

void keys(std::string_view text) {
  const bool usable = container::check_public_key(text).has_value();
  const bool believed = container::is_signed(text, "{}", "AAAA", "sha256:00");
  BILLOW_CHECK(!believed, "three zero bytes are no signature");
  BILLOW_CHECK(usable || !believed, "without a key nothing is signed");
  (void)net::JwsKey::read(std::string(text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      statement(bytes);
      break;
    case 1:
      challenge(bytes);
      break;
    default:
      keys(bytes);
  }
  return 0;
}
