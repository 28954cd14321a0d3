// Memory with a fixed content, given to another process as a descriptor: what must be on no disk
// and on no command line. Nobody can change it afterwards. The process can open it again, at
// /proc/self/fd/N.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace billow::process {

inline Result<Fd> sealed_memory(const char* name, std::string_view content) {
  Fd memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory)
    return fail_errno("memfd_create", errno);
  BILLOW_TRY_VOID(write_all(memory.get(), content));
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0 ||
      ::lseek(memory.get(), 0, SEEK_SET) != 0)
    return fail_errno("seal memory", errno);
  return memory;
}

}  // namespace billow::process
