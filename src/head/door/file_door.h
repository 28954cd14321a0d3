// The other end of files/door.h: takes files of clients on this machine into the head's store. Its
// threads only read, hash and write; who may bring what was decided when the ticket was granted.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"
#include "base/thread_group.h"
#include "files/door.h"
#include "files/store.h"

namespace billow::head {

class FileDoor {
 public:
  static Result<std::unique_ptr<FileDoor>> open(files::Store& store);
  ~FileDoor();
  // A ticket for content of this owner. It must be used within a minute.
  files::DoorTicket grant(const std::string& owner, const files::OwnerLimit& limit);

 private:
  struct Grant {
    std::string owner;
    files::OwnerLimit limit;
    SteadyTime until;
  };
  FileDoor(files::Store& store, Fd listener, std::string name);
  void accept();
  void serve(int peer);
  Result<Grant> redeem(int peer);
  // A request, and the descriptor that came with it.
  struct Asked {
    files::DoorRequest request;
    Fd attached;
  };
  // Of one connection.
  struct Session {
    Grant grant;
    std::uint64_t bytes_left = files::door_bytes_per_ticket;
    std::optional<Asked> waiting = {};  // received before it was its turn
    bool known = true;                  // whether the store had the last large pieces
  };
  static bool receive_request(int peer, Asked& asked);
  static bool receive_group(int peer, Session& session, std::vector<Asked>& group);
  bool answer(int peer, const Asked& asked, char* buffer, const Grant& grant);
  bool answer_together(int peer, const std::vector<Asked>& group, char* buffer, Session& session);
  Result<std::vector<Sha256>> take_piece(const Asked& asked, char* buffer, const Grant& grant);

  files::Store& store_;
  const Fd listener_;
  const std::string name_;
  std::mutex mutex_;
  std::map<std::string, Grant> grants_;
  std::set<int> peers_;
  bool ending_ = false;
  ThreadGroup threads_;
  std::thread accepting_;
};

}  // namespace billow::head
