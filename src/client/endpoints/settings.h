// What an endpoint is deployed with, as options of `billow deploy`: to show it, and to say what a
// new deployment changes.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "core/model/endpoint.h"

namespace billow::client {

struct Setting {
  std::string option;               // without dashes
  std::vector<std::string> values;  // as they can be typed; empty: there is none
  bool usual = false;               // it is at the default of `billow deploy`
  bool flag = false;                // the option has no value

  std::string shown() const;  // "1", "a, b", "yes", "none"
  // "--gpus 1", "--cors a, --cors b", "--spot"
  std::string options(std::string_view between = ", ") const;
};

// Who may call, how it scales, its probes and rollouts.
std::vector<Setting> settings_of(const EndpointPolicy& policy);
// Those that are not at their defaults, as options: "--min 1, --max 4".
std::string settings_text(const EndpointPolicy& policy,
                          std::span<const std::string_view> without = {});
// What the program of a revision asks for: resources, image, volumes, secrets and every other
// option of a job that is not at its default. `spec` as the API has it.
std::vector<Setting> program_settings(const Json& spec);

// A setting that a new revision has and the endpoint has not, or the other way round.
struct SettingChange {
  std::string setting, before, after;
  std::string keep = {};     // the options that would keep it; empty: it was chosen
  std::string text() const;  // "gpus: 1 → none (give --gpus 1 to keep it)"
};
// `given`: whether an option is on the command line. Only settings that would be lost silently get
// the hint how to keep them.
std::vector<SettingChange> changes_between(
    const std::vector<Setting>& before,
    const std::vector<Setting>& after,
    const std::function<bool(const std::string& option)>& given);
// Variables that the new revision would no longer have, by their names; those of Billow itself do
// not count. Nothing: it has them all.
std::optional<SettingChange> lost_variables(const std::vector<std::string>& before,
                                            const Environment& after);
Json changes_document(const std::vector<SettingChange>& changes);

// A time as it can be given to an option: "90s", "1h".
std::string typed(Duration time);

}  // namespace billow::client
