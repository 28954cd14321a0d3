// Tells threads that wait for an API server that the pool is ending. Calls, retries and pauses
// watch it, so a head that stops does not wait for a server that does not answer.
//
// Thread-safe.
#pragma once

#include "base/clock.h"
#include "base/file.h"

namespace billow::pool {

class StopSignal {
 public:
  StopSignal();
  void raise();
  bool raised() const { return !pause({}); }
  // Waits; false as soon as the signal is raised.
  bool pause(Duration time) const;
  int fd() const { return fd_.get(); }  // readable once the signal is raised

 private:
  Fd fd_;
};

}  // namespace billow::pool
