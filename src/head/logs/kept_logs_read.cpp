// Reading kept logs: from the head's copy, the node, or the bucket.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstring>

#include "base/text.h"
#include "core/control/quotas.h"
#include "core/wire/log_frames.h"
#include "core/wire/log_query.h"
#include "head/logs/kept_logs.h"

namespace billow::head {
namespace {

// The position of the first record at or after `offset`, or with `before` of the one that contains
// it.
std::size_t record_at(std::string_view frames,
                      std::uint64_t base,
                      std::uint64_t offset,
                      bool before) {
  std::size_t at = 0;
  while (base + at < offset && frames.size() - at >= sizeof(wire::RecordHead)) {
    wire::RecordHead head;
    std::memcpy(&head, frames.data() + at, sizeof(head));
    const std::size_t whole = sizeof(head) + head.bytes;
    if (frames.size() - at < whole || (before && base + at + whole > offset))
      break;
    at += whole;
  }
  return at;
}

std::string notice_record(std::string_view text, WallTime at) {
  const wire::RecordHead head{static_cast<std::uint32_t>(text.size()),
                              static_cast<std::uint8_t>(wire::LogStream::err), wire::record_notice,
                              0, at.ns};
  std::string record(reinterpret_cast<const char*>(&head), sizeof(head));
  return record.append(text);
}

struct KeptPiece {
  wire::agent_v1::LogChunk chunk;
  std::string frames;
};

Result<KeptPiece> read_piece(const std::string& path,
                             const wire::agent_v1::LogRead& request,
                             bool whole) {
  std::uint64_t offset = request.offset;
  const bool tail = request.tail_bytes >= 0;
  if (tail) {
    const files::LogSpan span = BILLOW_TRY(files::log_span(path));
    const auto wanted = static_cast<std::uint64_t>(request.tail_bytes);
    offset = std::max(span.first, span.end - std::min(span.end, wanted));
  }
  files::LogBlock block = BILLOW_TRY(files::read_log_block(path, offset));
  KeptPiece piece;
  piece.chunk.offset = piece.chunk.next_offset = offset;
  if (!block.frames.empty()) {
    const std::size_t from = record_at(block.frames, block.offset, offset, tail);
    piece.chunk.offset = block.offset + from;
    piece.chunk.next_offset = block.offset + block.frames.size();
    if (!tail && block.offset > offset)
      piece.chunk.lost_bytes = block.offset - offset;
    piece.frames = block.frames.substr(from);
  }
  piece.chunk.end = piece.chunk.next_offset >= block.span.end;
  struct stat info {};
  if (!whole && piece.chunk.end && offset <= block.span.end && ::stat(path.c_str(), &info) == 0) {
    const WallTime saved{info.st_mtim.tv_sec * 1'000'000'000ll + info.st_mtim.tv_nsec};
    const std::string notice = notice_record(
        fmt::format("billow: the rest of this log was lost with its node; it was saved at {}\n",
                    format_utc(saved)),
        saved);
    piece.frames += notice;
    piece.chunk.next_offset += notice.size();
  }
  return piece;
}

// Lines of a kept log. A worker has the time: it goes on until the query is answered, while other
// threads unpack what it reads next.
Result<KeptPiece> query_kept(const std::string& path, const wire::agent_v1::LogRead& request) {
  files::LogScan scan(path, files::LogScan::Ahead::yes);
  const auto read = [&](std::uint64_t offset, std::size_t, wire::LogPiece& into) -> Status {
    files::LogBlock block = BILLOW_TRY(scan.read(offset));
    const std::size_t from = record_at(block.frames, block.offset, offset, false);
    const std::uint64_t next = block.offset + block.frames.size();
    into = {block.offset + from, next,
            from == 0 ? std::move(block.frames) : block.frames.substr(from),
            next >= block.span.end};
    return {};
  };
  wire::LineIndex index;
  wire::LogQuery query = wire::query_of(request);
  query.bytes_per_turn = SIZE_MAX;
  wire::LogAnswer answer = BILLOW_TRY(wire::run_query(query, index, read));
  KeptPiece out;
  out.frames = std::move(answer.lines);
  wire::fill(out.chunk, answer);
  return out;
}

}  // namespace

// A read under way, of a file or of a node. Its reader's subscription owns it.
struct KeptLogs::Reading {
  OnChunk fn;
  std::unique_ptr<net::Subscription> at_node;
};
namespace {
struct ReadingSub final : net::Subscription {
  std::shared_ptr<void> reading;
};
}  // namespace

std::unique_ptr<net::Subscription> KeptLogs::read(NodeId node, LogRead request, OnChunk fn) {
  auto reading = std::make_shared<Reading>();
  reading->fn = std::move(fn);
  auto sub = std::make_unique<ReadingSub>();
  sub->reading = reading;
  const auto found = find(request.task);
  const Task* task = state().find_task(request.task);
  const bool live = task && task->state != TaskState::ended;
  const auto at = state().nodes.find(node);
  const bool answers =
      at != state().nodes.end() && (at->second.reachable || options_.agents->connected(node));
  if (found && (found->known.kind == Kind::whole ||
                (found->known.kind == Kind::part && !live && !answers && found->known.bytes > 0))) {
    read_kept(*found, request, reading);
  } else if (live || at != state().nodes.end()) {
    ask_node(node, request, reading);
  } else if (options_.bucket) {
    ask_bucket(request, reading);
  } else {
    fail_read(reading, why_missing(request.task));
  }
  return sub;
}

void KeptLogs::fail_read(const std::shared_ptr<Reading>& to, std::string why) {
  options_.loop->post([weak = std::weak_ptr(to), why = std::move(why)] {
    if (const auto reading = weak.lock())
      reading->fn(LogChunk{.end = true, .error = why}, {});
  });
}

void KeptLogs::ask_bucket(const LogRead& request, const std::shared_ptr<Reading>& to) {
  options_.bucket->fetch(request.task, [this, weak = std::weak_ptr(to),
                                        request](const Result<LogBucket::Fetched>& fetched) {
    const auto reading = weak.lock();
    if (!reading)
      return;
    if (!fetched)
      return fail_read(reading, fetched.error().code == Code::not_found ? why_missing(request.task)
                                                                        : fetched.error().message);
    read_kept({fetched->path, {.kind = fetched->whole ? Kind::whole : Kind::part}, {}}, request,
              reading);
  });
}

std::string KeptLogs::why_missing(TaskId task) const {
  const auto found = find(task);
  if (found && found->known.kind == Kind::gone)
    return fmt::format(
        "its log was removed: the head keeps the newest {} of the logs of {} (an admin sets "
        "`billow quota set --{} kept-log-bytes SIZE`)",
        format_bytes(project_bytes_max(found->project).value_or(0)),
        control::quota_owner(state(), QuotaScope::project, found->project.value),
        control::quota_owner(state(), QuotaScope::project, found->project.value));
  return "its node is gone, and its log could not be saved before";
}

void KeptLogs::read_kept(const Found& found,
                         const LogRead& request,
                         const std::shared_ptr<Reading>& to) {
  const Status queued = readers_->submit(
      [path = found.path, request, whole = found.known.kind == Kind::whole] {
        return request.query.empty() ? read_piece(path, request, whole) : query_kept(path, request);
      },
      [weak = std::weak_ptr(to), offset = request.offset](const Result<KeptPiece>& piece) {
        const auto reading = weak.lock();
        if (!reading)
          return;
        if (piece)
          reading->fn(piece->chunk, piece->frames);
        else
          reading->fn(LogChunk{.offset = offset,
                               .next_offset = offset,
                               .end = true,
                               .error = piece.error().message},
                      {});
      });
  if (!queued)
    options_.loop->post([weak = std::weak_ptr(to)] {
      if (const auto reading = weak.lock())
        reading->fn(LogChunk{.error = "the head is busy"}, {});
    });
}

// A read must not reach the node before the order to start the task, which leaves when the journal
// has it.
void KeptLogs::ask_node(NodeId node, const LogRead& request, const std::shared_ptr<Reading>& to) {
  options_.engine().when_durable([this, weak = std::weak_ptr(to), node, request] {
    const auto reading = weak.lock();
    if (!reading)
      return;
    reading->at_node = options_.agents->read_log(
        node, request, [this, weak, request](const LogChunk& chunk, std::string_view frames) {
          const auto answered = weak.lock();
          if (!answered)
            return;
          const auto found = find(request.task);
          const bool no_longer_there = !chunk.error.empty() && chunk.end;
          if (no_longer_there && found && found->known.kind != Kind::gone && found->known.bytes > 0)
            return read_kept(*found, request, answered);
          if (no_longer_there && options_.bucket)
            return ask_bucket(request, answered);
          if (no_longer_there && found && found->known.kind == Kind::gone) {
            LogChunk why = chunk;
            why.error = why_missing(request.task);
            return answered->fn(why, {});
          }
          answered->fn(chunk, frames);
        });
  });
}

}  // namespace billow::head
