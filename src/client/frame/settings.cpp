#include "client/frame/settings.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "client/frame/connect.h"

namespace billow::client {
namespace {

constexpr std::size_t settings_bytes_max = 1 << 20;

std::string settings_path() {
  return config_directory() + "/settings.json";
}

}  // namespace

Result<Settings> read_settings() {
  const std::string path = settings_path();
  if (!file_exists(path))
    return Settings{};
  const auto bad = [&](std::string_view why) {
    return fail(Code::invalid, fmt::format("{}: {}", path, why),
                "fix or delete the file; `billow config list` shows what is set");
  };
  const auto text = read_file(path, settings_bytes_max);
  if (!text)
    return bad(text.error().message);
  const auto parsed = parse_json(*text);
  if (!parsed)
    return bad(parsed.error().message);
  if (!parsed->is_object())
    return bad("the file is not a JSON object");
  Settings settings;
  for (const Json& name : (*parsed)["pass_env"].items()) {
    if (!name.is_string())
      return bad("pass_env must be a list of names");
    settings.pass_env.emplace_back(name.str_or(""));
  }
  return settings;
}

Status write_settings(const Settings& settings) {
  std::string text = "{\"pass_env\":[";
  for (std::size_t i = 0; i < settings.pass_env.size(); ++i) {
    text += i > 0 ? "," : "";
    append_json_string(text, settings.pass_env[i]);
  }
  BILLOW_TRY_VOID(make_directories(config_directory(), 0700));
  return write_file_atomic(settings_path(), text + "]}\n", 0600, true);
}

}  // namespace billow::client
