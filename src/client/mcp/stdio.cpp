#include "client/mcp/stdio.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "client/frame/commands.h"
#include "client/mcp/session.h"
#include "client/mcp/tools.h"

namespace billow::client::mcp {
namespace {

constexpr auto person_answers_within = std::chrono::minutes(10);

struct RunningCall {
  ToolCall call;
  bool may_ask = false;  // the client can ask its user
  std::atomic<bool> cancelled = false;
  std::atomic<bool> done = false;
  std::thread thread;
};

class StdioServer {
 public:
  StdioServer(const Connect& connect, int out) : connect_(connect), out_(out) {}
  ~StdioServer() {
    for (auto& call : calls_)
      call->cancelled = true;
    answered_.notify_all();
    for (auto& call : calls_)
      call->thread.join();
  }

  void take(const Message& message) {
    Step step = session_.take(message);
    for (const std::string& line : step.answers)
      send(line);
    if (step.cancelled)
      for (auto& call : calls_)
        if (call->call.id == *step.cancelled) {
          call->cancelled = true;
          answered_.notify_all();
        }
    if (step.response) {
      const std::lock_guard lock(mutex_);
      if (const auto asked = asked_.find(step.response->id.dump()); asked != asked_.end())
        asked->second = step.response->params;
      answered_.notify_all();
    }
    if (step.call)
      begin(std::move(*step.call));
  }

  void send(const std::string& line) {
    const std::lock_guard lock(writing_);
    (void)write_all(out_, line + "\n");
  }

 private:
  void begin(ToolCall call) {
    std::erase_if(calls_, [](const auto& each) {
      if (each->done)
        each->thread.join();
      return each->done.load();
    });
    if (calls_.size() >= calls_max)
      return send(reply_line(
          call.id, tool_failure({Code::exhausted, fmt::format("{} calls already run", calls_max),
                                 "wait until one of them has ended"},
                                {})));
    calls_.push_back(std::make_unique<RunningCall>());
    RunningCall& running = *calls_.back();
    running.call = std::move(call);
    running.may_ask = session_.can_elicit();
    running.thread = std::thread([this, &running] {
      const Json result = result_of(running);
      if (!running.cancelled)  // a cancelled request gets no answer
        send(reply_line(running.call.id, result));
      running.done = true;
    });
  }

  Json result_of(RunningCall& running) {
    auto client = connect_();
    if (!client)
      return tool_failure(client.error(), {});
    ToolRun run{*client, running.cancelled};
    auto answer = run_tool(run, running.call.name, running.call.arguments);
    if (answer)
      return tool_result(*answer);
    const Json approval = approval_of(*client, answer.error());
    if (!approval.is_object() || !running.may_ask)
      return tool_failure(answer.error(), approval);
    // The head decides whether a person has approved it; the client only says when to look again.
    if (ask_person(running, approval)) {
      answer = run_tool(run, running.call.name, running.call.arguments);
      if (answer)
        return tool_result(*answer);
    }
    return tool_failure(answer.error(), approval_of(*client, answer.error()));
  }

  bool ask_person(RunningCall& running, const Json& approval) {
    Json id;
    {
      const std::lock_guard lock(mutex_);
      id = fmt::format("billow-{}", ++last_asked_);
      asked_.emplace(id.dump(), std::nullopt);
    }
    send(request_line(
        id, "elicitation/create",
        Json::object(
            {{"message",
              fmt::format("An agent asks to {}. To allow it once, run `billow approvals approve "
                          "{}` or use the dashboard; then confirm here.",
                          approval["text"].str_or(""), approval["id"].uint_or(0))},
             {"requestedSchema",
              Json::object({{"type", "object"},
                            {"properties",
                             Json::object({{"approved", Json::object({{"type", "boolean"},
                                                                      {"description",
                                                                       "I have approved it."}})}})},
                            {"required", Json::array()}})}})));
    std::unique_lock lock(mutex_);
    answered_.wait_for(lock, person_answers_within,
                       [&] { return asked_.at(id.dump()).has_value() || running.cancelled; });
    const std::optional<Json> answer = asked_.at(id.dump());
    asked_.erase(id.dump());
    return answer && (*answer)["action"].str_or("") == "accept";
  }

  const Connect& connect_;
  int out_;
  std::mutex writing_;
  Session session_{version(), tool_list()};
  std::list<std::unique_ptr<RunningCall>> calls_;
  std::mutex mutex_;  // of the next three
  std::condition_variable answered_;
  std::map<std::string, std::optional<Json>> asked_;  // by the id of our request
  std::uint64_t last_asked_ = 0;
};

}  // namespace

void serve_stdio(const Connect& connect, int in, int out) {
  StdioServer server(connect, out);
  LineReader lines;
  std::string buffer(64 << 10, '\0');
  for (;;) {
    const ssize_t got = ::read(in, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return;
    lines.feed(std::string_view(buffer).substr(0, static_cast<std::size_t>(got)));
    while (const auto line = lines.next()) {
      if (line->too_long)
        server.send(error_line({}, RpcError::invalid_request,
                               fmt::format("a message has more than {} bytes", line_bytes_max)));
      else
        server.take(read_message(line->text));
    }
  }
}

}  // namespace billow::client::mcp
