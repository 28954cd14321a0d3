// libFuzzer over a session of HTTP/2: the first byte says whether the bytes are a client's or a
// server's. Built with clang and -DBILLOW_FUZZ=ON only, by `./dev fuzz`. Without clang, test_net's
// Http2Fuzz plays mutations of a corpus by the same rules (BILLOW_FUZZ_SECONDS=600 for longer).
#include <cstdint>

#include "base/check.h"
#include "tests/support/http2_drive.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace billow::net;
  if (size == 0)
    return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::uint64_t how = size;
  for (const unsigned char c : bytes)
    how = how * 31 + c;
  const bool server = data[0] % 2 == 0;
  Http2Drive drive(server ? Http2Session::Role::server : Http2Session::Role::client);
  const std::string broken =
      drive.play(server ? std::string(http2_preface).append(bytes) : std::string(bytes), how);
  BILLOW_CHECK(broken.empty(), broken.c_str());
  return 0;
}
