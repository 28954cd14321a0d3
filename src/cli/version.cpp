#include "cli/commands.h"

namespace billow::cli {

const char* version() { return BILLOW_VERSION; }

}  // namespace billow::cli
