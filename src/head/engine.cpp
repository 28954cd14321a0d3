#include "head/engine.h"

#include <fmt/format.h>
#include <unordered_map>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "core/wire/codec.h"
#include "view/rows.h"
#include "view/stored.h"

namespace billow::head {
namespace {

// The job that an event is about; zero: none.
JobId job_of(const control::State& state, const EventBody& body) {
  return visit(
      [&](const auto& e) -> JobId {
        using T = std::decay_t<decltype(e)>;
        if constexpr (requires { e.job; } && !std::is_same_v<T, ScheduleFired>)
          return e.job;
        else if constexpr (requires { e.task; }) {
          const Task* task = state.find_task(e.task);
          return task ? task->job : JobId{};
        } else
          return {};
      },
      body);
}

Result<std::shared_ptr<const Event>> read_record(const Record& record) {
  return std::make_shared<const Event>(
      BILLOW_TRY(control::decode_event(record.seq, record.at, record.kind, record.payload)));
}

}  // namespace

// Subscriptions may outlive the engine, so they share this. Lists keep iterators valid while
// callbacks come and go.
struct Engine::Watchers {
  struct Entry {
    std::function<void(const Event&)> fn;
    bool gone = false;
  };
  std::unordered_map<JobId, std::list<std::shared_ptr<Entry>>> by_job;
  std::list<std::shared_ptr<Entry>> all;

  struct Sub final : net::Subscription {
    std::weak_ptr<Watchers> owner;
    std::shared_ptr<Entry> entry;
    JobId job;
    ~Sub() override {
      entry->gone = true;
      const auto watchers = owner.lock();
      if (!watchers)
        return;
      if (!job) {
        watchers->all.remove(entry);
        return;
      }
      const auto found = watchers->by_job.find(job);
      if (found == watchers->by_job.end())
        return;
      found->second.remove(entry);
      if (found->second.empty())
        watchers->by_job.erase(found);
    }
  };
  static void call(const std::list<std::shared_ptr<Entry>>& list, const Event& event) {
    const std::vector<std::shared_ptr<Entry>> now(list.begin(),
                                                  list.end());  // a callback may subscribe or leave
    for (const auto& entry : now)
      if (!entry->gone)
        entry->fn(event);
  }
};

Engine::Engine(Options options, control::Core core)
    : options_(std::move(options)),
      core_(std::move(core)),
      watchers_(std::make_shared<Watchers>()) {}

Result<std::unique_ptr<Engine>> Engine::restore(Options options, ledger::PriceBook prices) {
  control::State state;
  Journal& journal = *options.journal;
  if (const auto snapshot = BILLOW_TRY(journal.load_snapshot())) {
    auto restored = options.read_snapshot ? options.read_snapshot(*snapshot)
                                          : control::restore(snapshot->bytes);
    if (!restored)
      return pass(restored.error(), "the snapshot cannot be read");
    state = std::move(*restored);
  }
  const Seq from = state.seq;
  control::Core core(std::move(state), std::move(prices));
  std::optional<Error> broken;
  Seq at = from;
  while (true) {
    const Seq before = at;
    at = BILLOW_TRY(journal.read(at, 10'000, [&](const Record& record) {
      auto event = options.read_record ? options.read_record(record) : read_record(record);
      if (!event) {
        broken = event.error();
        return false;
      }
      core.replay(**event);
      return true;
    }));
    if (broken)
      return fail(Code::internal, broken->message,
                  "if a newer Billow wrote it, upgrade; if the store is damaged, restore a backup: "
                  "billow store restore");
    if (at == before)
      break;
  }
  if (journal.next_seq() != core.state().seq + 1)
    return fail(Code::internal,
                fmt::format("the journal continues at event {}, the state at event {}",
                            journal.next_seq(), core.state().seq + 1));
  auto engine = std::unique_ptr<Engine>(new Engine(std::move(options), std::move(core)));
  engine->snapshot_seq_ = from;
  engine->recorded_ = engine->core_.state().at;
  engine->recorded_at_ = engine->options_.clock->steady();
  const control::State& restored = engine->core_.state();
  const WallTime wall = engine->options_.clock->wall();
  engine->billing_.resume_from(
      restored.billed ? restored.billed + std::max(Duration{}, wall - restored.at) : wall);
  return engine;
}

void Engine::remember_finished(JobId id, std::string stored) {
  const auto [at, is_new] = finished_.insert_or_assign(id, std::move(stored));
  if (!is_new)
    return;
  finished_order_.push_back(id);
  if (finished_order_.size() > limits::finished_documents_max) {
    finished_.erase(finished_order_.front());
    finished_order_.pop_front();
  }
}

std::optional<Json> Engine::recently_finished(JobId job) const {
  const auto found = finished_.find(job);
  if (found == finished_.end())
    return std::nullopt;
  auto document = view::stored_document(found->second);
  return document ? std::optional(std::move(*document)) : std::nullopt;
}

void Engine::measure(const control::Step& step) {
  for (const Event& event : step.events) {
    const auto* placed = get_if<JobPlaced>(&event.body);
    if (const Job* job = placed ? core_.state().find_job(placed->job) : nullptr)
      telemetry_.wait.add(event.at - std::max(job->submitted_at, job->not_before),
                          std::to_string(job->id.value), event.at);
  }
  for (const auto& finished : step.jobs)
    ++telemetry_.jobs_ended[static_cast<std::size_t>(finished.job.state)];
}

Batch Engine::batch_of(const control::Step& step) {
  const control::State& state = core_.state();
  Batch batch;
  for (const Event& event : step.events) {
    Record record;
    record.at = event.at;
    record.kind = wire::variant_kind(event.body);
    record.payload = control::encode_event(event);
    batch.records.push_back(std::move(record));
  }
  for (const auto& finished : step.jobs) {
    batch.jobs.push_back(view::job_row(state, finished));
    remember_finished(finished.job.id, batch.jobs.back().doc);
  }
  for (const auto& finished : step.arrays) {
    batch.jobs.push_back(view::array_row(state, finished));
    remember_finished(finished.array.id, batch.jobs.back().doc);
  }
  for (const auto& lease : step.leases)
    batch.leases.push_back(view::lease_row(lease));
  for (const auto& entry : step.entries)
    batch.entries.push_back(view::entry_row(entry));
  for (const auto& day : step.node_days)
    batch.node_days.push_back(view::node_day_row(day));
  return batch;
}

// The job and the array that each event concerns. Decided now, while the state still has the tasks
// that the events name.
std::vector<Engine::Concerned> Engine::concerned_by(const control::Step& step) const {
  const control::State& state = core_.state();
  std::unordered_map<JobId, JobId> array_of_finished;
  std::unordered_map<TaskId, JobId> job_of_finished;
  for (const auto& finished : step.jobs) {
    array_of_finished[finished.job.id] = finished.job.array;
    for (const Task& task : finished.tasks)
      job_of_finished[task.id] = finished.job.id;
  }
  std::vector<Concerned> concerned;
  concerned.reserve(step.events.size());
  for (const Event& event : step.events) {
    JobId id = job_of(state, event.body);
    JobId array;
    if (const Job* job = id ? state.find_job(id) : nullptr)
      array = job->array;
    if (const auto* ended = id ? nullptr : get_if<TaskEnded>(&event.body))
      if (const auto found = job_of_finished.find(ended->task); found != job_of_finished.end())
        id = found->second;
    if (const auto found = array_of_finished.find(id); found != array_of_finished.end())
      array = found->second;
    concerned.push_back({id, array});
  }
  return concerned;
}

void Engine::tell_watchers(const std::vector<Event>& events,
                           const std::vector<Concerned>& concerned) {
  for (std::size_t i = 0; i < events.size(); ++i)
    for (const JobId id : {concerned[i].job, concerned[i].array}) {
      if (!id)
        continue;
      const auto found = watchers_->by_job.find(id);
      if (found != watchers_->by_job.end())
        Watchers::call(found->second, events[i]);
    }
  if (!watchers_->all.empty())
    Watchers::call(watchers_->all, events.back());
}

void Engine::absorb(control::Step step, std::vector<JobRow> rows) {
  if (step.empty())
    return;
  measure(step);
  Batch batch = batch_of(step);
  for (JobRow& row : rows) {
    if (finished_.contains(row.id))
      remember_finished(row.id, row.doc);
    batch.jobs.push_back(std::move(row));
  }
  const Seq seq = options_.journal->append(std::move(batch));
  BILLOW_CHECK(seq == core_.state().seq, "the journal and the state disagree on the last event");
  std::vector<Concerned> concerned = concerned_by(step);
  std::vector<std::function<void()>> observed;
  if (options_.observe)
    for (const Event& event : step.events)
      if (auto fn = options_.observe(core_.state(), event))
        observed.push_back(std::move(fn));
  auto shared = std::make_shared<control::Step>(std::move(step));
  waiting_.push_back({seq, [this, shared, concerned = std::move(concerned),
                            observed = std::move(observed), appended = options_.clock->steady()] {
                        telemetry_.durable.add(options_.clock->steady() - appended);
                        for (const auto& fn : observed)
                          fn();
                        for (const control::Effect& effect : shared->effects)
                          options_.deliver(effect);
                        tell_watchers(shared->events, concerned);
                      }});
}

WallTime Engine::now() {
  const SteadyTime steady = options_.clock->steady();
  recorded_ = std::max(options_.clock->wall(), recorded_ + (steady - recorded_at_) / 2);
  recorded_at_ = steady;
  return recorded_;
}

WallTime Engine::billed() {
  return billing_.at({}, options_.clock->steady(), "this head");
}

// A hundred thousand jobs that a budget does not pay for are held a few at a time: connections are
// served in between. The next command goes on, a tick at the latest.
void Engine::plan() {
  constexpr Duration turn = milliseconds(250);
  const SteadyTime began = options_.clock->steady();
  do
    absorb(core_.plan(now(), billed()));
  while (core_.more() && options_.clock->steady() - began < turn);
}

// Runs before anything else is decided, so that the end of a reservation takes effect at that time
// and leases are split at the end of each day.
void Engine::catch_up() {
  control::Step step = core_.catch_up(now(), billed());
  if (!step.empty())
    absorb(std::move(step));
}

void Engine::execute(const Command& command, const control::Cause& cause, Done done) {
  execute_with_rows(command, cause, {}, std::move(done));
}

void Engine::execute_with_rows(const Command& command,
                               const control::Cause& cause,
                               std::vector<JobRow> rows,
                               Done done) {
  catch_up();
  const SteadyTime began = options_.clock->steady();
  auto step = core_.execute(command, cause, now(), billed());
  if (!step) {
    if (done)
      done(pass(step.error()));
    return;
  }
  std::vector<Event> events;
  if (done)
    events = step->events;
  const bool changed = !step->empty();
  absorb(std::move(*step), std::move(rows));
  const WallTime wake = core_.wake_at();
  if (changed || core_.more() || (wake && wake <= now()))
    plan();
  if (changed)
    telemetry_.command.add(options_.clock->steady() - began, cause.request_id, now());
  if (done)
    when_durable([done = std::move(done), events = std::move(events)]() mutable {
      done(std::move(events));
    });
}

void Engine::enqueue(std::vector<control::Effect> effects) {
  when_durable([this, effects = std::move(effects)] {
    for (const auto& effect : effects)
      options_.deliver(effect);
  });
}

void Engine::when_durable(std::function<void()> fn) {
  const Seq seq = core_.state().seq;
  if (waiting_.empty() && !delivering_ && options_.journal->durable_seq() >= seq)
    return fn();
  waiting_.push_back({seq, std::move(fn)});
  if (!delivering_)
    on_durable(options_.journal->durable_seq());
}

void Engine::on_durable(Seq durable) {
  if (delivering_)
    return;  // called from a callback of the loop below, which will handle it
  delivering_ = true;
  while (!waiting_.empty() && waiting_.front().seq <= durable) {
    const auto fn = std::move(waiting_.front().fn);
    waiting_.pop_front();
    fn();
  }
  delivering_ = false;
}

std::unique_ptr<net::Subscription> Engine::watch_job(JobId job,
                                                     std::function<void(const Event&)> fn) {
  auto sub = std::make_unique<Watchers::Sub>();
  sub->owner = watchers_;
  sub->entry = std::make_shared<Watchers::Entry>(Watchers::Entry{std::move(fn)});
  sub->job = job;
  watchers_->by_job[job].push_back(sub->entry);
  return sub;
}

std::unique_ptr<net::Subscription> Engine::watch_events(std::function<void(const Event&)> fn) {
  auto sub = std::make_unique<Watchers::Sub>();
  sub->owner = watchers_;
  sub->entry = std::make_shared<Watchers::Entry>(Watchers::Entry{std::move(fn)});
  watchers_->all.push_back(sub->entry);
  return sub;
}

std::optional<Snapshot> Engine::snapshot_due(std::uint64_t every_events) {
  const Seq seq = core_.state().seq;
  if (seq - snapshot_seq_ < every_events)
    return std::nullopt;
  snapshot_seq_ = seq;
  return Snapshot{seq, control::image(core_.state())};
}

}  // namespace billow::head
