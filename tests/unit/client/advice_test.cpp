// advise, prices, plan and simulate as a person calls them: through the command table, with the
// options declared there, by what they print and how they exit.
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/formats/csv.h"
#include "base/json.h"
#include "base/text.h"
#include "client/frame/commands.h"

namespace billow::client {
namespace {

struct Ran {
  int exit_code = 0;
  std::string out, err;
};

// Runs one command in this process. BILLOW_DATA names an empty directory, so that no head and no
// imported price of the machine is found.
Ran run(const std::string& command, const std::vector<std::string>& args) {
  static const std::string data = [] {
    auto dir = ::testing::TempDir() + "/billow_advice_no_head";
    (void)remove_tree(dir);
    return dir;
  }();
  ::setenv("BILLOW_DATA", data.c_str(), 1);
  ::unsetenv("BILLOW_HEAD");
  std::vector<std::string> words = split(command, ' ');
  words.insert(words.end(), args.begin(), args.end());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Ran ran;
  ran.exit_code = dispatch(all_commands(), words);
  ran.out = ::testing::internal::GetCapturedStdout();
  ran.err = ::testing::internal::GetCapturedStderr();
  return ran;
}

std::string scratch(const char* name) {
  auto dir = ::testing::TempDir() + "/billow_advice_" + name;
  (void)remove_tree(dir);
  EXPECT_TRUE(make_directories(dir));
  return dir;
}

constexpr const char* tiny_model =
    R"({"model_type":"llama","vocab_size":128256,"hidden_size":4096,"num_hidden_layers":32,)"
    R"("num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336})";

TEST(Advise, TrainingShowsItsStagesAndTakesMeasuredCheckpoints) {
  auto r = run("advise", {"--model", "13B", "--train", "--checkpoint-time", "40s",
                          "--interruptions", "6h", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = *parse_json(r.out);
  EXPECT_NEAR(j["ranked"].items()[0]["checkpoint_minutes"].double_or(0),
              std::sqrt(2 * 40 * 6 * 3600.0) / 60, 0.2);
  EXPECT_EQ(j["ranked"].items()[0]["checkpoint_s"].double_or(0), 40);
  // More sharding and more recomputation never need more; what was chosen fits.
  double before = 1e300;
  bool found = false;
  for (auto& s : j["stages"].items()) {
    double bytes = s["total_bytes"].double_or(0);
    if (s["activation_checkpointing"].str_or("") == "none") {
      EXPECT_LE(bytes, before) << s.dump();
      before = bytes;
    } else {
      EXPECT_LE(bytes, before) << s.dump();
    }
    const Json& chosen = j["ranked"].items()[0];
    if (s["zero"].str_or("") == chosen["zero"].str_or("-") &&
        s["activation_checkpointing"].str_or("") ==
            chosen["activation_checkpointing"].str_or("-")) {
      found = true;
      EXPECT_TRUE(s["fits"].bool_or(false)) << s.dump();
    }
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(run("advise", {"--model", "13B", "--train", "--checkpoint-time", "soon"}).exit_code, 2);
}

TEST(Advise, ATraceGivesTheLoadOfItsBusiestMinute) {
  auto dir = scratch("trace");
  std::string csv = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (int s = 0; s < 60; ++s)
    csv += fmt::format("2026-01-31T23:58:{:02},100,20\n", s);
  for (int s = 0; s < 60; ++s)
    for (int k = 0; k < 5; ++k)
      csv += fmt::format("2026-02-28T23:59:{:02},300,20\n",
                         s);  // another month, later: not the same minute
  ASSERT_TRUE(write_file_atomic(dir + "/t.csv", csv));
  auto r = run("advise", {"--model", "7B", "--trace", dir + "/t.csv", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = *parse_json(r.out);
  EXPECT_NEAR(j["rps"].double_or(0), 5, 0.01) << r.out.substr(0, 400);
  EXPECT_NEAR(j["input"].double_or(0), std::round((60 * 100 + 300 * 300) / 360.0), 1e-9);
  ASSERT_TRUE(
      write_file_atomic(dir + "/bad.csv", "timestamp,input_tokens,output_tokens\nyesterday,1,1\n"));
  EXPECT_NE(run("advise", {"--model", "7B", "--trace", dir + "/bad.csv"}).exit_code, 0);
}

TEST(Plan, ATraceEndsWithItsLastArrival) {
  auto dir = scratch("plan");
  std::string csv = "timestamp,duration,num_gpus\n";
  for (int day = 0; day < 30; ++day)
    csv += fmt::format("{},86400,4\n", day * 86400);
  csv += fmt::format("{},8640000,1\n",
                     29 * 86400);  // a hundred days of one GPU after the last arrival say nothing
  ASSERT_TRUE(write_file_atomic(dir + "/t.csv", csv));
  auto r = run("plan", {"--trace", dir + "/t.csv", "--gpu", "H100", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ((*parse_json(r.out))["hours"].int_or(0), 29 * 24 + 1);
}

TEST(Advise, EveryAnswerHasAJsonForm) {
  auto r = run("advise", {"--model", "7B", "--users", "5", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = parse_json(r.out);
  ASSERT_TRUE(j);
  EXPECT_GT((*j)["tpot_ms"].double_or(0), 0);
  EXPECT_GT((*j)["ttft_ms"].double_or(0), 0);
  EXPECT_TRUE(j->at("best", "memory_per_gpu", "weights_bytes").is_number());
  EXPECT_EQ(run("advise", {"--model", "7B", "--train", "--json"}).exit_code, 0);
  auto p = run("prices", {"--gpu", "H100", "--json"});
  ASSERT_EQ(p.exit_code, 0);
  EXPECT_TRUE(parse_json(p.out));
  for (const char* command : {"advise", "prices", "plan"}) {
    auto help = run(command, {"--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find("example:"), std::string::npos);
  }
}

TEST(Advise, WrongOptionsAreNamedWithTheNearest) {
  struct Row {
    std::vector<std::string> args;
    const char* says;
  };
  for (auto& [args, says] :
       {Row{{"--modle", "7B"}, "--model"}, Row{{}, "no --model"}, Row{{"--model"}, "needs a value"},
        Row{{"--model", "7B", "--tps", "fast"}, "--tps"},
        Row{{"--model", "7B", "--rps", "1", "--users", "2"}, "give one"},
        Row{{"--model", "7B", "--precision", "fp3"}, "precision"},
        Row{{"--model", "7B", "--ttft", "-3s"}, "--ttft"},
        Row{{"--model", "7B", "--input", "1e99"}, "--input"},
        Row{{"--model", "/no/such/config.json"}, "no model"},
        Row{{"--model", "7B", "--providers", "nobody"}, "no provider"},
        Row{{"--model", "7B", "--train", "--gpu", "NPU"}, "no GPU \"NPU\""},
        Row{{"--model", "7B", "--gpus", "1"}, "use --max-gpus N"},
        Row{{"--model", "7B", "--max-gpus", "0"}, "--max-gpus"},
        Row{{"--model", "7B", "--context", "99999999"}, "context"},
        Row{{"--model", "7B", "--mine"}, "--mine"}}) {
    auto r = run("advise", args);
    EXPECT_NE(r.exit_code, 0) << says;
    EXPECT_NE(r.err.find(says), std::string::npos) << r.err;
  }
  const auto other = run("recommend", {"7B"});
  EXPECT_NE(other.exit_code, 0);
  EXPECT_NE(other.err.find("use `billow advise`"), std::string::npos) << other.err;
  EXPECT_NE(run("plan", {}).exit_code, 0);
  EXPECT_NE(run("plan", {"--risk", "none"}).exit_code, 0);
  EXPECT_NE(run("prices", {"--gpu", "H9000"}).exit_code, 0);
  EXPECT_NE(run("prices", {"update", "/no/such.csv"}).exit_code, 0);
}

TEST(Advise, RefusesOptionsThatItWouldIgnore) {
  struct Case {
    std::vector<std::string> words;
    const char* message;
  };
  for (auto& [words, message] : std::vector<Case>{
           {{"8B", "--train", "--mine"}, "--mine does not apply to --train"},
           {{"8B", "--train", "--spot"}, "--spot does not apply to --train"},
           {{"8B", "--train", "--users", "5"}, "--users does not apply to --train"},
           {{"8B", "--tokens", "1e9"}, "--tokens applies to training only"},
           {{"8B", "--mine", "--providers", "aws"}, "--providers does not apply to --mine"},
           {{"8B", "--kv-cache", "int4"}, "is not a precision of KV caches"},
           {{"8B", "--engine", "vlm"}, "unknown engine"},
           {{"8B", "--context", "10"}, "shorter than a request"},
           {{"8B", "--train", "--tokens", "1B"}, "2e9 for two billion"}}) {
    const Ran r = run("advise", words);
    EXPECT_NE(r.exit_code, 0) << message;
    EXPECT_NE(r.err.find(message), std::string::npos) << message << "\n" << r.err;
  }
}

TEST(Advise, BatchAnswersEveryRowInOrder) {
  auto dir = scratch("batch");
  ASSERT_TRUE(write_file_atomic(dir + "/org--tiny_config.json", tiny_model));
  ASSERT_TRUE(
      write_file_atomic(dir + "/rows.csv",
                        "id,backend,backend_version,model_path,system,precision,mode,isl,osl,batch_"
                        "size,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size\n"
                        "a,vllm,0.17.0,org/tiny,h100_sxm,fp8,agg,1024,1024,8,1,1,1,1,1\n"
                        "b,vllm,,org/none,h100_sxm,fp8,agg,1024,1024,8,1,1,1,1,1\n"
                        "c,vllm,,org/tiny,h100_sxm,fp8,agg,-5,1024,8,1,1,1,1,1\n"
                        "d,sglang,,org/tiny,no_such_gpu,fp8,agg,1024,1024,8,1,1,1,1,1\n"
                        "e,trtllm,,org/tiny,l40s,bf16,agg,1024,1024,64,2,1,1,1,1\n"));
  auto r = run("advise", {"--batch", dir + "/rows.csv", "--models", dir, "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = *parse_json(r.out);
  ASSERT_EQ(j.size(), 5u);
  const char* ids = "abcde";
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(j.items()[i]["id"].str_or(""), std::string(1, ids[i]));
  for (std::size_t i : {0u, 4u}) {
    auto& row = j.items()[i];
    EXPECT_GT(row["tpot_ms"].double_or(0), 0);
    EXPECT_LE(row["tpot_ms_low"].double_or(0), row["tpot_ms"].double_or(0));
    EXPECT_GE(row["ttft_ms_high"].double_or(0), row["ttft_ms"].double_or(0));
    EXPECT_FALSE(row["kind"].str_or("").empty());
  }
  for (std::size_t i : {1u, 2u, 3u})
    EXPECT_FALSE(j.items()[i]["error"].str_or("").empty()) << i;
  auto table = run("advise", {"--batch", dir + "/rows.csv", "--models", dir});
  EXPECT_EQ(split(table.out, '\n').size(),
            7u);  // a header, five rows, and what follows the last newline
  ASSERT_TRUE(write_file_atomic(dir + "/odd.csv",
                                "id,model_path,system\n\"a, b\",\"org/no \"\"model\"\"\",l4\n"));
  const auto odd = parse_csv(run("advise", {"--batch", dir + "/odd.csv", "--models", dir}).out);
  ASSERT_TRUE(odd) << odd.error().message;
  EXPECT_EQ(odd->by_name(0).at("id"), "a, b") << "the answer is CSV as well";
  EXPECT_FALSE(odd->by_name(0).at("error").empty());
  ASSERT_TRUE(write_file_atomic(dir + "/bad.csv", "id,\"model"));
  EXPECT_NE(run("advise", {"--batch", dir + "/bad.csv"}).exit_code, 0);
}

TEST(Prices, UpdateIsKeptAndUsed) {
  auto dir = scratch("prices");
  ASSERT_TRUE(write_file_atomic(dir + "/new.csv",
                                "provider,instance,region,on_demand_usd_h,spot_usd_h,date\naws,p5."
                                "48xlarge,us-east-1,1.60,0.80,2026-11-01\n"));
  auto r = run("prices", {"update", dir + "/new.csv", "--data", dir});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto shown =
      run("prices", {"--instance", "p5.48xlarge", "--regions", "us-east-1", "--data", dir});
  EXPECT_NE(shown.out.find("1.6000"), std::string::npos) << shown.out;
  // A second import, with its columns in another order, adds to the first and overrides only what
  // it names.
  ASSERT_TRUE(
      write_file_atomic(dir + "/more.csv",
                        "# from a "
                        "list\nDate,Provider,Instance,Region,on_demand_usd_h\n2026-11-02,aws,p5."
                        "48xlarge,us-west-2,2.40\n2026-11-02,aws,p4d.24xlarge,us-east-1,8.80\n"));
  ASSERT_EQ(run("prices", {"update", dir + "/more.csv", "--data", dir}).exit_code, 0);
  shown = run("prices", {"--instance", "p5.48xlarge", "--regions", "us-", "--data", dir});
  EXPECT_NE(shown.out.find("1.6000"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("2.4000"), std::string::npos) << shown.out;
  ASSERT_TRUE(write_file_atomic(dir + "/bad.csv", "nonsense\n"));
  EXPECT_NE(run("prices", {"update", dir + "/bad.csv", "--data", dir}).exit_code, 0);
  EXPECT_NE(run("prices", {"--instance", "p4d.24xlarge", "--regions", "us-east-1", "--data", dir})
                .out.find("8.8000"),
            std::string::npos);
}

TEST(Plan, ATraceWithTextForANumberIsRefusedByLine) {
  auto dir = scratch("plan_garbage");
  ASSERT_TRUE(
      write_file_atomic(dir + "/t.csv", "timestamp,duration,num_gpus\n0,86400,4\n86400,12abc,4\n"));
  auto r = run("plan", {"--trace", dir + "/t.csv"});
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_NE(r.err.find("line 3: duration is \"12abc\""), std::string::npos) << r.err;
}

TEST(Simulate, JobsReportsCompletionTimes) {
  auto dir = scratch("jobs");
  ASSERT_TRUE(write_file_atomic(dir + "/t.csv",
                                "timestamp,duration,num_gpus\n2017-10-09 07:00:00,600,1\n"
                                "2017-10-09 07:01:00,300,8\n2017-10-09 07:02:00,60,2\n"));
  auto r = run("simulate jobs", {"--trace", dir + "/t.csv", "--format", "philly", "--nodes", "1",
                                 "--json", "--svg", dir + "/use.svg"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = parse_json(r.out);
  ASSERT_TRUE(j) << r.out;
  EXPECT_EQ((*j)["jobs"].int_or(0), 3);
  EXPECT_GT((*j)["jct_avg_s"].double_or(0), 60);
  EXPECT_TRUE(read_file(dir + "/use.svg")->ends_with("</svg>\n"));
  auto wide = run("simulate jobs",
                  {"--trace", dir + "/t.csv", "--format", "philly", "--nodes", "1", "--gpus", "4"});
  EXPECT_EQ(wide.exit_code, 1);
  EXPECT_NE(wide.err.find("job 1 needs 8 GPUs, but the fleet has 4"), std::string::npos);
}

TEST(Simulate, OpenbReportsWhatStaysUnallocated) {
  auto dir = scratch("openb");
  ASSERT_TRUE(write_file_atomic(dir + "/nodes.csv",
                                "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,A10\n"));
  ASSERT_TRUE(write_file_atomic(
      dir + "/tasks.csv",
      "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np1,1000,1024,1,1000,\n"));
  ASSERT_TRUE(write_file_atomic(dir + "/streams.csv", "42,0,0,0\n"));
  auto r = run("simulate openb", {"--nodes", dir + "/nodes.csv", "--tasks", dir + "/tasks.csv",
                                  "--stream", dir + "/streams.csv", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = parse_json(r.out);
  ASSERT_TRUE(j) << r.out;
  EXPECT_EQ((*j)["seed"].int_or(0), 42);
  EXPECT_EQ((*j)["unallocated_pct_100"].double_or(-1), 0);
  EXPECT_TRUE((*j)["unallocated_pct_130"].is_number());
}

TEST(Simulate, ReplayRunsATraceThroughTheCore) {
  auto dir = scratch("replay");
  ASSERT_TRUE(write_file_atomic(dir + "/t.csv",
                                "timestamp,duration,num_gpus\n2017-10-09 07:00:00,600,1\n"
                                "2017-10-09 07:01:00,300,2\n"));
  auto r = run("simulate replay",
               {"--trace", dir + "/t.csv", "--format", "philly", "--fleet", "1x2xH100", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = parse_json(r.out);
  ASSERT_TRUE(j) << r.out;
  EXPECT_EQ((*j)["jobs"].int_or(0), 2);
  EXPECT_GT((*j)["jct_avg_s"].double_or(0), 300);
  EXPECT_EQ(run("simulate replay", {"--trace", dir + "/t.csv", "--format", "philly"}).exit_code, 2);
}

TEST(Simulate, EndpointsComparesThreeWaysToScale) {
  auto dir = scratch("endpoints");
  std::string csv = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (int s = 0; s < 50; ++s)
    csv += fmt::format("2023-11-16 18:00:{:02}.0000000,100,20\n", s);
  ASSERT_TRUE(write_file_atomic(dir + "/t.csv", csv));
  auto r = run("simulate endpoints",
               {"--trace", dir + "/t.csv", "--start-s", "5", "--existing", "2", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  auto j = parse_json(r.out);
  ASSERT_TRUE(j) << r.out;
  EXPECT_EQ((*j)["results"].size(), 21u);  // three scenes: Billow, a fixed fleet, five Knatives
  for (auto& row : (*j)["results"].items())
    EXPECT_EQ(row["requests"].int_or(0), 50) << row.dump();
}

TEST(Simulate, WrongOptionsAreNamedWithTheNearest) {
  auto typo = run("simulate jobs", {"--polcy", "best"});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_NE(typo.err.find("--policy"), std::string::npos) << typo.err;
  auto garbage = run("simulate endpoints", {"--trace", "/no/such", "--step-ms", "30ms"});
  EXPECT_EQ(garbage.exit_code, 2);
  EXPECT_NE(garbage.err.find("--step-ms: not a number: \"30ms\""), std::string::npos);
  EXPECT_EQ(run("simulate openb", {}).exit_code, 2);
}

}  // namespace
}  // namespace billow::client
