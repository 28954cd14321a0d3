#include "client/pager.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "process/spawn.h"

namespace billow::client {

void show_paged(const std::string& text) {
  const char* chosen = std::getenv("PAGER");
  if (!look_at(STDOUT_FILENO).terminal || (chosen && !*chosen))
    return print(text);
  auto pipe = process::Pipe::create();
  process::Spawn request;
  request.argv = chosen ? std::vector<std::string>{"/bin/sh", "-c", chosen}
                        : std::vector<std::string>{"less", "-RFX"};
  request.in = pipe ? pipe->read.get() : process::null_device;
  request.out = process::inherited;
  request.err = process::inherited;
  request.group = process::Group::ours;
  ::signal(SIGPIPE, SIG_IGN);  // people leave a pager before the end
  auto child = pipe ? process::spawn(request) : Result<process::Child>(pass(pipe.error()));
  if (!child)
    return print(text);
  pipe->read.reset();
  (void)write_all(pipe->write.get(), text);
  pipe->write.reset();
  child->wait();
}

}  // namespace billow::client
