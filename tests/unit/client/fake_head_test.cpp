// The program against a head of cardboard: streaming, exit codes, signals, input, resuming, and how
// refusals look.
#include "fake_head.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>

#include "base/text.h"
#include "child.h"
#include "core/wire/log_record.h"

namespace billow::client::testing {
namespace {

Json document(const char* state, bool final, int code = 0) {
  Json job = Json::object({{"id", 12},
                           {"label", "12"},
                           {"state", state},
                           {"final", final},
                           {"reason", "waiting for 1 H100"},
                           {"attempt", 1},
                           {"command", "x"}});
  if (final) {
    job.set("exit_code", code);
    job.set("exit", Json::object({{"kind", "exited"},
                                  {"code", code},
                                  {"text", code ? "exit code " + std::to_string(code) : "done"}}));
  }
  return job;
}
std::string frame(const char* type, const Json& job) {
  return Json::object({{"type", type}, {"job", job}}).dump();
}
// A piece of output that says where to go on.
std::string piece(int stream, std::uint64_t next, std::string_view bytes) {
  std::string out(1, static_cast<char>(stream | 0x80));
  for (int i = 0; i < 8; ++i)
    out += static_cast<char>(next >> (8 * i) & 0xFF);
  return out + std::string(bytes);
}

class FakeHeadTest : public ::testing::Test {
 protected:
  FakeHeadTest() {
    char name[] = "/tmp/billow-cli-test-XXXXXX";
    dir_ = ::mkdtemp(name);
    head_ = std::make_unique<FakeHead>(dir_ + "/head.sock");
    head_->answer = [](const net::Request& r) {
      if (r.method == net::Method::post && r.path == "/v1/jobs")
        return net::Response::json(201, R"({"id":12,"state":"queued","count":1})");
      if (r.path == "/v1/jobs/12")
        return net::Response::json(200, document("running", false).dump());
      if (r.path == "/v1/jobs/12/stop")
        return net::Response::json(200, document("stopped", true, 143).dump());
      return net::problem(404, "there is no job 99", "see `billow ps -a`");
    };
  }
  ~FakeHeadTest() override {
    head_.reset();
    (void)remove_tree(dir_);
  }
  std::unique_ptr<Child> start(std::vector<std::string> args,
                               int input = -1,
                               std::map<std::string, std::string> env = {}) {
    env["BILLOW_HEAD"] = head_->url();
    env.try_emplace("BILLOW_TOKEN", "secret");
    return std::make_unique<Child>(BILLOW_PROGRAM, std::move(args), env, input);
  }
  std::string dir_;
  std::unique_ptr<FakeHead> head_;
};

TEST_F(FakeHeadTest, RunStreamsBothOutputsAndGivesTheJobsExitCode) {
  head_->on_attach = [](std::shared_ptr<net::WebSocket> socket, const net::Request&) {
    socket->send_text(frame("state", document("running", false)));
    socket->send_binary(std::string("\x01", 1) + "out");
    socket->send_binary(std::string("\x02", 1) + "err");
    socket->send_text(frame("end", document("failed", true, 3)));
    socket->close();
  };
  head_->start();
  auto child = start({"run", "--gpus", "0.25", "--", "python", "-c", "pass"});
  EXPECT_EQ(child->wait(), 3);
  EXPECT_EQ(child->out, "out");
  EXPECT_EQ(child->err, "err") << "a fast start and an ordinary end are silent";
  const auto body = parse_json(head_->last_body("POST /v1/jobs"));
  ASSERT_TRUE(body);
  EXPECT_EQ(body->at("spec", "resources", "share", "milli").int_or(0), 250);
  EXPECT_EQ(body->at("spec", "argv").size(), 3u);
  EXPECT_TRUE((*body)["env"].find("PATH"));
  EXPECT_FALSE((*body)["env"].find("BILLOW_TOKEN")) << "credentials stay behind";
  EXPECT_FALSE(body->at("spec", "use_stdin").bool_or(false)) << "stdin was /dev/null";
}

TEST_F(FakeHeadTest, RunSurvivesAHeadRestartWithoutLosingOrRepeatingAByte) {
  // Every connection gives two pieces and is cut, the second time together with the whole head.
  // Offsets are the log's own: eleven bytes of framing per piece of one hundred.
  constexpr int pieces = 9;
  const auto text = [](int i) {
    return std::string(100, static_cast<char>('a' + i));
  };
  std::atomic<int> connections{0};
  head_->on_attach = [&](std::shared_ptr<net::WebSocket> socket, const net::Request& request) {
    const int n = ++connections;
    const auto offset = parse_int(request.param("offset"), 0, 1 << 20).value_or(-1);
    ASSERT_EQ(offset % 111, 0) << "only offsets the head gave are sent back";
    socket->send_text(frame("state", document("running", false)));
    int i = static_cast<int>(offset / 111);
    for (int sent = 0; sent < 2 && i < pieces; ++sent, ++i)
      socket->send_binary(piece(1, static_cast<std::uint64_t>(i + 1) * 111, text(i)));
    if (i == pieces)
      socket->send_text(frame("end", document("succeeded", true)));
    if (n != 2)
      socket->close(n == 1 ? 1013 : 1001);
  };
  head_->start();
  auto child = start({"run", "--", "x"});
  ASSERT_TRUE(child->read_until([&] { return child->out.size() >= 400; })) << child->err;
  head_->stop();
  head_->start();
  EXPECT_EQ(child->wait(), 0) << child->err;
  std::string expected;
  for (int i = 0; i < pieces; ++i)
    expected += text(i);
  EXPECT_EQ(child->out, expected);
  EXPECT_GE(connections, 4);
}

TEST_F(FakeHeadTest, WithoutOffsetsTheBytesAreCounted) {
  std::atomic<int> connections{0};
  const std::string log = "0123456789";
  head_->on_attach = [&](std::shared_ptr<net::WebSocket> socket, const net::Request& request) {
    const auto offset =
        static_cast<std::size_t>(parse_int(request.param("offset"), 0, 10).value_or(0));
    socket->send_text(frame("state", document("running", false)));
    socket->send_binary(std::string("\x01", 1) + log.substr(offset, 4));
    if (++connections == 3)
      socket->send_text(frame("end", document("succeeded", true)));
    socket->close();
  };
  head_->start();
  auto child = start({"run", "--", "x"});
  EXPECT_EQ(child->wait(), 0);
  EXPECT_EQ(child->out, log);
}

TEST_F(FakeHeadTest, InputReachesTheJobToItsEnd) {
  std::string received;
  head_->on_attach = [](std::shared_ptr<net::WebSocket> socket, const net::Request&) {
    socket->send_text(frame("state", document("running", false)));
    socket->send_text(R"({"type":"input","received":0})");
  };
  head_->on_frame = [&](net::WebSocket& socket, std::string_view data, bool binary) {
    if (binary)
      received += data;
    else if (data.find("eof") != std::string_view::npos) {
      socket.send_binary(std::string("\x01", 1) + received.substr(received.size() - 3));
      socket.send_text(frame("end", document("succeeded", true)));
    }
  };
  head_->start();
  const std::string big(300'000, 'x');
  ASSERT_TRUE(write_file_atomic(dir_ + "/in", big + "END"));
  Fd input(::open((dir_ + "/in").c_str(), O_RDONLY | O_CLOEXEC));
  auto child = start({"run", "--", "cat"}, input.get());
  EXPECT_EQ(child->wait(), 0);
  EXPECT_EQ(child->out, "END");
  head_->stop();
  EXPECT_EQ(received, big + "END");
}

TEST_F(FakeHeadTest, InputGoesOnFromWhereItStandsOnANewConnection) {
  std::string received;
  std::atomic<int> connections{0};
  head_->on_attach = [&](std::shared_ptr<net::WebSocket> socket, const net::Request&) {
    ++connections;
    socket->send_text(frame("state", document("running", false)));
    socket->send_text(fmt::format(R"({{"type":"input","received":{}}})", received.size()));
  };
  head_->on_frame = [&](net::WebSocket& socket, std::string_view data, bool binary) {
    if (binary && connections == 1 && received.size() > 50'000) {
      received.resize(40'000);  // the rest died with the head, before it was safe
      socket.close();
      connections = -1;
    } else if (binary && connections != -1) {
      received += data;
    } else if (data.find("eof") != std::string_view::npos) {
      socket.send_text(frame("end", document("succeeded", true)));
    }
  };
  head_->start();
  std::string big;
  for (int i = 0; big.size() < 300'000; ++i)
    big += fmt::format("{} ", i);
  ASSERT_TRUE(write_file_atomic(dir_ + "/in", big));
  Fd input(::open((dir_ + "/in").c_str(), O_RDONLY | O_CLOEXEC));
  auto child = start({"run", "--", "cat"}, input.get());
  EXPECT_EQ(child->wait(), 0) << child->err;
  head_->stop();
  EXPECT_EQ(received, big);
}

TEST_F(FakeHeadTest, SignalsReachTheJobAndASecondOneEndsIt) {
  std::atomic<int> signals{0};
  head_->on_attach = [](std::shared_ptr<net::WebSocket> socket, const net::Request&) {
    socket->send_text(frame("state", document("running", false)));
    socket->send_binary(std::string("\x01", 1) + "up");
  };
  head_->on_frame = [&](net::WebSocket& socket, std::string_view data, bool) {
    if (data.find("\"signal\":2") == std::string_view::npos)
      return;
    ++signals;
    socket.send_binary(std::string("\x01", 1) + "got");
  };
  std::shared_ptr<net::WebSocket> attached;
  const auto answer = head_->answer;
  head_->on_attach = [&, before = head_->on_attach](std::shared_ptr<net::WebSocket> socket,
                                                    const net::Request& r) {
    before(attached = socket, r);
  };
  head_->answer = [&, answer](const net::Request& r) {
    if (r.path == "/v1/jobs/12/stop")
      attached->send_text(frame("end", document("stopped", true, 137)));
    return answer(r);
  };
  head_->start();
  auto child = start({"run", "--", "x"});
  ASSERT_TRUE(child->read_until([&] { return child->out == "up"; }));
  child->signal(SIGINT);
  ASSERT_TRUE(child->read_until([&] { return child->out == "upgot"; }));
  child->signal(SIGINT);
  EXPECT_EQ(child->wait(), 137);
  EXPECT_EQ(signals, 1);
  EXPECT_NE(head_->last_body("POST /v1/jobs/12/stop").find("\"force\":true"), std::string::npos);
  head_->stop();
  attached.reset();
}

TEST_F(FakeHeadTest, WhileItWaitsTheReasonIsSaidAndAnInterruptCancels) {
  head_->on_attach = [](std::shared_ptr<net::WebSocket> socket, const net::Request&) {
    socket->send_text(frame("state", document("queued", false)));
  };
  head_->start();
  auto child = start({"run", "--", "x"});
  ASSERT_TRUE(child->read_until([&] {
    return child->err.find("billow: job 12 is queued: waiting for 1 H100\n") != std::string::npos;
  })) << child->err;
  child->signal(SIGINT);
  EXPECT_EQ(child->wait(), 130);
  EXPECT_NE(child->err.find("job 12 was cancelled"), std::string::npos);
  EXPECT_NE(head_->last_body("POST /v1/jobs/12/stop").find("\"force\":false"), std::string::npos);
}

TEST_F(FakeHeadTest, AReaderThatLeavesEndsTheJob) {
  head_->on_attach = [](std::shared_ptr<net::WebSocket> socket, const net::Request&) {
    socket->send_text(frame("state", document("running", false)));
    for (int i = 0; i < 4; ++i)
      socket->send_binary(std::string("\x01", 1) + std::string(60'000, 'y'));
  };
  head_->start();
  Child child("/bin/sh", {"-c", "\"$0\" run -- yes | head -c 1", BILLOW_PROGRAM},
              {{"BILLOW_HEAD", head_->url()}, {"BILLOW_TOKEN", "secret"}});
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(child.out, "y");
  EXPECT_NE(head_->last_body("POST /v1/jobs/12/stop").find("reader of its output"),
            std::string::npos);
}

TEST_F(FakeHeadTest, RefusalsShowTheDetailAndTheHint) {
  head_->answer = [](const net::Request&) {
    return net::problem(422, "no node has 9 GPUs; largest is 8", "ask for 8, or use --nodes 2");
  };
  head_->start();
  auto child = start({"submit", "--gpus", "9", "--", "x"});
  EXPECT_EQ(child->wait(), 1);
  EXPECT_EQ(child->err,
            "billow: no node has 9 GPUs; largest is 8\nhint: ask for 8, or use --nodes 2\n");
  EXPECT_EQ(child->out, "");
}

TEST_F(FakeHeadTest, WaitGivesTheFirstCodeThatIsNotZero) {
  head_->answer = [](const net::Request& r) {
    const bool bad = r.path.find("/13/") != std::string::npos;
    return net::Response::json(200,
                               document(bad ? "failed" : "succeeded", true, bad ? 7 : 0).dump());
  };
  head_->start();
  EXPECT_EQ(start({"wait", "12"})->wait(), 0);
  EXPECT_EQ(start({"wait", "12", "13", "12"})->wait(), 7);
}

TEST_F(FakeHeadTest, WaitGivesUpInTime) {
  head_->answer = [](const net::Request&) {
    return net::Response::json(200, document("running", false).dump());
  };
  head_->start();
  EXPECT_EQ(start({"wait", "--timeout", "0", "12"})->wait(), 124);
}

TEST_F(FakeHeadTest, SubmitPrintsTheNumberForScripts) {
  head_->start();
  auto json = start({"submit", "--json", "--", "x"});
  EXPECT_EQ(json->wait(), 0);
  EXPECT_EQ((*parse_json(json->out))["id"].int_or(0), 12);
  auto quiet = start({"submit", "-q", "--", "x"});
  EXPECT_EQ(quiet->wait(), 0);
  EXPECT_EQ(quiet->out, "12\n");
}

TEST_F(FakeHeadTest, LogsFollowAcrossABrokenStream) {
  std::atomic<int> calls{0};
  head_->answer = [&](const net::Request& r) {
    if (r.path == "/v1/jobs/12")
      return net::Response::json(200, R"({"id":12,"nodes":1})");
    std::string body;
    const auto record = [&](std::uint8_t stream, std::string_view data) {
      const wire::RecordHead head{static_cast<std::uint32_t>(data.size()), stream, 0, 0, 1};
      body.append(reinterpret_cast<const char*>(&head), sizeof(head));
      body += data;
    };
    const auto resume_at = [&](std::uint64_t offset) {
      record(wire::stream_resume, {reinterpret_cast<const char*>(&offset), sizeof(offset)});
    };
    if (++calls == 1) {
      record(1, "hel");
      resume_at(10);
    } else if (r.param("offset") == "10") {
      record(2, "lo\n");
      record(wire::stream_end, "");
    }
    return net::Response{.status = 200, .body = body};
  };
  head_->start();
  auto child = start({"logs", "-f", "12"});
  EXPECT_EQ(child->wait(), 0) << child->err;
  EXPECT_EQ(child->out, "hello\n");
}

TEST_F(FakeHeadTest, AWrongTokenIsToldApartFromNoHead) {
  head_->start();
  auto wrong = start({"ps"}, -1, {{"BILLOW_TOKEN", "nonsense"}});
  EXPECT_EQ(wrong->wait(), 1);
  EXPECT_NE(wrong->err.find("who are you?"), std::string::npos);
  head_->stop();
  auto gone = start({"ps"});
  EXPECT_EQ(gone->wait(), 69);
  EXPECT_NE(gone->err.find("cannot connect"), std::string::npos);
}

TEST_F(FakeHeadTest, NonsenseFromTheHeadIsAnErrorNotACrash) {
  head_->answer = [](const net::Request&) {
    return net::Response::json(200, "<html>");
  };
  head_->start();
  for (const auto& args : std::vector<std::vector<std::string>>{{"ps"},
                                                                {"status"},
                                                                {"nodes"},
                                                                {"describe", "1"},
                                                                {"explain", "1"},
                                                                {"events"},
                                                                {"token", "list"}}) {
    auto child = start(args);
    EXPECT_EQ(child->wait(), 1) << args[0];
  }
  head_->stop();
  head_->answer = [](const net::Request&) {
    return net::Response::json(
        200, R"({"jobs":7,"nodes":[1,null,{"gpus":{}}],"events":[[]],"id":{},"gpus":"x"})");
  };
  head_->start();
  for (const auto& args : std::vector<std::vector<std::string>>{{"ps"},
                                                                {"status"},
                                                                {"nodes"},
                                                                {"nodes", "-g"},
                                                                {"describe", "1"},
                                                                {"explain", "1"},
                                                                {"events"},
                                                                {"token", "list"},
                                                                {"project", "list"}}) {
    auto child = start(args);
    EXPECT_EQ(child->wait(), 0) << args[0];
  }
}

}  // namespace
}  // namespace billow::client::testing
