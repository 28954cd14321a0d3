#include "client/frame/commands.h"

#include <cstdlib>

namespace billow::client {

// BILLOW_TEST_VERSION: tests of upgrades run this program as another version of itself.
const char* version() {
  const char* named = std::getenv("BILLOW_TEST_VERSION");
  return named && *named ? named : BILLOW_VERSION;
}

}  // namespace billow::client
