#include "client/mcp/output_place.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/text.h"

namespace billow::client::mcp {

Result<std::string> place_for_outputs(const std::string& asked) {
  for (const std::string& part : split(asked, '/'))
    if (part == ".." || asked.starts_with('/'))
      return fail(Code::forbidden, fmt::format("\"{}\" is not below the server's directory", asked),
                  "give a relative path without \"..\"");
  std::string path = ".";
  for (const std::string& part : split(asked, '/')) {
    if (part.empty() || part == ".")
      continue;
    path += "/" + part;
    struct stat info {};
    const bool there = ::lstat(path.c_str(), &info) == 0;
    if (there && !S_ISDIR(info.st_mode))
      return fail(Code::forbidden, fmt::format("{} is not a directory", path));
    if (part.starts_with('.'))
      return fail(Code::forbidden, fmt::format("{} is a hidden directory", path));
  }
  if (path == ".")
    return fail(Code::forbidden, "outputs do not go into the server's own directory",
                "name a directory below it");
  return path;
}

}  // namespace billow::client::mcp
