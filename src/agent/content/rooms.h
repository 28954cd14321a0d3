// The rooms in which tasks with an image or an environment run. What a room is made of is brought
// before its task starts, by a helper that runs as the task's user; what the task waits for
// meanwhile is said in a few words. Then the room is put in front of the task's command (`billow
// box`), which the supervisor starts like any other.
//
// Each user has a store of its own on the node, which nobody else can enter. What a task writes
// into its room lies there under the task's own name, and goes when the task has ended.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/content/content_fetch.h"
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

class Rooms {
 public:
  struct Options {
    std::string directory;  // of all users' stores
    std::string cdi_file;   // where the description of the GPUs is left for others; empty: nowhere
    std::string owner;      // tells this agent's tasks from those of another one
    std::vector<GpuInfo> gpus;
    std::function<ContentSource()> head;  // where environments are fetched from; asked on the loop
    std::uint64_t environment_bytes_max = 0;  // unpacked, of each user
    std::uint64_t image_bytes_max = 0;        // on the disk, of each user; 0: no limit
    Duration quiet_max =
        limits::room_quiet_max;  // what is brought and makes no progress for so long is given up
  };
  struct Callbacks {
    std::function<void(TaskId, std::string)>
        note;  // what a task waits for; empty: nothing any more
  };
  Rooms(net::Loop& loop, Options options, Callbacks callbacks);
  ~Rooms();

  static bool needed(const wire::agent_v1::Start& start);

  struct Room {
    container::Plan plan;
    std::string image_digest;            // of the image it is made of
    container::Environment environment;  // or of the environment
  };
  using Done = std::function<void(Result<Room>)>;
  // Brings what the room is made of, in fair turns among users. `done` is called on the loop,
  // unless it is cancelled before.
  void prepare(const wire::agent_v1::Start& start, const UserRecord& user, Done done);
  bool preparing(TaskId task) const { return wanted_.contains(task); }
  void cancel(TaskId task);

  // Puts the room before the command of a spec that is otherwise complete. `granted` are the cards
  // it was given, by number; `secrets` the files it has, which are seen in another root as well.
  Status furnish(const Room& room,
                 const wire::agent_v1::Start& start,
                 const std::vector<std::uint32_t>& granted,
                 const std::vector<SecretFiles::Written>& secrets,
                 TaskSpec& spec) const;
  // What it wrote into its room may go.
  void ended(TaskId task);
  // On the disk, of all users' images, as of the last look; -1: nobody has looked yet. Looks again
  // now and then, apart.
  std::int64_t image_bytes();
  // What earlier lives left behind: everything but what the tasks that live have written.
  void forget_others(const std::vector<TaskId>& live);

 private:
  // None: another process is at it, ask again.
  using Brought = Result<std::optional<Room>>;
  struct Wanted {
    FairQueue::Item item;
    std::shared_ptr<std::atomic<bool>> cancelled;  // to be given up
    std::function<Brought()> bring;                // on a worker
    Done done;
    bool begun = false;
    SteadyTime busy_since;  // zero: nobody else is at it
    net::Timer again;
  };
  void begin_next();
  void brought(const FairQueue::Item& item,
               const std::shared_ptr<std::atomic<bool>>& cancelled,
               Brought room);
  void finish(TaskId task, Result<Room> room);
  std::string key_of(TaskId task) const;
  Result<std::string> store_of(const UserRecord& user);
  void remove_scratch(const std::function<bool(const std::string& key)>& which);

  net::Loop& loop_;
  Options options_;
  Callbacks callbacks_;
  Json cdi_;
  Fd held_;  // a lock on the directory: what cleans up old temporary files leaves a locked one
             // alone
  std::map<TaskId, Wanted> wanted_;
  FairQueue queue_{{.running_max = limits::rooms_brought_max,
                    .per_user_max = limits::rooms_brought_per_user_max}};
  std::unique_ptr<net::Workers>
      cleaner_;  // apart, or what tasks left would wait for what others bring
  std::unique_ptr<net::Workers> workers_;
  std::unique_ptr<net::Workers>
      measurer_;  // apart from the cleaner: a store may be large, and is its user's to make larger
  std::atomic<bool> ending_ = false;
  std::int64_t image_bytes_ = -1;
  SteadyTime measured_at_;
  bool measuring_ = false, changed_ = true;
};

}  // namespace billow::agent
