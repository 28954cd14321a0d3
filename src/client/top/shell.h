// The outside of `billow top`: the terminal, and threads that ask the head. Events go into one
// queue; one loop takes them, updates the state and draws.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "client/frame/client.h"
#include "client/top/state.h"

namespace billow::client::top {

struct ShellOptions {
  ConnectOptions connect;
  bool colours = true;
};
// Returns the exit code.
Result<int> run_shell(State state, const ShellOptions& options);
// Asks for everything the state shows, until the stream is complete and all has been answered, and
// returns it: for a single picture.
Result<State> look_once(State state, const ShellOptions& options);

}  // namespace billow::client::top
