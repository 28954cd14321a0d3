#include "agent/task/order_record.h"

#include "base/file.h"
#include "core/wire/codec.h"

namespace billow::agent {

TaskState OrderRecord::state() const {
  if (!done)
    return suspend ? TaskState::suspending : TaskState::resuming;
  return suspend == error.empty() ? TaskState::suspended : TaskState::running;
}

Status write_order(const std::string& task_dir, const OrderRecord& record) {
  return write_file_atomic(task_dir + "/order", wire::to_json_text(record), 0600);
}

std::optional<OrderRecord> read_order(const std::string& task_dir) {
  const auto text = read_file(task_dir + "/order");
  if (!text)
    return std::nullopt;
  auto record = wire::from_json_text<OrderRecord>(*text);
  if (!record)
    return std::nullopt;
  return std::move(*record);
}

}  // namespace billow::agent
