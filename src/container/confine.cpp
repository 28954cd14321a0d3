#include "container/confine.h"

#include <cerrno>

#include "process/become_linux.h"
#include "process/call_filter_linux.h"

namespace billow::container {

Status forbid_privileged_files() {
  const char* failed = process::forbid_new_privileges();
  if (!failed)
    failed = process::refuse_calls(process::no_privileged_files);
  if (failed)
    return fail_errno(failed, errno);
  return {};
}

}  // namespace billow::container
