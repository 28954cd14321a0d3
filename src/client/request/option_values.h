// From the text of one option's value to what it means. Each function returns an error that names
// the option and shows the accepted form.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "core/model/job.h"

namespace billow::client {

// Puts "--name value" in front of an error.
std::unexpected<Error> in_option(Error error, std::string_view name, std::string_view value);

Result<std::pair<std::string, std::string>> key_value(std::string_view name, std::string_view text);
Result<std::int32_t> parse_signal(std::string_view text);
Status set_gpus(Resources& resources, std::string_view value);
Status set_topology(PlaceWish& place, std::string_view value);
// "18:00" (the next one, local time), "2026-11-17 18:00", or "4h" from now.
Result<WallTime> time_to_come(std::string_view text, WallTime now);
Result<SecretWish> parse_secret(std::string_view text);
Status set_registry_secret(Surroundings& surroundings, std::string_view name);
// "torch", "audio/torch" (of project audio), "torch@DIGEST".
Result<std::string> environment_name(std::string_view value);
inline constexpr char network_kinds[] = "host|none|internet|project";
Result<ContainerNetwork> network_kind(std::string_view value);
// A profile by name, or the file of names of system calls at this path.
// Adds private networks that the job may reach.
Status add_allowed(Surroundings& surroundings, std::string_view value);
Status set_call_profile(Surroundings& surroundings,
                        std::string_view value,
                        const std::string& relative_to);
// A relative path below the working directory. `option` is named in errors.
Result<std::string> output_path(std::string_view value, std::string_view option = "output");
Result<ObjectWish> object_input(std::string_view value);
Result<ObjectWish> object_output(std::string_view value);  // PATH=s3://…
Result<VolumeWish> volume_wish(std::string_view value);
// An existing directory; `relative_to` is where a relative path begins, empty: the current one.
Result<std::string> absolute(std::string_view path, const std::string& relative_to);

}  // namespace billow::client
