#include "files/root.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::files {

std::string root_id() {
  const auto boot = read_file("/proc/sys/kernel/random/boot_id", 64);
  struct stat root {};
  if (!boot || ::stat("/", &root) != 0)
    return {};
  // A digest: who asks a head need not know which system it runs on.
  const std::string text = fmt::format("{} {} {}", trim(*boot), root.st_dev, root.st_ino);
  return sha256_hex(text).substr(0, 16);
}

}  // namespace billow::files
