// The GPU memory service's state: jobs with their pages and processes, and the operations on them.
// Thread-safe; each operation on a job holds that job's own lock, so a swap suspends one job while
// it resumes another.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpumem/arbiter.h"
#include "gpumem/mover.h"

namespace billow::gpumem {

struct DeviceLimit {
  std::uint8_t uuid[16] = {};  // all zero: the device of that number
  std::uint64_t memory_bytes = 0, context_bytes = 0;
  std::uint32_t share_milli = 1000;
};
struct JobSpec {
  std::string name, token;
  std::vector<DeviceLimit> devices;
  bool suspendable = true, strict = false;
  std::uint64_t reserve_bytes = 0;  // arena space reserved for it
};

enum class JobPhase { running, suspending, suspended, resuming };
const char* phase_name(JobPhase phase);

struct MoveReport {
  MoveCounts counts;
  double seconds = 0;  // of the whole operation
  double quiesce_seconds = 0, residue_seconds = 0;
  std::uint64_t residue_bytes = 0;
  bool cold = false;
  std::string cold_error;  // why a cold suspend stayed warm
  std::vector<int> lost;   // processes whose driver did not take their memory back
};

struct Job {
  std::uint64_t tenant = 0;
  JobSpec spec;
  Fd limit_fd, usage_fd;
  billow_limit_page* limit = nullptr;
  billow_usage_page* usage = nullptr;
  std::mutex operation;  // held for a suspend or resume
  std::mutex lock;       // guards the members below
  std::vector<std::shared_ptr<ShimLink>> links;
  // By place in the limit page. The image of a process that has ended stays until no operation can
  // be using it; see drop_ended.
  std::map<std::shared_ptr<ShimLink>, std::map<std::uint32_t, std::vector<ChunkImage>>> images;
  // What each process maps of the others, while the job is suspended; guarded by `operation`.
  std::map<std::shared_ptr<ShimLink>, std::vector<billow_foreign>> foreign;
  JobPhase phase = JobPhase::running;
  bool checkpointed = false;
  std::vector<int> checkpointed_pids;
  std::atomic<std::int64_t> resident_bytes{0};
  std::atomic<bool> swapping{false};            // another job resumes while this one suspends
  std::atomic<bool> space_wanted{false};        // and waits for this job's memory
  std::map<ShimLink*, std::uint32_t> draining;  // sequence of the DRAIN each process was sent
  ~Job();
};

class Service {
 public:
  struct Options {
    std::uint64_t arena_bytes = 0;
    LowerTiers::Options lower;  // below the arena
    unsigned threads = 8;
    ArbiterOptions arbiter;
  };
  static Result<std::unique_ptr<Service>> create(Options options);
  ~Service();

  Status add_job(const JobSpec& spec);
  Status remove_job(const std::string& name);
  // Answers the hello of a process. The caller reads from the link's socket.
  Result<std::shared_ptr<ShimLink>> welcome(Fd socket, int pid, const Answer& hello);
  void ended(const std::shared_ptr<ShimLink>& link);
  // Answers a process that wants to map another process's memory.
  Status fetch(int socket, const Answer& request);

  // Tries again without a process that ended meanwhile.
  Result<MoveReport> suspend(const std::string& name, bool cold, int timeout_ms);
  // If another job is leaving at the same time, both together stay within the allowance; 0: within
  // the memory that is free now.
  Result<MoveReport> resume(const std::string& name,
                            std::uint64_t allowance_bytes = 0,
                            Job* leaving = nullptr);
  Result<std::pair<MoveReport, MoveReport>> swap(const std::string& out,
                                                 const std::string& in,
                                                 std::uint64_t allowance_bytes,
                                                 int timeout_ms);
  // The driver's own checkpoint and restore, for processes without the shim.
  Status checkpoint_pids(const std::vector<int>& pids);
  Status restore_pids(const std::vector<int>& pids);
  bool idle();  // no job is registered
  Status set_context_bytes(const std::string& name, std::uint64_t bytes);
  std::string status_text();

 private:
  Result<MoveReport> suspend_once(Job& job, bool cold, int timeout_ms);
  Service() = default;
  std::string lower_text() const;
  std::string asleep_text(const Job& job);
  std::shared_ptr<Job> find(const std::string& name);
  std::shared_ptr<Job> find_by_token(const char* token);
  Result<Gpu*> gpu_of(const Job& job, std::uint32_t place);
  // closing.cpp
  // Leaves in `links` the processes that stopped at their gates; the others have ended or are
  // ending.
  Status close_gates(Job& job,
                     std::vector<std::shared_ptr<ShimLink>>& links,
                     int timeout_ms,
                     MoveReport& report);
  // suspend.cpp
  Status list_chunks(Job& job, const std::vector<std::shared_ptr<ShimLink>>& links);
  // The job's movable bytes, or why it cannot be suspended now.
  Result<std::uint64_t> check_suspendable(Job& job, int timeout_ms);
  Status save(Job& job, MoveReport& report);
  Status checkpoint(Job& job);
  // sharing.cpp
  Status detach(Job& job, const std::vector<std::shared_ptr<ShimLink>>& links);
  void attach(Job& job);
  // resume.cpp
  static std::map<std::uint32_t, std::uint64_t> bytes_needed(Job& job);
  Status check_free_memory(const Job& job, const std::map<std::uint32_t, std::uint64_t>& needed);
  static bool wait_for_space(Job& job,
                             Job& leaving,
                             std::uint64_t bytes,
                             std::uint64_t allowance_bytes);
  void put_back(Job& job);
  Result<MoveCounts> move_in(Job& job,
                             const std::function<bool(std::uint64_t)>& may_create,
                             MoveReport& report);
  Status restore(Job& job);
  Result<MoveCounts> move(Job& job, bool out, std::function<bool(std::uint64_t)> may_create);
  void open(Job& job);  // lets its processes continue
  // Stops processes that joined while the job was being suspended. Called with job.lock held.
  static void hold_newcomers(Job& job, const std::vector<std::shared_ptr<ShimLink>>& held);
  void drop_ended(Job& job);  // frees the images of processes that have ended
  // The caller forgets the image. Called with job.lock held.
  void drop_image(const Job& job, const std::map<std::uint32_t, std::vector<ChunkImage>>& image);
  static void set_phase(Job& job, JobPhase phase);
  void arbitrate();
  void arbiter_round(std::int64_t now_ns);

  Options options_;
  std::unique_ptr<Driver> driver_;
  std::vector<std::array<std::uint8_t, 16>> uuids_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<LowerTiers> lower_;
  Library library_;
  std::unique_ptr<Tiers> tiers_;  // its thread uses the members above
  std::mutex lock_;               // guards the maps of jobs and arbiters
  std::map<std::string, std::shared_ptr<Job>> jobs_;
  std::map<int, std::unique_ptr<Gpu>> gpus_;
  std::mutex gpus_lock_;
  std::uint64_t next_tenant_ = 1;
  std::map<std::string, Arbiter> arbiters_;  // by device
  std::thread arbiter_thread_;
  std::atomic<bool> stop_{false};
};

}  // namespace billow::gpumem
