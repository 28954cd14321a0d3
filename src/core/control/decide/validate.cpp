// Whether a job description is valid by itself, one function for each concern. `admissible` checks
// it against the hardware; check_surroundings (catalogue.cpp) checks the things of its project that
// it names.
#include <fmt/format.h>

#include <cmath>

#include "base/limits.h"
#include "base/spoken_name.h"
#include "base/text.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/labels.h"
#include "core/control/decide/permissions.h"
#include "core/control/decide/roles.h"
#include "core/control/quotas.h"
#include "core/control/renting/offers.h"
#include "core/wire/text_fields.h"

namespace billow::control {
namespace {

// Linux numbers, as sent by agents; no process can catch these two.
constexpr int signal_kill = 9;
constexpr int signal_stop = 19;
constexpr int signal_max = 64;

std::unexpected<Error> bad(std::string message, std::string hint = {}) {
  return fail(Code::invalid, std::move(message), std::move(hint));
}

bool is_text(std::string_view text) {
  return text.find('\0') == std::string_view::npos && valid_utf8(text);
}

Status check_texts(const JobSpec& spec) {
  if (spec.argv.empty() || spec.argv.front().empty())
    return bad("no command to run", "write it after --, as in: billow run -- python train.py");
  std::size_t bytes = 0;
  for (const auto& word : spec.argv) {
    bytes += word.size() + 1;
    if (!is_text(word))
      return bad("the command contains a word that is not UTF-8 text");
  }
  if (bytes > limits::argv_bytes_max)
    return fail(Code::too_large, fmt::format("the command has {} bytes; the limit is {}", bytes,
                                             limits::argv_bytes_max));
  if (const std::size_t all = wire::text_bytes(spec); all > limits::job_texts_bytes_max)
    return fail(
        Code::too_large,
        fmt::format("the job's command, hooks, paths and labels have {} together, more than "
                    "the limit of {}",
                    format_bytes(all), format_bytes(limits::job_texts_bytes_max)),
        "put long scripts into files that the job reads");
  if (!spec.name.empty())
    BILLOW_TRY_VOID(check_spoken_name("job", spec.name));
  if (!is_text(spec.cwd))
    return bad("the working directory is not UTF-8 text");
  if (!spec.cwd.empty() && spec.cwd.front() != '/')
    return bad(fmt::format("the working directory \"{}\" is not an absolute path", spec.cwd));
  return {};
}

bool is_slice(const Resources& r) {
  return r.gpus > 0 && (!r.share.whole() || r.share.mem_mib > 0) && r.mig_profile.empty();
}

Status check_resources(const JobSpec& spec) {
  const Resources& r = spec.resources;
  if (r.gpus < 0 || r.gpus > static_cast<std::int32_t>(limits::gpus_per_node_max))
    return bad(fmt::format("--gpus must be between 0 and {} per node, not {}",
                           limits::gpus_per_node_max, r.gpus),
               "use several nodes for more GPUs: --nodes N --gpus M");
  // A share may be given by memory alone: the scheduler adds compute in proportion.
  const std::int32_t milli_min = r.share.mem_mib > 0 ? 0 : 1;
  if (r.gpus > 0 && (r.share.milli < milli_min || r.share.milli > whole_gpu_milli))
    return bad("a share of a GPU must be between 0.001 and 1");
  if (r.gpus > 1 && !r.share.whole() && r.mig_profile.empty())
    return bad("only a single GPU can be shared; several GPUs must be whole",
               "use --gpus 0.5 or --gpus 2");
  if (r.gpus == 0 && (!r.gpu_types.empty() || r.share.mem_mib > 0))
    return bad("a GPU type or GPU memory was given without a GPU", "add --gpus 1");
  if (r.cpu_milli < 0 || r.mem_mib < 0 || r.disk_mib < 0 || r.share.mem_mib < 0)
    return bad("CPUs, memory and disk must not be negative");
  if (!r.mig_profile.empty() && r.share.mem_mib > 0)
    return bad("the profile of --mig already fixes the GPU memory", "drop --gpu-mem or --mig");
  if (r.takes_node() && !r.mig_profile.empty())
    return bad("--whole-node cannot be combined with --mig");
  if (spec.strict && !is_slice(r))
    return bad("--strict caps the share of a slice, but this job has no slice",
               "request a part of a GPU: --gpus 0.5 --strict");
  if (spec.time_sliced && !is_slice(r))
    return bad("--share time needs a slice of a GPU, but this job has none",
               "request a part of a GPU: --gpus 0.5 --share time");
  if (spec.strict && spec.time_sliced)
    return bad("--strict caps a share that --share time does not enforce",
               "use one of the two options");
  return {};
}

Status check_shape(const JobSpec& spec) {
  if (spec.nodes < 1 || spec.nodes > limits::nodes_per_job_max)
    return bad(fmt::format("--nodes must be between 1 and {}", limits::nodes_per_job_max));
  if (spec.procs < 1 || spec.procs > limits::procs_per_node_max)
    return bad(fmt::format("--procs must be between 1 and {}", limits::procs_per_node_max));
  if (spec.pty && spec.procs > 1)
    return bad("several processes cannot share a terminal",
               "use either --procs or a terminal, not both");
  if (spec.elastic && spec.nodes < 2)
    return bad("an elastic job needs at least two nodes", "add --nodes 2");
  if (spec.elastic && !spec.rerun_if_lost)
    return bad("an elastic job restarts members whose node is lost, so it must allow that",
               "add --rerun-if-lost");
  if (spec.reservation && spec.spot)
    return bad(
        "a job inside a reservation cannot be spot: it is never preempted and pays the "
        "reserved price",
        "drop --spot or --reservation");
  return {};
}

Status check_array(const JobSpec& spec) {
  if (!spec.array)
    return {};
  BILLOW_TRY_VOID(check_indices(*spec.array));
  if (spec.array->running_max > static_cast<std::uint64_t>(INT32_MAX))
    return bad("the array's limit of running elements is out of range");
  if (spec.pty)
    return bad("an array cannot have a terminal");
  return {};
}

Status check_times(const JobSpec& spec) {
  if (spec.time_limit.ns < 0)
    return bad("--time must not be negative");
  if (spec.time_limit > limits::time_named_max)
    return bad("--time must be at most ten years", "drop --time for no limit");
  if (spec.retries > limits::retries_max)
    return bad(fmt::format("--retries must be at most {}", limits::retries_max));
  if (spec.retry_backoff.ns < 0 || spec.retry_backoff > hours(24))
    return bad("the retry back-off must be between 0 and 24 h");
  if (spec.stop_grace.ns < 0 || spec.stop_grace > limits::stop_grace_max)
    return bad("--stop-grace must be between 0 and 1 h");
  return {};
}

Status check_checkpoints(const JobSpec& spec) {
  if (spec.checkpoint_signal < 0 || spec.checkpoint_signal > signal_max)
    return bad("--checkpoint-signal must be the name or number of a signal");
  if (spec.checkpoint_signal == signal_kill || spec.checkpoint_signal == signal_stop)
    return bad(fmt::format("no job can answer signal {} with a checkpoint: it {} the job",
                           spec.checkpoint_signal,
                           spec.checkpoint_signal == signal_kill ? "kills" : "stops"),
               "use a signal that the job can catch: --checkpoint-signal USR1");
  if (spec.checkpoint_every.ns == 0)
    return {};
  if (spec.checkpoint_every < seconds(1) || spec.checkpoint_every > limits::time_named_max)
    return bad("--checkpoint-every must be between 1 s and ten years");
  if (spec.checkpoint_cmd.empty() == (spec.checkpoint_signal == 0))
    return bad("--checkpoint-every needs one way to ask the job for a checkpoint",
               "add --checkpoint-cmd CMD or --checkpoint-signal USR1");
  if (spec.checkpoint_dir.empty() || spec.checkpoint_dir.front() != '/')
    return bad("--checkpoint-every needs a directory that outlives the node",
               "add --checkpoint-dir with the absolute path of a directory that every node sees");
  if (spec.nodes > 1)
    return bad("--checkpoint-every works for jobs on one node only",
               "let a job on several nodes write its checkpoints to shared storage");
  return {};
}

Status check_own_labels(const JobSpec& spec) {
  if (spec.labels.size() > limits::labels_max)
    return bad(fmt::format("the job has more than {} labels", limits::labels_max));
  return check_labels(spec.labels);
}

Status check_place(const JobSpec& spec) {
  if (spec.node_labels.size() > limits::labels_max)
    return bad(fmt::format("the job has more than {} node labels", limits::labels_max));
  for (const auto* names :
       {&spec.place.regions, &spec.place.zones, &spec.place.pools, &spec.place.fabrics}) {
    if (names->size() > limits::labels_max)
      return bad(fmt::format("the job names more than {} places", limits::labels_max));
    for (const std::string& name : *names)
      BILLOW_TRY_VOID(check_name("place", name));
  }
  if (!spec.place.placement_group.empty())
    BILLOW_TRY_VOID(check_name("placement group", spec.place.placement_group));
  return {};
}

Status check_dependencies(const JobSpec& spec) {
  if (spec.after.size() > limits::dependencies_max)
    return bad(fmt::format("the job has more than {} dependencies", limits::dependencies_max));
  for (std::size_t i = 0; i < spec.after.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (spec.after[i].job == spec.after[k].job)
        return bad(fmt::format("--after names job {} twice", spec.after[i].job.value));
  return {};
}

}  // namespace

Status validate(const JobSpec& spec) {
  for (const auto check :
       {validate_roles, check_texts, check_resources, check_shape, check_times, check_checkpoints,
        check_dependencies, check_own_labels, check_place, check_array})
    BILLOW_TRY_VOID(check(spec));
  return {};
}

Status validate(const std::map<std::string, std::string>& env) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : env) {
    if (name.empty() || name.find_first_of(std::string_view("=\0", 2)) != std::string::npos)
      return bad("the name of an environment variable is empty or contains = or a zero byte");
    if (value.find('\0') != std::string::npos)
      return bad(fmt::format("the value of environment variable {} contains a zero byte", name));
    bytes += name.size() + value.size() + 2;
  }
  if (bytes > limits::env_bytes_max)
    return fail(Code::too_large, fmt::format("the environment has {} bytes; the limit is {}", bytes,
                                             limits::env_bytes_max));
  return {};
}

Status Decider::check_priority(const JobSpec& spec, UserId user, ProjectId project) {
  if (may(state, user, Permission::projects_change))
    return {};
  const QuotaLimit cap = quota_of(state, QuotaScope::project, project.value, QuotaKind::priority);
  const bool too_high = cap.limit >= 0 && spec.priority > cap.limit;
  if (!too_high && spec.priority >= -limits::priority_members_max)
    return {};
  const std::string most = cap.limit < 0 ? "" : fmt::format(" and {}", cap.limit);
  return fail(
      Code::forbidden,
      too_high
          ? fmt::format("priority {} exceeds the limit of {}, which is {} for members",
                        spec.priority, quota_owner(state, QuotaScope::project, project.value),
                        cap.limit)
          : fmt::format("only an admin of the installation may use priority {}", spec.priority),
      fmt::format("use a priority between -{}{}; admins of the installation may use any, "
                  "and set the limit with `billow quota set --project NAME priority N`",
                  limits::priority_members_max, most));
}

namespace {

// Whether it is the job's limit on the price that keeps every pool from renting a machine for it.
Status check_price(const State& state, const Job& job) {
  std::optional<Source> best;
  const auto cost = [](const Source& source) {
    return price_per_useful_gpu(source, source.gpus());
  };
  for (const auto& [id, pool] : state.pools) {
    if (pool.state != PoolState::active)
      continue;
    const auto source = cheapest_at_any_price(state, job, pool);
    if (source && (!best || cost(*source) < cost(*best)))
      best = source;
  }
  if (!best || best->price().nano_usd_per_s == 0)
    return {};
  const double per_gpu =
      static_cast<double>(best->price().nano_usd_per_s) * 3600 / 1e9 / std::max(1, best->gpus());
  return fail(Code::infeasible,
              fmt::format("no machine that fits costs at most {} per GPU and hour; the cheapest "
                          "costs ${:.2f}{}",
                          format_usd(job.spec->place.max_price), per_gpu,
                          best->offer ? ": " + offer_text(*best->offer) : std::string()),
              fmt::format("use at least --max-price {:.2f}", std::ceil(per_gpu * 100) / 100));
}

// Whether the job wants more GPUs on a node than any machine of a pool has, if these have more than
// the present nodes.
Status check_gpus_of_machines(const State& state, const JobSpec& spec) {
  const std::int32_t wanted = spec.resources.gpus;
  const std::vector<std::string>& types = spec.resources.gpu_types;
  std::int32_t here = 0;
  for (const auto& [id, node] : state.nodes)
    here = std::max(here, static_cast<std::int32_t>(node.offer.gpus.size()));
  std::optional<Source> largest;
  for (const auto& [id, pool] : state.pools)
    for (const Source& source : sources_of(pool))
      if (pool.state == PoolState::active && (!largest || source.gpus() > largest->gpus()) &&
          (types.empty() || std::ranges::count(types, source.gpu_type()) > 0))
        largest = source;
  if (!largest || largest->gpus() <= here || wanted <= largest->gpus())
    return {};
  const std::int32_t most = largest->gpus();
  return fail(Code::infeasible,
              fmt::format("no node has {} GPUs; machines of pool {} have at most {}", wanted,
                          largest->pool->name, most),
              wanted % most == 0
                  ? fmt::format("use at most --gpus {0}, or several nodes: --nodes {1} --gpus {0}",
                                most, wanted / most)
                  : fmt::format("use at most --gpus {}", most));
}

// The same of the disk of a node.
Status check_disk_of_machines(const State& state, const JobSpec& spec) {
  const std::int64_t wanted = spec.resources.disk_mib;
  std::int64_t most = 0;
  for (const auto& [id, node] : state.nodes)
    most = std::max(most, node.offer.disk_mib);
  const Pool* largest = nullptr;
  for (const auto& [id, pool] : state.pools)
    if (pool.state == PoolState::active && pool.capabilities &&
        pool.capabilities->disk_mib_max > most) {
      most = pool.capabilities->disk_mib_max;
      largest = &pool;
    }
  if (!largest || wanted <= most)
    return {};
  return fail(Code::infeasible,
              fmt::format("no node has {} GiB of free disk; machines of pool {} come with at most "
                          "{} GiB",
                          wanted / 1024, largest->name, most / 1024),
              fmt::format("use at most --disk {}G", most / 1024));
}

}  // namespace

Status admissible(const State& state, const JobSpec& spec, ProjectId project) {
  // Before the first node has joined, nothing is known to be impossible: the job waits, and
  // `explain` says why.
  if (state.nodes.empty())
    return {};
  for (std::size_t i = 0; i < spec.roles.size(); ++i) {
    JobSpec one = parts_of(spec)[i];
    one.nodes = 1;  // members may share a node
    if (auto ok = admissible(state, one, project); !ok)
      return pass(std::move(ok.error()), fmt::format("role {}", spec.roles[i].name));
  }
  Job job;
  job.id = JobId(state.next_job);
  job.spec = std::make_shared<const JobSpec>(spec);
  job.project = project;
  if (spec.array)
    job.array = job.id;
  const Status here = sched::feasible(state.index, request_of(state, job));
  // A pool may bring a machine that can run it although no present one can.
  if (!here && !spec.reservation && some_pool_could_run(state, job))
    return {};
  if (!here && spec.place.max_price.value > 0)
    BILLOW_TRY_VOID(check_price(state, job));
  if (!here) {
    BILLOW_TRY_VOID(check_gpus_of_machines(state, spec));
    BILLOW_TRY_VOID(check_disk_of_machines(state, spec));
  }
  return here;
}

}  // namespace billow::control
