// Prepares the containers in which tasks with an image or an environment run. A process that runs
// as the task's user fetches the image or environment before the task starts; meanwhile the task
// shows a short note about what it waits for. The task's command is then prefixed with `billow
// box`, which enters the container, and the supervisor starts it like any other command.
//
// Each user has a separate store on the node that no other user can enter. A task's writable layer
// lies there under the task's key and is removed when the task has ended.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/content/container_fetch.h"
#include "agent/content/content_fetch.h"
#include "agent/isolate/fetch_place.h"
#include "agent/isolate/secret_files.h"
#include "agent/isolate/task_spec.h"
#include "agent/isolate/users.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "container/environment.h"
#include "container/plan.h"
#include "core/agent/fair_queue.h"
#include "core/wire/agent_v1.h"
#include "gpu/device.h"
#include "net/loop.h"
#include "net/workers.h"

namespace billow::agent {

class Containers {
 public:
  struct Options {
    std::string directory;  // holds one store per user
    std::string cdi_file;   // where to write the GPUs' CDI description; empty: do not write it
    std::string owner;      // distinguishes this agent's tasks from those of another agent
    std::vector<GpuInfo> gpus;
    std::function<ContentSource()> head;               // source of environments; called on the loop
    std::uint64_t environment_bytes_max = 0;           // unpacked, per user
    std::uint64_t image_bytes_max = 0;                 // on disk, per user; 0: no limit
    std::function<Result<ImageTerms>()> image_terms;   // asked for each image
    Duration quiet_max = limits::container_quiet_max;  // a fetch without progress is cancelled
  };
  struct Callbacks {
    // What a task waits for; empty: it no longer waits.
    std::function<void(TaskId, std::string)> note;
    // The control groups for what fetches for a task.
    std::function<Result<FetchPlace>(TaskId)> place;
  };
  Containers(net::Loop& loop, Options options, Callbacks callbacks);
  ~Containers();

  static bool needed(const wire::agent_v1::Start& start);

  struct Prepared {
    container::Plan plan;
    std::string image_digest;            // empty: made from an environment
    container::Environment environment;  // empty: made from an image
  };
  using Done = std::function<void(Result<Prepared>)>;
  // Fetches the image or environment; users take turns. `done` is called on the loop unless
  // `cancel` is called first.
  void prepare(const wire::agent_v1::Start& start, const UserRecord& user, Done done);
  // The container of a confined job without an image: nothing is fetched.
  Result<Prepared> prepare_confined(const wire::agent_v1::Start& start, const UserRecord& user);
  bool preparing(TaskId task) const { return wanted_.contains(task); }
  void cancel(TaskId task);

  // Whether the task has several containers on this node, which share what is otherwise each one's.
  static bool works_together(const wire::agent_v1::Start& start);
  // The task's files in memory, which must also be visible in another root, and what is refused to
  // its command.
  struct InMemory {
    const std::vector<SecretFiles::Written>& secrets;
    std::string shared;  // the /dev/shm of containers that work together; empty: each has its own
    std::uint32_t refused_calls = 0;  // CallRules of process/call_filter_linux.h, as bits
    // Calls by number, refused to the image's program. Elsewhere the command itself begins with the
    // program that refuses them, so that Billow's own programs in front of it can use them.
    std::vector<std::uint32_t> refused_numbers = {};
    std::string hosts = {};     // shown as /etc/hosts; empty: the node's
    std::uint64_t network = 0;  // inode of the namespace that the agent made for it; 0: none
  };
  // Completes the plan and adds it to a spec that is otherwise complete. `granted` are the indices
  // of the task's GPUs.
  Status wrap_command(const Prepared& prepared,
                      const wire::agent_v1::Start& start,
                      const std::vector<std::uint32_t>& granted,
                      const InMemory& in_memory,
                      TaskSpec& spec) const;
  // Removes the task's writable layer.
  void ended(TaskId task);
  // Bytes on disk of all users' images when last measured; -1: not measured yet. Starts a new
  // measurement in the background when the last one is old.
  std::int64_t image_bytes();
  // Removes the writable layers of all tasks except these: leftovers of an earlier agent process.
  void forget_others(const std::vector<TaskId>& live);

 private:
  // An empty optional: another process holds the user's store; try again.
  using Fetched = Result<std::optional<Prepared>>;
  struct Wanted {
    FairQueue::Item item;
    std::shared_ptr<std::atomic<bool>> cancelled;
    std::function<Fetched(const FetchPlace&)> fetch;  // runs on a worker
    Done done;
    bool begun = false;
    SteadyTime busy_since;  // zero: no other process holds the store
    net::Timer again;
  };
  std::function<Fetched(const FetchPlace&)> make_fetch(
      const wire::agent_v1::Start& start,
      const UserRecord& user,
      const std::string& store,
      const ImageTerms& terms,
      std::shared_ptr<std::atomic<bool>> cancelled);
  void note(TaskId task, const std::shared_ptr<std::atomic<bool>>& cancelled, std::string text);
  void begin_next();
  void fetched(const FairQueue::Item& item,
               const std::shared_ptr<std::atomic<bool>>& cancelled,
               Fetched prepared);
  void wait_for_store(const FairQueue::Item& item,
                      const std::shared_ptr<std::atomic<bool>>& cancelled);
  void finish_later(TaskId task, const std::shared_ptr<std::atomic<bool>>& cancelled, Error error);
  void finish(TaskId task, Result<Prepared> prepared);
  std::string key_of(TaskId task) const;
  Result<std::string> store_of(const UserRecord& user);
  void remove_scratch(const std::function<bool(const std::string& key)>& which);

  net::Loop& loop_;
  Options options_;
  Callbacks callbacks_;
  Json cdi_;
  Fd held_;  // a lock on the directory, which cleaners of old temporary files respect
  std::map<TaskId, Wanted> wanted_;
  FairQueue queue_{{.running_max = limits::containers_prepared_max,
                    .per_user_max = limits::containers_prepared_per_user_max}};
  std::unique_ptr<net::Workers> cleaner_;  // separate, so that removals never wait for fetches
  std::unique_ptr<net::Workers> workers_;
  std::unique_ptr<net::Workers> measurer_;  // separate: measuring a large store takes long
  std::atomic<bool> ending_ = false;
  std::int64_t image_bytes_ = -1;
  SteadyTime measured_at_;
  bool measuring_ = false, changed_ = true;
};

}  // namespace billow::agent
