// Hands files to a head on this machine, which reads and hashes them: see files/door.h.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "base/result.h"
#include "files/door.h"
#include "files/scan.h"

namespace billow::client {

class FileDoor {
 public:
  // `ticket` asks the head for one. Called by several threads, one at a time.
  explicit FileDoor(std::function<Result<files::DoorTicket>()> ticket)
      : ticket_(std::move(ticket)) {}
  // Brings all of them to the head and fills in their digests. False: another way must be tried.
  Result<bool> bring(std::vector<files::Undigested>& files);
  std::uint64_t sent_bytes() const { return sent_; }

 private:
  std::function<Result<files::DoorTicket>()> ticket_;
  std::atomic<std::uint64_t> sent_{0};
};

}  // namespace billow::client
