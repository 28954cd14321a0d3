// The other end of files/door.h: takes files of clients on this machine into the head's store. Its
// threads only read, hash and write; who may bring what was decided when the ticket was granted.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

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
  static bool receive_request(int peer, Asked& asked);
  bool answer(int peer, const Asked& asked, char* buffer, const Grant& grant);
  bool answer_both(
      int peer, const Asked& first, const Asked& second, char* buffer, const Grant& grant);
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
