#include "server/kept_on_node.h"

#include <stdlib.h>

#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/values.h"

namespace billow::client {
namespace {

std::string given(const Parsed& parsed, const char* option, const char* variable) {
  const char* set = ::getenv(variable);
  return parsed.get(option, set ? set : "");
}

Status read_bytes(const char* option, const std::string& text, std::uint64_t& into) {
  if (text.empty())
    return {};
  const auto bytes = bytes_with_unit(text);
  if (!bytes)
    return pass(Error(bytes.error()).in(fmt::format("--{}", option)));
  into = *bytes;
  return {};
}

}  // namespace

Status read_kept_on_node(const Parsed& parsed, agent::NodeOptions& options) {
  BILLOW_TRY_VOID(read_bytes("cache-max", parsed.get("cache-max"), options.cache_bytes_max));
  BILLOW_TRY_VOID(read_bytes("files-max", parsed.get("files-max"), options.files_bytes_max));
  BILLOW_TRY_VOID(read_bytes("images-max", given(parsed, "images-max", "BILLOW_IMAGES_MAX"),
                             options.images_bytes_max));
  options.work_under = parsed.get("work-dir");
  options.cache_dir = parsed.get("cache-dir");
  if (const char* set = ::getenv("BILLOW_ALLOW_METADATA");
      parsed.has("allow-metadata") || (set && std::string_view(set) == "1"))
    options.allow_metadata = true;
  if (const char* set = ::getenv("BILLOW_METADATA"); set && std::string_view(set) == "closed")
    options.metadata_closed = true;
  if (const char* set = ::getenv("BILLOW_ALLOW_NAMESPACES");
      parsed.has("allow-namespaces") || (set && std::string_view(set) == "1"))
    options.allow_namespaces = true;
  if (const std::string text = given(parsed, "pull-patience", "BILLOW_PULL_PATIENCE");
      !text.empty()) {
    const auto patience = duration_with_unit(text);
    if (!patience || *patience < seconds(1))
      return fail(Code::invalid,
                  fmt::format("--pull-patience {} is not a time of at least one second", text),
                  "use a form like 10m");
    options.pull_patience = *patience;
  }
  return {};
}

Status pass_kept_on_node(const Parsed& parsed) {
  agent::NodeOptions checked;
  BILLOW_TRY_VOID(read_kept_on_node(parsed, checked));
  if (parsed.has("images-max"))
    ::setenv("BILLOW_IMAGES_MAX", parsed.get("images-max").c_str(), 1);
  if (parsed.has("allow-metadata"))
    ::setenv("BILLOW_ALLOW_METADATA", "1", 1);
  if (parsed.has("allow-namespaces"))
    ::setenv("BILLOW_ALLOW_NAMESPACES", "1", 1);
  if (parsed.has("pull-patience"))
    ::setenv("BILLOW_PULL_PATIENCE", parsed.get("pull-patience").c_str(), 1);
  return {};
}

}  // namespace billow::client
