// The core at work: commands in, batches to the journal, and everything an event causes held back
// until the event is durable. Effects (messages to agents), replies and watchers all wait in one
// queue ordered by journal position, and the journal's `durable` report lets its head go. Runs on
// the loop's thread.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>

#include "api/host.h"
#include "base/histogram.h"
#include "core/control/core.h"
#include "store/journal.h"

namespace billow::head {

class Engine {
 public:
  struct Options {
    Journal* journal = nullptr;
    const Clock* clock = nullptr;
    // Says an effect to its agent. Called only for durable events, in order.
    std::function<void(const control::Effect&)> deliver;
    // Looks at an event while everything it names is there; what it returns is called when the
    // event is durable. May be empty.
    std::function<std::function<void()>(const control::State&, const Event&)> observe;
  };
  // Snapshot and journal make the state; an error names the record that could not be read.
  static Result<std::unique_ptr<Engine>> restore(Options options, ledger::PriceBook prices);

  const control::State& state() const { return core_.state(); }
  using Done = std::function<void(Result<std::vector<Event>>)>;
  void execute(const Command& command, const control::Cause& cause, Done done);
  // For effects that are not an event's: what an agent is told after its hello. Leaves when all
  // before it is durable.
  void enqueue(std::vector<control::Effect> effects);
  void when_durable(std::function<void()> fn);
  void on_durable(Seq durable);

  const Telemetry& telemetry() const { return telemetry_; }
  // This moment by the clock of bills: it goes on with steady time, whatever is done to the wall
  // clock. Over a restart it goes on by as much wall time as has passed since the newest record.
  WallTime billed();

  std::string recently_finished(JobId job) const;
  std::unique_ptr<api::Subscription> watch_job(JobId job, std::function<void(const Event&)> fn);
  std::unique_ptr<api::Subscription> watch_events(std::function<void(const Event&)> fn);

  // The newest state as a snapshot text with its position, when enough has happened since the last.
  std::optional<Snapshot> snapshot_due();

 private:
  Engine(Options options, control::Core core);
  void absorb(control::Step step);
  void catch_up();
  void plan();
  // Wall time as it is recorded: never backwards, and never standing still either. After a step
  // back of the clock it goes on at half its pace until the clock has caught up, so that back-offs
  // end and leases cost something meanwhile.
  WallTime now();
  void remember_finished(JobId id, std::string document);
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
  std::unordered_map<JobId, std::string> finished_;
  std::deque<JobId> finished_order_;
};

}  // namespace billow::head
