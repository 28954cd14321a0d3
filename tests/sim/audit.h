// What must be true of every run, told from two sources that know nothing of each other: the
// durable journal and the simulated processes. The audit reads each record once, when it reaches
// the disk, and is told of each process as it starts.
#pragma once

#include <map>
#include <set>

#include "api/host.h"
#include "core/control/core.h"
#include "node.h"
#include "world.h"

namespace billow::sim {

ledger::PriceBook prices();

class Audit {
 public:
  explicit Audit(World& world) : world_(world) {}

  void read_journal();  // what has become durable since
  void process_started(const std::shared_ptr<Process>& process);
  void process_resumes(const std::shared_ptr<Process>& process);
  // A client was told; never to be taken back.
  void submit_acknowledged(const std::string& key, JobId job);
  void end_reported(JobId job, JobState state);
  // What a client asked for, and was told that it is so; an empty value: that it be removed.
  void secret_wished(const std::string& name, const std::string& value) {
    secrets_[name].asked.insert(value);
  }
  void secret_told(const std::string& name, const std::string& value);
  // What an order carries of a secret; empty: that there is none.
  void secret_sent(const std::string& name, const std::string& value);
  void head_restarted(const control::State& state);
  void finish(const control::State& state);  // after the quiet

  // Also what was given up on a node out of reach, which ends when that is back.
  bool all_ended() const {
    return open_ == 0 && std::none_of(tasks_.begin(), tasks_.end(), [](const auto& task) {
             return task.second.given_up && task.second.process && task.second.process->alive;
           });
  }
  std::optional<JobState> end_of(JobId job) const;

 private:
  struct JobStory {
    std::shared_ptr<const JobSpec> spec;
    JobId array;
    std::uint32_t attempts = 0, failures = 0;
    StopCause stopping = StopCause::none;
    bool running = false;
    bool suspended = false, resume_wanted = false;
    bool left_reservation = false;  // somebody asked for it to go on without
    bool rerun_excused = false;     // the attempt before ended in a way that allows another
    std::vector<TaskId> tasks;      // of the attempt
  };
  struct TaskStory {
    Task task;
    std::optional<TaskEnded> end;
    std::vector<Task> leases;  // closed ones, as they were
    std::shared_ptr<Process> process;
    bool given_up =
        false;  // stopped while its node was out of reach: its process ends when that is back
  };
  struct ArrayStory {
    std::shared_ptr<const JobSpec> spec;
    std::uint64_t count = 0, left = 0, succeeded = 0, running = 0;
  };
  struct SecretStory {
    std::vector<std::string> values = {
        ""};               // as the journal has them, one after the other; empty: there is none
    std::size_t told = 0;  // the newest of which a client knows
    std::set<std::string> asked;
  };
  void take(const Event& event);
  void follow_nodes(const Event& event);
  void check_heard(const Task& task) const;
  void secret_durable(const std::string& name, const std::string& value);
  void submitted(const JobsSubmitted& e);
  void placed(const JobPlaced& e, WallTime billed, WallTime at);
  void task_ended(const TaskEnded& e, WallTime billed);
  void task_suspended(const TaskSuspended& e, WallTime billed);
  void resuming(const JobResuming& e, WallTime billed, WallTime at);
  void replaced(const MemberReplaced& e, WallTime billed);
  void rerated(const TaskRerated& e, WallTime billed);
  void check_inside(const JobStory& job, const Task& task) const;
  void check_reserved_price(const Task& task, WallTime to) const;
  void check_shared(const JobStory& job, const Task& task, WallTime at) const;
  void check_room(const SimNode& node) const;
  void requeued(const JobRequeued& e);
  void job_ended(const JobEnded& e);
  void close_lease(TaskStory& story, WallTime to, NanoUsd cost, WallTime at);
  void check_leases_apart() const;
  bool any_began(const JobStory& job) const;
  const TaskEnded* decisive(const JobStory& job) const;
  void leave_running(JobStory& job);

  World& world_;
  std::size_t read_ = 0;
  WallTime last_at_;
  std::map<JobId, JobStory> jobs_;
  std::map<JobId, ArrayStory> arrays_;
  std::map<TaskId, TaskStory> tasks_;
  std::map<NodeId, std::string> node_names_;
  std::set<NodeId> heard_;  // nodes that have said hello to this head and not fallen silent since
  std::map<ReservationId, Reservation> reservations_;   // whole cards, all of them
  std::map<ReservationId, WallTime> reservation_over_;  // since when
  bool own_prices_ = false;         // somebody has set one: they are not those of the list any more
  std::int64_t limit_milli_ = -1;   // of the one project there is
  std::map<JobId, JobState> ends_;  // jobs and arrays
  std::map<std::string, JobId> acknowledged_;  // by key
  std::map<std::string, SecretStory> secrets_;
  std::size_t open_ = 0;  // jobs submitted and not ended
};

// People and scripts that use Billow: submit, submit again when no answer came, stop, drain, and
// look at the end.
class Clients {
 public:
  explicit Clients(World& world);
  void every_second();
  void
  settle_down();  // the quiet begins: hanging jobs are stopped, drains lifted, lost nodes removed
  bool all_done() const;
  void stop_infeasible();

 private:
  struct Wish {
    SubmitJob command;
    bool done = false;
  };
  void submit(std::size_t index);
  SubmitJob draw_job(std::size_t index);
  void watch(JobId job);
  void command(const Command& command);
  void share(std::vector<Command>& commands);  // reservations, quotas and policies come and go
  void share_nothing(std::vector<Command>& commands);
  Command set_secret(const std::string& name);
  bool wants_stop(JobId job) const;

  World& world_;
  std::vector<Wish> wishes_;
  std::vector<JobId> known_;
  std::size_t next_ = 0;  // wish to submit
  Epoch watched_epoch_ = 0;
  std::vector<std::unique_ptr<net::Subscription>> watches_;
  std::int64_t quiet_since_ns_ = 0;
  int secret_values_ = 0;
};

}  // namespace billow::sim
