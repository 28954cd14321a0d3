#include "client/request/job_request.h"

#include <fmt/format.h>

#include <unistd.h>
#include <cstring>

#include <climits>
#include <cstdlib>

#include "base/limits.h"
#include "base/platform.h"
#include "base/spoken_name.h"
#include "base/text.h"
#include "client/frame/table.h"
#include "core/model/image_name.h"
#include "core/wire/codec.h"
#include "s3/objects.h"

namespace billow::client {
namespace {

constexpr OptionSpec job_option_table[] = {
    {"gpus", 'g', "N", "GPUs per node: 1, 8, or a part of one such as 0.25"},
    {"gpu-mem", 0, "SIZE", "GPU memory of a slice, such as 20G"},
    {"gpu-type", 0, "A,B", "any of these types, as `billow nodes` names them: H100, A100-80, L4"},
    {"mig", 0, "PROFILE", "a MIG instance, such as 1g.10gb"},
    {"nodes", 'N', "N", "run on this many nodes at once, as one gang"},
    {"procs", 0, "N", "processes on each node, with RANK and LOCAL_RANK of their own (1)"},
    {"whole-node", 0, nullptr,
     "bare metal: every GPU and core of the node, nothing beside it, no sandbox"},
    {"exclusive", 0, nullptr,
     "every GPU and core of the node, nothing beside it, in the usual sandbox"},
    {"cpus", 'c', "N", "CPU cores per node, such as 4 or 0.5"},
    {"mem", 0, "SIZE", "memory per node, such as 32G"},
    {"node-label", 0, "K=V", "only on nodes with this label", true},
    {"constraint", 0, "K=V", "the same as --node-label", true},
    {"region", 0, "A,B", "only in one of these regions"},
    {"zone", 0, "A,B", "only in one of these zones"},
    {"pool", 0, "A,B", "only on nodes of one of these pools"},
    {"fabric", 0, "A,B", "only on nodes with this network: infiniband, roce, efa, tcp"},
    {"placement-group", 0, "NAME", "only on nodes of this placement group"},
    {"topology", 0, "LEVEL[:required]",
     "how near a gang's nodes are: switch, rack, zone (the default), region, anywhere; or nvlink, "
     "of one node's GPUs"},
    {"spread", 0, nullptr, "a gang's nodes, or an array's elements, apart from each other"},
    {"pack", 0, nullptr, "close together (the default)"},
    {"elastic", 0, nullptr,
     "when one node of the gang is lost, or one member fails and --retries are left, replace that "
     "member only; the others go on"},
    {"reservation", 0, "ID", "run inside this reservation (a number or its name)"},
    {"time", 0, "T", "time limit, such as 90m or 2h; the job is stopped then"},
    {"name", 'n', "NAME", "a name, for people"},
    {"label", 'l', "K=V", "a label, for finding it again", true},
    {"project", 'p', "NAME", "who pays; without it your first project"},
    {"priority", 0, "N", "higher goes first, -1000 to 1000; an admin may go further (0)"},
    {"spot", 0, nullptr, "cheaper, and may be preempted"},
    {"retries", 0, "N", "start again after a failure, up to N times"},
    {"backoff", 0, "T", "wait before the first retry; doubles each time (1s)"},
    {"after", 0, "[KIND:]JOB",
     "start after that job (a number, or the name of one or more of yours): ok:JOB (the default), "
     "any:JOB or failed:JOB",
     true, Completes::job},
    {"image", 0, "NAME",
     "run in this container image: its files, your command; your variables stay behind but for "
     "--env-var"},
    {"env", 0, "NAME", "run in this saved environment (`billow env save`)"},
    {"network", 0, "host|none",
     "what a job in an image or an environment sees of the network: its node's (host), or a "
     "loopback of its own (none)"},
    {"max-processes", 0, "N", "processes and threads it may have on a node (32768)"},
    {"env-var", 'e', "K[=V]", "set a variable, or pass the one of that name that is set here",
     true},
    {"no-env", 0, nullptr, "pass no variables but those of --env-var"},
    {"secret", 0, "NAME[=VAR]",
     "a secret of the project as a variable, NAME:file as a file whose path is in NAME_FILE, or "
     "NAME:/path as that file",
     true},
    {"cwd", 'C', "DIR", "working directory (the current one)", false, Completes::directory},
    {"sync", 0, nullptr,
     "the working directory follows the job (by itself where the head is on another machine)"},
    {"no-sync", 0, nullptr, "it does not: the node has it already"},
    {"output", 0, "PATH[=URL]",
     "a path in it to keep when the job ends: fetch it with `billow cp`, or send it to "
     "s3://bucket/prefix",
     true},
    {"input", 0, "URL[:PATH]",
     "bring s3://bucket/prefix or https://… there before the job starts; kept on the node for the "
     "next",
     true},
    {"volume", 0, "NAME:DIR[:ro]", "mount this volume there (see `billow volume list`)", true},
    {"suspendable", 0, "auto|yes|no",
     "prepare it for being suspended fast; auto: slices and spot jobs, not a dedicated GPU"},
    {"strict", 0, nullptr,
     "a slice's share of compute is a hard cap, also while others leave theirs unused"},
    {"share", 0, "time",
     "share the GPU by the driver's time-slicing, with no limit enforced, for what cannot be gated "
     "(Vulkan, OptiX)"},
    {"suspend-hook", 0, "CMD", "shell command to run before it is suspended"},
    {"resume-hook", 0, "CMD", "shell command to run after it was resumed"},
    {"checkpoint-every", 0, "T",
     "ask it for a checkpoint this often; it starts again from the newest (BILLOW_CHECKPOINT) if "
     "its node is lost"},
    {"checkpoint-cmd", 0, "CMD",
     "how: a shell command that leaves files in $BILLOW_CHECKPOINT_DIR"},
    {"checkpoint-signal", 0, "SIG", "how: a signal, such as USR1, on which the job does"},
    {"checkpoint-dir", 0, "DIR", "where they are kept: a directory that every node sees", false,
     Completes::directory},
    {"stop-grace", 0, "T", "time between SIGTERM and SIGKILL when it is stopped (10s)"},
    {"rerun-if-lost", 0, nullptr, "may start again if its node vanishes (it may then run twice)"},
    {"idempotency-key", 0, "KEY", "submitting again with the same key gives the same job"},
};
constexpr OptionSpec batch_option_table[] = {
    {"array", 'a', "0-99[%10]", "one job per index (BILLOW_ARRAY_INDEX), at most 10 at a time"},
    {"cron", 0, "\"M H D M W\"", "submit it again and again by this schedule, in UTC"},
};

std::unexpected<Error> in_option(Error error, std::string_view name, std::string_view value) {
  return pass(std::move(error), fmt::format("--{} {}", name, value));
}

Result<std::pair<std::string, std::string>> key_value(std::string_view name,
                                                      std::string_view text) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return fail(Code::invalid, fmt::format("--{} {}: not KEY=VALUE", name, text),
                fmt::format("write it like --{} team=vision", name));
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
  return fail(Code::invalid, "there is no such signal", "USR1, USR2, HUP, INT and TERM are some");
}

Status set_gpus(Resources& r, std::string_view value) {
  const auto milli = parse_milli(value);
  if (!milli && value.starts_with("-"))
    return fail(Code::invalid, fmt::format("--gpus {}: there are no fewer than none", value),
                "write it like --gpus 1, --gpus 8, or --gpus 0.25 for a part of one; leave it out "
                "for none");
  if (!milli)
    return in_option(milli.error(), "gpus", value);
  if (*milli % 1000 == 0 && *milli / 1000 <= INT32_MAX) {
    r.gpus = static_cast<std::int32_t>(*milli / 1000);
    r.share.milli = r.gpus > 0 ? whole_gpu_milli : 0;
  } else if (*milli < 1000) {
    r.gpus = 1;
    r.share.milli = static_cast<std::int32_t>(*milli);
  } else {
    return fail(
        Code::invalid,
        fmt::format("--gpus {}: a fraction is of one GPU; several GPUs are whole ones", value),
        "ask for --gpus 0.5 or --gpus 2");
  }
  return {};
}

// Sizes are kept in MiB; a part of one counts as a whole one.
Status set_mib(std::int64_t& mib, std::string_view name, std::string_view value) {
  const auto bytes = parse_bytes(value);
  if (!bytes)
    return in_option(bytes.error(), name, value);
  if (*bytes == 0)
    return fail(Code::invalid, fmt::format("--{} {}: must be more than nothing", name, value));
  mib = static_cast<std::int64_t>((*bytes + (1 << 20) - 1) >> 20);
  return {};
}

Status set_duration(Duration& into, std::string_view name, std::string_view value) {
  const auto parsed = parse_duration(value);
  if (!parsed)
    return in_option(parsed.error(), name, value);
  into = *parsed;
  return {};
}

template <class I>
Status set_int(
    I& into, std::string_view name, std::string_view value, std::int64_t min, std::int64_t max) {
  const auto parsed = parse_int(value, min, max);
  if (!parsed)
    return in_option(parsed.error(), name, value);
  into = static_cast<I>(*parsed);
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

// Options of what the job needs; false where the name is none of them.
Result<bool> set_resource(Resources& r, std::string_view name, std::string_view value) {
  if (name == "gpus")
    BILLOW_TRY_VOID(set_gpus(r, value));
  else if (name == "gpu-mem")
    BILLOW_TRY_VOID(set_mib(r.share.mem_mib, name, value));
  else if (name == "mem")
    BILLOW_TRY_VOID(set_mib(r.mem_mib, name, value));
  else if (name == "mig") {
    if (trim(value).empty())
      return fail(Code::invalid, "--mig needs a profile",
                  "write it as NVIDIA does, for example --mig 1g.10gb; `billow nodes -g` shows the "
                  "instances there are");
    r.mig_profile = lower(value);
  } else if (name == "whole-node")
    r.whole_node = true;
  else if (name == "exclusive")
    r.exclusive = true;
  else if (name == "gpu-type") {
    r.gpu_types.clear();
    for (const std::string& type : split(value, ','))
      if (!trim(type).empty())
        r.gpu_types.emplace_back(trim(type));
    if (r.gpu_types.empty())
      return fail(Code::invalid, "--gpu-type needs a type",
                  "see `billow nodes` for the types there are");
  } else if (name == "cpus") {
    const auto milli = parse_milli(value);
    if (!milli)
      return in_option(milli.error(), name, value);
    r.cpu_milli = *milli;
  } else {
    return false;
  }
  return true;
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
    // Whoever writes the value here by mistake must not have it sent, stored and shown as the name
    // of a variable.
    if (std::any_of(wish.variable.begin(), wish.variable.end(), [](char c) {
          return (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_';
        }))
      return fail(
          Code::invalid,
          fmt::format(
              "--secret {}=…: what follows = is the name of a variable, in capitals, not a value",
              wish.name),
          fmt::format("set the value with `billow secret set {}`, then ask for --secret {}",
                      wish.name, wish.name));
  } else {
    const std::string_view how = text.substr(at + 1);
    wish.file = how == "file" ? "/run/secrets/" + wish.name : std::string(how);
  }
  if (wish.variable.empty() && !wish.file.starts_with('/'))
    return fail(Code::invalid,
                fmt::format("--secret {}: not NAME, NAME=VARIABLE or NAME:file", text),
                "the value itself is set with `billow secret set NAME`, never given here");
  return wish;
}

// A plain path inside the working directory.
Result<std::string> output_path(std::string_view value, std::string_view option = "output") {
  std::string path(value);
  while (path.starts_with("./"))
    path.erase(0, 2);
  while (path.ends_with('/'))
    path.pop_back();
  if (path.empty())
    return fail(
        Code::invalid,
        fmt::format("--{} \"{}\": the whole working directory is no place for one", option, value),
        "name what is to stay: --output results");
  for (const std::string& name : split(path, '/'))
    if (name.empty() || name == "." || name == ".." || value.starts_with('/'))
      return fail(Code::invalid,
                  fmt::format("--{} {}: not a path inside the working directory", option, value),
                  "write it like --output results or --output out/model.pt");
  if (path.find_first_of("\n\t") != std::string::npos)
    return fail(Code::invalid, fmt::format("--{}: a path has no line breaks", option));
  if (!valid_utf8(path))
    return fail(Code::invalid,
                fmt::format("--{} {}: not written in UTF-8", option, printable(value)),
                "give the directory it is in a plain name and declare that");
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

// "data:/mnt/data", "data:/mnt/data:ro"
Result<VolumeWish> volume_wish(std::string_view value) {
  const auto parts = split(value, ':');
  const auto bad = [&](std::string_view why) {
    return fail(Code::invalid, fmt::format("--volume {}: {}", value, why),
                "write it like --volume data:/mnt/data or --volume data:/mnt/data:ro");
  };
  if (parts.size() < 2 || parts.size() > 3 || parts[0].empty())
    return bad("not NAME:DIRECTORY");
  if (!parts[1].starts_with('/'))
    return bad("the directory does not begin with /");
  if (parts.size() == 3 && parts[2] != "ro" && parts[2] != "rw")
    return bad(fmt::format("\"{}\" is neither ro nor rw", parts[2]));
  return VolumeWish{parts[0], parts[1], parts.size() == 3 && parts[2] == "ro"};
}

Status set_names(std::vector<std::string>& into, std::string_view name, std::string_view value) {
  into.clear();
  for (const std::string& one : split(value, ','))
    if (!trim(one).empty())
      into.emplace_back(trim(one));
  if (into.empty())
    return fail(Code::invalid, fmt::format("--{} needs a name", name),
                "see the labels in `billow nodes --json`");
  return {};
}

// "rack", "rack:required", "required" (of the default level), "nvlink".
Status set_topology(PlaceWish& place, std::string_view value) {
  std::string_view level = value;
  if (const auto colon = value.find(':'); colon != std::string_view::npos) {
    const std::string_view how = value.substr(colon + 1);
    if (how != "required" && how != "preferred")
      return fail(Code::invalid,
                  fmt::format("--topology {}: \"{}\" is not required or preferred", value, how),
                  "write it like rack:required");
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
    return fail(Code::invalid, fmt::format("--topology {}: there is no such level", value),
                "one of switch, rack, zone, region, anywhere, nvlink");
  place.close = *close;
  return {};
}

// Options of where it may go; false where the name is none of them.
Result<bool> set_place(JobSpec& s, std::string_view name, std::string_view value) {
  if (name == "region")
    BILLOW_TRY_VOID(set_names(s.place.regions, name, value));
  else if (name == "zone")
    BILLOW_TRY_VOID(set_names(s.place.zones, name, value));
  else if (name == "pool")
    BILLOW_TRY_VOID(set_names(s.place.pools, name, value));
  else if (name == "fabric") {
    BILLOW_TRY_VOID(set_names(s.place.fabrics, name, value));
    for (std::string& fabric : s.place.fabrics)
      fabric = lower(fabric);
  } else if (name == "placement-group")
    s.place.placement_group = std::string(value);
  else if (name == "topology")
    BILLOW_TRY_VOID(set_topology(s.place, value));
  else if (name == "spread")
    s.place.spread = Spread::spread;
  else if (name == "pack")
    s.place.spread = Spread::pack;
  else if (name == "elastic")
    s.elastic = s.rerun_if_lost = true;
  else
    return false;
  return true;
}

Result<bool> set_policy(JobRequest& q, std::string_view name, std::string_view value) {
  JobSpec& s = q.spec;
  if (name == "nodes")
    BILLOW_TRY_VOID(set_int(s.nodes, name, value, 1, limits::nodes_per_job_max));
  else if (name == "procs")
    BILLOW_TRY_VOID(set_int(s.procs, name, value, 1, limits::procs_per_node_max));
  else if (name == "time") {
    BILLOW_TRY_VOID(set_duration(s.time_limit, name, value));
    if (s.time_limit <= Duration{})
      return fail(Code::invalid, fmt::format("--time {}: no time at all", value),
                  "write it like 90m or 2h; leave --time out for no limit");
  } else if (name == "priority")
    BILLOW_TRY_VOID(set_int(s.priority, name, value, -1'000'000, 1'000'000));
  else if (name == "spot")
    s.spot = true;
  else if (name == "retries")
    BILLOW_TRY_VOID(set_int(s.retries, name, value, 0, limits::retries_max));
  else if (name == "backoff")
    BILLOW_TRY_VOID(set_duration(s.retry_backoff, name, value));
  else if (name == "suspendable") {
    const auto wish = enum_value<Suspendable>(value);
    if (!wish)
      return fail(Code::invalid, fmt::format("--suspendable {}: not auto, yes or no", value));
    s.suspendable = *wish;
  } else if (name == "strict")
    s.strict = true;
  else if (name == "share") {
    if (value != "time")
      return fail(Code::invalid, fmt::format("--share {}: only `time` is known", value),
                  "without it a share is enforced");
    s.time_sliced = true;
  } else if (name == "suspend-hook")
    s.suspend_hook = value;
  else if (name == "resume-hook")
    s.resume_hook = value;
  else if (name == "checkpoint-every")
    BILLOW_TRY_VOID(set_duration(s.checkpoint_every, name, value));
  else if (name == "checkpoint-cmd")
    s.checkpoint_cmd = value;
  else if (name == "checkpoint-dir")
    s.checkpoint_dir = value;
  else if (name == "checkpoint-signal") {
    const auto number = parse_signal(value);
    if (!number)
      return in_option(number.error(), name, value);
    s.checkpoint_signal = *number;
  } else if (name == "stop-grace")
    BILLOW_TRY_VOID(set_duration(s.stop_grace, name, value));
  else if (name == "rerun-if-lost")
    s.rerun_if_lost = true;
  else if (name == "array")
    s.array = BILLOW_TRY(parse_array(value));
  else if (name == "after") {
    for (const std::string& one : split(value, ','))
      q.after.push_back(BILLOW_TRY(parse_after(one)));
    if (q.after.size() > limits::dependencies_max)
      return fail(Code::invalid,
                  fmt::format("more than {} dependencies", limits::dependencies_max));
  } else if (name == "cron")
    q.cron = std::string(value);
  else if (name == "idempotency-key")
    q.idempotency_key = std::string(value);
  else
    return false;
  return true;
}

}  // namespace

std::span<const OptionSpec> job_options() {
  return job_option_table;
}
std::span<const OptionSpec> batch_options() {
  return batch_option_table;
}

Status check_job_label(std::string_view text) {
  const auto dot = text.find('.');
  const bool ok =
      parse_int(text.substr(0, dot), 1, INT64_MAX) &&
      (dot == std::string_view::npos || parse_int(text.substr(dot + 1), 0, 1'000'000'000));
  if (!ok)
    return fail(Code::invalid, fmt::format("\"{}\" is not a job number", text),
                "write it like 12, or 12.3 for the element with index 3 of array 12");
  return {};
}

Status check_job_word(std::string_view word) {
  if (check_job_label(word))
    return {};
  if (is_number_word(word) || !check_name("job", word))
    return check_job_label(word);
  return {};
}

Result<AfterText> parse_after(std::string_view text) {
  AfterText after;
  std::string_view job = text;
  if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    const auto kind = enum_value<AfterKind>(text.substr(0, colon));
    if (!kind)
      return fail(
          Code::invalid,
          fmt::format("--after {}: \"{}\" is not ok, any or failed", text, text.substr(0, colon)),
          "write it like 12, any:12 or failed:12");
    after.kind = *kind;
    job = text.substr(colon + 1);
  }
  if (auto ok = check_job_word(job); !ok)
    return pass(std::move(ok.error()), fmt::format("--after {}", text));
  after.job = std::string(job);
  return after;
}

Status set_option(JobRequest& q,
                  std::string_view name,
                  std::string_view value,
                  const std::string& relative_to) {
  JobSpec& s = q.spec;
  if (BILLOW_TRY(set_resource(s.resources, name, value)))
    return {};
  if (BILLOW_TRY(set_place(s, name, value)))
    return {};
  if (BILLOW_TRY(set_policy(q, name, value)))
    return {};
  if (name == "name")
    s.name = std::string(value);
  else if (name == "project")
    q.project = std::string(value);
  else if (name == "reservation")
    q.reservation = std::string(value);
  else if (name == "label" || name == "node-label" || name == "constraint") {
    auto [key, text] = BILLOW_TRY(key_value(name, value));
    (name == "label" ? s.labels : s.node_labels).insert_or_assign(std::move(key), std::move(text));
  } else if (name == "image") {
    s.surroundings.image = BILLOW_TRY(parse_image_name(value)).text();
    q.env.none = true;  // what describes this machine would mislead there
  } else if (name == "env") {
    if (value.find('=') != std::string_view::npos)
      return fail(Code::invalid, fmt::format("--env {}: --env names a saved environment", value),
                  fmt::format("to set a variable: --env-var {}", value));
    BILLOW_TRY_VOID(check_name("environment", value));
    s.surroundings.environment = std::string(value);
  } else if (name == "network") {
    const auto network = enum_value<ContainerNetwork>(value);
    if (!network)
      return fail(Code::invalid, fmt::format("--network {}: not host or none", value));
    s.surroundings.network = *network;
  } else if (name == "max-processes")
    BILLOW_TRY_VOID(set_int(s.surroundings.processes_max, name, value, 1, INT64_MAX));
  else if (name == "env-var")
    q.env.named.emplace_back(value);
  else if (name == "no-env")
    q.env.none = true;
  else if (name == "secret")
    s.surroundings.secrets.push_back(BILLOW_TRY(parse_secret(value)));
  else if (name == "sync")
    q.sync = Sync::yes;
  else if (name == "no-sync")
    q.sync = Sync::no;
  else if (name == "output") {
    const auto url = value.find("=s3://");
    if (url == std::string_view::npos)
      q.outputs.push_back(BILLOW_TRY(output_path(value)));
    else {
      if (const auto place = s3::parse_place(value.substr(url + 1)); !place)
        return pass(Error(place.error()).in("--output"));
      s.surroundings.outputs.push_back(
          {std::string(value.substr(url + 1)), BILLOW_TRY(output_path(value.substr(0, url)))});
    }
  } else if (name == "input")
    s.surroundings.inputs.push_back(BILLOW_TRY(object_input(value)));
  else if (name == "volume")
    s.surroundings.volumes.push_back(BILLOW_TRY(volume_wish(value)));
  else if (name == "cwd") {
    s.cwd = BILLOW_TRY(absolute(value, relative_to));
    q.cwd_given = true;
  } else
    return fail(Code::internal, fmt::format("option {} is in the table but not understood", name));
  return {};
}

Status set_options(JobRequest& request, const Parsed& parsed) {
  for (const auto options : {job_options(), batch_options()})
    for (const OptionSpec& option : options)
      for (const std::string& value : parsed.all(option.name))
        BILLOW_TRY_VOID(set_option(request, option.name, value));
  return {};
}

Status complete(JobRequest& q) {
  Resources& r = q.spec.resources;
  if (r.gpus == 0 && (r.share.mem_mib > 0 || !r.mig_profile.empty()))
    r.gpus = 1;  // --gpu-mem 20G: of one GPU, compute in proportion
  if (!r.mig_profile.empty()) {
    if (r.gpus > 0 && r.share.milli > 0 && r.share.milli < whole_gpu_milli)
      return fail(Code::invalid,
                  fmt::format("--mig {} is a part of a GPU already; it cannot be divided again",
                              r.mig_profile),
                  "leave --gpus out; --gpus 2 with --mig asks for two instances");
    r.share.milli = whole_gpu_milli;  // of each instance
  }
  if (r.gpus == 0 && !r.gpu_types.empty() && !r.takes_node())
    return fail(Code::invalid, "--gpu-type was given, but no GPU asked for", "add --gpus 1");
  if (!q.cwd_given) {
    char here[PATH_MAX];
    if (!::getcwd(here, sizeof here))
      return fail_errno("the current directory", errno);
    q.spec.cwd = here;
  }
  for (const std::string& word : q.spec.argv)
    if (!valid_utf8(word))
      return fail(Code::invalid, "the command has a word that is not UTF-8 text");
  for (const std::string* text :
       {&q.spec.name, &q.spec.cwd, &q.project, &q.cron, &q.idempotency_key})
    if (!valid_utf8(*text))
      return fail(Code::invalid, "an option's value is not UTF-8 text");
  if (!q.spec.name.empty())
    BILLOW_TRY_VOID(check_spoken_name("job", q.spec.name));
  return {};
}

std::string submit_body(const JobRequest& request, const Environment& env) {
  std::string body =
      "{\"spec\":" + wire::to_json_text(request.spec) + ",\"env\":" + wire::to_json_text(env);
  if (!request.project.empty()) {
    body += ",\"project\":";
    append_json_string(body, request.project);
  }
  return body + "}";
}

}  // namespace billow::client
