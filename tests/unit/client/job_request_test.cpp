#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>

#include "base/formats/utc.h"
#include "base/json.h"
#include "base/limits.h"
#include "client/request/job_request.h"
#include "client/request/job_script.h"
#include "client/request/option_values.h"
#include "core/wire/codec.h"

namespace billow::client {
namespace {

Result<JobRequest> with(std::vector<std::pair<const char*, const char*>> options) {
  JobRequest request;
  request.spec.argv = {"true"};
  for (const auto& [name, value] : options)
    BILLOW_TRY_VOID(set_option(request, name, value));
  BILLOW_TRY_VOID(complete(request));
  return request;
}
const Resources& resources(const Result<JobRequest>& r) {
  return r->spec.resources;
}

TEST(JobOptions, GpusAreWholeOnesOrAPartOfOne) {
  EXPECT_EQ(resources(with({{"gpus", "2"}})), (Resources{.gpus = 2, .share = {1000, 0}}));
  EXPECT_EQ(resources(with({{"gpus", "0.25"}})), (Resources{.gpus = 1, .share = {250, 0}}));
  EXPECT_EQ(resources(with({{"gpus", "0.5"}, {"gpu-mem", "20G"}})),
            (Resources{.gpus = 1, .share = {500, 20480}}));
  EXPECT_EQ(resources(with({{"gpu-mem", "20G"}})), (Resources{.gpus = 1, .share = {0, 20480}}))
      << "compute follows memory";
  EXPECT_EQ(resources(with({{"gpus", "0"}})), Resources{});
  EXPECT_EQ(resources(with({{"mig", "1G.10GB"}})),
            (Resources{.gpus = 1, .share = {1000, 0}, .mig_profile = "1g.10gb"}));
  EXPECT_EQ(resources(with({{"gpus", "1"}, {"gpu-type", "H100, A100-80"}})).gpu_types,
            (std::vector<std::string>{"H100", "A100-80"}));
}

TEST(JobOptions, WhatMakesNoSenseIsRefusedWithAHint) {
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const char*>>{{"gpus", "1.5"},
                                                        {"gpus", "-1"},
                                                        {"gpus", "many"},
                                                        {"gpus", "0.0001"},
                                                        {"mem", "0"},
                                                        {"mem", "x"},
                                                        {"time", "soon"},
                                                        {"nodes", "0"},
                                                        {"array", "9-1"},
                                                        {"array", "0-999999999"},
                                                        {"label", "novalue"},
                                                        {"label", "=v"},
                                                        {"after", "1/2"},
                                                        {"after", "maybe:12"},
                                                        {"after", ""},
                                                        {"retries", "1000"},
                                                        {"cwd", "/no/such/dir"},
                                                        {"name", "a b"},
                                                        {"gpu-type", ","}}) {
    const auto r = with({{name, value}});
    ASSERT_FALSE(r) << name << " " << value;
    EXPECT_FALSE(r.error().message.empty());
  }
  EXPECT_EQ(with({{"gpu-type", "H100"}}).error().hint, "add --gpus 1");
}

TEST(JobOptions, ADeadlineIsAClockTimeADateOrATimeSpan) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const WallTime now = *parse_utc("2026-11-16T12:00:00Z");
  EXPECT_EQ(*time_to_come("18:00", now), now + hours(6));
  EXPECT_EQ(*time_to_come("11:00", now), now + hours(23)) << "tomorrow";
  EXPECT_EQ(*time_to_come("2026-11-17 18:00", now), now + hours(30));
  EXPECT_EQ(*time_to_come("2026-11-17T18:00", now), now + hours(30));
  EXPECT_EQ(*time_to_come("4h", now), now + hours(4));
  for (const char* wrong : {"2027-02-30 18:00", "2026-11-16 11:00", "25:00", "0s", "4", "soon", ""})
    EXPECT_FALSE(time_to_come(wrong, now)) << wrong;
}

TEST(JobOptions, DependenciesHaveAKindAndMayBeElements) {
  EXPECT_EQ(*parse_after("12"), (AfterText{AfterKind::ok, "12"}));
  EXPECT_EQ(*parse_after("any:12.3"), (AfterText{AfterKind::any, "12.3"}));
  EXPECT_EQ(*parse_after("failed:7"), (AfterText{AfterKind::failed, "7"}));
  EXPECT_EQ(with({{"after", "1,any:2"}, {"after", "3"}})->after.size(), 3u);
}

TEST(JobOptions, TheWorkingDirectoryIsAbsoluteAndFollows) {
  char here[4096];
  ASSERT_NE(::getcwd(here, sizeof here), nullptr);
  EXPECT_EQ(with({})->spec.cwd, here);
  EXPECT_EQ(with({{"cwd", "/usr/../usr"}})->spec.cwd, "/usr");
}

TEST(JobOptions, EveryOptionOfTheTableIsUnderstood) {
  for (const auto options : {job_options(), batch_options()})
    for (const OptionSpec& o : options) {
      JobRequest request;
      for (const char* value : {"1", "a=b", "/", "0-3", "x"}) {
        const auto set = set_option(request, o.name, value);
        EXPECT_TRUE(set || set.error().code != Code::internal) << o.name;
      }
    }
}

TEST(JobOptions, TheBodyReadsBackAsTheSameSpec) {
  auto request = with({{"gpus", "2"},
                       {"time", "2h"},
                       {"label", "k=v"},
                       {"array", "0-99%10"},
                       {"retries", "3"},
                       {"project", "p"}});
  ASSERT_TRUE(request);
  const auto body = parse_json(submit_body(*request, {{"A", "1"}}));
  ASSERT_TRUE(body);
  const auto spec = wire::from_json<JobSpec>((*body)["spec"], true);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(*spec, request->spec);
  EXPECT_EQ(body->at("env", "A").str_or(""), "1");
  EXPECT_EQ((*body)["project"].str_or(""), "p");
}

// ---- environment

TEST(Environment, CredentialsStayBehindUnlessNamed) {
  for (const char* name :
       {"GITHUB_TOKEN", "HF_TOKEN", "MY_SECRET_THING", "DB_PASSWORD", "OPENAI_API_KEY",
        "AWS_ACCESS_KEY_ID", "AWS_REGION", "SSH_AUTH_SOCK", "api_key", "BILLOW_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS", "WANDB_API_KEY"})
    EXPECT_TRUE(looks_like_credential(name)) << name;
  for (const char* name : {"PATH", "HOME", "TOKENIZERS_PARALLELISM", "KEYBOARD", "LD_LIBRARY_PATH",
                           "PYTHONPATH", "MONKEY", "OMP_NUM_THREADS"})
    EXPECT_FALSE(looks_like_credential(name)) << name;
  const std::vector<std::string> environment = {
      "PATH=/bin", "HF_TOKEN=hf_x", "SHLVL=2", "CUDA_VISIBLE_DEVICES=3",
      "EMPTY=",    "odd",           "A=b=c",   "BAD=\xff"};
  EXPECT_EQ(*job_environment(environment, {}),
            (Environment{{"PATH", "/bin"}, {"EMPTY", ""}, {"A", "b=c"}}));
  EXPECT_EQ(*job_environment(environment, {.none = true, .named = {"HF_TOKEN", "X=1=2"}}),
            (Environment{{"HF_TOKEN", "hf_x"}, {"X", "1=2"}}));
}

TEST(Environment, NamingWhatIsNotSetIsAnError) {
  EXPECT_FALSE(job_environment({}, {.named = {"NOPE"}}));
  EXPECT_FALSE(job_environment({}, {.named = {"=x"}}));
  EXPECT_FALSE(job_environment({"A=\xff"}, {.named = {"A"}}));
}

TEST(Environment, WhatStaysBehindIsNamed) {
  const std::vector<std::string> environment = {"PATH=/bin",      "WANDB_API_KEY=k",
                                                "HF_TOKEN=hf_x",  "SSH_AUTH_SOCK=/tmp/agent",
                                                "BILLOW_TOKEN=t", "AWS_REGION=eu"};
  const auto missing = [&](const EnvChoice& choice) {
    return held_back(environment, *job_environment(environment, choice), choice);
  };
  EXPECT_EQ(missing({}), (std::vector<std::string>{"HF_TOKEN", "WANDB_API_KEY"}));
  EXPECT_EQ(missing({.named = {"HF_TOKEN"}}), (std::vector<std::string>{"WANDB_API_KEY"}));
  EXPECT_EQ(missing({.always = {"HF_TOKEN", "WANDB_API_KEY", "NOT_SET"}}),
            std::vector<std::string>{});
  EXPECT_EQ(missing({.none = true}), std::vector<std::string>{}) << "asked for with --no-env";
}

// ---- units

TEST(JobOptions, ABareNumberWhereAUnitMattersIsRefusedWithTheLikelyMeanings) {
  const std::vector<std::array<const char*, 3>> cases = {{"mem", "20", "20G"},
                                                         {"gpu-mem", "20", "20G"},
                                                         {"time", "60", "60m"},
                                                         {"time", "1.5", "1.5m"}};
  for (const auto& [name, value, likely] : cases) {
    const auto r = with({{name, value}});
    ASSERT_FALSE(r) << name;
    EXPECT_EQ(r.error().message, std::string("--") + name + ": \"" + value + "\" has no unit");
    EXPECT_NE(r.error().hint.find(likely), std::string::npos) << r.error().hint;
  }
  EXPECT_TRUE(with({{"time", "90:00"}}));
}

// ---- scripts

TEST(JobScript, LinesWithOptionsAreTheOptions) {
  const char* text =
      "#!/bin/bash -e\n"
      "# a comment\n"
      "#BILLOW --gpus 2 --time 2h  # as long as a lesson\n"
      "\n"
      "#BILLOW --name 'long run' --label \"team=a b\"\n"
      "#BILLOWED --gpus 9\n"
      "python train.py\n"
      "#BILLOW --gpus 4\n";
  const auto r = parse_job_script(text, {"train.sh", "--epochs", "3"});
  ASSERT_TRUE(r) << r.error().message;
  ASSERT_TRUE(*r);
  const JobSpec& spec = (*r)->spec;
  EXPECT_EQ(spec.argv,
            (std::vector<std::string>{"/bin/bash", "-e", "-c", text, "train.sh", "--epochs", "3"}))
      << "kept as it is now";
  EXPECT_EQ(spec.resources.gpus, 2) << "a line behind the first command is a comment";
  EXPECT_EQ(spec.time_limit, hours(2));
  EXPECT_EQ(spec.name, "long run");
  EXPECT_EQ(spec.labels.at("team"), "a b");
}

TEST(JobScript, OtherInterpretersReadTheirFile) {
  const auto r = parse_job_script("#!/usr/bin/env python3\n#BILLOW --gpus 1\nprint()\n",
                                  {"dir/train.py", "3"});
  ASSERT_TRUE(r && *r);
  EXPECT_EQ((*r)->spec.argv,
            (std::vector<std::string>{"/usr/bin/env", "python3", "dir/train.py", "3"}));
  const auto shell = parse_job_script("#!/usr/bin/env bash\n#BILLOW --gpus 1\n", {"dir/train.sh"});
  ASSERT_TRUE(shell && *shell);
  EXPECT_EQ((*shell)->spec.argv.at(2), "-c");
  EXPECT_EQ((*shell)->spec.name, "train");
}

TEST(JobScript, WithoutSuchLinesItIsAPlainCommand) {
  EXPECT_FALSE(*parse_job_script("#!/bin/sh\necho\n", {"a.sh"}));
  EXPECT_FALSE(*parse_job_script("#BILLOW --gpus 1\necho\n", {"a.sh"})) << "no interpreter";
  EXPECT_FALSE(*parse_job_script("", {"a.sh"}));
}

TEST(JobScript, AMistakeNamesTheLine) {
  const auto error = [](const char* line) {
    const auto r = parse_job_script(std::string("#!/bin/sh\n") + line + "\n", {"a.sh"});
    return r ? std::string() : r.error().message;
  };
  EXPECT_TRUE(error("#BILLOW --gpu 1").starts_with("a.sh:2: ")) << error("#BILLOW --gpu 1");
  EXPECT_TRUE(error("#BILLOW --gpus").starts_with("a.sh:2: "));
  EXPECT_TRUE(error("#BILLOW --name 'x").starts_with("a.sh:2: a quotation mark"));
  EXPECT_TRUE(error("#BILLOW python train.py").starts_with("a.sh:2: \"python\" is no option"));
  const auto first = parse_job_script("#!/bin/sh \"x\n#BILLOW --gpus 1\n", {"train.sh"});
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().message, "train.sh:1: a quotation mark is not closed");
}

// ---- job files

TEST(JobFile, KeysAreTheOptions) {
  const auto r = parse_job_file(R"(
[job]
command = ["python", "train.py", 3]
gpus = 0.25
gpu-type = ["H100", "L4"]
time = "2h"
retries = 2
spot = true
rerun-if-lost = false
after = ["any:3", 4]
label = { team = "vision", run = 7 }
array = "0-9%2"
cwd = "/usr"
[env]
LR = 0.01
NAME = "x"
)",
                                "job.toml", "");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->spec.argv, (std::vector<std::string>{"python", "train.py", "3"}));
  EXPECT_EQ(r->spec.resources.share.milli, 250);
  EXPECT_EQ(r->spec.resources.gpu_types, (std::vector<std::string>{"H100", "L4"}));
  EXPECT_EQ(r->spec.time_limit, hours(2));
  EXPECT_TRUE(r->spec.spot);
  EXPECT_FALSE(r->spec.rerun_if_lost);
  EXPECT_EQ(r->after.size(), 2u);
  EXPECT_EQ(r->spec.labels.at("run"), "7");
  EXPECT_EQ(r->spec.array->running_max, 2u);
  EXPECT_EQ(r->env.named, (std::vector<std::string>{"LR=0.01", "NAME=x"}));
}

TEST(JobFile, AStringIsForTheShell) {
  const auto r = parse_job_file("[job]\ncommand = 'a | b'\n", "j", "");
  ASSERT_TRUE(r);
  EXPECT_EQ(r->spec.argv, (std::vector<std::string>{"/bin/sh", "-c", "a | b"}));
}

TEST(JobFile, MistakesNameTheLineAndTheNearestKey) {
  const auto typo = parse_job_file("[job]\ncommand = ['x']\ngpu = 1\n", "job.toml", "");
  ASSERT_FALSE(typo);
  EXPECT_EQ(typo.error().message, "job.toml:3: unknown key \"gpu\" in [job]");
  EXPECT_EQ(typo.error().hint, "did you mean \"gpus\"?");
  const auto value = parse_job_file("[job]\ncommand = ['x']\ngpus = 1.5\n", "job.toml", "");
  ASSERT_FALSE(value);
  EXPECT_TRUE(value.error().message.starts_with("job.toml:3: gpus:")) << value.error().message;
  EXPECT_FALSE(parse_job_file("[job\n", "j", ""));
  EXPECT_FALSE(parse_job_file("gpus = 1\n", "j", ""));
  EXPECT_FALSE(parse_job_file("job = 1\n", "j", ""));
  EXPECT_FALSE(parse_job_file("", "j", ""));
  EXPECT_FALSE(parse_job_file("[job]\ncommand = []\n", "j", ""));
  EXPECT_FALSE(parse_job_file("[job]\nspot = 'yes'\n", "j", ""));
  EXPECT_FALSE(parse_job_file("[job]\ngpus = [1, 2]\n", "j", ""));
  EXPECT_FALSE(parse_job_file("[job]\nname = 'a\xff'\n", "j", ""));
  EXPECT_FALSE(read_job_file("/no/such/file.toml"));
}

// Each role begins as a copy of the job: a file with a great many of them is refused before that.
TEST(JobFile, HasNoMoreRolesThanAGroupMayHave) {
  const auto file = [](std::size_t roles) {
    std::string text = "[job]\ncommand = ['x']\n";
    for (std::size_t i = 0; i < roles; ++i)
      text += fmt::format("[[role]]\nname = 'r{}'\n", i);
    return text;
  };
  EXPECT_TRUE(parse_job_file(file(limits::roles_per_group_max), "job.toml", ""));
  const auto many = parse_job_file(file(limits::roles_per_group_max + 1), "job.toml", "");
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().message, "job.toml:3: 33 roles, but a group can have at most 32");
}

TEST(JobFile, AnyTextParsesOrIsRefused) {
  rc::check([](const std::string& text) { (void)parse_job_file(text, "fuzz", ""); });
  rc::check([] {
    // Damaged versions of a good file come closer to the parser's edges than noise does.
    std::string text =
        "[job]\ncommand = [\"a\", 'b']\ngpus = 0.5\nlabel = { a = \"b\" }\nafter = [\"1\"]\ntime = "
        "\"1h\"\n[env]\nX = \"y\"\n";
    const auto edits = *rc::gen::container<std::vector<std::pair<std::uint8_t, char>>>(
        rc::gen::pair(rc::gen::arbitrary<std::uint8_t>(), rc::gen::arbitrary<char>()));
    for (const auto& [at, c] : edits)
      text[at % text.size()] = c;
    const auto r = parse_job_file(text, "fuzz", "");
    if (!r)
      RC_ASSERT(!r.error().message.empty());
  });
}

}  // namespace
}  // namespace billow::client
