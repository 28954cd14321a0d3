#include "client/jobs/attachment.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/request/job_list.h"

namespace billow::client {
namespace {

constexpr Duration silent_start = milliseconds(300);  // a faster start prints no status
constexpr Duration second_interrupt = seconds(2);     // a second Ctrl-C within this means "now"
constexpr Duration silent_absence = seconds(1);
constexpr Duration retry_first = milliseconds(50);
constexpr Duration retry_max = seconds(1);
constexpr std::size_t input_bytes_max =
    16 << 10;  // per message: always fits a socket that polls writable
constexpr std::size_t input_kept_max = 1 << 20;  // sent, but not yet confirmed by the job's node
constexpr int refusals_max = 5;  // of a first connection by a head that otherwise answers
constexpr int stream_has_offset = 0x80;

SteadyTime steady() {
  return system_clock().steady();
}
int poll_ms(Duration d) {
  return static_cast<int>(std::clamp<std::int64_t>((d.ns + 999'999) / 1'000'000, 0, 60'000));
}

class Attachment {
 public:
  Attachment(Client& client, AttachOptions options, SignalQueue signals)
      : client_(client),
        o_(std::move(options)),
        signals_(std::move(signals)),
        errors_(look_at(o_.error_fd)),
        input_open_(o_.forward_input),
        begun_(steady()) {}

  Result<AttachEnd> run() {
    while (!end_) {
      if (!socket_) {
        if (auto status = reconnect(); !status)
          return pass(std::move(status.error()));
        if (end_)
          break;
      }
      step();
    }
    clear_line();
    raw_.reset();
    return std::move(*end_);
  }

 private:
  // ---- the connection
  Status reconnect() {
    const SteadyTime lost_at = steady();
    Duration pause = retry_first;
    bool said = false;
    int refusals = 0;
    while (!end_) {
      auto opened = client_.websocket(target());
      if (opened) {
        socket_.emplace(std::move(*opened));
        connected_once_ = true;
        if (said)
          note("reconnected to the head");
        if (o_.tty)
          send_size();
        return {};
      }
      // A refused WebSocket gives no reason; a plain request for the job does.
      if (auto job = client_.get(path_of_job(o_.job)); !job && !is_away(job.error()))
        return pass(std::move(job.error()));
      else if (job && !connected_once_ && ++refusals > refusals_max)
        return pass(std::move(opened.error()));
      if (steady() - lost_at > o_.away_max)
        return fail(Code::unavailable,
                    fmt::format("no answer from the head for {}; job {} may still be running",
                                format_duration(o_.away_max), o_.job),
                    fmt::format("when the head is back, run `billow attach {}`", o_.job));
      if (!said && steady() - lost_at > silent_absence) {
        note(
            fmt::format("the head does not answer; reconnecting (job {} keeps running, Ctrl-C "
                        "detaches)",
                        o_.job));
        said = true;
      }
      wait_away(pause);
      pause = std::min(pause * 2, retry_max);
      (void)client_.find_again();
    }
    return {};
  }

  std::string target() const {
    std::vector<std::pair<std::string, std::string>> query;
    if (first_ && !o_.tail.empty())
      query.emplace_back("tail", o_.tail);
    else
      query.emplace_back("offset", fmt::format("{}", offset_));
    if (!first_ && attempt_ > 0)
      query.emplace_back("attempt", fmt::format("{}", attempt_));
    return with_query(path_of_job(o_.job, "attach"), query);
  }

  void wait_away(Duration pause) {
    pollfd fd{signals_.fd(), POLLIN, 0};
    if (::poll(&fd, 1, poll_ms(pause)) <= 0)
      return;
    while (const int number = signals_.next()) {
      if (number == SIGWINCH)
        continue;
      say(fmt::format("detached from job {}, which keeps running; reattach with `billow attach {}`",
                      o_.job, o_.job));
      finish({.detached = true, .exit_code = 128 + number, .job = job_});
    }
  }

  // ---- one round of waiting
  void step() {
    if (!take_messages())
      return;  // what came with the handshake, or during a send, is already in memory
    pollfd fds[3] = {
        {socket_->fd(), static_cast<short>(POLLIN | (input_to_send() ? POLLOUT : 0)), 0},
        {signals_.fd(), POLLIN, 0},
        {wants_input() ? o_.input_fd : -1, POLLIN, 0}};
    if (::poll(fds, 3, until_next_word()) < 0)
      return;
    if (fds[1].revents)
      take_signals();
    if (fds[0].revents & POLLOUT)
      flush_input();
    if (socket_ && !end_)
      take_messages();
    if (fds[2].revents && !end_)
      take_input();
    maybe_say_why_waiting();
  }

  // False when the connection or the attachment has ended.
  bool take_messages() {
    using Kind = net::BlockingWebSocket::Message::Kind;
    while (socket_ && !end_) {
      auto message = socket_->read();
      if (!message) {
        lose_connection();
        return false;
      }
      if (!*message)
        return true;
      switch ((*message)->kind) {
        case Kind::binary:
          take_output((*message)->data);
          break;
        case Kind::text:
          take_text((*message)->data);
          break;
        case Kind::closed:
          lose_connection();
          return false;
      }
    }
    return false;
  }

  void lose_connection() {
    socket_.reset();
    input_ready_ = false;
  }

  void take_output(std::string_view message) {
    const auto output = parse_output(message);
    if (!output)
      return;
    started_ = true;
    clear_line();
    const int to = output->error_stream ? o_.error_fd : o_.output_fd;
    if (const Status written = write_all(to, output->bytes); !written)
      return is_closed_pipe(written.error()) ? reader_gone() : cannot_write(written.error());
    offset_ = output->resume_at ? *output->resume_at : offset_ + output->bytes.size();
    first_ = false;
  }

  // The reader of our output is gone (`billow run … | head`): signal the job as a local pipe would.
  void reader_gone() {
    send_json(fmt::format(R"({{"type":"signal","signal":{}}})", SIGPIPE));
    (void)client_.post(path_of_job(o_.job, "stop"),
                       R"({"reason":"the reader of its output is gone","force":false})");
    finish({.exit_code = 128 + SIGPIPE, .job = job_});
  }

  // A full disk here is no reason to end the job, whose output the head keeps.
  void cannot_write(const Error& why) {
    say(fmt::format("cannot write the output ({}); job {} keeps running: billow logs -f {}",
                    why.message, o_.job, o_.job));
    finish({.detached = true, .exit_code = 1, .job = job_});
  }

  void take_text(std::string_view text) {
    const auto json = parse_json(text);
    if (!json)
      return;
    const std::string_view type = (*json)["type"].str_or("");
    // Missing output is reported, but the job's end still arrives.
    if (type == "error")
      return note(printable((*json)["detail"].str_or("the head cannot show the output")));
    if (type == "gap")
      return note(fmt::format("{} of earlier output were deleted (logs have a size limit)",
                              format_bytes((*json)["bytes"].uint_or(0))));
    if (type == "input")
      return input_stands_at((*json)["received"].uint_or(0));
    if (type == "taken")
      return input_is_safe_below((*json)["bytes"].uint_or(0));
    if (type != "state" && type != "end")
      return;
    job_ = (*json)["job"];
    if (!(*json)["may_type"].bool_or(true))
      only_watch();
    // After the news of another attempt comes the output of that attempt; its log begins at zero.
    if (const std::int64_t attempt = job_["attempt"].int_or(0); attempt != attempt_) {
      attempt_ = attempt;
      offset_ = 0;
    }
    if (type == "end")
      return finish({.exit_code = exit_code_of(job_), .job = job_});
    if (o_.tty && started_)
      say_how_it_stands();
    // Placed, but its image or environment is still being fetched: no process can take keys yet.
    const bool brings = !job_["waits_for"].str_or("").empty() && first_;
    if (brings) {
      started_ = false;
      raw_.reset();
      maybe_say_why_waiting();
    } else if (job_["state"].str_or("") == "running")
      start();
    else if (line_shown_ || !errors_.terminal)
      maybe_say_why_waiting();
  }

  // A terminal that stands still says why, and what wakes it.
  void say_how_it_stands() {
    const std::string phase(job_.at("suspension", "phase").str_or("")),
        reason = printable(job_["reason"].str_or(""));
    const std::string now = phase.empty() ? without_digits(reason) : phase;
    if (now == std::exchange(stands_, now))
      return;
    if (phase == "suspending" || phase == "suspended")
      note(fmt::format("job {} is {}{}{}; {}", o_.job, phase, reason.empty() ? "" : ": ", reason,
                       o_.watch ? fmt::format("`billow resume {}` continues it", o_.job)
                                : "press a key to resume it"));
    else if (phase == "resuming")
      note(fmt::format("job {} is resuming", o_.job));
    else if (!reason.empty())
      note(fmt::format("job {}: {}", o_.job, reason));
  }

  // The job belongs to another user: the head would ignore what is typed here.
  void only_watch() {
    if (std::exchange(o_.watch, true))
      return;
    input_open_ = o_.tty = false;
    raw_.reset();
    note(fmt::format(
        "job {} belongs to {}: you can watch, but not type or stop it (Ctrl-C detaches)", o_.job,
        printable(job_["user"].str_or("another user"))));
  }

  // Users who attach to an older job may not remember how to detach.
  void say_how_to_leave() {
    if (o_.interrupt_detaches && !o_.watch && errors_.terminal &&
        !std::exchange(told_how_to_leave_, true))
      note(fmt::format("attached to job {}; {} detaches, and the job keeps running", o_.job,
                       o_.tty ? "Ctrl-P Ctrl-Q" : "Ctrl-C"));
  }

  void start() {
    started_ = true;
    clear_line();
    say_how_to_leave();
    if (const auto text = job_["memory_note"].str_or(""); !text.empty() && errors_.terminal)
      note(fmt::format("--mem is {}", printable(text)));
    if (!o_.tty || raw_ || ::isatty(o_.input_fd) != 1)
      return;
    if (auto raw = RawMode::enter(o_.input_fd))
      raw_.emplace(std::move(*raw));
    send_size();
  }

  // ---- input: kept until the job has it. The head reports how far it has arrived, first on
  // connecting and after every failure; the client resends from there, so no byte is lost or
  // doubled.
  void input_stands_at(std::uint64_t received) {
    const std::uint64_t end = kept_at_ + kept_input_.size();
    if (received > end)
      kept_input_.clear();  // another client typed meanwhile
    if (received > end || received < kept_at_)
      kept_at_ = received;  // another task: our input begins here
    input_sent_ = received;
    input_ready_ = true;
    eof_sent_ = false;
    send_json(fmt::format(R"({{"type":"input","offset":{}}})", received));
  }
  void input_is_safe_below(std::uint64_t bytes) {
    if (bytes <= kept_at_)
      return;
    const std::size_t n = std::min<std::size_t>(kept_input_.size(), bytes - kept_at_);
    kept_input_.erase(0, n);
    kept_at_ += n;
  }
  std::size_t unsent() const {
    return kept_input_.size() - static_cast<std::size_t>(input_sent_ - kept_at_);
  }
  bool input_to_send() const {
    return input_ready_ && (unsent() > 0 || (input_ended_ && !eof_sent_));
  }
  bool wants_input() const {
    return input_open_ && started_ && input_ready_ && unsent() == 0 &&
           kept_input_.size() < input_kept_max;
  }

  void take_input() {
    char buffer[input_bytes_max];
    const ssize_t n = ::read(o_.input_fd, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
      return;
    if (n <= 0) {
      input_open_ = false;
      input_ended_ = true;
      return flush_input();
    }
    std::string_view data(buffer, static_cast<std::size_t>(n));
    if (!raw_) {
      kept_input_ += data;
    } else {
      auto taken = keys_.take(data);
      kept_input_ += taken.input;
      if (taken.detach) {
        flush_input();
        return detach();
      }
    }
    if (input_to_send()) {
      pollfd fd{socket_->fd(), POLLOUT, 0};
      if (::poll(&fd, 1, 0) == 1 && (fd.revents & POLLOUT))
        flush_input();
    }
  }

  void flush_input() {
    if (!socket_ || !input_to_send())
      return;
    const auto data = std::string_view(kept_input_).substr(input_sent_ - kept_at_, input_bytes_max);
    if (!data.empty() && !socket_->send_binary(data))
      return lose_connection();
    input_sent_ += data.size();
    if (unsent() > 0 || !input_ended_ || eof_sent_)
      return;
    eof_sent_ = true;
    send_json(R"({"type":"eof"})");
  }

  void detach() {
    raw_.reset();
    finish({.detached = true, .job = job_});
    (void)write_all(
        o_.error_fd,
        fmt::format("\ndetached from job {}, which keeps running; reattach with `billow "
                    "attach {}`\n",
                    o_.job, o_.job));
  }

  void send_json(std::string_view text) {
    if (socket_ && !socket_->send_text(text))
      lose_connection();
  }

  void send_size() {
    if (const auto size = terminal_size(o_.input_fd))
      send_json(fmt::format(R"({{"type":"resize","rows":{},"cols":{}}})", size->rows, size->cols));
  }

  void take_signals() {
    while (const int number = signals_.next()) {
      if (number == SIGWINCH) {
        if (o_.tty)
          send_size();
      } else if ((number == SIGQUIT && !raw_) || o_.watch ||
                 (number == SIGINT && !raw_ && o_.interrupt_detaches)) {
        clear_line();
        detach();
      } else {
        pass_on(number);
      }
      if (end_)
        return;
    }
  }

  void pass_on(int number) {
    const bool again = number == last_signal_ && steady() - last_signal_at_ < second_interrupt;
    last_signal_ = number;
    last_signal_at_ = steady();
    if (!started_ || again) {
      clear_line();
      if (started_)
        say(fmt::format("killing job {}", o_.job));
      auto stopped = client_.post(path_of_job(o_.job, "stop"), stop_body(again));
      if (!stopped && !is_away(stopped.error()))
        say(stopped.error().message);
      // The job never ran, so there is no end to wait for.
      if (!started_ && stopped && (*stopped)["final"].bool_or(false)) {
        if (!o_.quiet)
          say(fmt::format("job {} was cancelled", o_.job));
        finish({.reported = true, .exit_code = 128 + number, .job = std::move(*stopped)});
      }
      return;
    }
    if (node_is_away())
      return end_without_node(number);
    send_json(fmt::format(R"({{"type":"signal","signal":{}}})", number));
    if (number == SIGINT && !o_.quiet && errors_.terminal)
      say("sent to the job; press Ctrl-C again within 2 s to end it");
  }

  // The job may have begun although nothing of it has come here yet.
  std::string stop_body(bool force) {
    if (force)
      return R"({"reason":"interrupted","force":true})";
    const auto job = client_.get(path_of_job(o_.job));
    const std::string state(job ? (*job)["state"].str_or("") : "");
    return state == "queued" || state == "held"
               ? R"({"reason":"cancelled while waiting","force":false})"
               : R"({"reason":"interrupted","force":false})";
  }

  // An unreachable node gets no signal; do not wait until it does.
  bool node_is_away() {
    const auto job = client_.get(path_of_job(o_.job));
    if (!job)
      return false;
    for (const Json& task : (*job)["tasks"].items())
      if (task["state"].str_or("") == "unreachable" && !(*job)["reason"].str_or("").empty())
        return true;
    return false;
  }
  void end_without_node(int number) {
    clear_line();
    auto stopped =
        client_.post(path_of_job(o_.job, "stop"), R"({"reason":"interrupted","force":false})");
    say(stopped ? fmt::format(
                      "job {} was stopped; its node does not answer and ends it when it reconnects",
                      o_.job)
                : stopped.error().message);
    finish(
        {.reported = true, .exit_code = 128 + number, .job = stopped ? std::move(*stopped) : job_});
  }

  // ---- status on stderr while the job waits
  int until_next_word() const {
    if (started_ || o_.quiet)
      return 60'000;
    const Duration waited = steady() - begun_;
    if (waited < silent_start)
      return poll_ms(silent_start - waited);
    return errors_.terminal ? 1000 : 60'000;
  }

  void maybe_say_why_waiting() {
    if (started_ || o_.quiet || end_ || job_.is_null() || steady() - begun_ < silent_start)
      return;
    const std::string line = waiting_line(job_);
    if (!errors_.terminal) {
      // In a file or a log each reason is printed once, not again with every new figure.
      const std::string plain = without_digits(line);
      if (plain == last_line_)
        return;
      last_line_ = plain;
      return say(line);
    }
    const std::string shown =
        clipped(fmt::format("{} ({})", line, whole_seconds((steady() - begun_).ns / 1'000'000'000)),
                errors_.columns - 1);
    (void)write_all(o_.error_fd, "\r\x1b[K" + painted(shown, Colour::dim, errors_));
    line_shown_ = true;
  }

  void clear_line() {
    if (!line_shown_)
      return;
    (void)write_all(o_.error_fd, "\r\x1b[K");
    line_shown_ = false;
  }

  void note(const std::string& line) {
    clear_line();
    if (!o_.quiet)
      (void)write_all(o_.error_fd,
                      fmt::format("{}billow: {}{}\n", raw_ ? "\r" : "", line, raw_ ? "\r" : ""));
  }

  void finish(AttachEnd end) {
    if (!end_)
      end_ = std::move(end);
  }

  Client& client_;
  AttachOptions o_;
  SignalQueue signals_;
  Look errors_;
  std::optional<net::BlockingWebSocket> socket_;
  std::optional<RawMode> raw_;
  DetachKeys keys_;
  std::optional<AttachEnd> end_;
  Json job_;
  std::uint64_t offset_ = 0;  // in the log, where a new connection resumes
  std::int64_t attempt_ = 0;  // that offset_ belongs to
  bool first_ = true;         // nothing of the output was taken yet
  bool connected_once_ = false;
  bool started_ = false;
  bool input_open_;
  bool input_ended_ = false, eof_sent_ = false;
  bool input_ready_ = false;   // the head has reported the input offset on this connection
  std::string kept_input_;     // read, but not yet confirmed
  std::uint64_t kept_at_ = 0;  // offset of kept_input_[0] in all input of the task
  std::uint64_t input_sent_ = 0;
  SteadyTime begun_;
  bool line_shown_ = false;
  bool told_how_to_leave_ = false;
  std::string stands_;  // what was last said of a suspension, or of idleness
  std::string last_line_;
  int last_signal_ = 0;
  SteadyTime last_signal_at_;
};

}  // namespace

std::optional<OutputMessage> parse_output(std::string_view message) {
  if (message.empty())
    return std::nullopt;
  const int head = static_cast<unsigned char>(message[0]);
  const int stream = head & ~stream_has_offset;
  if (stream != 1 && stream != 2)
    return std::nullopt;
  OutputMessage output{.error_stream = stream == 2};
  message.remove_prefix(1);
  if (head & stream_has_offset) {
    if (message.size() < 8)
      return std::nullopt;
    std::uint64_t at = 0;
    for (int i = 7; i >= 0; --i)
      at = at << 8 | static_cast<unsigned char>(message[static_cast<std::size_t>(i)]);
    output.resume_at = at;
    message.remove_prefix(8);
  }
  output.bytes = message;
  return output;
}

Result<AttachEnd> attach_to_job(Client& client, AttachOptions options) {
  auto signals = BILLOW_TRY(SignalQueue::create());
  return Attachment(client, std::move(options), std::move(signals)).run();
}

}  // namespace billow::client
