// `billow`: one binary. This only takes argv apart; what each command does lies in its own file.
#include "base/crypto.h"
#include "base/platform.h"
#include "client/frame/commands.h"

int main(int argc, char** argv) {
  billow::skip_openssl_configuration();
  billow::platform::reuse_large_buffers();
  return billow::client::dispatch(billow::client::all_commands(),
                                  std::vector<std::string>(argv + 1, argv + argc));
}
