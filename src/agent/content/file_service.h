// Files for the jobs of this node. Files from the head are fetched once, cached up to a limit, and
// given to `billow stage`, which writes them as the job's user. Outputs go back the same way.
//
// A job connects to a socket, on which the kernel identifies the peer: the job needs no credential
// and can only act for its own task. The node's credential stays with the agent. The socket is in a
// directory whose name only jobs get; a process of a user without a job on this node is refused
// before anything is read, and a turn of the loop accepts a few connections at most.
//
// Request                        Answer
//   "get DIGEST [fds [part]]\n"    "ok BYTES new|kept\n" and the file list. If the directory holds
//                                  kept files already: the states of its entries, to which the job
//                                  says "0" or "1" for each entry, whether it wants it. Then come
//                                  all wanted pieces in the list's order. With "fds", large files
//                                  are left out: the job sends descriptors of new files, some at a
//                                  time, each with an octet, and "1" says that the agent has filled
//                                  these. At last the job tells the states of all entries.
//                                  With "part", the agent looks at kept files itself: "ok BYTES
//                                  part\n" and the list of what the directory lacks, of which all
//                                  pieces come; if it lacks nothing, that is all.
//   "put BYTES\n", list, pieces    "ok\n"
//   "input BYTES\n", JSON          "ok FILES BYTES FETCHED\n" once the object is in the job's
//                                  directory. Only before the job's command starts.
// Any request may also be answered with "error TEXT\n", with "again\n" (the task is not known yet)
// or with "busy\n" (the task has too many connections).
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
#include "agent/content/piece_source.h"
#include "agent/content/spare_dirs.h"
#include "agent/isolate/own_place.h"
#include "agent/isolate/peer.h"
#include "agent/isolate/task_spec.h"
#include "agent/isolate/tree_removal.h"
#include "base/file.h"
#include "base/result.h"
#include "base/thread_group.h"
#include "core/model/job.h"
#include "core/wire/agent_v1.h"
#include "core/wire/copy.h"
#include "files/store.h"
#include "net/address.h"
#include "net/http/node_credential.h"
#include "net/loop.h"
#include "net/tls.h"
#include "net/workers.h"

namespace billow::agent {

// The directory of a task's private /tmp, below the work directory; removed with the task's files.
inline std::string private_tmp_name(TaskId task) {
  return std::to_string(task.value) + ".tmp";
}
inline constexpr const char* files_socket_variable = "BILLOW_FILES_SOCKET";
// For `billow stage`: one "URL<tab>path" per line, fetched before the command or sent after it.
inline constexpr const char* inputs_variable = "BILLOW_INPUTS";
inline constexpr const char* object_outputs_variable = "BILLOW_OBJECT_OUTPUTS";

class HeadClient;

class FileService {
 public:
  struct Options {
    std::string directory;  // of the cache
    std::uint64_t bytes_max = 0;
    Fd listener;                                 // of the socket, see Doors
    std::function<net::Endpoint()> head;         // the current leader; called on the loop
    std::function<net::TlsClientOptions()> tls;  // from any thread
    std::shared_ptr<const net::NodeCredential> credential;
    std::string work_dir;   // the agent's own; jobs' directories are in it
    std::string cache_dir;  // of objects and projects' caches; empty: work_dir
    std::string door;       // the directory in it that holds the socket
    // Called on the loop:
    std::function<std::optional<TaskId>(const SocketPeer&)> task_of;
    std::function<Result<TaskRecord>(TaskId)> record_of;
    // From any thread: whether a job whose network is not the node's may reach the address. It may
    // reach public ones, and these blocks of private networks.
    std::function<bool(const std::vector<std::string>& allow, const net::RawAddress&)> may_reach;
    // Limit for fetched objects, and separately for all projects' cache directories.
    std::uint64_t cache_bytes_max = 0;
  };
  static Result<std::unique_ptr<FileService>> create(net::Loop& loop, Options options);
  ~FileService();

  // Serves another socket too: one whose name older jobs have.
  void serve_also(Fd listener);
  // Removes the directory of a task, in the background, or keeps its files for the next job.
  void forget(TaskId task);
  // Copies files into or out of the directory of a running task, in the background. `done` is
  // called on the loop with the digest of what was copied out.
  void copy(const wire::agent_v1::CopyFiles& asked,
            const TaskRecord& record,
            std::function<void(Result<std::string>)> done);
  // Removes the directories of all tasks except these: leftovers of an earlier agent process. When
  // it returns, their names are free again.
  void forget_others(const std::vector<TaskId>& live);
  files::Store& store() { return *store_; }
  SpareDirs& spares() { return *spares_; }
  ObjectCache& objects() { return *objects_; }

 private:
  FileService(net::Loop& loop, Options options);
  void accept(int listener);
  Status prepare_work_dir();
  files::Store::Needed needed();
  void serve(int peer, TaskId task, const TaskRecord& record, const net::Endpoint& head);
  Status input(int peer, TaskId task, const TaskRecord& record, std::uint64_t bytes);
  Result<ObjectCache::Brought> bring(TaskId task,
                                     const TaskRecord& record,
                                     const s3::Place& place,
                                     const std::string& path,
                                     const s3::Access& access);
  // For a task: what its directory holds already is not sent.
  struct Wish {
    std::optional<TaskId> task = {};
    bool fills_large = false;  // the agent fills large files
  };
  Status get(int peer, std::string_view digest, const net::Endpoint& head, const Wish& wish);
  Status send_pieces(int peer,
                     const files::Tree& tree,
                     std::string_view wanted,
                     bool without_large,
                     PieceSource& source);
  Status fill_large(int peer,
                    const files::Tree& tree,
                    std::string_view wanted,
                    PieceSource& source);
  Result<std::string> put(int peer, std::uint64_t list_bytes, const net::Endpoint& head);
  Status outputs(int peer, TaskId task, std::uint64_t list_bytes, const net::Endpoint& head);
  Status fetch_list(const Sha256& digest,
                    const net::Endpoint& head,
                    files::Tree& tree,
                    std::string& list,
                    std::list<std::vector<Sha256>>::iterator pieces);
  // Finds or fetches the content of the entries that are marked with "1".
  Status bring_pieces(const Sha256& digest,
                      const net::Endpoint& head,
                      const files::Tree& tree,
                      std::string_view wanted,
                      PieceSource& source);

  struct Turn;
  bool find_at_head(const Sha256& digest,
                    const net::Endpoint& head,
                    const std::vector<Sha256>& pieces,
                    PieceSource& source);
  Status fetch_pieces(const Sha256& digest,
                      const net::Endpoint& head,
                      const files::Tree& tree,
                      const std::vector<Sha256>& missing);
  Status fetch_batch(HeadClient& head, const std::string& target, const std::vector<Sha256>& batch);

  net::Loop& loop_;
  Options options_;
  std::optional<OwnPlace> place_;  // of work_dir
  std::unique_ptr<files::Store> store_;
  std::unique_ptr<ObjectCache> objects_;
  std::unique_ptr<SpareDirs> spares_;
  struct Door {
    Fd listener;
    net::Watch watch;
  };
  std::list<Door> doors_;
  std::mutex brought_mutex_;
  std::mutex fetching_mutex_;
  std::condition_variable fetched_;
  std::set<Sha256> fetching_;
  std::mutex staging_mutex_;
  std::list<std::vector<Sha256>> staging_;  // pieces of the trees that are being sent
  std::mutex serving_mutex_;
  std::set<int> peers_;
  std::map<TaskId, std::size_t> by_task_;
  std::size_t copies_ = 0;                 // under way
  SteadyTime trim_caches_;                 // next time the worker trims the caches
  std::unique_ptr<net::Workers> workers_;  // keeps or removes directories
  TreeRemoval removal_;
  ThreadGroup threads_;  // one per connection and per copy
};

// Adds the variables that tell `billow stage` and the job where its files and caches are. An error
// if this node cannot provide files.
struct FilePlaces {
  std::string socket;
  const OwnPlace& cache;
  std::string kept_dir;
};
Status add_file_variables(const wire::agent_v1::Start& start,
                          const FilePlaces& places,
                          Environment& env);

// The directory of a task's files; created by the agent, owned by the job's user.
std::string work_path(const std::string& work_dir, TaskId task);

}  // namespace billow::agent
