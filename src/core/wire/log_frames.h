// Reading the records of a job's log out of the bytes that an agent sent (core/wire/log_record.h).
#pragma once

#include <functional>
#include <string_view>

#include "base/clock.h"
#include "core/wire/log_record.h"

namespace billow::wire {

struct LogRecord {
  std::uint64_t offset = 0;
  LogStream stream = LogStream::out;
  bool notice = false;  // written by Billow, not by the job
  WallTime time;
  std::string_view data;

  std::uint64_t next_offset() const { return offset + sizeof(RecordHead) + data.size(); }
};

// Calls `each` for every record of `frames`, which begins at `offset`. False if the framing is
// damaged; the records before the damage have been passed on.
bool for_each_record(std::string_view frames,
                     std::uint64_t offset,
                     const std::function<void(const LogRecord&)>& each);

}  // namespace billow::wire
