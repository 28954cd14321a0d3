// Checks what must be true of every run by comparing two independent sources: the durable journal
// and the simulated processes. The audit reads each record once, when it reaches the disk, and
// learns of each process when it starts.
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

  void read_journal();  // new durable records
  void process_started(const std::shared_ptr<Process>& process);
  void process_resumes(const std::shared_ptr<Process>& process);
  // Answers that clients got; they must stay true.
  void submit_acknowledged(const std::string& key, JobId job);
  void end_reported(JobId job, JobState state);
  // A client asked for this value, and then got the answer that it is set; empty: removed.
  void secret_wished(const std::string& name, const std::string& value) {
    secrets_[name].asked.insert(value);
  }
  void secret_told(const std::string& name, const std::string& value);
  // The value of a secret in an order to a node; empty: the secret does not exist.
  void secret_sent(const std::string& name, const std::string& value);
  void head_restarted(const control::State& state);
  // A node accepted the orders of a head with this epoch; and said in a hello what it has seen.
  void head_accepted(const SimNode& node, Epoch epoch);
  void hello_sent(const SimNode& node, Epoch epoch_seen) const;
  void finish(const control::State& state);  // after the quiet part

  // Includes tasks given up on unreachable nodes, which end when the node returns.
  bool all_ended() {
    if (open_ != 0)
      return false;
    std::erase_if(given_up_, [&](TaskId id) {
      const TaskStory& task = tasks_.at(id);
      return !task.given_up || !task.process || !task.process->alive;
    });
    return given_up_.empty();
  }
  NanoUsd machine_bills() const { return machine_bills_; }
  std::optional<JobState> end_of(JobId job) const;

 private:
  struct JobStory {
    std::shared_ptr<const JobSpec> spec;
    JobId array;
    std::uint32_t attempts = 0, failures = 0;
    StopCause stopping = StopCause::none;
    bool running = false;
    bool suspended = false, resume_wanted = false;
    bool left_reservation = false;  // a client asked for it to continue without
    bool rerun_excused = false;     // the last attempt ended in a way that allows another
    std::vector<TaskId> tasks;      // of the attempt
    std::vector<TaskId> all_tasks;
  };
  struct TaskStory {
    Task task;
    std::optional<TaskEnded> end;
    std::vector<Task> leases;  // closed ones, as they were
    std::shared_ptr<Process> process;
    bool given_up = false;  // stopped while its node was unreachable: ends when the node returns
  };
  struct ArrayStory {
    std::shared_ptr<const JobSpec> spec;
    std::uint64_t count = 0, left = 0, succeeded = 0, running = 0;
  };
  struct SecretStory {
    std::vector<std::string> values = {""};  // the journal's, in order; empty: not set
    std::size_t told = 0;                    // index of the newest that a client knows
    std::set<std::string> asked;
  };
  void take(const Event& event);
  void take_of_jobs(const Event& event);
  void take_of_suspensions(const Event& event);
  void take_of_reservations(const Event& event);
  void follow_nodes(const Event& event);
  void check_heard(const Task& task) const;
  void secret_durable(const std::string& name, const std::string& value);
  void submitted(const JobsSubmitted& e);
  void placed(const JobPlaced& e, WallTime billed, WallTime at);
  void task_began(const TaskStarted& e, WallTime billed);
  void task_ended(const TaskEnded& e, WallTime billed);
  void task_suspended(const TaskSuspended& e, WallTime billed);
  void resuming(const JobResuming& e, WallTime billed, WallTime at);
  void replaced(const MemberReplaced& e, WallTime billed);
  void rerated(const TaskRerated& e, WallTime billed);
  void check_inside(const JobStory& job, const Task& task) const;
  void check_reserved_price(const Task& task, WallTime to) const;
  void check_shared(const JobStory& job, const Task& task, WallTime at) const;
  void check_gpus_fit(const SimNode& node) const;
  void requeued(const JobRequeued& e);
  void job_ended(const JobEnded& e);
  void close_lease(TaskStory& story, WallTime to, NanoUsd cost, WallTime at);
  void check_leases_apart() const;
  bool any_began(const JobStory& job) const;
  bool on_rented(const JobStory& job) const;
  void check_rented(const control::State& state) const;
  const TaskEnded* decisive(const JobStory& job) const;
  bool served_to_the_end(const JobStory& job) const;
  void leave_running(JobStory& job);
  void add_task(const Task& task);

  World& world_;
  std::size_t read_ = 0;
  WallTime last_at_;
  std::map<JobId, JobStory> jobs_;
  std::map<JobId, ArrayStory> arrays_;
  std::map<TaskId, TaskStory> tasks_;
  std::set<TaskId> open_tasks_;  // those that have not ended
  std::set<TaskId> given_up_;    // tasks whose processes may still live
  NanoUsd machine_bills_;        // of machines that have ended
  std::set<TaskId> restarting_;  // members of groups that somebody asked to restart
  std::map<NodeId, std::string> node_names_;
  std::set<NodeId> heard_;  // nodes that have connected to this head and are reachable
  std::map<std::string, Epoch> accepted_epochs_;        // by node name: the highest
  std::map<ReservationId, Reservation> reservations_;   // all of whole GPUs
  std::map<ReservationId, WallTime> reservation_over_;  // since when
  bool own_prices_ = false;         // a client has set prices, so the list no longer applies
  std::int64_t limit_milli_ = -1;   // of the only project
  std::map<JobId, JobState> ends_;  // jobs and arrays
  std::map<std::string, JobId> acknowledged_;  // by key
  std::set<JobId> promised_;                   // of those, the ones that have not ended
  std::map<std::string, SecretStory> secrets_;
  std::size_t open_ = 0;  // jobs submitted and not ended
};

// People and scripts that use Billow: they submit, submit again without an answer, stop, drain, and
// read the result.
class Clients {
 public:
  explicit Clients(World& world);
  void every_second();
  // The quiet part begins: hanging jobs are stopped, drains lifted, lost nodes removed.
  void settle_down();
  void wish(std::size_t jobs);  // so many more
  bool all_done() const;
  void stop_infeasible();

 private:
  struct Wish {
    SubmitJob command;
    bool done = false;
  };
  void submit(std::size_t index);
  SubmitJob draw_job(std::size_t index);
  void draw_roles(JobSpec& spec);
  void watch(JobId job);
  void command(const Command& command);
  // What users and operators ask for, in the troubled part and so that everything ends in the quiet
  // one.
  void trouble(const control::State& state, std::vector<Command>& commands);
  void settle(const control::State& state, std::vector<Command>& commands);
  void share(std::vector<Command>& commands);  // changes reservations, quotas and policies
  void share_nothing(std::vector<Command>& commands);
  Command set_secret(const std::string& name);
  bool wants_stop(JobId job) const;
  JobId some_job() const;
  void forget_ended();

  World& world_;
  std::vector<Wish> wishes_;
  std::vector<JobId> known_;
  std::size_t next_ = 0;          // wish to submit
  mutable std::size_t open_ = 0;  // all wishes before it are done
  Epoch watched_epoch_ = 0;
  std::vector<std::unique_ptr<net::Subscription>> watches_;
  std::int64_t quiet_since_ns_ = 0;
  int secret_values_ = 0;
};

}  // namespace billow::sim
