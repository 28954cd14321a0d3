#include "process/aside.h"

namespace billow::process {

Status run_aside(const Aside&, const std::function<Status()>&) {
  return fail(Code::unsupported, "threads of another user are a feature of Linux");
}

}  // namespace billow::process
