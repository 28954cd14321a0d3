// The vault's state: jobs with their pages and processes, and the operations on them. Thread-safe;
// each operation on a job holds that job's own lock, so a swap suspends one job while it resumes
// another.
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
  std::uint64_t reserve_bytes = 0;  // arena room promised to it
};

enum class JobPhase { running, suspending, suspended, resuming, lost };
const char* phase_name(JobPhase phase);

struct MoveReport {
  MoveCounts counts;
  double seconds = 0;  // from the request to its end
  double quiesce_seconds = 0, residue_seconds = 0;
  std::uint64_t residue_bytes = 0;
  bool cold = false;
  std::string cold_error;  // why a cold suspend stayed warm
};

struct Job {
  std::uint64_t tenant = 0;
  JobSpec spec;
  Fd limit_fd, usage_fd;
  billow_limit_page* limit = nullptr;
  billow_usage_page* usage = nullptr;
  std::mutex operation;  // held for a suspend or resume
  std::mutex lock;       // over what follows
  std::vector<std::shared_ptr<Session>> sessions;
  std::map<Session*, std::map<std::uint32_t, std::vector<ChunkImage>>>
      images;  // by place in the limit page
  JobPhase phase = JobPhase::running;
  bool checkpointed = false;
  std::vector<int> checkpointed_pids;
  std::atomic<std::int64_t> resident_bytes{0};
  std::atomic<bool> swapping{false},
      room_wanted{false};  // another job comes as this one leaves, and waits for its memory
  std::map<Session*, std::uint32_t> draining;  // sequence of the DRAIN each process was sent
  ~Job();
};

class Node {
 public:
  struct Options {
    std::uint64_t arena_bytes = 0;
    unsigned threads = 8;
    ArbiterOptions arbiter;
  };
  static Result<std::unique_ptr<Node>> create(Options options);
  ~Node();

  Status add_job(const JobSpec& spec);
  Status remove_job(const std::string& name);
  // A process greets: its session, or why not. The caller runs its reader.
  Result<std::shared_ptr<Session>> welcome(Fd socket, int pid, const Answer& hello);
  void ended(const std::shared_ptr<Session>& session);

  Result<MoveReport> suspend(const std::string& name, bool cold, int timeout_ms);
  // With another job leaving at the same time, both together stay within the allowance; 0: within
  // what the GPU has free now.
  Result<MoveReport> resume(const std::string& name,
                            std::uint64_t allowance_bytes = 0,
                            Job* leaving = nullptr);
  Result<std::pair<MoveReport, MoveReport>> swap(const std::string& out,
                                                 const std::string& in,
                                                 std::uint64_t allowance_bytes,
                                                 int timeout_ms);
  // The driver's own checkpoint of processes that no job of the vault's has, and their way back.
  Status checkpoint_pids(const std::vector<int>& pids);
  Status restore_pids(const std::vector<int>& pids);
  bool idle();  // no job is registered
  Status set_context_bytes(const std::string& name, std::uint64_t bytes);
  std::string status_text();

 private:
  Node() = default;
  std::shared_ptr<Job> find(const std::string& name);
  Result<Gpu*> gpu_of(const Job& job, std::uint32_t place);
  Status quiesce(Job& job,
                 std::vector<std::shared_ptr<Session>>& sessions,
                 int timeout_ms,
                 MoveReport& report);
  Result<MoveCounts> move(Job& job, bool out, std::function<bool(std::uint64_t)> may_create);
  Status put_back(Job& job);
  Status checkpoint(Job& job);
  Status restore(Job& job);
  void open(Job& job);
  void arbitrate();
  void arbiter_round(std::int64_t now_ns);

  Options options_;
  std::unique_ptr<Driver> driver_;
  std::vector<std::array<std::uint8_t, 16>> uuids_;
  std::unique_ptr<Arena> arena_;
  Library library_;
  std::mutex lock_;  // over the maps
  std::map<std::string, std::shared_ptr<Job>> jobs_;
  std::map<int, std::unique_ptr<Gpu>> gpus_;
  std::mutex gpus_lock_;
  std::uint64_t next_tenant_ = 1;
  std::map<std::string, Arbiter> arbiters_;  // by device
  std::thread arbiter_thread_;
  std::atomic<bool> stop_{false};
};

}  // namespace billow::gpumem
