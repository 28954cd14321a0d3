#include "client/jobs/log_stream.h"

#include <fmt/format.h>
#include <poll.h>

#include <cstring>
#include <optional>

#include "base/text.h"
#include "client/frame/console.h"
#include "client/request/job_request.h"
#include "core/wire/log_record.h"

namespace billow::client {
namespace {

std::uint64_t number_in(std::string_view data) {
  std::uint64_t number = 0;
  std::memcpy(&number, data.data(), std::min(data.size(), sizeof(number)));
  return number;
}

}  // namespace

Status LogReader::run() {
  std::optional<SteadyTime> away_since;
  for (;;) {
    Status fed;
    buffer_.clear();
    const bool resumes = !resume_at_.empty();
    auto status = client_.stream(
        with_query(path_of_job(request_.job, "logs"),
                   {{"format", "records"},
                    {"rank", request_.rank},
                    {"attempt", request_.attempt},
                    {"follow", request_.follow ? "1" : ""},
                    {"since_ns", request_.since.ns ? fmt::format("{}", request_.since.ns) : ""},
                    {"search", request_.search},
                    {"ignore_case", request_.ignore_case ? "1" : ""},
                    {"tail", resumes ? "" : request_.tail},
                    {"offset", resumes ? resume_at_ : ""}}),
        [&](std::string_view data) {
          away_since.reset();
          fed = feed(data);
          return fed && !ended_;
        });
    if (!fed)
      return fed;
    if (!trouble_.empty())
      return fail(Code::unavailable, trouble_);
    if (ended_ || (status && !request_.follow))
      return {};
    if (!status && !is_away(status.error()))
      return status;
    if (!status && status.error().message.starts_with("no head") && !away_since &&
        resume_at_.empty())
      return status;
    const SteadyTime now = system_clock().steady();
    if (!away_since)
      away_since = now;
    if (request_.away_max.ns == 0 || now - *away_since > request_.away_max)
      return status ? fail(Code::unavailable, "the head keeps closing the stream") : status;
    ::poll(nullptr, 0, 100);
    (void)client_.find_again();
  }
}

Status LogReader::feed(std::string_view data) {
  // Most pieces of the stream begin with a whole record, which is then not copied.
  if (!buffer_.empty()) {
    buffer_ += data;
    data = buffer_;
  }
  std::size_t at = 0;
  while (data.size() - at >= sizeof(wire::RecordHead) && !ended_) {
    wire::RecordHead head;
    std::memcpy(&head, data.data() + at, sizeof(head));
    if (head.bytes > wire::record_data_bytes_max || head.reserved != 0)
      return fail(Code::unsupported,
                  "the head sends this log in a format that this program does not know",
                  "use a program of the head's version; `billow version` shows both");
    if (data.size() - at - sizeof(head) < head.bytes)
      break;
    take(head.stream, WallTime{head.wall_ns}, data.substr(at + sizeof(head), head.bytes));
    at += sizeof(head) + head.bytes;
  }
  std::string rest(data.substr(at));
  buffer_ = std::move(rest);
  if (pause_)
    pause_();
  return {};
}

void LogReader::take(std::uint8_t stream, WallTime at, std::string_view data) {
  switch (stream) {
    case static_cast<std::uint8_t>(wire::LogStream::out):
    case static_cast<std::uint8_t>(wire::LogStream::err):
      return out_({at, stream == static_cast<std::uint8_t>(wire::LogStream::err), data});
    case wire::stream_resume:
      resume_at_ = fmt::format("{}", number_in(data));
      return;
    case wire::stream_gap:
      if (gap_)
        return gap_(number_in(data));
      return say(fmt::format("{} of earlier output were deleted (logs have a size limit)",
                             format_bytes(number_in(data))));
    case wire::stream_error:
      trouble_ = data;
      return;
    case wire::stream_end:
      ended_ = true;
      return;
    default:
      return;  // of a newer head
  }
}

}  // namespace billow::client
