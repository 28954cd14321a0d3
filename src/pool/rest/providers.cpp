#include "pool/rest/providers.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"
#include "pool/rest/shipped.h"

namespace billow::pool::rest {
namespace {

constexpr std::size_t provider_file_bytes_max = 1 << 20;

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

Result<Provider> check_provider_file(const std::string& path) {
  const std::string text = BILLOW_TRY(read_file(path, provider_file_bytes_max));
  return read_provider(text, path);
}

Result<Provider> find_provider(const std::string& name, const std::string& folder) {
  if (name.find('/') != std::string::npos)
    return check_provider_file(name);
  BILLOW_TRY_VOID(check_name("provider", name));
  const std::string beside = fmt::format("{}/{}.toml", folder, name);
  if (!folder.empty() && is_file(beside))
    return check_provider_file(beside);
  std::vector<std::string> known;
  for (const auto& [shipped, text] : shipped_providers()) {
    if (shipped == name)
      return read_provider(text, std::string(shipped) + ".toml");
    known.emplace_back(shipped);
  }
  const std::string near = nearest(name, known);
  return fail(Code::not_found, fmt::format("no provider is named \"{}\"", name),
              near.empty()
                  ? fmt::format("use one of: {}, or the path of a provider file", join(known, ", "))
                  : fmt::format("is it {}?", near));
}

std::vector<ProviderFile> provider_files() {
  std::vector<ProviderFile> out;
  for (const auto& [name, text] : shipped_providers()) {
    ProviderFile file{.name = std::string(name)};
    if (const auto read = read_provider(text, std::string(name) + ".toml")) {
      file.title = read->title;
      file.credentials =
          read->auth.secret.empty() ? read->auth.key : read->auth.key + ", " + read->auth.secret;
      file.boot = enum_name(read->boot.kind);
      file.bill_step = read->billing.step;
      file.bill_minimum = read->billing.minimum;
    } else {
      file.error = read.error().message;
    }
    out.push_back(std::move(file));
  }
  return out;
}

}  // namespace billow::pool::rest
