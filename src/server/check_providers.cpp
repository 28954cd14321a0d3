// `cloud providers --check`: whether files that describe providers are right. It needs no head, so
// that a new provider can be written anywhere.
#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "pool/rest/providers.h"

namespace billow::client {
namespace {

// The file itself, or the provider files of a directory.
Result<std::vector<std::string>> files_at(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return fail_errno(path, errno);
  if (!S_ISDIR(info.st_mode))
    return std::vector<std::string>{path};
  std::vector<std::string> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (!dir)
    return fail_errno(path, errno);
  while (const dirent* entry = ::readdir(dir.get()))
    if (std::string_view(entry->d_name).ends_with(".toml"))
      out.push_back(path + "/" + entry->d_name);
  if (out.empty())
    return fail(Code::not_found, fmt::format("{} has no provider files", path),
                "their names end in .toml");
  std::ranges::sort(out);
  return out;
}

struct Checked {
  std::string name;
  std::string error;  // empty: it is right
};

Json document_of(const std::vector<Checked>& checked) {
  Json list = Json::array();
  for (const Checked& one : checked)
    list.push(Json::object({{"file", one.name}, {"error", one.error}}));
  return Json::object({{"checked", std::move(list)}});
}

}  // namespace

int check_provider_files(const Parsed& p) {
  std::vector<Checked> checked;
  if (p.operands.empty())
    for (const pool::rest::ProviderFile& file : pool::rest::provider_files())
      checked.push_back({file.name, file.error});
  for (const std::string& path : p.operands) {
    const auto files = files_at(path);
    if (!files)
      return report(files.error());
    for (const std::string& file : *files) {
      const auto read = pool::rest::check_provider_file(file);
      checked.push_back({file, read ? std::string() : read.error().message});
    }
  }
  const auto wrong =
      std::ranges::count_if(checked, [](const Checked& one) { return !one.error.empty(); });
  if (p.has("json")) {
    print_json(document_of(checked));
    return wrong > 0 ? 1 : 0;
  }
  for (const Checked& one : checked) {
    if (one.error.empty())
      print(fmt::format("{}: ok\n", one.name));
    else
      say(one.error);
  }
  return wrong > 0 ? 1 : 0;
}

}  // namespace billow::client
