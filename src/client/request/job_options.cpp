// The one declaration of every job option: its name, how it is shown and completed, its help, which
// member of the request it sets, its bounds, and what its value does. Command line, job files,
// help, completion, docs/cli.md and the API's schemas of a job (job_schemas.cpp) come from this
// table.
//
// A new option takes three places: a row here, the member with its line in `fields`
// (core/model/job.h), and the code that uses it. If the agent needs it, the member goes into
// TaskOptions, which the agent's `Start` shares, or into TaskHooks if the agent needs it as long as
// the task runs.
#include "client/request/job_request.h"

#include <fmt/format.h>

#include <climits>

#include "base/limits.h"
#include "base/spoken_name.h"
#include "base/text.h"
#include "client/frame/values.h"
#include "client/request/option_values.h"
#include "core/model/image_name.h"

namespace billow::client {
namespace job_option {
namespace {

struct Given {
  JobRequest& request;
  JobSpec& spec;
  std::string_view name;
  std::string_view value;
  const std::string& relative_to;
  Bounds bounds;
};

struct JobOption {
  OptionSpec shown;
  const char* field;  // the member it sets, by its schema; null: it is no part of the spec
  Status (*set)(const Given&);
  Bounds bounds = {};
};

// ---- what most options do: set one member
template <auto member>
Status flag(const Given& g) {
  g.spec.*member = true;
  return {};
}
template <auto member>
Status text(const Given& g) {
  g.spec.*member = std::string(g.value);
  return {};
}
template <auto member>
Status duration(const Given& g) {
  const auto parsed = duration_with_unit(g.value);
  if (!parsed)
    return in_option(parsed.error(), g.name, g.value);
  g.spec.*member = *parsed;
  return {};
}
template <class I>
Status set_int(I& into, const Given& g, Bounds bounds) {
  const auto parsed = parse_int(g.value, bounds.min, bounds.max);
  if (!parsed)
    return in_option(parsed.error(), g.name, g.value);
  into = static_cast<I>(*parsed);
  return {};
}
template <auto member>
Status number(const Given& g) {
  return set_int(g.spec.*member, g, g.bounds);
}
// Sizes are kept in MiB, rounded up.
Status set_mib(std::int64_t& mib, const Given& g) {
  const auto bytes = bytes_with_unit(g.value);
  if (!bytes)
    return in_option(bytes.error(), g.name, g.value);
  if (*bytes == 0)
    return fail(Code::invalid, fmt::format("--{} must be greater than 0, not {}", g.name, g.value));
  mib = static_cast<std::int64_t>((*bytes + (1 << 20) - 1) >> 20);
  return {};
}
Status set_names(std::vector<std::string>& into,
                 const Given& g,
                 const char* what = "name",
                 const char* hint = "`billow nodes --json` shows the labels of every node") {
  into.clear();
  for (const std::string& one : split(g.value, ','))
    if (!trim(one).empty())
      into.emplace_back(trim(one));
  if (into.empty())
    return fail(Code::invalid, fmt::format("--{} needs a {}", g.name, what), hint);
  return {};
}
Status set_label(std::map<std::string, std::string>& labels, const Given& g) {
  auto [key, value] = BILLOW_TRY(key_value(g.name, g.value));
  labels.insert_or_assign(std::move(key), std::move(value));
  return {};
}
template <class E>
Status set_choice(E& into, const Given& g, const char* choices) {
  const auto parsed = enum_value<E>(g.value);
  if (!parsed)
    return fail(Code::invalid, fmt::format("--{} {}: use {}", g.name, g.value, choices));
  into = *parsed;
  return {};
}

// ---- what some options do
Status gpu_types(const Given& g) {
  return set_names(g.spec.resources.gpu_types, g, "type", "`billow nodes` shows the types");
}
Status mig_profile(const Given& g) {
  if (trim(g.value).empty())
    return fail(Code::invalid, "--mig needs a profile",
                "example: --mig 1g.10gb; `billow nodes -g` shows the available instances");
  g.spec.resources.mig_profile = lower(g.value);
  return {};
}
Status cpus(const Given& g) {
  const auto milli = parse_milli(g.value);
  if (!milli)
    return in_option(milli.error(), g.name, g.value);
  g.spec.resources.cpu_milli = *milli;
  return {};
}
// "3.00", "$3.00" or "3.00/gpu-h".
Status max_price(const Given& g) {
  std::string_view text = g.value;
  if (text.ends_with("/gpu-h"))
    text.remove_suffix(6);
  const auto price = parse_usd(text);
  if (!price)
    return in_option(price.error(), g.name, g.value);
  if (price->value <= 0)
    return fail(Code::invalid, fmt::format("--max-price must be greater than 0, not {}", g.value));
  g.spec.place.max_price = *price;
  return {};
}
// The head reads the label as seconds since 1970.
Status done_by(const Given& g) {
  const WallTime by = BILLOW_TRY(time_to_come(g.value, system_clock().wall()));
  g.spec.labels.insert_or_assign("by", std::to_string(by.ns / 1'000'000'000));
  return {};
}
Status fabrics(const Given& g) {
  const std::string value = lower(g.value);
  return set_names(g.spec.place.fabrics,
                   {g.request, g.spec, g.name, value, g.relative_to, g.bounds});
}
Status time_limit(const Given& g) {
  BILLOW_TRY_VOID(duration<&JobSpec::time_limit>(g));
  if (g.spec.time_limit <= Duration{})
    return fail(Code::invalid, fmt::format("--time must be greater than 0, not {}", g.value),
                "examples: 90m, 2h; omit --time for no limit");
  return {};
}
Status after(const Given& g) {
  for (const std::string& one : split(g.value, ','))
    g.request.after.push_back(BILLOW_TRY(parse_after(one)));
  if (g.request.after.size() > limits::dependencies_max)
    return fail(Code::invalid,
                fmt::format("a job can have at most {} dependencies", limits::dependencies_max));
  return {};
}
Status image(const Given& g) {
  g.spec.surroundings.image = BILLOW_TRY(parse_image_name(g.value)).text();
  g.request.env.none = true;  // variables that describe this machine would mislead there
  return {};
}
Status environment(const Given& g) {
  g.spec.surroundings.environment = BILLOW_TRY(environment_name(g.value));
  return {};
}
Status network(const Given& g) {
  g.spec.surroundings.network = BILLOW_TRY(network_kind(g.value));
  g.request.host_network = g.spec.surroundings.network == ContainerNetwork::host;
  return {};
}
Status directory(const Given& g) {
  g.spec.cwd = BILLOW_TRY(absolute(g.value, g.relative_to));
  g.request.cwd_given = true;
  return {};
}
Status output(const Given& g) {
  if (g.value.find("=s3://") == std::string_view::npos)
    g.request.outputs.push_back(BILLOW_TRY(output_path(g.value)));
  else
    g.spec.surroundings.outputs.push_back(BILLOW_TRY(object_output(g.value)));
  return {};
}
Status time_sliced(const Given& g) {
  if (g.value != "time")
    return fail(Code::invalid, fmt::format("--share {}: the only value is time", g.value),
                "omit --share to have the share enforced");
  g.spec.time_sliced = true;
  return {};
}
Status checkpoint_signal(const Given& g) {
  const auto colon = g.value.find(':');
  const auto signal = parse_signal(g.value.substr(0, colon));
  if (!signal)
    return in_option(signal.error(), g.name, g.value);
  g.spec.checkpoint_signal = *signal;
  const std::string_view to =
      colon == std::string_view::npos ? "main" : std::string_view(g.value).substr(colon + 1);
  if (to != "main" && to != "group" && to != "all")
    return fail(
        Code::invalid,
        fmt::format("--checkpoint-signal {}: the signal goes to main, group or all", g.value),
        "for example --checkpoint-signal USR1:group");
  g.request.env.named.push_back(fmt::format("BILLOW_CHECKPOINT_TO={}", to));
  return {};
}

constexpr JobOption job_option_table[] = {
    {{"gpus", 'g', "N", "GPUs per node: a whole number, or a fraction of one GPU such as 0.25"},
     "Resources.gpus",
     [](const Given& g) {
       return set_gpus(g.spec.resources, g.value);
     }},
    {{"gpu-mem", 0, "SIZE", "GPU memory for a slice of one GPU, e.g. 20G"},
     "Share.mem_mib",
     [](const Given& g) {
       return set_mib(g.spec.resources.share.mem_mib, g);
     }},
    {{"gpu-type", 0, "A,B", "use any of these GPU types, as listed by `billow nodes`: H100, L4"},
     "Resources.gpu_types",
     gpu_types},
    {{"mig", 0, "PROFILE", "use a MIG instance, e.g. 1g.10gb"},
     "Resources.mig_profile",
     mig_profile},
    {{"nodes", 'N', "N", "run on N nodes at once, as one gang"},
     "JobSpec.nodes",
     number<&JobSpec::nodes>,
     {1, limits::nodes_per_job_max}},
    {{"procs", 0, "N", "processes per node, each with its own RANK and LOCAL_RANK (default 1)"},
     "JobSpec.procs",
     number<&JobSpec::procs>,
     {1, limits::procs_per_node_max}},
    {{"whole-node", 0, nullptr, "bare metal: the whole node, without a sandbox"},
     "Resources.whole_node",
     [](const Given& g) -> Status {
       g.spec.resources.whole_node = true;
       return {};
     }},
    {{"exclusive", 0, nullptr, "the whole node, with the usual sandbox"},
     "Resources.exclusive",
     [](const Given& g) -> Status {
       g.spec.resources.exclusive = true;
       return {};
     }},
    {{"cpus", 'c', "N", "CPU cores per node, e.g. 4 or 0.5"}, "Resources.cpu_milli", cpus},
    {{"mem", 0, "SIZE", "memory per node, e.g. 32G (default: the job's part of the node's memory)"},
     "Resources.mem_mib",
     [](const Given& g) {
       return set_mib(g.spec.resources.mem_mib, g);
     }},
    {{"disk", 0, "SIZE", "disk space per node that the job needs and may use, e.g. 500GB"},
     "Resources.disk_mib",
     [](const Given& g) {
       return set_mib(g.spec.resources.disk_mib, g);
     }},
    {{"node-label", 0, "K=V", "use only nodes with this label", true},
     "JobSpec.node_labels",
     [](const Given& g) {
       return set_label(g.spec.node_labels, g);
     }},
    {{"constraint", 0, "K=V", "same as --node-label", true},
     "JobSpec.node_labels",
     [](const Given& g) {
       return set_label(g.spec.node_labels, g);
     }},
    {{"region", 0, "A,B", "use only nodes in one of these regions"},
     "PlaceWish.regions",
     [](const Given& g) {
       return set_names(g.spec.place.regions, g);
     }},
    {{"zone", 0, "A,B", "use only nodes in one of these zones"},
     "PlaceWish.zones",
     [](const Given& g) {
       return set_names(g.spec.place.zones, g);
     }},
    {{"pool", 0, "A,B", "use only nodes of one of these pools"},
     "PlaceWish.pools",
     [](const Given& g) {
       return set_names(g.spec.place.pools, g);
     }},
    {{"cloud", 0, "NAME", "use only nodes of this cloud: aws, gcp, azure, lambda, …"},
     "JobSpec.node_labels",
     [](const Given& g) -> Status {
       g.spec.node_labels.insert_or_assign("cloud", std::string(g.value));
       return {};
     }},
    {{"max-price", 0, "USD",
      "rent no machine that costs more per GPU and hour, e.g. 3.00 or 3.00/gpu-h"},
     "PlaceWish.max_price_nano_usd_per_gpu_h",
     max_price},
    {{"by", 0, "TIME",
      "deadline of the job, e.g. 18:00 or 4h: spot machines are rented only while there is time "
      "left to restart"},
     "JobSpec.labels",
     done_by},
    {{"fabric", 0, "A,B", "use only nodes with this network: infiniband, roce, efa, tcp"},
     "PlaceWish.fabrics",
     fabrics},
    {{"placement-group", 0, "NAME", "use only nodes of this placement group"},
     "PlaceWish.placement_group",
     [](const Given& g) -> Status {
       g.spec.place.placement_group = std::string(g.value);
       return {};
     }},
    {{"topology", 0, "LEVEL[:required]",
      "how close the nodes of a gang must be: switch, rack, zone (default), region, anywhere; or "
      "nvlink between the GPUs of one node; both: nvlink,rack"},
     "PlaceWish.close",
     [](const Given& g) {
       return set_topology(g.spec.place, g.value);
     }},
    {{"spread", 0, nullptr, "place the nodes of a gang, or the jobs of an array, far apart"},
     "PlaceWish.spread",
     [](const Given& g) -> Status {
       g.spec.place.spread = Spread::spread;
       return {};
     }},
    {{"pack", 0, nullptr, "place them close together (default)"},
     "PlaceWish.spread",
     [](const Given& g) -> Status {
       g.spec.place.spread = Spread::pack;
       return {};
     }},
    {{"elastic", 0, nullptr,
      "if a gang loses a node, or a member fails and --retries are left, replace only that member; "
      "the others keep running"},
     "JobSpec.elastic",
     [](const Given& g) -> Status {
       g.spec.elastic = true;
       g.spec.rerun_if_lost = true;
       return {};
     }},
    {{"reservation", 0, "ID", "run inside this reservation (number or name)"},
     "JobSpec.reservation",
     [](const Given& g) -> Status {
       g.request.reservation = std::string(g.value);
       return {};
     }},
    {{"time", 0, "T", "stop the job after this time, e.g. 90m or 2h (default: no limit)"},
     "JobSpec.time_limit_ns",
     time_limit},
    {{"name", 'n', "NAME", "name of the job"}, "JobSpec.name", text<&JobSpec::name>},
    {{"label", 'l', "K=V", "label to find the job by", true},
     "JobSpec.labels",
     [](const Given& g) {
       return set_label(g.spec.labels, g);
     }},
    {{"project", 'p', "NAME", "project that pays (default: your default project)"},
     nullptr,
     [](const Given& g) -> Status {
       g.request.project = std::string(g.value);
       return {};
     }},
    {{"priority", 0, "N",
      "jobs with a higher priority start first: -1000 to 1000 (default 0), more for admins"},
     "JobSpec.priority",
     number<&JobSpec::priority>,
     {-1'000'000, 1'000'000}},
    {{"spot", 0, nullptr, "cheaper, but can be preempted"}, "JobSpec.spot", flag<&JobSpec::spot>},
    {{"retries", 0, "N", "restart the job up to N times if it fails (default 0)"},
     "JobSpec.retries",
     number<&JobSpec::retries>,
     {0, limits::retries_max}},
    {{"backoff", 0, "T", "delay before the first retry, doubled each time (default 1s)"},
     "JobSpec.retry_backoff_ns",
     duration<&JobSpec::retry_backoff>},
    {{"after", 0, "[KIND:]JOB",
      "start after this job (number or name) has succeeded; any:JOB after it has ended, failed:JOB "
      "after it has failed",
      true, Completes::job},
     "JobSpec.after",
     after},
    {{"image", 0, "NAME",
      "run in this container image; only variables given with --env-var are passed on"},
     "Surroundings.image",
     image},
    {{"env", 0, "NAME", "run in this saved environment (see `billow env save`)"},
     "Surroundings.environment",
     environment},
    {{"network", 0, network_kinds,
      "network in an image, an environment or with --isolation strict: the node's (host, default), "
      "a loopback (none, default if strict), also public addresses (internet), also the project's "
      "jobs on the node (project)"},
     "Surroundings.network",
     network},
    {{"allow", 0, "A[/N],B",
      "with --network internet: also reach these addresses or blocks of private networks", true},
     "Surroundings.allow",
     [](const Given& g) {
       return add_allowed(g.spec.surroundings, g.value);
     }},
    {{"isolation", 0, "plain|strict",
      "strict: for programs you do not trust; the job sees nothing of its node and of other jobs"},
     "Surroundings.isolation",
     [](const Given& g) {
       return set_choice(g.spec.surroundings.isolation, g, "plain or strict");
     }},
    {{"seccomp", 0, "PROFILE",
      "system calls to refuse: default, strict (also tracing and rare ones), or a file listing "
      "additional calls, one per line"},
     "Surroundings.seccomp",
     [](const Given& g) {
       return set_call_profile(g.spec.surroundings, g.value, g.relative_to);
     }},
    {{"max-processes", 0, "N", "limit of processes and threads per node (default 4096)"},
     "Surroundings.processes_max",
     [](const Given& g) {
       return set_int(g.spec.surroundings.processes_max, g, {1, INT64_MAX});
     }},
    {{"env-var", 'e', "K[=V]", "set a variable, or pass on the one set here", true},
     nullptr,
     [](const Given& g) -> Status {
       g.request.env.named.emplace_back(g.value);
       return {};
     }},
    {{"no-env", 0, nullptr, "pass on no variables except those given with --env-var"},
     nullptr,
     [](const Given& g) -> Status {
       g.request.env.none = true;
       return {};
     }},
    {{"secret", 0, "NAME[=VAR]",
      "give the job a secret of the project: NAME as a variable, NAME:file as a file whose path is "
      "in NAME_FILE, NAME:/path as that file",
      true},
     "Surroundings.secrets",
     [](const Given& g) -> Status {
       g.spec.surroundings.secrets.push_back(BILLOW_TRY(parse_secret(g.value)));
       return {};
     }},
    {{"registry-secret", 0, "NAME",
      "secret of the project with the login for the image's registry: USER:PASSWORD or auth.json"},
     "Surroundings.registry_secret",
     [](const Given& g) {
       return set_registry_secret(g.spec.surroundings, g.value);
     }},
    {{"cwd", 'C', "DIR", "working directory (default: the current one)", false,
      Completes::directory},
     "JobSpec.cwd",
     directory},
    {{"sync", 0, nullptr,
      "copy the working directory to the node (default if the head runs on another machine)"},
     nullptr,
     [](const Given& g) -> Status {
       g.request.sync = Sync::yes;
       return {};
     }},
    {{"no-sync", 0, nullptr, "do not copy the working directory; it is already on the node"},
     nullptr,
     [](const Given& g) -> Status {
       g.request.sync = Sync::no;
       return {};
     }},
    {{"output", 0, "PATH[=URL]",
      "keep this path of the working directory when the job ends: fetch it with `billow cp`, or "
      "upload it to s3://bucket/prefix",
      true},
     "Surroundings.outputs",
     output},
    {{"input", 0, "URL[:PATH]",
      "download s3://bucket/prefix or https://… to PATH before the job starts; the node caches it",
      true},
     "Surroundings.inputs",
     [](const Given& g) -> Status {
       g.spec.surroundings.inputs.push_back(BILLOW_TRY(object_input(g.value)));
       return {};
     }},
    {{"volume", 0, "NAME:DIR[:ro]", "mount this volume at DIR (see `billow volume list`)", true},
     "Surroundings.volumes",
     [](const Given& g) -> Status {
       g.spec.surroundings.volumes.push_back(BILLOW_TRY(volume_wish(g.value)));
       return {};
     }},
    {{"suspendable", 0, "auto|yes|no",
      "prepare the job for fast suspension (auto, the default: slices and spot jobs only)"},
     "JobSpec.suspendable",
     [](const Given& g) {
       return set_choice(g.spec.suspendable, g, "auto, yes or no");
     }},
    {{"strict", 0, nullptr,
      "never give a slice more than its share of compute, even while the GPU is otherwise idle"},
     "JobSpec.strict",
     flag<&JobSpec::strict>},
    {{"share", 0, "time",
      "share the GPU by the driver's time-slicing, without an enforced limit, for programs that "
      "cannot be limited (Vulkan, OptiX)"},
     "JobSpec.time_sliced",
     time_sliced},
    {{"suspend-hook", 0, "CMD", "shell command to run before the job is suspended"},
     "JobSpec.suspend_hook",
     text<&JobSpec::suspend_hook>},
    {{"resume-hook", 0, "CMD", "shell command to run after the job is resumed"},
     "JobSpec.resume_hook",
     text<&JobSpec::resume_hook>},
    {{"checkpoint-every", 0, "T",
      "ask the job for a checkpoint this often; if its node is lost, it restarts from the newest "
      "one (BILLOW_CHECKPOINT)"},
     "JobSpec.checkpoint_every_ns",
     duration<&JobSpec::checkpoint_every>},
    {{"checkpoint-cmd", 0, "CMD",
      "shell command that writes a checkpoint to $BILLOW_CHECKPOINT_DIR"},
     "JobSpec.checkpoint_cmd",
     text<&JobSpec::checkpoint_cmd>},
    {{"checkpoint-signal", 0, "SIG[:TO]",
      "signal that makes the job write a checkpoint, e.g. USR1; TO is main (default: the main "
      "process, or behind a wrapper the nearest that handles it), group or all; only processes "
      "that handle the signal get it"},
     "JobSpec.checkpoint_signal",
     checkpoint_signal},
    {{"checkpoint-dir", 0, "DIR", "directory for checkpoints, visible on every node", false,
      Completes::directory},
     "JobSpec.checkpoint_dir",
     text<&JobSpec::checkpoint_dir>},
    {{"stop-grace", 0, "T",
      "time between SIGTERM and SIGKILL when the job is stopped (default 10s)"},
     "JobSpec.stop_grace_ns",
     duration<&JobSpec::stop_grace>},
    {{"rerun-if-lost", 0, nullptr,
      "restart the job on another node if its node is lost; it may then run twice"},
     "JobSpec.rerun_if_lost",
     flag<&JobSpec::rerun_if_lost>},
    {{"idempotency-key", 0, "KEY", "submitting again with the same key returns the same job"},
     nullptr,
     [](const Given& g) -> Status {
       g.request.idempotency_key = std::string(g.value);
       return {};
     }},
};
constexpr JobOption batch_option_table[] = {
    {{"array", 'a', "0-99[%10]",
      "submit one job per index (BILLOW_ARRAY_INDEX), at most 10 running at a time; also with a "
      "step, 0-99:5, and lists, 1,5,7-9"},
     "JobSpec.array",
     [](const Given& g) -> Status {
       g.spec.array = BILLOW_TRY(parse_array(g.value));
       return {};
     }},
    {{"cron", 0, "\"M H D M W\"", "submit the job on this schedule, in UTC"},
     nullptr,
     [](const Given& g) -> Status {
       g.request.cron = std::string(g.value);
       return {};
     }},
};

template <std::size_t count>
constexpr std::array<OptionSpec, count> shown(const JobOption (&table)[count]) {
  std::array<OptionSpec, count> out{};
  for (std::size_t i = 0; i < count; ++i)
    out[i] = table[i].shown;
  return out;
}
constexpr auto job_options_shown = shown(job_option_table);
constexpr auto batch_options_shown = shown(batch_option_table);

}  // namespace
}  // namespace job_option

std::span<const OptionSpec> job_options() {
  return job_option::job_options_shown;
}
std::span<const OptionSpec> batch_options() {
  return job_option::batch_options_shown;
}

std::vector<OptionField> option_fields() {
  using namespace job_option;
  std::vector<OptionField> out;
  for (const std::span<const JobOption> table : {std::span<const JobOption>(job_option_table),
                                                 std::span<const JobOption>(batch_option_table)})
    for (const JobOption& option : table)
      if (option.field)
        out.push_back({option.shown, option.field, option.bounds});
  return out;
}

Status set_option(JobRequest& request,
                  std::string_view name,
                  std::string_view value,
                  const std::string& relative_to) {
  using namespace job_option;
  for (const std::span<const JobOption> table : {std::span<const JobOption>(job_option_table),
                                                 std::span<const JobOption>(batch_option_table)})
    for (const JobOption& option : table)
      if (name == option.shown.name)
        return option.set({request, request.spec, name, value, relative_to, option.bounds});
  return fail(Code::internal, fmt::format("there is no job option --{}", name));
}

}  // namespace billow::client
