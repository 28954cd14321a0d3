// Restores the terminal: raw mode ends with its guard, on every way out of a command.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace billow::client {

struct TerminalSize {
  std::uint16_t rows = 24, cols = 80;
};
std::optional<TerminalSize> terminal_size(int fd);

// Whether stdin is more than /dev/null: a job that is given only that needs no forwarding.
bool has_input();

// Keys go through unread and unechoed while this lives. Also restored by exit() and abort(), and by
// Ctrl-C under an OnInterrupt.
class RawMode {
 public:
  static Result<RawMode> enter(int fd);
  static Result<RawMode> hide(int fd);  // lines as usual, but not shown: for passwords
  RawMode(RawMode&&) noexcept;
  RawMode& operator=(RawMode&&) noexcept;
  ~RawMode();

 private:
  struct Saved;
  explicit RawMode(std::unique_ptr<Saved> saved);
  std::unique_ptr<Saved> saved_;
};

// What Ctrl-C means while a command waits. The sentence says what happens to the job, `clean_up`
// removes what the command would leave behind, the terminal is restored, and the program ends as by
// the signal: exit code 130. The newest sentence is said, and everything is cleaned up. The signal
// goes to a thread made for it, so both may do anything. Not together with a SignalQueue.
class OnInterrupt {
 public:
  explicit OnInterrupt(std::string sentence, std::function<void()> clean_up = {});
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;
  ~OnInterrupt();
  void say(std::string sentence);  // instead, from now on
  struct Entry;

 private:
  std::unique_ptr<Entry> entry_;
};
// Ends the program as Ctrl-C does: for a place that reads the key itself.
[[noreturn]] void end_by_interrupt();

// SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGWINCH as readable events instead of interruptions, and no
// SIGPIPE.
class SignalQueue {
 public:
  static Result<SignalQueue> create();
  SignalQueue(SignalQueue&&) noexcept;
  SignalQueue& operator=(SignalQueue&&) = delete;
  ~SignalQueue();
  int fd() const { return fd_.get(); }
  int next();  // 0 when there is none

 private:
  struct Mask;
  SignalQueue(Fd fd, std::unique_ptr<Mask> before);
  Fd fd_;
  std::unique_ptr<Mask> before_;
};

// Finds Ctrl-P Ctrl-Q in what is typed. A Ctrl-P is held back until the next key says what it was.
class DetachKeys {
 public:
  struct Taken {
    std::string input;    // for the job
    bool detach = false;  // everything behind it is dropped
  };
  Taken take(std::string_view typed);

 private:
  bool held_ = false;
};

}  // namespace billow::client
