#include "gateway/record/samples.h"

#include <cstdio>

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "gateway/record/access_log.h"

namespace billow::gateway {
namespace {

constexpr std::size_t bytes_max = 16 << 20;
constexpr std::size_t batch_bytes_max = 1 << 20;
constexpr Duration try_again = seconds(10), warn_every = minutes(1);

void append_member(std::string& out, std::string_view name, std::string_view value) {
  append_format(out, ",\"{}\":", name);
  append_json_string(out, value);
}

void append_side(std::string& out, const char* name, const Sample::Side& side) {
  append_format(out, ",\"{}\":{{\"headers\":{{", name);
  bool first = true;
  for (const auto& [field, value] : side.fields) {
    out += std::exchange(first, false) ? "" : ",";
    append_json_string(out, field);
    out += ':';
    append_json_string(out, repaired_utf8(value));
  }
  append_format(out, "}},\"bytes\":{}", side.bytes);
  if (side.bytes > side.body.size())
    out += ",\"truncated\":true";
  std::string body = side.body;
  blank_keys(body);
  // A letter that was cut off at the end does not make the rest binary.
  const std::string_view whole = side.bytes > body.size() ? utf8_prefix(body, body.size()) : body;
  if (valid_utf8(whole))
    append_member(out, "body", whole);
  else
    append_member(out, "body_base64", base64(body));
  out += '}';
}

Status put(const s3::Access& access,
           const s3::Place& place,
           const std::string& key,
           const std::string& text) {
  // A file without a name, which nobody else can open.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  if (!file)
    return fail_errno("cannot create a temporary file", errno);
  const int fd = ::fileno(file.get());
  BILLOW_TRY_VOID(write_all(fd, text));
  return s3::Objects(access).write(place, key, fd, text.size());
}

}  // namespace

std::string sample_line(const Front& front, std::string_view endpoint, End end, SteadyTime now) {
  const Ticket& t = front.ticket;
  std::string out = "{\"time\":";
  append_json_string(out, format_utc(system_clock().wall()));
  append_member(out, "endpoint", endpoint);
  append_member(out, "request_id", front.request_id());
  append_member(out, "key", t.key);
  append_member(out, "method", front.head().method);
  append_member(out, "path", repaired_utf8(front.path()));
  append_member(out, "end", end_name(end));
  append_format(out, ",\"status\":{},\"replica\":{},\"first_us\":{},\"total_us\":{}", t.status,
                t.upstream ? t.upstream->key : 0,
                t.first_byte.ns == 0 ? -1 : (t.first_byte - t.arrived).ns / 1000,
                (now - t.arrived).ns / 1000);
  append_side(out, "request", t.sample->request);
  append_side(out, "answer", t.sample->answer);
  out += "}\n";
  return out;
}

Samples::Samples(net::Loop& loop, Options options, s3::Place place)
    : loop_(loop),
      options_(std::move(options)),
      place_(std::move(place)),
      random_(options_.seed | 1),
      sender_(std::make_unique<net::Workers>(
          loop, net::Workers::Options{.threads = 1, .queue_max = 4})) {}

Result<std::unique_ptr<Samples>> Samples::create(net::Loop& loop, Options options) {
  auto place = s3::parse_place(options.url);
  if (!place || !place->s3)
    return fail(Code::invalid, fmt::format("--sample-to {} is not a bucket", options.url),
                "use s3://bucket/prefix");
  while (place->key.ends_with('/'))
    place->key.pop_back();
  return std::unique_ptr<Samples>(new Samples(loop, std::move(options), std::move(*place)));
}

std::shared_ptr<Sample> Samples::begin(std::uint32_t part) {
  const std::lock_guard lock(mutex_);
  random_ ^= random_ << 13;  // xorshift: which requests are kept need not be unpredictable
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  if (random_ % 1000 >= part)
    return nullptr;
  constexpr std::size_t needs = 2 * Sample::body_bytes_max;
  if (bytes_ + *collected_ + needs > bytes_max) {
    ++dropped_;
    return nullptr;
  }
  *collected_ += needs;
  auto out = std::make_shared<Sample>();
  out->place = std::shared_ptr<void>(nullptr, [all = collected_](void*) { *all -= needs; });
  return out;
}

void Samples::add(const Front& front, std::string_view endpoint, End end, SteadyTime now) {
  const std::string line = sample_line(front, endpoint, end, now);
  const std::lock_guard lock(mutex_);
  if (bytes_ + line.size() > bytes_max) {
    ++dropped_;
    return;
  }
  bytes_ += line.size();
  Open& open = open_[std::string(endpoint)];
  if (open.samples == 0)
    open.since = now;
  open.text += line;
  ++open.samples;
  if (open.text.size() >= batch_bytes_max)
    close(std::string(endpoint), open);
}

// The names sort by time.
void Samples::close(const std::string& endpoint, Open& open) {
  std::string day = format_utc(system_clock().wall()).substr(0, 10);
  waiting_.push_back(
      {.key = fmt::format("{}{}{}/{}/{}-{}-{:06}.jsonl", place_.key, place_.key.empty() ? "" : "/",
                          endpoint, day, system_clock().wall().ns / 1'000'000'000, options_.gateway,
                          ++number_),
       .text = std::move(open.text),
       .samples = open.samples});
  open = {};
  send_next();
}

void Samples::tick(SteadyTime now) {
  const std::lock_guard lock(mutex_);
  for (auto& [endpoint, open] : open_)
    if (open.samples > 0 && now - open.since >= options_.every)
      close(endpoint, open);
  std::erase_if(open_, [](const auto& each) { return each.second.samples == 0; });
  send_next();
}

void Samples::send_next() {
  if (sending_ || waiting_.empty() || loop_.steady() < again_at_)
    return;
  sending_ = true;
  const auto batch = std::make_shared<Batch>(waiting_.front());
  const Status queued = sender_->submit(
      [access = options_.access, place = place_, batch]() -> Status {
        return put(BILLOW_TRY(access()), place, batch->key, batch->text);
      },
      [this](const Status& result) { sent(result); });
  if (!queued)
    sending_ = false;  // tried again by the next tick
}

void Samples::sent(const Status& result) {
  const std::lock_guard lock(mutex_);
  sending_ = false;
  const SteadyTime now = loop_.steady();
  if (result) {
    bytes_ -= waiting_.front().text.size();
    sent_ += waiting_.front().samples;
    waiting_.erase(waiting_.begin());
    return send_next();
  }
  again_at_ = now + try_again;
  if (now < next_warning_)
    return;
  next_warning_ = now + warn_every;
  log_error("{} batches of samples are waiting to be sent to {}: {}", waiting_.size(), options_.url,
            result.error().message);
}

}  // namespace billow::gateway
