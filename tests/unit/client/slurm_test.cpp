// What people write for Slurm, in Billow's options.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/text.h"
#include "client/frame/slurm.h"
#include "client/request/job_script.h"

namespace billow::client {
namespace {

std::string ours(std::string_view name, std::string_view value) {
  const auto meaning = slurm_option(name, value);
  if (!meaning)
    return "unknown";
  return meaning->lost ? "lost" : shell_join(meaning->words);
}

TEST(Slurm, TimesHaveTheUnitsOfSlurm) {
  EXPECT_EQ(ours("--time", "60"), "--time 1h");
  EXPECT_EQ(ours("-t", "90"), "--time 90m");
  EXPECT_EQ(ours("--time", "10:30"), "--time 630s");
  EXPECT_EQ(ours("--time", "12:00:00"), "--time 12h");
  EXPECT_EQ(ours("--time", "2-12"), "--time 60h");
  EXPECT_EQ(ours("--time", "1-00:30:00"), "--time 1470m");
  EXPECT_EQ(ours("--time", "UNLIMITED"), "");
  EXPECT_EQ(ours("--time", "soon"), "lost");
  EXPECT_EQ(ours("--mem", "2000"), "--mem 2000M") << "MiB in Slurm";
  EXPECT_EQ(ours("--mem", "2G"), "--mem 2G");
  EXPECT_EQ(ours("--mem", "0"), "");
}

TEST(Slurm, ValuesThatCannotBeExpressedAreLost) {
  EXPECT_EQ(ours("--array", "0-99%4"), "--array 0-99%4");
  EXPECT_EQ(ours("--array", "1,5-9:2%2"), "--array 1,5-9:2%2");
  EXPECT_EQ(ours("--nodes", "2-4"), "lost");
  EXPECT_EQ(ours("--dependency", "singleton"), "lost");
  EXPECT_EQ(ours("--dependency", "afterok:1,afternotok:2"), "--after 1 --after failed:2");
  EXPECT_EQ(ours("--gres", "shard:2"), "lost");
  EXPECT_EQ(ours("--constraint", "a100"), "lost");
  EXPECT_EQ(ours("--nosuch", "1"), "unknown");
}

// Counts of one script depend on each other.
TEST(Slurm, CountsOfAScriptArePutTogether) {
  const auto words = [](std::vector<std::string> line) {
    const auto script = translate_slurm({{2, std::move(line)}});
    return script ? shell_join(script->words) : script.error().message;
  };
  EXPECT_EQ(words({"--nodes=2", "--ntasks=8", "--cpus-per-task=4", "--gpus=16"}),
            "--nodes 2 --procs 4 --gpus 8 --cpus 16");
  EXPECT_EQ(words({"-N", "2", "--ntasks-per-node=8", "--gpus-per-task=h100:1"}),
            "--nodes 2 --procs 8 --gpus 8 --gpu-type H100");
  EXPECT_EQ(words({"--gres=gpu:2", "--cpus-per-gpu=6", "--mem-per-gpu=10G"}),
            "--gpus 2 --cpus 12 --mem 20480M");
  EXPECT_EQ(words({"--cpus-per-task=8", "--mem-per-cpu=2G"}), "--cpus 8 --mem 16384M");
  EXPECT_EQ(words({"--exclusive", "-J", "train"}), "--exclusive --name train");
  EXPECT_NE(words({"--licenses=a", "--bogus"}).find("Slurm has no option --bogus"),
            std::string::npos);
}

TEST(Slurm, AScriptIsReadWithNotes) {
  const auto r = parse_job_script(
      "#!/bin/bash\n#SBATCH --gres=gpu:2  # two\n#SBATCH --time=60\n\necho $SLURM_PROCID\n"
      "#SBATCH --gres=gpu:8\n",
      {"a.sh"});
  ASSERT_TRUE(r) << r.error().message;
  ASSERT_TRUE(*r);
  EXPECT_EQ((*r)->spec.resources.gpus, 2);
  EXPECT_EQ((*r)->spec.time_limit, hours(1));
  EXPECT_EQ((*r)->spec.argv.front(), "/bin/bash");
  EXPECT_EQ((*r)->spec.argv.back(), "a.sh");
  const std::string notes = join((*r)->notes, "\n");
  EXPECT_NE(notes.find("a.sh:2: --gres=gpu:2 → --gpus 2"), std::string::npos) << notes;
  EXPECT_EQ(notes.find("SLURM_PROCID"), std::string::npos) << "it is set: " << notes;
  EXPECT_NE((*r)->spec.argv.at(2).find("export SLURM_PROCID=\"$RANK\""), std::string::npos);
}

TEST(Slurm, AScriptKeepsItsLinesBehindThePrelude) {
  const std::string script = "#!/bin/sh\n#SBATCH -t 5\nsrun python3 a.py\n";
  const auto plain = parse_job_script(script, {"a.sh"});
  ASSERT_TRUE(plain && *plain);
  const std::string& text = (*plain)->spec.argv.at(2);
  EXPECT_EQ(text.substr(text.find('\n')), script.substr(script.find('\n')));
  EXPECT_NE(text.find("srun() { while case"), std::string::npos);
  EXPECT_EQ(slurm_prelude("#!/bin/sh\necho\n").find("srun"), std::string::npos);
  // srun's options are not lost in silence, and other interpreters have no prelude.
  EXPECT_EQ(slurm_prelude("#!/bin/sh\nsrun -n 4 a\n").find("srun()"), std::string::npos);
  EXPECT_NE(slurm_prelude("#!/bin/sh\nsrun -K --mpi=pmix a\n").find("srun()"), std::string::npos);
  EXPECT_EQ(slurm_prelude("#!/bin/sh\nsrun --mpi pmix a\n").find("srun()"), std::string::npos);
  EXPECT_EQ(slurm_remains("#!/bin/sh\nsrun -n 4 a\n", true).size(), 1u);
  EXPECT_EQ(slurm_remains("echo $SLURM_JOB_ID $SLURM_NO_SUCH; srun a\n", true),
            std::vector<std::string>{"the script uses SLURM_NO_SUCH; here: not set"});
  EXPECT_EQ(slurm_remains("echo $SLURM_JOB_ID\n", false),
            std::vector<std::string>{"the script uses SLURM_JOB_ID; here: $BILLOW_JOB_ID"});
  // Of one that has lines of ours, nothing is changed.
  const auto ours = parse_job_script("#!/bin/sh\n#BILLOW --gpus 1\ntrue\n", {"a.sh"});
  ASSERT_TRUE(ours && *ours);
  EXPECT_EQ((*ours)->spec.argv.at(2), "#!/bin/sh\n#BILLOW --gpus 1\ntrue\n");
}

TEST(Slurm, CommandsHaveACounterpart) {
  for (const char* word : {"sbatch", "srun", "squeue", "sacct", "salloc", "scontrol", "scancel",
                           "sinfo", "sattach", "sacctmgr", "sreport", "scrontab"})
    EXPECT_NE(slurm_command({word}).find("billow "), std::string::npos) << word;
  EXPECT_EQ(slurm_command({"scontrol", "show", "job", "7"}), "use `billow describe 7`");
  EXPECT_EQ(slurm_command({"run"}), "");
}

// Whatever stands there, a script is a plain command, a request or an error with a text.
TEST(SlurmProperty, RandomLinesAreReadOrRefused) {
  static const std::string parts[] = {"--gres=",    "gpu:",
                                      "gpu",        "h100:",
                                      "-N",         "--time=",
                                      "--mem=",     "--dependency=",
                                      "afterok",    ":",
                                      "-",          "--",
                                      "=",          "9999999",
                                      "1-2",        "--export=",
                                      " ",          "'",
                                      "\"",         "\\",
                                      "%",          ",",
                                      "\n#SBATCH ", "\xff",
                                      "ALL",        "-G",
                                      "0",          "--nodes=",
                                      "--ntasks=",  "--mem-per-cpu=",
                                      "4G",         "\n#BILLOW "};
  Rng rng(7);
  int read = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = "#!/bin/sh\n#SBATCH ";
    for (std::uint64_t n = rng.below(8); n > 0; --n)
      text += parts[rng.below(std::size(parts))];
    const auto script = parse_job_script(text + "\necho $SLURM_\n", {"a.sh"});
    ++(script ? read : refused);
    if (!script) {
      EXPECT_FALSE(script.error().message.empty()) << text;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace billow::client
