#include "head/secrets/secret_fetcher.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/log.h"
#include "core/control/decide/permissions.h"
#include "core/wire/codec.h"
#include "secrets/backend.h"

namespace billow::head {
namespace {

// Servers of others may be slow, and many jobs may start at once.
constexpr std::size_t fetching_threads = 4, fetches_waiting_max = 100'000;

constexpr Duration renew_again = minutes(1);  // after a renewal that failed

struct Wanted {
  std::string secret;
  Result<secrets::Reference> reference;
  Result<secrets::BackendSettings> backend;
};

Result<secrets::BackendSettings> settings_of(const control::State& state,
                                             const SecretKeeper& keeper,
                                             const std::string& backend) {
  const std::string record = secrets::record_of(backend);
  const auto found = state.secrets.find({ProjectId{}, record});
  if (found == state.secrets.end())
    return fail(Code::not_found,
                fmt::format("there is no secret backend \"{}\" any more", backend));
  std::string text = BILLOW_TRY(keeper.opened(record, found->second.sealed));
  auto settings = wire::from_json_text<secrets::BackendSettings>(text);
  wipe(text);
  return settings;
}

// The backend's --allow counts now, not only when the reference was made: what it no longer opens
// is open only to a user who may refer to everything.
Status may_refer(const control::State& state,
                 const Secret& secret,
                 const secrets::Reference& reference,
                 const secrets::BackendSettings& backend) {
  const std::string& project = state.projects.at(secret.project).name;
  const User* by = state.user_by_name(secret.by);
  if (secrets::opens(backend, project, reference.path) ||
      (by && control::may(state, by->id, Permission::backends_change)))
    return {};
  return fail(Code::forbidden,
              fmt::format("project {0} may not refer to {1} in the secret backend {2} any more; an "
                          "admin can allow it: billow secret-backend add … --allow {0}={1}",
                          project, reference.path, reference.backend));
}

SecretKeeper::Fetched fetch_all(const std::vector<Wanted>& all, const Clock& clock) {
  SecretKeeper::Fetched out;
  const auto fetch = [&](const Wanted& one) -> Result<std::string> {
    const auto reference = BILLOW_TRY(Result<secrets::Reference>(one.reference));
    const auto settings = BILLOW_TRY(Result<secrets::BackendSettings>(one.backend));
    const auto backend = BILLOW_TRY(secrets::make_backend(settings, clock));
    std::string value = BILLOW_TRY(secrets::fetch_patiently(*backend, reference));
    if (value.empty())
      return fail(Code::not_found, "its value is empty");
    if (value.size() > limits::secret_bytes_max)
      return fail(Code::too_large, fmt::format("a secret has at most {} bytes, this one {}",
                                               limits::secret_bytes_max, value.size()));
    return value;
  };
  for (const Wanted& one : all)
    out.emplace(one.secret, fetch(one));
  return out;
}

}  // namespace

SecretFetcher::SecretFetcher(net::Loop& loop, Options options)
    : options_(std::move(options)),
      workers_(loop, {.threads = fetching_threads, .queue_max = fetches_waiting_max}) {}

bool SecretFetcher::holds(const control::Effect& effect) {
  const auto* start = get_if<wire::agent_v1::Start>(&effect.message);
  if (!start)
    return false;
  const std::vector<std::string> names = secret_names(start->surroundings);
  if (names.empty())
    return false;
  const control::State& state = options_.state();
  const Job* job = state.find_job(start->job);
  if (!job || options_.keeper->was_given(start->task))
    return false;
  std::vector<Wanted> wanted;
  for (const std::string& name : names) {
    const Secret* secret = options_.keeper->in_backend(job->project, name);
    if (!secret)
      continue;
    auto reference = secrets::parse_reference(secret->reference);
    auto backend = reference ? settings_of(state, *options_.keeper, reference->backend)
                             : Result<secrets::BackendSettings>(pass(Error(reference.error())));
    if (backend)
      if (const Status may = may_refer(state, *secret, *reference, *backend); !may)
        backend = pass(Error(may.error()));
    wanted.push_back({name, std::move(reference), std::move(backend)});
  }
  if (wanted.empty())
    return false;
  if (!under_way_.insert(start->task).second)
    return true;
  const Status queued =
      workers_.submit([wanted, clock = options_.clock] { return fetch_all(wanted, *clock); },
                      [this, effect, task = start->task](SecretKeeper::Fetched values) {
                        came(effect, task, std::move(values));
                      });
  if (!queued) {
    SecretKeeper::Fetched none;
    for (const Wanted& one : wanted)
      none.emplace(one.secret, pass(Error(queued.error())));
    under_way_.erase(start->task);
    options_.keeper->give(start->task, std::move(none));
    return false;
  }
  return true;
}

void SecretFetcher::renew_credentials() {
  const std::string prefix = secrets::record_of("");
  const control::State& state = options_.state();
  const SteadyTime now = options_.clock->steady();
  std::map<std::string, Renewal> kept;
  for (auto at = state.secrets.lower_bound({ProjectId{}, prefix});
       at != state.secrets.end() && at->first.first == ProjectId{} &&
       at->first.second.starts_with(prefix);
       ++at) {
    const std::string& record = at->first.second;
    Renewal& renewal = kept[record] = renewals_[record];
    if (renewal.sealed != at->second.sealed)  // another credential, or none was looked at yet
      renewal = {.at = now, .under_way = renewal.under_way, .sealed = at->second.sealed};
    if (renewal.under_way || renewal.never || renewal.at > now)
      continue;
    const auto settings = settings_of(state, *options_.keeper, record.substr(prefix.size()));
    if (!settings)
      continue;
    const Status queued = workers_.submit(
        [settings = *settings, clock = options_.clock]() -> Result<Duration> {
          return BILLOW_TRY(secrets::make_backend(settings, *clock))->renew();
        },
        [this, record](const Result<Duration>& next) { renewed(record, next); });
    renewal.under_way = queued.has_value();
  }
  renewals_ = std::move(kept);
}

void SecretFetcher::renewed(const std::string& record, const Result<Duration>& next) {
  const auto found = renewals_.find(record);
  if (found == renewals_.end())
    return;
  Renewal& renewal = found->second;
  renewal.under_way = false;
  renewal.never = next && next->ns == 0;
  renewal.at = options_.clock->steady() + (next ? *next : renew_again);
  if (!next && !renewal.complained)
    log_warn("{}: its credential was not renewed: {}", record, next.error().message);
  renewal.complained = !next;
}

void SecretFetcher::came(const control::Effect& effect, TaskId id, SecretKeeper::Fetched values) {
  under_way_.erase(id);
  const Task* task = options_.state().find_task(id);
  options_.keeper->give(id, std::move(values));
  if (!task || task->node != effect.node || task->state != TaskState::starting)
    return options_.keeper->forget(id);
  options_.deliver(effect);
  // If the node is away, the order is repeated when it is back, with what the value is then.
  options_.keeper->forget(id);
}

}  // namespace billow::head
