#include "container/confine.h"

#include <cerrno>

#include "process/become_linux.h"
#include "process/call_filter_linux.h"

namespace billow::container {

Status forbid_privileged_files() {
  return confine(process::no_privileged_files);
}

Status confine(std::uint32_t groups, const std::vector<std::uint32_t>& numbers) {
  if (groups == 0 && numbers.empty())
    return {};
  process::NamedCalls named;
  if (numbers.size() > process::named_calls_max)
    return fail(Code::too_large, "too many system calls are named");
  for (const std::uint32_t number : numbers)
    named.numbers[named.count++] = number;
  const char* failed = process::forbid_new_privileges();
  if (!failed)
    failed = process::refuse_calls(groups, named);
  if (failed)
    return fail_errno(failed, errno);
  return {};
}

}  // namespace billow::container
