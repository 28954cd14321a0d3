// Replaces the installation's key while the head runs:
//   1. the new key is written before the old one, durably;
//   2. values are wrapped anew, some at a time, each time journalled;
//   3. when nothing needs the old key any more, it leaves the file.
// At every moment the file has the keys of everything that is stored, so a head that is killed
// loses nothing: it continues with step 2 when it starts again.
//
// The old key stays for a while after the last value, because something that was sealed with it may
// still be on its way into the journal.
#pragma once

#include <functional>

#include "head/engine.h"
#include "head/secrets/secret_keeper.h"
#include "net/loop.h"

namespace billow::head {

class KeyRotation {
 public:
  struct Options {
    SecretKeeper* keeper = nullptr;
    std::function<Engine&()> engine;
  };
  struct Done {
    std::size_t resealed = 0;
    std::size_t lost = 0;  // cannot be opened with any key: they stay as they are
  };
  using OnDone = std::function<void(Result<Done>)>;
  KeyRotation(net::Loop& loop, Options options) : loop_(loop), options_(std::move(options)) {}
  ~KeyRotation() { *here_ = false; }

  // A second call while it runs is refused.
  void start(control::Cause cause, OnDone done);
  // At the start of the head: continues an interrupted rotation.
  void resume();

 private:
  void reseal_some();
  void finish(Result<Done> result);
  void drop_old_keys();

  net::Loop& loop_;
  Options options_;
  bool running_ = false;
  control::Cause cause_;
  OnDone on_done_;
  Done count_;
  net::Timer again_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace billow::head
