// The pods of a pool as the API server has them: listed once, then kept current by a watch. Asking
// for them costs no request.
//
// A watch that breaks continues where it was. Only if that fails, or the server no longer knows the
// position (410), the pods are listed again. Without the right to watch, they are listed every few
// seconds.
//
// Thread-safe. One thread follows the watch. It ends with the object, which raises the signal, or
// earlier if somebody else does.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/sync.h"
#include "pool/kubernetes/client.h"
#include "pool/kubernetes/pod_state.h"

namespace billow::pool {

class PodWatch {
 public:
  struct Options {
    std::string pods;      // "/api/v1/namespaces/team/pods"
    std::string selector;  // of labels: "billow/pool=k"
    std::function<bool(const PodSeen&)> wanted;
    std::function<void(const PodSeen&)> on_change;  // new or changed; on the watch's thread
  };
  PodWatch(KubeClient& client, StopSignal& stop, Options options);
  ~PodWatch();
  PodWatch(const PodWatch&) = delete;

  // A pod of this uid was just created: `pods` waits until the watch has reported it.
  void expect(const std::string& uid);
  // All of them. An error if the server does not answer, or did not yet.
  Result<std::vector<PodSeen>> pods();
  // How pods of a machine ended that are no longer listed; returned once.
  std::string last_words(const std::string& machine);

 private:
  struct Seen {
    bool listed = false;
    bool tried = false;                                                       // to list them
    Error error{Code::unavailable, "the pods have not been listed yet", {}};  // unless `listed`
    std::map<std::string, PodSeen> pods;                                      // by uid
    std::set<std::string> awaited;                                            // uids
    std::set<std::string> gone;                // uids that were deleted lately
    std::deque<std::string> gone_in_order;     // the same, oldest first
    std::map<std::string, std::string> words;  // machine → how its last pod ended
  };
  enum class Ended { in_order, too_old, refused, broken };

  void run();
  Result<std::string> list();  // the version to watch from
  Result<std::string> list_once(std::vector<PodSeen>& found);
  Ended watch(std::string& version);
  bool take(std::string_view line, std::string& version, Ended& ended);
  void put(const Json& pod);
  void remove(const Json& pod);
  void failed(const Error& error);

  KubeClient& client_;
  Options options_;
  StopSignal& stop_;
  Sync<Seen> seen_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace billow::pool
