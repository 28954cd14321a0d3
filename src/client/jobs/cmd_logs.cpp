// logs: what a job has written, and goes on writing. Output and errors are one stream here, in the
// order they came, so that
// `| grep` sees both. A follower whose head restarts goes on at the offset it had reached.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/crypto.h"
#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/values.h"
#include "client/jobs/rank_output.h"
#include "client/request/job_names.h"
#include "client/request/job_request.h"
#include "net/http/sse.h"

namespace billow::client {
namespace {

constexpr OptionSpec log_options[] = {
    {"follow", 'f', nullptr, "follow the output until the job ends"},
    {"tail", 0, "SIZE", "start this many bytes before the end, e.g. 64K"},
    {"lines", 'n', "N", "start this many lines before the end"},
    {"rank", 0, "N", "only the node with this rank in a gang (default: all nodes)"},
    {"grep", 0, "TEXT",
     "only lines that contain this text, in all tasks of the job or elements of the array"},
    {"ignore-case", 'i', nullptr, "with --grep: ignore case"},
};
constexpr Duration away_max = minutes(10);
constexpr std::uint64_t bytes_per_line_guess = 400;
constexpr std::uint64_t tail_bytes_max = 64 << 20;
constexpr std::uint64_t ranks_shown_max =
    64;  // a connection each; of more, ask for one with --rank

// The last `lines` lines of a text.
std::string_view last_lines(std::string_view text, std::size_t lines) {
  if (lines == 0)
    return {};
  std::size_t at = text.size();
  if (at > 0 && text[at - 1] == '\n')
    --at;
  while (at > 0) {
    const auto newline = text.rfind('\n', at - 1);
    if (newline == std::string_view::npos)
      return text;
    if (--lines == 0)
      return text.substr(newline + 1);
    at = newline;
  }
  return text;
}

struct LogRequest {
  std::string job;
  std::string rank;
  std::string tail;
  bool follow = false;
};

class LogReader {
 public:
  LogReader(Client& client, LogRequest request, std::function<void(std::string_view)> out)
      : client_(client), request_(std::move(request)), out_(std::move(out)) {}

  const std::string& resume_at() const { return resume_at_; }
  void begin_at(std::string offset) { resume_at_ = std::move(offset); }

  Status run() {
    std::optional<SteadyTime> away_since;
    for (;;) {
      net::SseParser parser([&](const net::SseEvent& event) { take(event); });
      Status fed;
      const bool resumes = !resume_at_.empty();
      auto status = client_.stream(
          with_query(path_of_job(request_.job, "logs"), {{"format", "sse"},
                                                         {"rank", request_.rank},
                                                         {"follow", request_.follow ? "1" : ""},
                                                         {"tail", resumes ? "" : request_.tail},
                                                         {"offset", resumes ? resume_at_ : ""}}),
          [&](std::string_view data) {
            away_since.reset();
            fed = parser.feed(data);
            return fed && !ended_;
          });
      if (!fed)
        return fed;
      if (!trouble_.empty())
        return fail(Code::unavailable, trouble_, "try again when the head is back");
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
      if (now - *away_since > away_max)
        return status ? fail(Code::unavailable, "the head keeps closing the stream") : status;
      ::poll(nullptr, 0, 100);
      (void)client_.find_again();
    }
  }

 private:
  void take(const net::SseEvent& event) {
    if (event.event == "out" || event.event == "err") {
      std::string bytes;
      if (base64_decode(event.data, bytes))
        out_(bytes);
    } else if (event.event == "gap") {
      const auto lost = parse_int(trim(event.data), 0, INT64_MAX);
      say(fmt::format("{} of earlier output were deleted (logs have a size limit)",
                      lost ? format_bytes(static_cast<std::uint64_t>(*lost)) : "parts"));
    } else if (event.event == "error") {
      trouble_ = event.data;
    } else if (event.event == "end") {
      ended_ = true;
    }
    if (!event.id.empty())
      resume_at_ = event.id;
  }

  Client& client_;
  LogRequest request_;
  std::function<void(std::string_view)> out_;
  std::string resume_at_;
  std::string trouble_;  // why the head cannot show the log, or no more of it
  bool ended_ = false;
};

// Whole lines with a text in them, each with its task's name where there are several.
class LineFilter {
 public:
  LineFilter(std::string needle, bool any_case, std::string name, bool json)
      : needle_(any_case ? lower(needle) : std::move(needle)),
        any_case_(any_case),
        name_(std::move(name)),
        json_(json) {}
  void take(std::string_view bytes) {
    rest_ += bytes;
    std::size_t from = 0;
    for (std::size_t end; (end = rest_.find('\n', from)) != std::string::npos; from = end + 1)
      line(std::string_view(rest_).substr(from, end - from));
    rest_.erase(0, from);
  }
  void end() {
    if (!rest_.empty())
      line(std::exchange(rest_, {}));
  }
  std::size_t found() const { return found_; }

 private:
  void line(std::string_view text) {
    if ((any_case_ ? lower(text) : std::string(text)).find(needle_) == std::string::npos)
      return;
    ++found_;
    if (json_)
      print_json(
          Json::object({{"task", name_},
                        {"line", valid_utf8(text) ? std::string(text) : printable_bytes(text)}}));
    else
      print(name_.empty() ? fmt::format("{}\n", text) : fmt::format("{}: {}\n", name_, text));
  }
  static std::string printable_bytes(std::string_view text) {
    std::string out;
    for (const char c : text)
      out += static_cast<unsigned char>(c) < 128 ? c : '?';
    return out;
  }
  std::string needle_;
  bool any_case_;
  std::string name_;
  bool json_;
  std::string rest_;
  std::size_t found_ = 0;
};

// The logs of every task of a gang or element of an array, one after the other. As grep does: 0
// where something was found, 1 where not.
int search_logs(Client& client, const Parsed& parsed, LogRequest request) {
  auto document = client.get(path_of_job(request.job));
  if (!document)
    return report(document.error());
  std::vector<std::pair<std::string, std::string>> places;  // job, rank
  if (document->find("elements")) {
    std::string cursor;
    do {
      auto page = client.get(with_query(
          "/v1/jobs",
          {{"array", request.job}, {"state", "all"}, {"limit", "1000"}, {"cursor", cursor}}));
      if (!page)
        return report(page.error());
      for (const Json& job : (*page)["jobs"].items())
        if (job["started_at"].is_string())
          places.emplace_back(job["label"].str_or(""), "");
      cursor = (*page)["next"].str_or("");
    } while (!cursor.empty());
    std::ranges::reverse(places);
  } else if (parsed.has("rank")) {
    places.emplace_back(request.job, request.rank);
  } else {
    for (std::int64_t rank = 0; rank < std::max<std::int64_t>(1, (*document)["nodes"].int_or(1));
         ++rank)
      places.emplace_back(request.job, fmt::format("{}", rank));
  }
  std::size_t found = 0;
  for (const auto& [job, rank] : places) {
    LineFilter filter(parsed.get("grep"), parsed.has("ignore-case"),
                      places.size() > 1 ? (rank.empty() ? job : fmt::format("task {}", rank)) : "",
                      parsed.has("json"));
    LogRequest one = request;
    one.job = job;
    one.rank = rank;
    one.follow = request.follow && places.size() == 1;
    LogReader reader(client, one, [&](std::string_view bytes) { filter.take(bytes); });
    if (auto status = reader.run(); !status)
      return report(status.error());
    filter.end();
    found += filter.found();
  }
  return found ? 0 : 1;
}

// Whole lines only, one writer at a time.
class LinePrinter {
 public:
  void take(std::string& pending, std::string_view bytes) {
    pending += bytes;
    const auto end = pending.rfind('\n');
    if (end == std::string::npos)
      return;
    std::lock_guard lock(mutex_);
    print(std::string_view(pending).substr(0, end + 1));
    pending.erase(0, end + 1);
  }
  void finish(std::string& pending) {
    if (pending.empty())
      return;
    std::lock_guard lock(mutex_);
    print(pending + "\n");
    pending.clear();
  }

 private:
  std::mutex mutex_;
};

// Every node of a gang: one after the other, or beside each other while they run.
int all_ranks(const Parsed& parsed, const LogRequest& request, std::uint64_t nodes) {
  LinePrinter printer;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::optional<Error> trouble;
  const auto read = [&](std::uint64_t rank) {
    auto client = Client::create(connect_options(parsed));
    if (!client)
      return;
    LogRequest one = request;
    one.rank = std::to_string(rank);
    std::string pending;
    LogReader reader(*client, one, [&](std::string_view bytes) { printer.take(pending, bytes); });
    const Status done = reader.run();
    printer.finish(pending);
    std::lock_guard lock(mutex);
    if (!done && !trouble)
      trouble = done.error();
  };
  for (std::uint64_t rank = 0; rank < nodes; ++rank) {
    if (request.follow)
      threads.emplace_back(read, rank);
    else
      read(rank);
  }
  for (std::thread& thread : threads)
    thread.join();
  return trouble ? report(*trouble) : 0;
}

// The job that the operand means: an endpoint's name stands for its newest replica, a job's for its
// newest that runs.
Result<std::string> job_to_read(const Parsed& parsed) {
  if (parsed.operands.size() > 1)
    return fail(Code::invalid, "logs accepts one job", "for example: billow logs 12");
  if (parsed.operands.size() == 1 && !check_job_label(parsed.operands[0]) &&
      check_job_word(parsed.operands[0])) {
    auto client = BILLOW_TRY(connect(parsed));
    const std::string& name = parsed.operands[0];
    return is_endpoint(client, name) ? replica_to_read(client, name)
                                     : job_of(client, name, NameUse::look);
  }
  return BILLOW_TRY(job_operands(parsed, "logs")).front();
}

struct Wanted {
  LogRequest request;
  std::optional<std::size_t> lines;  // of --lines
};

Result<Wanted> read_wanted(const Parsed& parsed, std::string job) {
  Wanted wanted{.request = {.job = std::move(job),
                            .rank = parsed.get("rank"),
                            .follow = parsed.has("follow")},
                .lines = {}};
  if (parsed.has("rank"))
    BILLOW_TRY_VOID(int_option(parsed, "rank", 0, 0, 1'000'000));
  if (parsed.has("tail")) {
    const auto bytes = parse_bytes(parsed.get("tail"));
    if (!bytes)
      return pass(bytes.error(), "--tail");
    wanted.request.tail = fmt::format("{}", *bytes);
  } else if (parsed.has("lines")) {
    wanted.lines =
        static_cast<std::size_t>(BILLOW_TRY(int_option(parsed, "lines", 0, 0, 10'000'000)));
    wanted.request.tail =
        fmt::format("{}", std::min(tail_bytes_max, (*wanted.lines + 1) * bytes_per_line_guess));
  }
  return wanted;
}

// Prints the last lines of the output so far; returns where a follower resumes.
Result<std::string> print_last_lines(Client& client, LogRequest past, std::size_t lines) {
  past.follow = false;
  std::string text;
  LogReader reader(client, past, [&](std::string_view bytes) { text += bytes; });
  BILLOW_TRY_VOID(reader.run());
  print(last_lines(text, lines));
  return reader.resume_at();
}

int cmd_logs(const Parsed& parsed) {
  const auto job = job_to_read(parsed);
  if (!job)
    return job.error().code == Code::invalid ? report_usage(job.error()) : report(job.error());
  auto wanted = read_wanted(parsed, *job);
  if (!wanted)
    return report_usage(wanted.error());
  LogRequest& request = wanted->request;
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  if (parsed.has("grep"))
    return search_logs(*client, parsed, std::move(request));
  if (!parsed.has("rank") && !wanted->lines && !parsed.has("json")) {
    const auto document = client->get(path_of_job(request.job));
    if (document && (*document)["nodes"].uint_or(1) > 1)
      return all_ranks(parsed, request,
                       std::min<std::uint64_t>((*document)["nodes"].uint_or(1), ranks_shown_max));
  }
  std::string from;
  if (wanted->lines) {
    const auto resume_at = print_last_lines(*client, request, *wanted->lines);
    if (!resume_at)
      return report(resume_at.error());
    if (!request.follow)
      return 0;
    from = *resume_at;
    request.tail.clear();
  }
  const bool json = parsed.has("json");
  LogReader reader(*client, request, [&](std::string_view bytes) {
    if (json)
      print_json(Json::object({{"base64", base64(bytes)}}));
    else
      print(bytes);
  });
  reader.begin_at(from);
  const Status done = reader.run();
  return done ? 0 : report(done.error());
}

}  // namespace

constexpr int rank_attempts_max = 10;
constexpr int rank_retry_ms = 200;

struct RankOutput::Impl {
  LinePrinter printer;
  std::vector<std::thread> threads;
};

RankOutput::RankOutput(const ConnectOptions& options, std::string job, std::uint64_t nodes)
    : impl_(std::make_unique<Impl>()) {
  for (std::uint64_t rank = 1; rank < std::min<std::uint64_t>(nodes, ranks_shown_max); ++rank)
    impl_->threads.emplace_back([impl = impl_.get(), options, job, rank] {
      auto client = Client::create(options);
      if (!client)
        return;
      std::string pending;
      const LogRequest request{
          .job = job, .rank = std::to_string(rank), .tail = {}, .follow = true};
      // A task that was placed a moment ago may not have reached its node yet.
      for (int attempt = 1;; ++attempt) {
        LogReader reader(*client, request,
                         [&](std::string_view bytes) { impl->printer.take(pending, bytes); });
        const auto done = reader.run();
        if (done)
          break;
        if (!reader.resume_at().empty() || attempt == rank_attempts_max) {
          say(fmt::format("the output of rank {} is missing: {}", rank, done.error().message));
          break;
        }
        ::poll(nullptr, 0, rank_retry_ms);
      }
      impl->printer.finish(pending);
    });
}
// The readers end with the job, which the session has seen end. A session that was left while the
// job runs on ends the program.
RankOutput::~RankOutput() {
  for (std::thread& thread : impl_->threads)
    thread.join();
}

void add_log_commands(CommandTable& table) {
  table.push_back({.name = "logs",
                   .summary = "show a job's output",
                   .example = "billow logs 12\nbillow logs -f 12\nbillow logs -n 20 12.3\nbillow "
                              "logs 12 --grep error -i",
                   .run = cmd_logs,
                   .usage = "JOB",
                   .details = "Shows stdout and stderr in the order they were written. --json "
                              "prints one object per piece, with its bytes in base64.",
                   .options = {log_options},
                   .operands = Operands::some,
                   .completes = Completes::job,
                   .group = "jobs"});
}

}  // namespace billow::client
