#include "client/request/option_values.h"

#include <fmt/format.h>

#include <climits>
#include <cstdlib>

#include "base/file.h"
#include "base/platform.h"
#include "base/spoken_name.h"
#include "base/text.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "client/frame/when.h"
#include "core/model/address_block.h"
#include "core/model/system_calls.h"
#include "s3/objects.h"

namespace billow::client {

std::unexpected<Error> in_option(Error error, std::string_view name, std::string_view value) {
  // Many messages show the value themselves.
  const bool shown = error.message.starts_with(fmt::format("{} ", value)) ||
                     error.message.find(fmt::format("\"{}\"", value)) != std::string::npos;
  return pass(std::move(error),
              shown ? fmt::format("--{}", name) : fmt::format("--{} {}", name, value));
}

Result<std::pair<std::string, std::string>> key_value(std::string_view name,
                                                      std::string_view text) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return fail(Code::invalid, fmt::format("--{} {}: expected KEY=VALUE", name, text),
                fmt::format("example: --{} team=vision", name));
  return std::pair{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

// "USR1", "SIGUSR1", "10"
Result<std::int32_t> parse_signal(std::string_view text) {
  if (const auto number = parse_int(text, 1, 64))
    return static_cast<std::int32_t>(*number);
  if (text.starts_with("SIG"))
    text.remove_prefix(3);
  for (int number = 1; number < 32; ++number)
    if (text == platform::signal_name(number))
      return number;
  return fail(Code::invalid, "unknown signal",
              "use a name such as USR1, USR2, HUP, INT or TERM, or a number");
}

Status set_gpus(Resources& r, std::string_view value) {
  const auto milli = parse_milli(value);
  if (!milli)
    return fail(
        Code::invalid,
        value.starts_with("-")
            ? fmt::format("--gpus must not be negative: {}", value)
            : fmt::format("--gpus {}: not a number with at most three decimals", value),
        "examples: --gpus 1, --gpus 8, --gpus 0.25; omit the option for a job without GPUs");
  if (*milli % 1000 == 0 && *milli / 1000 <= INT32_MAX) {
    r.gpus = static_cast<std::int32_t>(*milli / 1000);
    r.share.milli = r.gpus > 0 ? whole_gpu_milli : 0;
  } else if (*milli < 1000) {
    r.gpus = 1;
    r.share.milli = static_cast<std::int32_t>(*milli);
  } else {
    return fail(Code::invalid, fmt::format("--gpus {}: only a single GPU can be divided", value),
                "use a fraction such as --gpus 0.5 or a whole number such as --gpus 2");
  }
  return {};
}

Result<std::string> absolute(std::string_view path, const std::string& relative_to) {
  std::string joined = !path.empty() && path[0] == '/'
                           ? std::string(path)
                           : relative_to + (relative_to.empty() ? "" : "/") + std::string(path);
  char resolved[PATH_MAX];
  if (!::realpath(joined.c_str(), resolved))
    return fail_errno(fmt::format("--cwd {}", path), errno);
  return std::string(resolved);
}

// "HF_TOKEN", "HF_TOKEN=TOKEN", "key:file", "key:/run/key"
Result<SecretWish> parse_secret(std::string_view text) {
  SecretWish wish;
  const auto at = text.find_first_of("=:");
  wish.name = text.substr(0, at);
  if (const Status good = check_name("secret", wish.name); !good)
    return in_option(good.error(), "secret", text);
  if (at == std::string_view::npos) {
    wish.variable = wish.name;
  } else if (text[at] == '=') {
    wish.variable = text.substr(at + 1);
    // A value written here by mistake must not be sent, stored and shown as a variable's name.
    if (std::any_of(wish.variable.begin(), wish.variable.end(), [](char c) {
          return (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_';
        }))
      return fail(Code::invalid,
                  fmt::format("--secret {}=…: after = comes the name of a variable, in capital "
                              "letters, not a value",
                              wish.name),
                  fmt::format("set the value with `billow secret set {}`, then use --secret {}",
                              wish.name, wish.name));
  } else {
    const std::string_view how = text.substr(at + 1);
    wish.file = how == "file" ? "/run/secrets/" + wish.name : std::string(how);
  }
  if (wish.variable.empty() && !wish.file.starts_with('/'))
    return fail(Code::invalid,
                fmt::format("--secret {}: expected NAME, NAME=VARIABLE or NAME:file", text),
                "set the value itself with `billow secret set NAME`, never here");
  return wish;
}

Status set_registry_secret(Surroundings& surroundings, std::string_view name) {
  // The value is not quoted: it may be the password itself, written here by mistake.
  if (!check_name("secret", name))
    return fail(Code::invalid, "--registry-secret expects the name of a secret, not its value",
                "set the value with `billow secret set NAME`, never here");
  surroundings.registry_secret = name;
  return {};
}

// A plain path inside the working directory.
Result<std::string> output_path(std::string_view value, std::string_view option) {
  std::string path(value);
  const auto percent = path.find('%');
  if (percent != std::string::npos && percent + 1 < path.size() &&
      std::string_view("AajJNnstux").find(path[percent + 1]) != std::string_view::npos)
    return fail(Code::invalid,
                fmt::format("--{} {}: this option keeps files of the working directory; unlike "
                            "in Slurm, it does not name the log file",
                            option, value),
                "`billow logs JOB` shows the output; to write a file, redirect it in the command");
  while (path.starts_with("./"))
    path.erase(0, 2);
  while (path.ends_with('/'))
    path.pop_back();
  if (path.empty())
    return fail(
        Code::invalid,
        fmt::format(
            "--{} \"{}\": name a path below the working directory, not the directory itself",
            option, value),
        "example: --output results");
  for (const std::string& name : split(path, '/'))
    if (name.empty() || name == "." || name == ".." || value.starts_with('/'))
      return fail(Code::invalid,
                  fmt::format("--{} {}: not a path inside the working directory", option, value),
                  "examples: --output results, --output out/model.pt");
  if (path.find_first_of("\n\t") != std::string::npos)
    return fail(Code::invalid,
                fmt::format("--{}: the path contains a line break or a tab", option));
  if (!valid_utf8(path))
    return fail(Code::invalid,
                fmt::format("--{} {}: the path is not UTF-8 text", option, printable(value)),
                "put it into a directory with a UTF-8 name and use that directory");
  return path;
}

// "s3://bucket/data", "s3://bucket/data:train", "https://host:8080/model.bin:weights/model.bin"
Result<ObjectWish> object_input(std::string_view value) {
  const auto host = value.find("://");
  const auto after_host =
      host == std::string_view::npos ? 0 : std::min(value.find('/', host + 3), value.size());
  const auto colon = value.rfind(':');
  const bool named = colon != std::string_view::npos && colon > after_host;
  ObjectWish wish{std::string(named ? value.substr(0, colon) : value), ""};
  const auto place = s3::parse_place(wish.url);
  if (!place)
    return pass(Error(place.error()).in("--input"));
  std::string_view path = named ? value.substr(colon + 1) : std::string_view();
  if (!named) {
    path = wish.url;
    path = path.substr(0, path.find_first_of("?#"));
    while (path.ends_with('/'))
      path.remove_suffix(1);
    path = path.substr(path.rfind('/') + 1);
  }
  wish.path = BILLOW_TRY(output_path(path, "input"));
  return wish;
}

Result<ObjectWish> object_output(std::string_view value) {
  const auto equals = value.find("=s3://");
  const std::string_view url = value.substr(equals + 1);
  if (const auto place = s3::parse_place(url); !place)
    return pass(Error(place.error()).in("--output"));
  return ObjectWish{std::string(url), BILLOW_TRY(output_path(value.substr(0, equals)))};
}

// "data:/mnt/data", "data:/mnt/data:ro"
Result<VolumeWish> volume_wish(std::string_view value) {
  const auto parts = split(value, ':');
  const auto bad = [&](std::string_view why) {
    return fail(Code::invalid, fmt::format("--volume {}: {}", value, why),
                "examples: --volume data:/mnt/data, --volume data:/mnt/data:ro");
  };
  if (parts.size() < 2 || parts.size() > 3 || parts[0].empty())
    return bad("not NAME:DIRECTORY");
  if (!parts[1].starts_with('/'))
    return bad("the directory does not begin with /");
  if (parts.size() == 3 && parts[2] != "ro" && parts[2] != "rw")
    return bad(fmt::format("\"{}\" is neither ro nor rw", parts[2]));
  return VolumeWish{parts[0], parts[1], parts.size() == 3 && parts[2] == "ro"};
}

// "rack", "rack:required", "required" (of the default level), "nvlink"; several with commas.
static Status set_topology_part(PlaceWish& place, std::string_view value) {
  std::string_view level = value;
  if (const auto colon = value.find(':'); colon != std::string_view::npos) {
    const std::string_view how = value.substr(colon + 1);
    if (how != "required" && how != "preferred")
      return fail(Code::invalid,
                  fmt::format("--topology {}: \"{}\" is not required or preferred", value, how),
                  "example: rack:required");
    place.close_required = how == "required";
    level = value.substr(0, colon);
  }
  if (level == "required" || level == "preferred") {
    place.close_required = level == "required";
    return {};
  }
  if (level == "nvlink") {
    place.nvlink_required = true;
    return {};
  }
  const auto close = enum_value<Closeness>(level);
  if (!close)
    return fail(Code::invalid, fmt::format("--topology {}: unknown level", value),
                "use switch, rack, zone, region, anywhere or nvlink");
  place.close = *close;
  return {};
}

Status set_topology(PlaceWish& place, std::string_view value) {
  for (const std::string& part : split(value, ','))
    BILLOW_TRY_VOID(set_topology_part(place, trim(part)));
  return {};
}

Result<WallTime> time_to_come(std::string_view value, WallTime now) {
  auto at = parse_when(value, now);
  // Only times of day have colons here: 25:00 is a mistake, not 25 minutes.
  if (!at && !value.contains(':'))
    if (const auto span = duration_with_unit(value))
      at = now + *span;
  if (!at || *at <= now)
    return fail(Code::invalid, fmt::format("--by {} is not a time in the future", value),
                "examples: 18:00, \"2026-11-17 18:00\", 4h");
  return *at;
}

Result<std::string> environment_name(std::string_view value) {
  if (value.find('=') != std::string_view::npos)
    return fail(Code::invalid,
                fmt::format("--env {}: --env takes the name of a saved environment", value),
                fmt::format("to set a variable, use --env-var {}", value));
  const auto slash = value.find('/');
  if (slash != std::string_view::npos)
    BILLOW_TRY_VOID(check_name("project", value.substr(0, slash)));
  const std::string_view name = value.substr(slash == std::string_view::npos ? 0 : slash + 1);
  BILLOW_TRY_VOID(check_name("environment", name.substr(0, name.find('@'))));
  return std::string(value);
}

Result<ContainerNetwork> network_kind(std::string_view value) {
  if (const auto known = enum_value<ContainerNetwork>(value))
    return *known;
  return fail(Code::invalid, fmt::format("--network must be {}, not {}", network_kinds, value));
}

Status add_allowed(Surroundings& surroundings, std::string_view value) {
  for (const std::string& one : split(value, ','))
    surroundings.allow.push_back(BILLOW_TRY(AddressBlock::parse(trim(one))).text());
  return {};
}

Status set_call_profile(Surroundings& surroundings,
                        std::string_view value,
                        const std::string& relative_to) {
  if (const auto known = enum_value<CallProfile>(value)) {
    surroundings.seccomp = *known;
    return {};
  }
  const std::string path = value.starts_with('/') || relative_to.empty()
                               ? std::string(value)
                               : fmt::format("{}/{}", relative_to, value);
  constexpr std::size_t bytes_max = 64 << 10;
  const auto text = read_file(path, bytes_max);
  if (!text)
    return fail(Code::invalid, fmt::format("--seccomp {}: {}", value, text.error().message),
                "use default, strict, or a file with names of system calls, one per line");
  std::vector<std::string> names;
  for (const std::string& line : split(*text, '\n'))
    if (const auto name = trim(std::string_view(line).substr(0, line.find('#'))); !name.empty())
      names.emplace_back(name);
  if (names.empty())
    return fail(Code::invalid, fmt::format("--seccomp {}: the file names no system call", value));
  if (const Status known = check_system_calls(names); !known)
    return in_option(known.error(), "seccomp", value);
  surroundings.refused_calls = std::move(names);
  return {};
}

}  // namespace billow::client
