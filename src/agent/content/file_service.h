// Files for the jobs of this node: what the head keeps is fetched once, kept here up to a limit,
// and handed to `billow stage`, which writes it out as the job's own user; what a job leaves goes
// back the same way.
//
// A job asks over a socket in the abstract namespace of this machine, on which the kernel says who
// asks: it needs no credential, and what it leaves is taken for its own task's alone. The node's
// credential stays with the agent.
//
// In:  "get DIGEST\n"            out: "ok BYTES\n", the list of the tree, then every piece of every
// file in the list's order
//      "put BYTES\n", list, pieces   out: "ok\n"
//      "input BYTES\n", JSON       out: "ok FILES BYTES FETCHED\n", once an object from elsewhere
//      lies in the job's directory
// Either way instead: "error TEXT\n", "again\n" where the task is not known yet, or "busy\n" where
// it has enough connections.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/content/object_cache.h"
#include "agent/isolate/task_spec.h"
#include "base/file.h"
#include "base/result.h"
#include "core/model/job.h"
#include "core/wire/agent_v1.h"
#include "core/wire/copy.h"
#include "files/store.h"
#include "net/address.h"
#include "net/loop.h"
#include "net/tls.h"
#include "net/workers.h"

namespace billow::agent {

inline constexpr const char* files_socket_variable = "BILLOW_FILES_SOCKET";
// For `billow stage`: "URL<tab>path" a line, of what is brought before the command and sent after
// it.
inline constexpr const char* inputs_variable = "BILLOW_INPUTS";
inline constexpr const char* object_outputs_variable = "BILLOW_OBJECT_OUTPUTS";

class FileService {
 public:
  struct Options {
    std::string directory;  // of the cache
    std::uint64_t bytes_max = 0;
    std::string socket;                   // its name
    std::function<net::Endpoint()> head;  // which one leads right now; asked on the loop
    net::TlsClientOptions tls;
    std::string token_file;
    std::string work_dir;  // where jobs' directories are
    // Asked on the loop:
    std::function<std::optional<TaskId>(int pid)> task_of;
    std::function<Result<TaskRecord>(TaskId)> record_of;
    std::uint64_t cache_bytes_max =
        0;  // of objects from elsewhere; again as much of projects' caches
  };
  static Result<std::unique_ptr<FileService>> create(net::Loop& loop, Options options);
  ~FileService();

  // The directory of a task is not needed any more. Removed in the background.
  void forget(TaskId task);
  // Into or out of the directory of a task that runs, in the background; `done` comes on the loop,
  // with the digest of what came out.
  void copy(const wire::agent_v1::CopyFiles& asked,
            const TaskRecord& record,
            std::function<void(Result<std::string>)> done);
  // What earlier lives left behind: every directory but those of the tasks that live.
  void forget_others(const std::vector<TaskId>& live);
  files::Store& store() { return *store_; }
  ObjectCache& objects() { return *objects_; }

 private:
  FileService(net::Loop& loop, Options options);
  void accept();
  Status prepare_work_dir();
  files::Store::Needed needed();
  void serve(int peer, TaskId task, const TaskRecord& record, const net::Endpoint& head);
  Status input(int peer, TaskId task, const TaskRecord& record, std::uint64_t bytes);
  Status get(int peer, std::string_view digest, const net::Endpoint& head);
  Result<std::string> put(int peer, std::uint64_t list_bytes, const net::Endpoint& head);
  Status outputs(int peer, TaskId task, std::uint64_t list_bytes, const net::Endpoint& head);
  Status fetch(const Sha256& digest,
               const net::Endpoint& head,
               files::Tree& tree,
               std::string& list,
               std::list<std::vector<Sha256>>::iterator pieces);

  net::Loop& loop_;
  Options options_;
  std::unique_ptr<files::Store> store_;
  std::unique_ptr<ObjectCache> objects_;
  Fd listener_;
  net::Watch watch_;
  std::mutex fetching_mutex_;
  std::condition_variable fetched_;
  std::set<Sha256> fetching_;
  std::mutex staging_mutex_;
  std::list<std::vector<Sha256>> staging_;  // the pieces of trees that are being handed out
  std::mutex serving_mutex_;
  std::condition_variable served_;
  std::set<int> peers_;
  std::map<TaskId, std::size_t> by_task_;
  std::size_t copies_ = 0;                 // under way
  SteadyTime trim_caches_;                 // the worker's: when they are looked at next
  std::unique_ptr<net::Workers> workers_;  // removes directories
};

// The variables that tell `billow stage` and the job what is brought and kept for it. An error
// where files cannot follow jobs here.
struct FilePlaces {
  std::string socket, work_dir, data_dir;
};
Status add_file_variables(const wire::agent_v1::Start& start,
                          const FilePlaces& places,
                          Environment& env);

// Where a task's files are written; made by the agent, owned by the job's user.
std::string work_path(const std::string& work_dir, TaskId task);

}  // namespace billow::agent
