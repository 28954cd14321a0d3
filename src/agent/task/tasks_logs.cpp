// Logs of tasks for their readers. Each reader asks for the next piece; one that follows is
// answered when there is more.
#include "agent/task/task_link.h"
#include "base/limits.h"

namespace billow::agent {

bool Tasks::serve(std::uint64_t subscription, Reader& reader) {
  auto& log = logs_[reader.task];
  if (!log)
    log = std::make_unique<LogReader>(dirs_.path(reader.task));
  // Checked before the log is read: what is written later is found by the next read.
  const bool live = containers_.preparing(reader.task) ||
                    (links_.contains(reader.task) && !link(reader.task)->exited);
  auto chunk = log->read(reader.offset, limits::log_chunk_bytes_max);
  wire::agent_v1::LogChunk answer;
  answer.subscription = subscription;
  if (!chunk) {
    // A task that was placed but has not written its first file yet.
    if (live && reader.follow)
      return false;
    answer.end = true;
    answer.offset = answer.next_offset = reader.offset;
    if (!file_exists(dirs_.path(reader.task)))
      answer.error = "its log is no longer kept on the node";
    callbacks_.send(answer, {});
    return true;
  }
  const bool nothing = chunk->frames.empty();
  if (nothing && live && reader.follow)
    return false;
  answer.offset = chunk->offset;
  answer.next_offset = chunk->next_offset;
  answer.lost_bytes = chunk->gone_bytes;
  answer.end = nothing && (!live || !reader.follow);
  // If nothing can be added any more, the last piece says that it is the last.
  if (!nothing && !live && chunk->at_end)
    answer.end = true;
  if (!nothing && !reader.follow && chunk->at_end)
    answer.end = true;
  callbacks_.send(answer, chunk->frames);
  return true;
}

// A query does bounded work and is asked again if that was not all (core/wire/log_query.h).
void Tasks::answer_query(const wire::agent_v1::LogRead& read) {
  auto& log = logs_[read.task];
  if (!log)
    log = std::make_unique<LogReader>(dirs_.path(read.task));
  wire::agent_v1::LogChunk answer;
  answer.subscription = read.subscription;
  answer.answered = true;
  const auto found = log->query(wire::query_of(read));
  if (!found) {
    answer.end = true;
    answer.error = file_exists(dirs_.path(read.task)) ? found.error().message
                                                      : "its log is no longer kept on the node";
    return callbacks_.send(answer, {});
  }
  wire::fill(answer, *found);
  callbacks_.send(answer, found->lines);
}

void Tasks::perform(const effect::ReadLog& e) {
  if (!e.read.query.empty())
    return answer_query(e.read);
  Reader reader{e.read.task, e.read.offset, e.read.follow};
  if (e.read.tail_bytes >= 0) {
    auto& log = logs_[reader.task];
    if (!log)
      log = std::make_unique<LogReader>(dirs_.path(reader.task));
    if (const auto offset = log->tail_offset(static_cast<std::uint64_t>(e.read.tail_bytes)))
      reader.offset = *offset;
  }
  if (serve(e.read.subscription, reader))
    return;
  reading_[reader.task].insert(e.read.subscription);
  readers_[e.read.subscription] = reader;
}

void Tasks::perform(const effect::CancelLog& e) {
  const auto found = readers_.find(e.subscription);
  if (found == readers_.end())
    return;
  const auto waiting = reading_.find(found->second.task);
  waiting->second.erase(e.subscription);
  if (waiting->second.empty())
    reading_.erase(waiting);
  readers_.erase(found);
}

void Tasks::forget_readers() {
  tunnels_.close_all();
  readers_.clear();
  reading_.clear();
}

void Tasks::advanced(TaskId task) {
  const auto found = reading_.find(task);
  if (found == reading_.end())
    return;
  const std::set<std::uint64_t> waiting = std::move(found->second);
  reading_.erase(found);
  for (std::uint64_t subscription : waiting) {
    const auto reader = readers_.find(subscription);
    if (reader == readers_.end())
      continue;
    if (serve(subscription, reader->second))
      readers_.erase(reader);
    else
      reading_[task].insert(subscription);
  }
}

}  // namespace billow::agent
