// libFuzzer over the whole proxy: what comes before the first 0xFF is the client's, what comes
// after it the replica's. Built with clang and -DBILLOW_FUZZ=ON only, by `./dev fuzz`. Without
// clang, test_gateway's ProxyFuzz plays mutations of a corpus by the same rules
// (BILLOW_FUZZ_SECONDS=600 for longer).
#include <cstdint>

#include "base/check.h"
#include "base/log.h"
#include "tests/support/proxy_drive.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static billow::gateway::ProxyDrive drive;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::uint64_t how = size;
  for (const unsigned char c : bytes)
    how = how * 31 + c;
  const auto cut = std::min(bytes.find('\xff'), bytes.size());
  const std::string broken =
      drive.play(bytes.substr(0, cut),
                 cut == bytes.size() ? "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                                     : bytes.substr(cut + 1),
                 how);
  BILLOW_CHECK(broken.empty(), broken.c_str());
  return 0;
}
