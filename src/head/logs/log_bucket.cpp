#include "head/logs/log_bucket.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::head {
namespace {

constexpr Duration try_again = seconds(10);
constexpr Duration warn_every = minutes(1);
constexpr std::size_t fetched_max = 64;  // files; the ones fetched first go first

std::string variable(const char* name) {
  const char* value = ::getenv(name);
  return value ? value : "";
}

// Room for one more.
void trim_fetched(const std::string& directory) {
  std::vector<std::pair<std::int64_t, std::string>> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), ::closedir);
  while (const dirent* entry = dir ? ::readdir(dir.get()) : nullptr) {
    struct stat info {};
    const std::string path = directory + "/" + entry->d_name;
    if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode))
      files.emplace_back(info.st_mtim.tv_sec, path);
  }
  std::ranges::sort(files);
  for (std::size_t i = 0; i + fetched_max <= files.size(); ++i)
    ::unlink(files[i].second.c_str());
}

}  // namespace

LogBucket::LogBucket(Options options)
    : options_(std::move(options)),
      wire_({.endpoint = {}, .profile = {}, .variable = variable}),
      senders_(std::make_unique<net::Workers>(
          *options_.loop, net::Workers::Options{.threads = 1, .queue_max = 4096})),
      fetchers_(std::make_unique<net::Workers>(
          *options_.loop, net::Workers::Options{.threads = 1, .queue_max = 256})) {}

Result<std::unique_ptr<LogBucket>> LogBucket::open(Options options) {
  const auto parsed = s3::parse_place(options.url);
  if (!parsed || !parsed->s3)
    return fail(Code::invalid, fmt::format("--logs {} is not a bucket", options.url),
                "use s3://bucket/prefix");
  s3::Place place = *parsed;
  while (place.key.ends_with('/'))
    place.key.pop_back();
  std::unique_ptr<LogBucket> out(new LogBucket(std::move(options)));
  out->place_ = std::move(place);
  BILLOW_TRY_VOID(make_directories(out->options_.directory, 0700));
  return out;
}

std::string LogBucket::marker(const std::string& path) {
  return path.substr(0, path.find('.', path.rfind('/'))) + ".sent";
}

std::string LogBucket::key_of(TaskId task, const char* kind) const {
  return fmt::format("{}{}{}/{}.{}", place_.key, place_.key.empty() ? "" : "/",
                     options_.installation, task.value, kind);
}

Result<s3::Access> LogBucket::access() const {
  auto out = pool::ec2::bucket_access(wire_, variable);
  if (!out)
    return pass(out.error(), "the credentials of the bucket for logs");
  return out;
}

// ---- sending

void LogBucket::keep(TaskId task, const std::string& path, bool whole) {
  send(key_of(task, whole ? "log" : "part"), {.path = path, .text = {}, .marks = true});
}

void LogBucket::keep_end(TaskId task, std::string json) {
  send(key_of(task, "json"), {.path = {}, .text = std::move(json)});
}

Status LogBucket::put(const std::string& key, const Item& item) const {
  const s3::Objects objects(BILLOW_TRY(access()));
  std::string path = item.path;
  if (path.empty()) {
    path = options_.directory + ".sending";
    BILLOW_TRY_VOID(write_file_atomic(path, item.text, 0600));
  }
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // The project's limit has removed it meanwhile.
  if (file.get() < 0 && errno == ENOENT)
    return {};
  if (file.get() < 0)
    return fail_errno("open " + path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return fail_errno("look at " + path, errno);
  BILLOW_TRY_VOID(objects.write(place_, key, file.get(), static_cast<std::uint64_t>(info.st_size)));
  if (item.marks)
    return write_file_atomic(marker(item.path), "", 0600);
  return {};
}

void LogBucket::send(const std::string& key, Item item) {
  waiting_[key] = item;
  const Status queued =
      senders_->submit([this, key, item] { return put(key, item); },
                       [this, key, item](const Status& result) { sent(key, item, result); });
  if (!queued)
    next_try_ = options_.clock->steady() + try_again;
}

void LogBucket::sent(const std::string& key, const Item& item, const Status& result) {
  const SteadyTime now = options_.clock->steady();
  if (result) {
    waiting_.erase(key);
    const auto stem = key.substr(key.rfind('/') + 1);
    if (const auto task = parse_int(stem.substr(0, stem.find('.')), 1, INT64_MAX);
        task && item.marks)
      kept_.insert(TaskId(static_cast<std::uint64_t>(*task)));
    return;
  }
  if (!next_try_)
    next_try_ = now + try_again;
  if (now < next_warning_)
    return;
  next_warning_ = now + warn_every;
  log_error("{} logs are waiting to be sent to {}: {}", waiting_.size(), options_.url,
            result.error().message);
}

void LogBucket::look() {
  if (!next_try_ || options_.clock->steady() < *next_try_)
    return;
  next_try_.reset();
  for (const auto& [key, item] : std::map(waiting_))
    send(key, item);
}

// ---- reading

Result<LogBucket::Fetched> LogBucket::get(TaskId task) const {
  Fetched out;
  for (const char* kind : {"log", "part"}) {
    out.whole = std::string_view(kind) == "log";
    out.path = fmt::format("{}/{}.{}", options_.directory, task.value, kind);
    struct stat info {};
    if (::stat(out.path.c_str(), &info) == 0)
      return out;
  }
  const s3::Objects objects(BILLOW_TRY(access()));
  for (const char* kind : {"log", "part"}) {
    s3::Place at = place_;
    at.key = key_of(task, kind);
    at.url = fmt::format("s3://{}/{}", at.bucket, at.key);
    const auto listed = objects.list(at);
    if (!listed && listed.error().code != Code::not_found)
      return pass(listed.error());
    const auto found = !listed ? std::vector<s3::Object>{} : *listed;
    const auto object = std::ranges::find(found, at.key, &s3::Object::key);
    if (object == found.end())
      continue;
    trim_fetched(options_.directory);
    out.whole = std::string_view(kind) == "log";
    out.path = fmt::format("{}/{}.{}", options_.directory, task.value, kind);
    const std::string partial = out.path + ".new";
    const Fd file(::open(partial.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (file.get() < 0)
      return fail_errno("open " + partial, errno);
    BILLOW_TRY_VOID(objects.read(at, *object, file.get()));
    if (::rename(partial.c_str(), out.path.c_str()) != 0)
      return fail_errno("rename " + partial, errno);
    return out;
  }
  return fail(Code::not_found, fmt::format("its log is not in {}", options_.url));
}

void LogBucket::fetch(TaskId task, OnFetched fn) {
  const Status queued = fetchers_->submit([this, task] { return get(task); },
                                          [fn](const Result<Fetched>& fetched) { fn(fetched); });
  if (!queued)
    fn(pass(queued.error()));
}

}  // namespace billow::head
