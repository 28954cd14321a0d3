#include "container/confine.h"

#include <cerrno>

#include "process/become_linux.h"
#include "process/call_filter_linux.h"

namespace billow::container {

Status forbid_privileged_files() {
  return confine(process::no_privileged_files);
}

Status confine(std::uint32_t groups) {
  if (groups == 0)
    return {};
  const char* failed = process::forbid_new_privileges();
  if (!failed)
    failed = process::refuse_calls(groups);
  if (failed)
    return fail_errno(failed, errno);
  return {};
}

}  // namespace billow::container
