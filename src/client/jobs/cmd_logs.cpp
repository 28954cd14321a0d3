// logs: what a job has written, and goes on writing. Output and errors are one stream here, in the
// order they came, so that `| grep` sees both. An array's elements, a gang's nodes and the jobs of
// a search are shown line by line, each line with its source.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <thread>

#include "base/crypto.h"
#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/terminal.h"
#include "client/frame/values.h"
#include "client/jobs/ending.h"
#include "client/jobs/log_stream.h"
#include "client/jobs/rank_output.h"
#include "client/request/job_names.h"
#include "client/request/job_request.h"

namespace billow::client {
namespace {

constexpr OptionSpec log_options[] = {
    {"follow", 'f', nullptr, "follow the output until the job ends"},
    {"tail", 0, "SIZE", "start this many bytes before the end, e.g. 64K"},
    {"lines", 'n', "N", "start this many lines before the end"},
    {"since", 0, "T", "only output of the last T, e.g. 10m or 1d"},
    {"timestamps", 't', nullptr, "begin each line with the time (UTC) at which it was written"},
    {"search", 0, "TEXT",
     "only lines that contain this text; without JOB, search all your jobs of the last day (or "
     "since --since)"},
    {"grep", 0, "TEXT", "the same as --search"},
    {"ignore-case", 'i', nullptr, "with --search: ignore case"},
    {"attempt", 0, "N", "show this attempt of a restarted job (default: the newest)"},
    {"rank", 0, "N", "only the node with this rank in a gang (default: all nodes)"},
    {"role", 0, "NAME", "only this role of a group, or one member such as rollout.2"},
};
constexpr std::uint64_t bytes_per_line_guess = 400;
constexpr std::uint64_t tail_bytes_max = 64 << 20;
constexpr std::uint64_t ranks_shown_max =
    64;  // a connection each; of more, ask for one with --rank
// Lines of several elements are put in the order of their times up to this size.
constexpr std::size_t merged_bytes_max = 64 << 20;
constexpr int job_pages_max = 200;

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

// "2026-11-16T12:30:01.123Z"
std::string timestamp(WallTime at) {
  std::string text = format_utc(WallTime{at.ns - at.ns % 1'000'000'000});
  if (text.ends_with('Z'))
    text.pop_back();
  return fmt::format("{}.{:03}Z", text, at.ns / 1'000'000 % 1000);
}

std::string printable_bytes(std::string_view text) {
  if (valid_utf8(text))
    return std::string(text);
  std::string out;
  for (const char c : text)
    out += static_cast<unsigned char>(c) < 128 ? c : '?';
  return out;
}

struct LogLine {
  WallTime at;  // when it began
  std::string text;
};

// Pieces of output as whole lines, each stream for itself.
class LineCutter {
 public:
  explicit LineCutter(std::function<void(LogLine)> out) : out_(std::move(out)) {}
  void take(const LogPiece& piece) {
    LogLine& line = open_[piece.error_stream];
    std::string_view rest = piece.bytes;
    for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos;) {
      if (line.text.empty())
        line.at = piece.at;
      line.text += rest.substr(0, end);
      out_(std::exchange(line, {}));
      rest.remove_prefix(end + 1);
    }
    if (rest.empty())
      return;
    if (line.text.empty())
      line.at = piece.at;
    line.text += rest;
  }
  void finish() {
    for (LogLine& line : open_)
      if (!line.text.empty())
        out_(std::exchange(line, {}));
  }

 private:
  std::function<void(LogLine)> out_;
  LogLine open_[2];
};

// How lines are shown: with their source and time if wanted, one writer at a time. Lines are
// written together when their reader pauses: a log may have a million of them.
class LinePrinter {
 public:
  LinePrinter(bool timestamps, bool json) : timestamps_(timestamps), json_(json) {}
  ~LinePrinter() { flush(); }
  void line(const std::string& source, const LogLine& line) {
    std::lock_guard lock(mutex_);
    ++lines_;
    if (json_)
      return print_json(Json::object(
          {{"task", source}, {"at", timestamp(line.at)}, {"line", printable_bytes(line.text)}}));
    if (timestamps_)
      add_time(line.at);
    if (!source.empty())
      waiting_.append(source).append(": ");
    waiting_.append(line.text).push_back('\n');
    if (waiting_.size() >= waiting_bytes_max)
      write();
  }
  void flush() {
    std::lock_guard lock(mutex_);
    write();
  }
  std::size_t lines() const { return lines_; }

 private:
  static constexpr std::size_t waiting_bytes_max = 256 << 10;
  void write() {
    print(waiting_);
    waiting_.clear();
  }
  // Lines of the same millisecond have the same text.
  void add_time(WallTime at) {
    const std::int64_t ms = at.ns / 1'000'000;
    if (ms != shown_ms_) {
      shown_ms_ = ms;
      shown_time_ = timestamp(at) + " ";
    }
    waiting_ += shown_time_;
  }

  std::mutex mutex_;
  bool timestamps_;
  bool json_;
  std::size_t lines_ = 0;
  std::string waiting_;
  std::int64_t shown_ms_ = -1;
  std::string shown_time_;
};

// One log of several that are shown together.
struct LogSource {
  std::string job, rank;
  std::string name;  // before each line; empty: nothing
};

std::string element_name(const Json& job) {
  const std::string name(job["name"].str_or(""));
  const Json& array = job["array"];
  return name.empty() || !array.is_object() ? std::string(job["label"].str_or(""))
                                            : fmt::format("{}.{}", name, array["index"].uint_or(0));
}

// The jobs of a listing that have begun, oldest first.
Result<std::vector<LogSource>> sources_of(Client& client,
                                          std::vector<std::pair<std::string, std::string>> query,
                                          WallTime since) {
  std::vector<LogSource> out;
  std::string cursor;
  const std::string from = since.ns ? format_utc(since) : "";
  for (int page_number = 0; page_number < job_pages_max; ++page_number) {
    auto asked = query;
    asked.insert(asked.end(), {{"state", "all"}, {"limit", "1000"}, {"cursor", cursor}});
    const Json page = BILLOW_TRY(client.get(with_query("/v1/jobs", asked)));
    for (const Json& job : page["jobs"].items()) {
      const bool ended_before = job["ended_at"].is_string() && job["ended_at"].str_or("") < from;
      if (!job["started_at"].is_string() || ended_before)
        continue;
      const std::string label(job["label"].str_or(""));
      const auto nodes = std::max<std::int64_t>(1, job["members"].int_or(job["nodes"].int_or(1)));
      for (std::int64_t rank = nodes - 1; rank >= 0; --rank)
        out.push_back(
            {label, fmt::format("{}", rank),
             nodes > 1 ? fmt::format("{} task {}", element_name(job), rank) : element_name(job)});
    }
    cursor = page["next"].str_or("");
    if (cursor.empty())
      break;
  }
  std::ranges::reverse(out);
  return out;
}

// Several logs, one after the other, or in the order of the lines' times.
Status show_sources(Client& client,
                    const std::vector<LogSource>& sources,
                    const LogRequest& request,
                    bool merge,
                    LinePrinter& printer) {
  struct Named {
    std::size_t source;
    LogLine line;
  };
  std::vector<Named> merged;
  std::size_t bytes = 0;
  const auto flush = [&] {
    std::ranges::stable_sort(merged, {}, [](const Named& n) { return n.line.at; });
    for (const Named& n : merged)
      printer.line(sources[n.source].name, n.line);
    merged.clear();
    bytes = 0;
  };
  for (std::size_t i = 0; i < sources.size(); ++i) {
    LogRequest one = request;
    one.job = sources[i].job;
    one.rank = sources[i].rank;
    one.follow = request.follow && sources.size() == 1;
    LineCutter cutter([&](LogLine line) {
      if (!merge)
        return printer.line(sources[i].name, line);
      bytes += line.text.size() + sizeof(Named);
      merged.push_back({i, std::move(line)});
    });
    LogReader reader(client, one, [&](const LogPiece& piece) { cutter.take(piece); });
    reader.on_pause([&] { printer.flush(); });
    if (const Status done = reader.run(); !done) {
      if (sources.size() == 1)
        return done;
      say(fmt::format("the log of {} cannot be shown: {}", sources[i].name, done.error().message));
    }
    cutter.finish();
    if (bytes > merged_bytes_max) {
      say("the logs are too large to merge by time; they are printed in blocks");
      flush();
    }
  }
  flush();
  return {};
}

// Follows several logs at once and prints their lines as they come.
Status follow_sources(const Parsed& parsed,
                      const std::vector<LogSource>& sources,
                      const LogRequest& request,
                      LinePrinter& printer) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::optional<Error> trouble;
  if (sources.size() > ranks_shown_max)
    say(fmt::format("following {} of {} logs", ranks_shown_max, sources.size()));
  for (std::size_t i = 0; i < std::min<std::size_t>(sources.size(), ranks_shown_max); ++i)
    threads.emplace_back([&, i] {
      auto client = Client::create(connect_options(parsed));
      if (!client)
        return;
      LogRequest one = request;
      one.job = sources[i].job;
      one.rank = sources[i].rank;
      LineCutter cutter([&](LogLine line) { printer.line(sources[i].name, line); });
      LogReader reader(*client, one, [&](const LogPiece& piece) { cutter.take(piece); });
      reader.on_pause([&] { printer.flush(); });
      const Status done = reader.run();
      cutter.finish();
      printer.flush();
      std::lock_guard lock(mutex);
      if (!done && !trouble)
        trouble = done.error();
    });
  for (std::thread& thread : threads)
    thread.join();
  return trouble ? Status(pass(*trouble)) : Status();
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

Result<Wanted> read_wanted(const Parsed& parsed) {
  Wanted wanted{.request = {.job = {},
                            .rank = parsed.get("rank"),
                            .tail = {},
                            .follow = parsed.has("follow")},
                .lines = {}};
  LogRequest& request = wanted.request;
  if (parsed.has("rank"))
    BILLOW_TRY_VOID(int_option(parsed, "rank", 0, 0, 1'000'000));
  if (parsed.has("attempt"))
    BILLOW_TRY_VOID(int_option(parsed, "attempt", 1, 1, 1'000'000));
  request.attempt = parsed.get("attempt");
  request.search = parsed.has("search") ? parsed.get("search") : parsed.get("grep");
  request.ignore_case = parsed.has("ignore-case");
  if (request.search.empty() && (parsed.has("search") || parsed.has("grep")))
    return fail(Code::invalid, "--search needs a text");
  if (parsed.has("since")) {
    const auto ago = duration_with_unit(parsed.get("since"));
    if (!ago)
      return pass(ago.error(), "--since");
    request.since = system_clock().wall() - *ago;
  }
  if (parsed.has("tail")) {
    const auto bytes = bytes_with_unit(parsed.get("tail"));
    if (!bytes)
      return fail(Code::invalid, fmt::format("--tail {}: not a size", parsed.get("tail")),
                  "use a size such as 64K, or --lines N for the last lines");
    request.tail = fmt::format("{}", *bytes);
  } else if (parsed.has("lines")) {
    wanted.lines =
        static_cast<std::size_t>(BILLOW_TRY(int_option(parsed, "lines", 0, 0, 10'000'000)));
    if (request.search.empty())
      request.tail =
          fmt::format("{}", std::min(tail_bytes_max, (*wanted.lines + 1) * bytes_per_line_guess));
  }
  return wanted;
}

// Prints the last lines of the output so far; returns where a follower resumes.
Result<std::string> print_last_lines(Client& client,
                                     LogRequest past,
                                     std::size_t lines,
                                     bool timestamps) {
  past.follow = false;
  std::string text;
  LineCutter cutter(
      [&](const LogLine& line) { text += fmt::format("{} {}\n", timestamp(line.at), line.text); });
  LogReader reader(client, past, [&](const LogPiece& piece) {
    if (timestamps)
      cutter.take(piece);
    else
      text += piece.bytes;
  });
  BILLOW_TRY_VOID(reader.run());
  cutter.finish();
  print(last_lines(text, lines));
  return reader.resume_at();
}

// One log as it is: its bytes, or its lines with their times.
int show_one(Client& client, const Parsed& parsed, Wanted wanted) {
  LogRequest& request = wanted.request;
  const bool json = parsed.has("json"), timestamps = parsed.has("timestamps");
  std::string from;
  if (wanted.lines) {
    const auto resume_at = print_last_lines(client, request, *wanted.lines, timestamps);
    if (!resume_at)
      return report(resume_at.error());
    if (!request.follow)
      return 0;
    from = *resume_at;
    request.tail.clear();
  }
  LinePrinter printer(timestamps, false);
  LineCutter cutter([&](const LogLine& line) { printer.line("", line); });
  std::string bytes;
  LogReader reader(client, request, [&](const LogPiece& piece) {
    if (json)
      print_json(Json::object({{"at", timestamp(piece.at)},
                               {"stream", piece.error_stream ? "stderr" : "stdout"},
                               {"base64", base64(piece.bytes)}}));
    else if (timestamps)
      cutter.take(piece);
    else
      bytes += piece.bytes;
  });
  reader.on_pause([&] {
    print(bytes);
    bytes.clear();
    printer.flush();
  });
  reader.begin_at(from);
  const Status done = reader.run();
  cutter.finish();
  return done ? 0 : report(done.error());
}

// The members of a group, or of one of its roles. Their lines begin with their names.
Result<std::vector<LogSource>> members_of(const std::string& job,
                                          const Json& document,
                                          const std::string& role) {
  std::vector<LogSource> out;
  std::vector<std::string> names;
  std::uint64_t rank = 0;
  for (const Json& one : document["roles"].items()) {
    const std::string name(one["name"].str_or(""));
    names.push_back(name);
    const std::uint64_t count = one["count"].uint_or(1);
    for (std::uint64_t i = 0; i < count; ++i, ++rank) {
      const std::string member = fmt::format("{}.{}", name, i);
      if (role.empty() || role == name || role == member)
        out.push_back({job, fmt::format("{}", rank), count == 1 ? name : member});
    }
  }
  if (names.empty())
    return fail(Code::invalid, fmt::format("job {} has no roles", job), "drop --role");
  if (out.empty())
    return fail(Code::not_found, fmt::format("job {} has no role \"{}\"", job, role),
                fmt::format("its roles: {}", join(names, ", ")));
  if (out.size() == 1)
    out.front().name.clear();
  return out;
}

// The logs that one operand stands for: elements of an array, nodes of a gang, or one.
Result<std::vector<LogSource>> sources_in(Client& client,
                                          const LogRequest& request,
                                          const Json& document,
                                          const std::string& role) {
  if (document.find("elements"))
    return sources_of(client, {{"array", request.job}}, {});
  std::vector<LogSource> out;
  if (!request.rank.empty())
    return std::vector<LogSource>{{request.job, request.rank, ""}};
  if (document["roles"].is_array() || !role.empty())
    return members_of(request.job, document, role);
  const std::uint64_t nodes = std::max<std::uint64_t>(1, document["nodes"].uint_or(1));
  for (std::uint64_t rank = 0; rank < nodes; ++rank)
    out.push_back({request.job, fmt::format("{}", rank),
                   nodes > 1 && !request.search.empty() ? fmt::format("task {}", rank) : ""});
  return out;
}

int cmd_logs(const Parsed& parsed) {
  auto wanted = read_wanted(parsed);
  if (!wanted)
    return report_usage(wanted.error());
  LogRequest& request = wanted->request;
  LinePrinter printer(parsed.has("timestamps"), parsed.has("json"));
  const bool everywhere = parsed.operands.empty() && !request.search.empty();
  const auto job = everywhere ? Result<std::string>("") : job_to_read(parsed);
  if (!job)
    return job.error().code == Code::invalid ? report_usage(job.error()) : report(job.error());
  request.job = *job;
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  if (everywhere) {
    if (request.since.ns == 0)
      request.since = system_clock().wall() - hours(24);
    const auto sources = sources_of(*client, {{"expand", "1"}}, request.since);
    if (!sources)
      return report(sources.error());
    const Status done = show_sources(*client, *sources, request, false, printer);
    return !done ? report(done.error()) : printer.lines() ? 0 : 1;
  }
  const auto document = client->get(path_of_job(request.job));
  if (!document)
    return report(document.error());
  std::optional<OnInterrupt> left;
  if (request.follow)
    left.emplace(goes_on("no longer following", {request.job}));
  const auto sources = sources_in(*client, request, *document, parsed.get("role"));
  if (!sources)
    return report(sources.error());
  if (sources->size() == 1 && parsed.has("role"))
    request.rank = sources->front().rank;
  const bool array = document->find("elements") != nullptr;
  if (request.search.empty() && !array && (sources->size() == 1 || wanted->lines))
    return show_one(*client, parsed, std::move(*wanted));
  if (array && (wanted->lines || !request.tail.empty()))
    return report_usage({Code::invalid, "--lines and --tail are for one job's log",
                         fmt::format("name an element, for example billow logs {}.0", *job)});
  const bool beside = request.follow && sources->size() > 1;
  const Status done = beside ? follow_sources(parsed, *sources, request, printer)
                             : show_sources(*client, *sources, request, array, printer);
  if (!done)
    return report(done.error());
  return request.search.empty() || printer.lines() ? 0 : 1;
}

}  // namespace

struct RankOutput::Impl {
  LinePrinter printer{false, false};
  std::vector<std::thread> threads;
};

RankOutput::RankOutput(const ConnectOptions& options, std::string job, std::uint64_t nodes)
    : impl_(std::make_unique<Impl>()) {
  for (std::uint64_t rank = 1; rank < std::min<std::uint64_t>(nodes, ranks_shown_max); ++rank)
    impl_->threads.emplace_back([impl = impl_.get(), options, job, rank] {
      auto client = Client::create(options);
      if (!client)
        return;
      LineCutter cutter([&](const LogLine& line) { impl->printer.line("", line); });
      LogReader reader(*client,
                       {.job = job, .rank = std::to_string(rank), .tail = {}, .follow = true},
                       [&](const LogPiece& piece) { cutter.take(piece); });
      reader.on_pause([&] { impl->printer.flush(); });
      if (const Status done = reader.run(); !done)
        say(fmt::format("the output of rank {} is missing: {}", rank, done.error().message));
      cutter.finish();
      impl->printer.flush();
    });
}
// The readers end with the job, which the session has seen end. A session that was left while the
// job runs on ends the program.
RankOutput::~RankOutput() {
  for (std::thread& thread : impl_->threads)
    thread.join();
}

void add_log_commands(CommandTable& table) {
  table.push_back(
      {.name = "logs",
       .summary = "show a job's output",
       .example = "billow logs 12\nbillow logs -f 12\nbillow logs --attempt 1 12\nbillow logs -n "
                  "20 sweep.3\nbillow logs 12 "
                  "--since 10m --timestamps\nbillow logs --search 'CUDA error' --since 1d",
       .run = cmd_logs,
       .usage = "[JOB]",
       .details =
           "Shows stdout and stderr. For an array, shows the lines of all elements by time, each "
           "with its element. Logs stay readable after their node is gone; how much is kept is a "
           "quota of the project (`billow quota set`). --json prints one object per piece, with "
           "its bytes in base64; with --search and for arrays, one per line.",
       .options = {log_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = "jobs"});
}

}  // namespace billow::client
