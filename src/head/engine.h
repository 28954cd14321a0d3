// Runs the core: commands go in, batches go to the journal, and everything an event causes waits
// until the event is durable. Effects (messages to agents), replies and watchers wait in one queue
// ordered by journal position; the journal's `durable` report releases its front. Runs on the
// loop's thread.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/histogram.h"
#include "base/json.h"
#include "core/control/core.h"
#include "net/subscription.h"
#include "store/journal.h"
#include "store/rows.h"

namespace billow::head {

class Engine {
 public:
  struct Options {
    Journal* journal = nullptr;
    const Clock* clock = nullptr;
    // Sends an effect to its agent. Called only for durable events, in order.
    std::function<void(const control::Effect&)> deliver;
    // Sees an event while the state still has everything it names; the returned function is called
    // when the event is durable. May be empty.
    std::function<std::function<void()>(const control::State&, const Event&)> observe;
    // How `restore` reads a snapshot and a record; empty: control::restore and
    // control::decode_event. A simulation remembers what it has read.
    std::function<Result<control::State>(const Snapshot&)> read_snapshot = {};
    std::function<Result<std::shared_ptr<const Event>>(const Record&)> read_record = {};
  };
  // Restores the state from snapshot and journal. An error names the record that could not be read.
  static Result<std::unique_ptr<Engine>> restore(Options options, ledger::PriceBook prices);

  const control::State& state() const { return core_.state(); }
  using Done = std::function<void(Result<std::vector<Event>>)>;
  void execute(const Command& command, const control::Cause& cause, Done done);
  // The same with rows of ended jobs that the command changes: they are written with its events.
  void execute_with_rows(const Command& command,
                         const control::Cause& cause,
                         std::vector<JobRow> rows,
                         Done done);
  // For effects without an event, such as the orders after an agent's hello. They are sent when
  // everything before them is durable.
  void enqueue(std::vector<control::Effect> effects);
  void when_durable(std::function<void()> fn);
  void on_durable(Seq durable);

  const Telemetry& telemetry() const { return telemetry_; }
  // Wall time as it is recorded: it never goes back and never stands still. After the clock is set
  // back, it advances at half speed until the clock has caught up, so that back-offs still end.
  WallTime now();
  // Now, by the clock of bills (ADR 10): it advances with steady time, whatever happens to the wall
  // clock. Across a restart it advances by the wall time since the newest record.
  WallTime billed();

  // The public document of a job or array that ended a short while ago; none: ask the store.
  std::optional<Json> recently_finished(JobId job) const;
  std::unique_ptr<net::Subscription> watch_job(JobId job, std::function<void(const Event&)> fn);
  std::unique_ptr<net::Subscription> watch_events(std::function<void(const Event&)> fn);

  // A snapshot of the state with its position, if enough events have happened since the last one.
  std::optional<Snapshot> snapshot_due(std::uint64_t every_events);

 private:
  Engine(Options options, control::Core core);
  void absorb(control::Step step, std::vector<JobRow> rows = {});
  Batch batch_of(const control::Step& step);
  struct Concerned {
    JobId job, array;
  };
  std::vector<Concerned> concerned_by(const control::Step& step) const;
  void tell_watchers(const std::vector<Event>& events, const std::vector<Concerned>& concerned);
  void catch_up();
  void plan();
  void remember_finished(JobId id, std::string stored);
  struct Watchers;

  struct Waiting {
    Seq seq = 0;
    std::function<void()> fn;
  };
  Options options_;
  control::Core core_;
  std::deque<Waiting> waiting_;
  bool delivering_ = false;
  Seq snapshot_seq_ = 0;
  WallTime recorded_;
  ledger::BillingClock billing_;
  SteadyTime recorded_at_;
  void measure(const control::Step& step);
  Telemetry telemetry_;
  std::shared_ptr<Watchers> watchers_;
  std::unordered_map<JobId, std::string> finished_;  // as the store has them
  std::deque<JobId> finished_order_;
};

}  // namespace billow::head
