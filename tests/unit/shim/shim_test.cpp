// The shim and the GPU memory service together, on the simulated driver: limits, races, suspend and
// resume, faults, turns.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "process/command.h"
#include "tests/unit/shim/fixture.h"

namespace {

using namespace shimtest;

// A size or number that is misread would leave the node without an arena, or jobs without turns.
TEST(GpumemProgram, RefusesOptionsThatItDoesNotUnderstand) {
  const auto refused = [](std::vector<std::string> options) {
    options.insert(options.begin(), GPUMEM_PROGRAM);
    const auto done = billow::process::run_command({.argv = options, .env = {}, .input = {}});
    EXPECT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->code, 2) << done->err;
    return done->err.substr(0, done->err.find('\n'));
  };
  const std::string no_size = "\" is not a size like 512M, 20G or 1.5T";
  for (const std::string wrong : {"lots", "1X", "-1G", "1GB", "nan", "1e9", "2000000T", ""})
    EXPECT_EQ(refused({"--arena", wrong}), "billow-gpumem: --arena: \"" + wrong + no_size);
  EXPECT_EQ(refused({"--threads", "four"}),
            "billow-gpumem: --threads: \"four\" is not a whole number from 1 to 1024");
  EXPECT_EQ(refused({"--period-ms", "0"}),
            "billow-gpumem: --period-ms: \"0\" is not a whole number from 1 to 60000");
  EXPECT_EQ(refused({"--socket", "a", "--admin"}), "billow-gpumem: --admin: its value is missing");
  EXPECT_EQ(refused({"--arenas", "64G"}), "billow-gpumem: --arenas: unknown option");
  EXPECT_EQ(refused({"--socket", "a"}), "billow-gpumem: --socket and --admin are needed");
}

TEST_F(Shim, EveryWayToAFunctionLeadsToItsHookOfTheSameAbi) {
  EXPECT_EQ(run("resolution"), 0);
}
TEST_F(Shim, HooksForwardExactlyWhatTheyGet) {
  EXPECT_EQ(run("forwarding"), 0);
}
TEST_F(Shim, LimitsBackedMemoryAndShowsTheSlice) {
  EXPECT_EQ(run("limits"), 0);
}
TEST_F(Shim, SmallAllocationsShareSlabsAndAnswerForThemselves) {
  EXPECT_EQ(run("small", 512), 0);
}
TEST_F(Shim, AFailedStepRollsEverythingBack) {
  EXPECT_EQ(run("rollback", 512), 0);
}
TEST_F(Shim, TheProgramsOwnHandlesAreChargedAndTranslated) {
  EXPECT_EQ(run("own_handles"), 0);
}
TEST_F(Shim, NothingSynchronisesDuringACapture) {
  EXPECT_EQ(run("capture"), 0);
}
TEST_F(Shim, SurvivesFork) {
  EXPECT_EQ(run("forks"), 0);
}
TEST_F(Shim, ThreadsRaceForTheLastMebibyte) {
  EXPECT_EQ(run("threads"), 0);
}
TEST_F(Shim, TheLimitPageCannotBeWritten) {
  EXPECT_EQ(run("sealed"), 0);
}

TEST_F(Shim, LimitsPlainMemoryOfJobsThatAreNotSuspendable) {
  add("job", 64, "suspendable=0");
  auto c = child("job", {"racer"});
  EXPECT_EQ(c->line(), std::to_string(64u << 20));
}

TEST_F(Shim, RubbishArgumentsNeverCrash) {
  add("job", 64);
  for (int seed = 1; seed <= 3; seed++) {
    auto c = child("job", {"fuzz", std::to_string(seed)});
    EXPECT_EQ(c->line(), "survived") << "seed " << seed;
    EXPECT_EQ(c->wait(), 0) << "seed " << seed;
  }
}

TEST_F(Shim, RacingProcessesNeverExceedTheLimitAndAKilledOneGivesBack) {
  add("job", 64);
  std::vector<std::unique_ptr<Child>> racers;
  for (int i = 0; i < 4; i++)
    racers.push_back(child("job", {"racer"}));
  std::uint64_t taken = 0;
  for (auto& r : racers)
    taken += std::strtoull(r->line().c_str(), nullptr, 10);
  EXPECT_LE(taken, 64u << 20);
  EXPECT_GE(taken, 60u << 20);
  EXPECT_EQ(std::to_string(taken), job("job")["used"]);
  for (auto& r : racers)
    r->kill_now();
  EXPECT_TRUE(eventually([&] { return job("job")["used"] == "0"; }));
}

TEST_F(Shim, WithoutTheServiceCudaStaysOff) {
  add("job", 64);
  call("remove name=job");
  auto c = child("job", {"limits"});
  EXPECT_EQ(c->wait(), 1);
}

TEST_F(Shim, SuspendsAndResumesAtRandomMoments) {
  add("job", 256);
  auto c = child("job", {"worker"});
  ASSERT_EQ(c->line(), "ready");
  for (int i = 0; i < 12; i++) {
    usleep(static_cast<useconds_t>(i * 1700));
    const auto out = call(std::string("suspend name=job mode=") + (i % 3 == 2 ? "cold" : "warm"));
    EXPECT_EQ(out.number("cold"), i % 3 == 2 ? 1u : 0u);
    EXPECT_EQ(job("job")["phase"], "suspended");
    if (i > 0) {
      EXPECT_LE(out.number("copied"), 4u << 20);
    }  // what did not change did not cross again
    const auto in = call("resume name=job");
    EXPECT_EQ(in.number("bytes"), out.number("bytes"));
  }
  c->poke();
  EXPECT_TRUE(c->line().starts_with("right"));
  EXPECT_EQ(c->wait(), 0);
}

TEST_F(Shim, ProcessesThatShareMemoryAreSuspendedAsOne) {
  service_.reset();
  arena_ = "512M";
  start_service();
  add("job", 768);
  auto c = child("job", {"sharing"});
  ASSERT_EQ(c->line(), "ready");
  EXPECT_EQ(job("job")["blocks_suspend"], "0");
  for (int i = 0; i < 6; i++) {
    usleep(static_cast<useconds_t>(i * 3100));
    const auto out = call(std::string("suspend name=job mode=") + (i % 3 == 2 ? "cold" : "warm"));
    EXPECT_EQ(out.number("bytes"), 316u << 20);
    EXPECT_EQ(out.number("cold"), 0u);  // two processes on one card
    EXPECT_EQ(job("job")["phase"], "suspended");
    call("resume name=job");
  }
  c->poke();
  EXPECT_TRUE(c->line().starts_with("right"));
  EXPECT_EQ(c->wait(), 0);
}

// Three processes whose kernels wait for each other, each with its own lead: when the gates close,
// some have launched kernels that others have not. Those catch up, and the job stops as one. The
// card could not switch between their kernels after the driver's checkpoint, so they stay warm.
TEST_F(Shim, ProcessesWhoseKernelsWaitForEachOtherAreSuspended) {
  add("job", 64);
  auto c = child("job", {"ranks"});
  ASSERT_EQ(c->line(), "ready");
  for (int i = 0; i < 12; i++) {
    usleep(static_cast<useconds_t>(i % 5 * 2300));
    const auto out = call(std::string("suspend name=job timeout_ms=8000 mode=") +
                          (i % 3 == 2 ? "cold" : "warm"));
    EXPECT_EQ(out.number("bytes"), 3u * 4 << 20);
    EXPECT_EQ(out.number("cold"), 0u);
    EXPECT_EQ(out.values.contains("cold_error"), i % 3 == 2);
    EXPECT_EQ(job("job")["phase"], "suspended");
    call("resume name=job");
  }
  c->poke();
  EXPECT_TRUE(c->line().starts_with("right"));
  EXPECT_EQ(c->wait(), 0);
}

// The driver's checkpoint would unmap this memory under the thread that writes it.
TEST_F(Shim, MappedHostMemoryStaysWhileTheJobIsSuspended) {
  add("job", 64);
  auto c = child("job", {"host_mapped"});
  ASSERT_EQ(c->line(), "ready");
  for (int i = 0; i < 4; i++) {
    const auto out = call(std::string("suspend name=job mode=") + (i % 2 ? "cold" : "warm"));
    EXPECT_EQ(out.number("cold"), 0u);
    EXPECT_EQ(out.values.contains("cold_error"), i % 2 == 1);
    usleep(3000);
    call("resume name=job");
  }
  c->poke();
  EXPECT_TRUE(c->line().starts_with("right"));
  EXPECT_EQ(c->wait(), 0);
}

// A job on eight cards whose memory is mapped on all of them: every card's memory leaves and comes
// back to the same addresses, and copies between cards go on.
TEST_F(Shim, AJobOnEightCardsIsSuspendedOnAll) {
  service_.reset();
  devices_ = 8;
  start_service();
  std::string spec = "add name=job token=token-of-job";
  for (int d = 1; d <= devices_; d++)
    spec += " device=5100000000000000000000000000000" + std::to_string(d) + ":67108864:0:1000";
  call(spec);
  auto c = child("job", {"cards"});
  ASSERT_EQ(c->line(), "ready");
  EXPECT_EQ(job("job")["blocks_suspend"], "0");
  for (int i = 0; i < 9; i++) {
    usleep(static_cast<useconds_t>(i * 1700));
    const auto out = call(std::string("suspend name=job mode=") + (i % 3 == 2 ? "cold" : "warm"));
    EXPECT_EQ(out.number("bytes"), 8u * 10 << 20);
    EXPECT_EQ(job("job")["phase"], "suspended");
    EXPECT_EQ(call("resume name=job").number("bytes"), 8u * 10 << 20);
  }
  c->poke();
  EXPECT_TRUE(c->line().starts_with("right"));
  EXPECT_EQ(c->wait(), 0);
}

// Two jobs that launch without pause share the GPU: both are measured and go on, one is suspended
// and resumed beside the other, and no result is wrong.
TEST_F(Shim, TwoJobsShareTheGpuAndBothGoOn) {
  add("one", 128, "", 300);
  add("two", 128, "", 700);
  auto a = child("one", {"worker"}), b = child("two", {"worker"});
  ASSERT_EQ(a->line(), "ready");
  ASSERT_EQ(b->line(), "ready");
  const auto number = [&](const std::string& name, const std::string& key) {
    return std::stoull(job(name)[key]);
  };
  EXPECT_TRUE(eventually([&] { return number("one", "gate") != 0 && number("two", "gate") != 0; }));
  const auto before = std::pair{number("one", "launches"), number("two", "launches")};
  EXPECT_TRUE(eventually([&] {
    return number("one", "launches") > before.first + 200 &&
           number("two", "launches") > before.second + 200;
  }));
  call("suspend name=one");
  EXPECT_TRUE(eventually([&] { return number("two", "gate") == 0; }));  // alone: not measured
  call("resume name=one");
  const auto again = number("one", "launches");
  EXPECT_TRUE(eventually([&] { return number("one", "launches") > again + 200; }));
  for (auto* c : {&a, &b}) {
    (*c)->poke();
    EXPECT_TRUE((*c)->line().starts_with("right"));
    EXPECT_EQ((*c)->wait(), 0);
  }
}

// While jobs share the GPU, the service asks again and again whether their work is done. A capture
// in progress must not notice.
TEST_F(Shim, ACaptureSurvivesANeighbour) {
  add("one", 128, "", 500);
  add("two", 64, "", 500);
  auto a = child("one", {"worker"});
  ASSERT_EQ(a->line(), "ready");
  for (int i = 0; i < 5; i++)
    EXPECT_EQ(child("two", {"capture"})->wait(), 0);
  a->poke();
  EXPECT_TRUE(a->line().starts_with("right"));
}

TEST_F(Shim, SwapsTwoJobs) {
  add("one", 128);
  add("two", 128);
  auto a = child("one", {"worker"}), b = child("two", {"worker"});
  ASSERT_EQ(a->line(), "ready");
  ASSERT_EQ(b->line(), "ready");
  call("suspend name=one");
  for (int i = 0; i < 4; i++) {
    call(i % 2 ? "swap out=one in=two allowance=33554432"
               : "swap out=two in=one allowance=33554432");
    usleep(5000);
  }
  call("resume name=one");
  for (auto* c : {a.get(), b.get()}) {
    c->poke();
    EXPECT_TRUE(c->line().starts_with("right"));
  }
}

TEST_F(Shim, ManagedMemoryIsDeclaredAndNotSuspended) {
  add("job", 64);
  auto c = child("job", {"managed"});
  ASSERT_EQ(c->line(), "ready");
  EXPECT_EQ(job("job")["blocks_suspend"], "1");
  const auto refused = call_service(dir_ + "/admin", "suspend name=job");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, billow::Code::unsupported);
  EXPECT_NE(refused.error().message.find("managed memory"), std::string::npos);
}

TEST_F(Shim, AProcessThatDiesWhileSuspendedLeavesNothingBehind) {
  add("job", 64);
  auto c = child("job", {"worker"});
  ASSERT_EQ(c->line(), "ready");
  call("suspend name=job");
  c->kill_now();
  EXPECT_TRUE(eventually([&] { return job("job")["pids"] == "-"; }));
  call("remove name=job");
  EXPECT_TRUE(eventually([&] {
    const auto s = call("status");
    return s.lines[0].at("free") == s.lines[0].at("bytes") && s.lines[0].at("dirty") == "0";
  }));
}

TEST_F(Shim, AGoneServiceOpensTheGateAndKeepsTheLimits) {
  add("job", 64);
  auto c = child("job", {"worker"});
  ASSERT_EQ(c->line(), "ready");
  service_.reset();
  usleep(50000);
  c->poke();
  EXPECT_TRUE(c->line().starts_with("right"));
  EXPECT_EQ(c->wait(), 0);
}

TEST_F(Shim, AdmissionPromisesNoMoreThanTheArena) {
  call("add name=a token=token-of-a reserve=200000000 device=-:0:0:1000");
  const auto refused = call_service(
      dir_ + "/admin", "add name=b token=token-of-b reserve=200000000 device=-:0:0:1000");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, billow::Code::exhausted);
  call("remove name=a");
  call("add name=b token=token-of-b reserve=200000000 device=-:0:0:1000");
}

TEST_F(Shim, AdminCommandsRefuseNonsense) {
  for (const char* command : {"", "fly", "add", "add name=x", "add name=x token=12345678",
                              "add name=x token=12345678 device=zz:1:1:1", "suspend name=nobody",
                              "resume", "swap out=a in=a", "suspend name=x timeout_ms=-5",
                              "add name=x token=12345678 device=-:abc:0:1"})
    EXPECT_FALSE(call_service(dir_ + "/admin", command).has_value()) << command;
}

// The classified list against the header of whatever toolkit is there: a new export must be
// classified before it is shipped.
TEST(CudaApiList, HasEveryExportOfTheGivenHeader) {
  const char* named = std::getenv("BILLOW_CUDA_H");
  const std::string path = named ? named : "/usr/local/cuda/include/cuda.h";
  std::ifstream file(path);
  if (!file)
    GTEST_SKIP() << "no " << path
                 << "; set BILLOW_CUDA_H to check the list against a toolkit's header";
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  std::set<std::string> known, missing;
  std::ifstream list(std::string(SHIM_SOURCE_DIR) + "/cuda_api.def");
  for (std::string line; std::getline(list, line);)
    if (line.starts_with("BILLOW_API("))
      known.insert(line.substr(11, line.find(',') - 11));
  ASSERT_GT(known.size(), 600u);
  // Comments out, then: declarations (CUDAAPI cuName() and the names macros stand for.
  for (std::size_t at; (at = text.find("/*")) != std::string::npos;)
    text.erase(at, std::max<std::size_t>(2, text.find("*/", at) + 2 - at));
  const auto word_at = [&](std::size_t at) {
    std::size_t end = at;
    while (end < text.size() && is_word(text[end]))
      end++;
    return text.substr(at, end - at);
  };
  std::size_t declared = 0;
  for (std::size_t at = 0; (at = text.find("CUDAAPI cu", at)) != std::string::npos; at += 8) {
    const std::string name = word_at(at + 8);
    if (name.size() > 2 && std::isupper(static_cast<unsigned char>(name[2])) &&
        text[at + 8 + name.size()] == '(') {
      declared++;
      if (!known.contains(name))
        missing.insert(name);
    }
  }
  for (const std::string macro : {"__CUDA_API_PTDS(cu", "__CUDA_API_PTSZ(cu"})
    for (std::size_t at = 0; (at = text.find(macro, at)) != std::string::npos; at += macro.size()) {
      const std::string name =
          word_at(at + macro.size() - 2) + (macro[13] == 'D' ? "_ptds" : "_ptsz");
      if (!known.contains(name))
        missing.insert(name);
    }
  EXPECT_GT(declared, 400u);
  EXPECT_TRUE(missing.empty()) << "not classified in shim/cuda_api.def: "
                               << testing::PrintToString(missing);
}

}  // namespace
