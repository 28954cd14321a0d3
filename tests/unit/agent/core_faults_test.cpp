// The agent's core against a small head, a disk and a network that cuts, repeats and reorders, all
// from one seed.
//
// The network keeps the protocol's one promise, order from the agent to the head within a
// connection, and breaks the rest: a connection is cut with any part of its messages lost, what the
// head sent may arrive twice, late or in another order, even after a newer head has taken over. The
// agent is killed between any two effects and comes back from its disk.
//
// What must hold in every run: no task's process is started twice; nothing is started for an
// outdated head; in the end the head knows how every task ended, as the disk has it, and nothing
// stays unacknowledged.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/agent/core.h"

namespace billow::agent {
namespace {

namespace v1 = wire::agent_v1;

struct DiskTask {
  TaskStatus status;
  bool acknowledged = false;
  int runs = 0;
};

class FaultWorld {
 public:
  explicit FaultWorld(std::uint64_t seed) : rng_(seed) { restart(); }

  void run() {
    for (int step = 0; step < 400 && !failed(); ++step) {
      faulty_ = step < 300;
      act();
    }
    faulty_ = false;
    cut();  // a head learns of words that were lost when the agent connects again
    for (int step = 0; step < 3000 && !failed() && !settled(); ++step)
      act();
    check_end();
  }
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }

 private:
  Now now() const {
    return {WallTime{1'000'000'000'000 + time_ns_}, SteadyTime{1'000'000'000 + time_ns_}};
  }
  void wrong(std::string what) {
    if (failure_.empty())
      failure_ = std::move(what);
  }

  // ---- the agent and its disk
  void restart() {
    CoreOptions options;
    options.memory = memory_;
    for (const auto& [id, task] : disk_)
      options.tasks.push_back({task.status, task.acknowledged, false, {}});
    core_ = std::make_unique<Core>(std::move(options), now());
    connected_ = false;
    to_head_.clear();
  }
  // Carries effects out one by one; a crash may come before any of them.
  void carry_out(const Effects& effects) {
    for (const Effect& e : effects) {
      if (faulty_ && rng_.chance(0.01))
        return restart();
      apply(e);
    }
    if (const auto broken = core_->check_invariants())
      wrong(*broken);
  }
  void apply(const Effect& e) {
    if (const auto* remember = std::get_if<effect::Remember>(&e)) {
      memory_ = remember->memory;
    } else if (const auto* start = std::get_if<effect::StartTask>(&e)) {
      if (start->start.epoch < memory_.epoch)
        wrong("started for an outdated head");
      DiskTask& task = disk_[start->start.task];
      if (++task.runs > 1)
        wrong(fmt::format("task {} started twice", start->start.task.value));
      task.status.task = start->start.task;
      task.status.state = TaskState::running;
    } else if (const auto* end = std::get_if<effect::RecordEnd>(&e)) {
      if (!disk_.contains(end->status.task))
        disk_[end->status.task].status = end->status;
    } else if (const auto* stop = std::get_if<effect::StopTask>(&e)) {
      if (!disk_.contains(stop->task))
        wrong("stopped a task that is not there");
      else
        end_task(stop->task, ExitKind::stopped, 0);
    } else if (const auto* done = std::get_if<effect::AcknowledgeTask>(&e)) {
      disk_.at(done->task).acknowledged = true;
      if (!head_ends_.contains(done->task))
        wrong(fmt::format("task {} was given up although the head does not know its end",
                          done->task.value));
    } else if (const auto* send = std::get_if<effect::Send>(&e)) {
      if (connected_)
        to_head_.push_back(send->message);
    } else if (std::holds_alternative<effect::Disconnect>(e)) {
      cut();
    }
  }
  void end_task(TaskId id, ExitKind kind, int code) {
    TaskStatus& status = disk_.at(id).status;
    if (status.state == TaskState::ended)
      return;
    status.state = TaskState::ended;
    status.exit = {kind, code, 0, ""};
    untold_.insert(id);  // the supervisor's word comes later, or the agent finds the record itself
  }

  // ---- the network
  void cut() {
    if (connected_)
      core_->on_disconnected(now());
    connected_ = false;
    to_head_.clear();  // what was under way from the agent is lost; what the head sent may still
                       // arrive below
    if (!faulty_)
      to_agent_.clear();
  }
  void head_says(v1::ToAgent message) { to_agent_.push_back(std::move(message)); }

  // ---- the head
  void head_hears(const v1::FromAgent& message) {
    if (const auto* hello = get_if<v1::Hello>(&message)) {
      if (hello->epoch_seen > epoch_)
        epoch_ = hello->epoch_seen;
      head_says(v1::Welcome{epoch_, NodeId(1), 2000});
      v1::Settle settle;
      settle.epoch = epoch_;
      std::set<TaskId> listed;
      for (const TaskStatus& status : hello->tasks) {
        listed.insert(status.task);
        if (!head_tasks_.contains(status.task))
          settle.unknown.push_back(status.task);
        else if (head_ends_.contains(status.task))
          settle.ended.push_back(status.task);
      }
      if (!settle.unknown.empty() || !settle.ended.empty())
        head_says(settle);
      for (const TaskId id : head_tasks_)
        if (!listed.contains(id) && !head_ends_.contains(id))
          head_says(start(id));
    } else if (const auto* report = get_if<v1::Report>(&message)) {
      if (report->status.state == TaskState::ended) {
        const auto [it, fresh] = head_ends_.emplace(report->status.task, report->status.exit);
        if (!fresh && it->second != report->status.exit)
          wrong(fmt::format("task {} ended in two ways", report->status.task.value));
      }
      head_says(v1::Ack{report->number});
    }
  }
  v1::Start start(TaskId id) {
    v1::Start s;
    s.epoch = epoch_;
    s.task = id;
    s.argv = {"true"};
    return s;
  }

  // ---- one step
  void act() {
    time_ns_ += static_cast<std::int64_t>(rng_.below(2'000'000'000));
    Effects out;
    switch (rng_.below(faulty_ ? 12 : 8)) {
      case 0:
        if (!connected_) {
          connected_ = true;
          core_->on_connected(now(), out);
        }
        break;
      case 1:
      case 2:
        if (!to_head_.empty()) {
          const v1::FromAgent message = to_head_.front();
          to_head_.pop_front();
          head_hears(message);
        }
        break;
      case 3:
      case 4:
      case 5:
        deliver(out);
        break;
      case 6:
        progress(out);
        break;
      case 7:
        core_->tick(now(), out);
        break;
      case 8:
        cut();
        break;
      case 9:
        if (rng_.chance(0.2))
          restart();
        break;
      case 10:
        head_wants();
        break;
      default:
        if (rng_.chance(0.1))
          ++epoch_;  // another head took over; the old one's words are still under way
    }
    carry_out(out);
  }
  void deliver(Effects& out) {
    if (to_agent_.empty())
      return;
    const std::size_t at = faulty_ && rng_.chance(0.3) ? rng_.below(to_agent_.size()) : 0;
    const v1::ToAgent message = to_agent_[at];
    const bool repeated = faulty_ && rng_.chance(0.15);
    // An answer is to a connection of ours: acknowledgements of an earlier one are not delivered on
    // a later one.
    if (!repeated)
      to_agent_.erase(to_agent_.begin() + static_cast<std::ptrdiff_t>(at));
    if (faulty_ && rng_.chance(0.1))
      return;  // lost
    core_->on_message(message, "", now(), out);
  }
  void progress(Effects& out) {
    for (auto& [id, task] : disk_) {
      if (task.status.state != TaskState::ended && rng_.chance(0.2))
        end_task(id, ExitKind::exited, static_cast<int>(id.value % 7));
      if (untold_.contains(id) && rng_.chance(0.5)) {
        untold_.erase(id);
        core_->on_task_event(task_event::Ended{task.status}, now(), out);
      }
    }
  }
  void head_wants() {
    if (head_tasks_.size() < 20 && rng_.chance(0.7)) {
      const TaskId id(++last_task_);
      head_tasks_.insert(id);
      head_says(start(id));
    } else if (!head_tasks_.empty() && rng_.chance(0.3)) {
      const TaskId id(1 + rng_.below(last_task_));
      if (!head_ends_.contains(id))
        head_says(v1::Stop{epoch_, id, seconds(1)});
    }
  }
  bool settled() const {
    if (head_ends_.size() < head_tasks_.size() || core_->unacknowledged_count() > 0 || !connected_)
      return false;
    return core_->live_count() == 0;
  }
  void check_end() {
    if (failed())
      return;
    for (const TaskId id : head_tasks_)
      if (!head_ends_.contains(id))
        return wrong(fmt::format("the head never learnt how task {} ended", id.value));
    for (const auto& [id, task] : disk_) {
      if (task.status.state != TaskState::ended)
        return wrong(fmt::format("task {} still runs", id.value));
      if (head_ends_.at(id) != task.status.exit)
        return wrong(fmt::format("the head has another end of task {} than the disk", id.value));
    }
    if (core_->unacknowledged_count() > 0)
      wrong("reports stay unacknowledged");
  }

  Rng rng_;
  bool faulty_ = true;
  std::int64_t time_ns_ = 0;
  std::unique_ptr<Core> core_;
  Memory memory_;
  std::map<TaskId, DiskTask> disk_;
  std::set<TaskId> untold_;
  bool connected_ = false;
  std::deque<v1::FromAgent> to_head_;
  std::deque<v1::ToAgent> to_agent_;
  Epoch epoch_ = 1;
  std::set<TaskId> head_tasks_;
  std::map<TaskId, ExitStatus> head_ends_;
  std::uint64_t last_task_ = 0;
  std::string failure_;
};

TEST(AgentCoreFaults, NothingRunsTwiceAndNoEndIsLost) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    FaultWorld world(seed);
    world.run();
    ASSERT_FALSE(world.failed()) << "seed " << seed << ": " << world.failure();
  }
}

}  // namespace
}  // namespace billow::agent
