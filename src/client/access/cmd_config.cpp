// Settings of this person on this machine: config set, config list.
#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/settings.h"

namespace billow::client {
namespace {

// "A, B" → {"A", "B"}. A value written here by mistake must not be stored.
Result<std::vector<std::string>> variable_names(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string& part : split(text, ',')) {
    const std::string_view name = trim(part);
    if (name.empty())
      continue;
    if (name.find('=') != std::string_view::npos || !valid_utf8(name))
      return fail(Code::invalid, "pass-env takes names of variables, not values",
                  "for example: billow config set pass-env HF_TOKEN,WANDB_API_KEY");
    names.emplace_back(name);
  }
  return names;
}

int config_set(const Parsed& parsed) {
  if (parsed.operands.size() != 2)
    return report_usage({Code::invalid, "a setting and its value are required",
                         "for example: billow config set pass-env HF_TOKEN,WANDB_API_KEY"});
  if (parsed.operands[0] != "pass-env")
    return report_usage({Code::invalid,
                         fmt::format("there is no setting \"{}\"", parsed.operands[0]),
                         "the only setting is pass-env"});
  const auto names = variable_names(parsed.operands[1]);
  if (!names)
    return report_usage(names.error());
  auto settings = read_settings();
  if (!settings)
    return report(settings.error());
  settings->pass_env = *names;
  if (const Status written = write_settings(*settings); !written)
    return report(written.error());
  print(names->empty() ? "pass-env is empty\n"
                       : fmt::format("every job now gets {}\n", join(*names, ", ")));
  return 0;
}

int config_list(const Parsed& parsed) {
  const auto settings = read_settings();
  if (!settings)
    return report(settings.error());
  if (parsed.has("json")) {
    Json::Array names;
    for (const std::string& name : settings->pass_env)
      names.emplace_back(name);
    print_json(Json::object({{"pass_env", Json(std::move(names))}}));
    return 0;
  }
  print(fmt::format("pass-env  {}\n",
                    settings->pass_env.empty() ? "(none)" : join(settings->pass_env, ", ")));
  return 0;
}

}  // namespace

void add_config_commands(CommandTable& table) {
  table.push_back(
      {.name = "config set",
       .summary = "set a default for all your commands on this machine",
       .example =
           "billow config set pass-env HF_TOKEN,WANDB_API_KEY\nbillow config set pass-env ''",
       .run = config_set,
       .usage = "pass-env NAME[,NAME…]",
       .details = "pass-env names variables that every job gets from your environment although "
                  "they look like credentials. Only the names are stored.",
       .operands = Operands::some,
       .group = "people and access",
       .talks_to_head = false,
       .prints_json = false});
  table.push_back({.name = "config list",
                   .summary = "show your settings on this machine",
                   .example = "billow config list",
                   .run = config_list,
                   .group = "people and access",
                   .talks_to_head = false});
}

}  // namespace billow::client
