// What is said to engines and how their answers are read; the engines themselves are in tests/e2e.
#include "pool/pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "core/ledger/catalogue.h"
#include "gpu/types.h"
#include "pool/boot.h"
#include "pool/command_pool.h"
#include "pool/kinds.h"
#include "pool/slurm_pool.h"
#include "process/command.h"

namespace billow::pool {
namespace {

billow::Pool slurm_settings() {
  billow::Pool p;
  p.name = "fast";
  p.kind = "slurm";
  p.partition = "gpu";
  p.gres = "gpu:h100";
  p.gpus = 8;
  p.gpu_type = "H100";
  p.time = minutes(90);
  return p;
}

Order order(std::uint32_t nodes = 1, std::int32_t gpus = 2) {
  Order o;
  o.machine.name = "fast-7";
  o.machine.nodes = nodes;
  o.machine.gpus = gpus;
  o.head_url = "https://head:7070";
  o.token = "bw_secret'quote.abcd";
  return o;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST(PoolKinds, CheckNewPoolsAndDeclareWhatTheirProvidersCanDo) {
  billow::Pool slurm = slurm_settings();
  ASSERT_TRUE(complete_new_pool(slurm));
  EXPECT_TRUE(slurm.capabilities->sizes_to_demand);
  EXPECT_TRUE(slurm.capabilities->list_is_final);
  EXPECT_TRUE(make_pool(slurm, {}));

  slurm.options["region"] = "eu";
  EXPECT_FALSE(complete_new_pool(slurm)) << "an option that this kind does not have";
  slurm = slurm_settings();
  slurm.partition.clear();
  EXPECT_FALSE(complete_new_pool(slurm));
  slurm = slurm_settings();
  slurm.sbatch_args = {"-A physics"};
  EXPECT_FALSE(complete_new_pool(slurm));

  billow::Pool other;
  other.kind = "mainframe";
  const Status unknown = complete_new_pool(other);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "unknown pool kind \"mainframe\"");
  EXPECT_EQ(
      unknown.error().hint,
      "use one of: azure, command, ec2, gce, kubernetes, rest, slurm; for clouds, use `billow "
      "cloud add`");

  billow::Pool command;
  EXPECT_FALSE(complete_new_pool(command)) << "it needs three commands";
  command.create_command = command.list_command = command.delete_command = "true";
  ASSERT_TRUE(complete_new_pool(command));
  EXPECT_FALSE(command.capabilities->list_is_final);
}

TEST(SlurmPool, AsksForWhatIsNeededByNameAndTellsNoSecretToSbatch) {
  const SlurmPool pool(slurm_settings(),
                       {.installation = "ab12", .work_dir = "", .billow = "/opt/billow"});
  const auto args = pool.arguments(order());
  EXPECT_TRUE(has(args, "--job-name=billow-ab12-fast-7"));
  EXPECT_TRUE(has(args, "--gres=gpu:h100:2"));
  EXPECT_TRUE(has(args, "--time=90"));
  EXPECT_TRUE(has(args, "--no-requeue"))
      << "Slurm starting it again by itself would use a credential twice";
  for (const auto& word : args)
    EXPECT_EQ(word.find("secret"), std::string::npos);
  EXPECT_FALSE(has(pool.arguments(order(1, 0)), "--gres=gpu:h100:0"));
  EXPECT_NE(pool.script(order(1, 0)).find("--only-gpus \"none\""), std::string::npos);
  EXPECT_NE(pool.script(order(4, 8)).find("srun --ntasks=4"), std::string::npos);
  const auto quick = pool.quick_arguments(order());
  EXPECT_EQ(quick.front(), "srun");
  EXPECT_TRUE(has(quick, "--job-name=billow-ab12-fast-7"));
  EXPECT_TRUE(has(quick, "--gres=gpu:h100:2"));
  EXPECT_FALSE(has(quick, "--parsable"));
  EXPECT_FALSE(has(quick, "--no-requeue"));
  for (const auto& word : quick)
    EXPECT_EQ(word.find("secret"), std::string::npos);
}

TEST(SlurmPool, AsksForTheCpusAndTheMemoryOfItsJobs) {
  const SlurmPool pool(slurm_settings(), {.installation = "ab12", .work_dir = "", .billow = ""});
  EXPECT_FALSE(has(pool.arguments(order()), "--cpus-per-task=1")) << "Slurm's default holds";
  auto sized = order(2, 8);
  sized.machine.cpu_milli = 3025;
  sized.machine.mem_mib = 20480;
  EXPECT_TRUE(has(pool.arguments(sized), "--cpus-per-task=4"));
  EXPECT_TRUE(has(pool.arguments(sized), "--mem=20480M"));
  EXPECT_TRUE(has(pool.quick_arguments(sized), "--cpus-per-task=4"));
  EXPECT_NE(pool.script(sized).find("--cpus-per-task=4"), std::string::npos)
      << "the step would have one CPU";
}

TEST(SlurmPool, ExtendsAllocationsToAFixedLengthIfItIsAskedTo) {
  billow::Pool settings = slurm_settings();
  EXPECT_FALSE(SlurmPool(settings, {}).extends());
  settings.options["extend"] = "2h";
  settings.time = minutes(90);
  EXPECT_TRUE(complete_new_pool(settings));
  const SlurmPool pool(settings, {});
  EXPECT_TRUE(pool.extends());
  const std::vector<std::string> expected = {"scontrol", "update", "JobId=17", "TimeLimit=210"};
  EXPECT_EQ(pool.extend_arguments({.name = "fast-1", .external = "17"}), expected);
  settings.options["extend"] = "soon";
  EXPECT_FALSE(complete_new_pool(settings));
  settings.options["extend"] = "2h";
  settings.time = {};
  EXPECT_FALSE(complete_new_pool(settings)) << "the default of the partition is not known";
}

TEST(SlurmPool, TheLargestNodeOfAPartition) {
  const NodeSize mixed = largest_node("16|64000\n  64|1031000\n128+|512000+\n");
  EXPECT_EQ(mixed.cpus, 128);
  EXPECT_EQ(mixed.mem_mib, 1031000);
  EXPECT_EQ(largest_node("").cpus, NodeSize{}.cpus) << "nothing known cuts nothing";
  EXPECT_EQ(largest_node("sinfo: error\n0|0\n").mem_mib, NodeSize{}.mem_mib);
  EXPECT_EQ(largest_node("32|1\n").mem_mib, 0) << "memory is not asked for where it is not counted";
}

TEST(SlurmPool, ItsScriptIsAProgramAShellAccepts) {
  const SlurmPool pool(slurm_settings(),
                       {.installation = "ab12", .work_dir = "", .billow = "/opt/a b/billow"});
  for (const auto& o : {order(), order(3, 8)}) {
    const auto checked =
        process::run_command({.argv = {"/bin/sh", "-n"}, .env = {}, .input = pool.script(o)});
    ASSERT_TRUE(checked);
    EXPECT_EQ(checked->code, 0) << checked->err << pool.script(o);
    const auto quick =
        process::run_command({.argv = {"/bin/sh", "-n"},
                              .env = {},
                              .input = "echo here\nexec >/dev/null 2>&1\n" + pool.node_script(o)});
    ASSERT_TRUE(quick);
    EXPECT_EQ(quick->code, 0) << quick->err;
  }
}

TEST(SlurmPool, ReadsOnlyItsOwnOutOfTheQueue) {
  const SlurmPool pool(slurm_settings(), {.installation = "ab12", .work_dir = "", .billow = ""});
  const auto seen = pool.read_list(
      "billow-ab12-fast-7|123|RUNNING|None|1800000000|1799990000\n"
      "billow-ab12-fast-8|124|PENDING|Resources|N/A|1800000500\n"
      "billow-ab12-faster-8|125|RUNNING|None|1800000000|1799990000\n"
      "billow-ab12-fast-x|126|RUNNING|None|1800000000|1799990000\n"
      "billow-zz-fast-9|127|RUNNING|None|1800000000|1799990000\n"
      "billow-ab12-fast-6|122|RUNNING|None|1800000000\n"
      "a|b|c|d|e|f|g\n"
      "somebody's job|128|RUNNING|None|1|1\n\n");
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].name, "fast-7");
  EXPECT_EQ(seen[0].external, "123");
  EXPECT_EQ(seen[0].ends_at.ns, 1'800'000'000'000'000'000);
  EXPECT_EQ(seen[0].billed_from.ns, 1'799'990'000'000'000'000);
  EXPECT_EQ(seen[1].note, "PENDING (Resources)");
  EXPECT_FALSE(seen[1].ends_at);
  EXPECT_FALSE(seen[1].billed_from) << "an estimate";
}

// What an offer's GPUs have at most, before the first machine has joined (renting/offers.cpp).
TEST(Offers, TheCatalogueKnowsAtLeastNineTenthsOfTheMemoryOfEachType) {
  const Catalogue catalogue = Catalogue::embedded();
  std::size_t known = 0;
  for (const GpuTypeFacts& facts : gpu_types())
    if (const auto gpu = catalogue.gpu(facts.type); gpu && (*gpu)->memory_mib) {
      ++known;
      EXPECT_GE(*(*gpu)->memory_mib * 11 / 10, facts.memory_mib) << facts.type;
    }
  EXPECT_GT(known, 10u);
}

TEST(CommandPool, AFailedListIsNoEmptyListAndAFailedCreateIsANo) {
  char dir[] = "/tmp/billow-pool-XXXXXX";
  ASSERT_TRUE(::mkdtemp(dir));
  billow::Pool p;
  p.name = "cloud";
  p.kind = "command";
  p.list_command = "exit 3";
  p.create_command = "echo \"$BILLOW_MACHINE $BILLOW_GPUS\" > " + std::string(dir) +
                     "/made; test -r \"$BILLOW_USER_DATA\"; echo quota exceeded >&2; exit 1";
  p.delete_command = "true";
  CommandPool pool(p, {.installation = "i", .work_dir = dir, .billow = ""});
  const auto listed = pool.nodes();
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Code::unavailable);
  Order o = order();
  o.machine.name = "cloud-1";
  const Ordered made = pool.want(o);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "quota exceeded");
  EXPECT_NE(made.error().kind, RefusalKind::no_answer);
  EXPECT_EQ(*read_file(std::string(dir) + "/made"), "cloud-1 2\n");
  EXPECT_FALSE(file_exists(std::string(dir) + "/cloud-1.cloud-init")) << "it holds the credential";
  (void)remove_tree(dir);
}

// A machine may exist all the same.
TEST(CommandPool, ACreateThatIsKilledOrTakesTooLongIsNoRefusal) {
  EXPECT_EQ(refusal({Code::timed_out, "sbatch took longer than 1 min", ""}).error().kind,
            RefusalKind::no_answer);
  EXPECT_EQ(refusal({Code::exhausted, "no", ""}).error().kind, RefusalKind::capacity);
  char dir[] = "/tmp/billow-pool-XXXXXX";
  ASSERT_TRUE(::mkdtemp(dir));
  billow::Pool p;
  p.name = "cloud";
  p.kind = "command";
  for (const char* killed : {"kill -9 $$", "sh -c 'kill -9 $$'; exit $?"}) {
    p.create_command = killed;
    CommandPool pool(p, {.installation = "i", .work_dir = dir, .billow = ""});
    const Ordered made = pool.want(order());
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().kind, RefusalKind::no_answer) << killed;
    EXPECT_EQ(made.error().message, "the create command was killed by signal 9");
  }
  p.create_command = "sleep 600";
  CommandPool hangs(p, {.installation = "i", .work_dir = dir, .billow = ""},
                    {.create = milliseconds(200)});
  const Ordered made = hangs.want(order());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, RefusalKind::no_answer);
  EXPECT_EQ(made.error().message, "create: /bin/sh took longer than 200 ms");
  (void)remove_tree(dir);
}

TEST(CommandPool, CloudInitMakesTheMachineJoinAndReadNoticesWhereItMayBeTakenAway) {
  billow::Pool p;
  p.name = "cloud";
  p.labels = {{"zone", "eu 1"}};
  const std::string plain = cloud_init(order(), p);
  EXPECT_TRUE(plain.starts_with("#cloud-config\n"));
  EXPECT_NE(plain.find("billow join https://head:7070 --token-file /etc/billow/token"),
            std::string::npos)
      << plain;
  EXPECT_NE(plain.find("--label 'zone=eu 1'"), std::string::npos);
  EXPECT_EQ(plain.find("--reclaim-notices"), std::string::npos);
  p.spot = true;
  EXPECT_NE(cloud_init(order(), p).find("--reclaim-notices auto"), std::string::npos);
}

TEST(CommandPool, ListsByNameWhateverElseIsPrinted) {
  billow::Pool p;
  p.name = "cloud";
  p.kind = "command";
  p.list_command =
      "printf 'NAME ID STATE\\ncloud-1 i-77 running\\n  cloud-2\\nother-1 i-3\\ncloud-x\\n'";
  CommandPool pool(p, {});
  const auto listed = pool.nodes();
  ASSERT_TRUE(listed);
  ASSERT_EQ(listed->size(), 2u);
  EXPECT_EQ((*listed)[0].external, "i-77");
  EXPECT_EQ((*listed)[1].external, "cloud-2");
}

// A machine that is missing from a list counts as ended, and is billed on.
TEST(CommandPool, APartOfAListIsNoList) {
  billow::Pool p;
  p.name = "cloud";
  p.kind = "command";
  p.list_command = "yes 'other-1 i-3' | head -c 4200000; echo; echo cloud-1 i-77";
  CommandPool pool(p, {});
  const auto listed = pool.nodes();
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Code::unavailable);
  EXPECT_EQ(listed.error().message,
            "list: it printed more than 4 MiB; print the pool's machines only");
}

TEST(CommandPool, AListOrADeletionThatHangsFailsBeforeACreationWould) {
  billow::Pool p;
  p.name = "cloud";
  p.kind = "command";
  p.list_command = p.delete_command = "sleep 600";
  CommandPool pool(p, {}, {.list = milliseconds(200), .end = milliseconds(200)});
  const auto before = system_clock().steady();
  const auto listed = pool.nodes();
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Code::timed_out);
  const Status ended = pool.release({.name = "cloud-1", .external = "i-1"});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Code::timed_out);
  EXPECT_LT((system_clock().steady() - before).ns, seconds(60).ns);
  EXPECT_LT(limits::pool_list_timeout.ns, limits::pool_command_timeout.ns);
  EXPECT_LT(limits::pool_delete_timeout.ns, limits::pool_command_timeout.ns);
}

TEST(CommandPool, EndsAMachineThatNoListHasShownByItsName) {
  char dir[] = "/tmp/billow-pool-XXXXXX";
  ASSERT_TRUE(::mkdtemp(dir));
  billow::Pool p;
  p.name = "cloud";
  p.kind = "command";
  p.delete_command = "echo \"$BILLOW_MACHINE $BILLOW_EXTERNAL\" >> " + std::string(dir) + "/ended";
  CommandPool pool(p, {});
  EXPECT_TRUE(pool.release({.name = "cloud-1"}));
  EXPECT_TRUE(pool.release({.name = "cloud-2", .external = "i-2"}));
  EXPECT_EQ(*read_file(std::string(dir) + "/ended"), "cloud-1 cloud-1\ncloud-2 i-2\n");
  (void)remove_tree(dir);
}

TEST(RunCommand, EndsWhatTakesTooLongWithEverythingItStarted) {
  const auto before = system_clock().steady();
  const auto done = process::run_command({.argv = {"/bin/sh", "-c", "sleep 60 & sleep 60"},
                                          .env = {},
                                          .input = {},
                                          .timeout = milliseconds(200)});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::timed_out);
  EXPECT_LT((system_clock().steady() - before).ns, seconds(30).ns);
}

TEST(RunCommand, WhatStaysIsReturnedWithItsFirstLine) {
  char dir[] = "/tmp/billow-pool-XXXXXX";
  ASSERT_TRUE(::mkdtemp(dir));
  const std::string complaints = std::string(dir) + "/err";
  const auto stays = process::start_command({.argv = {"/bin/sh", "-c", "eval \"$(cat)\""},
                                             .input = "echo here\nexec >/dev/null\nsleep 60\n",
                                             .complaints = complaints});
  ASSERT_TRUE(stays) << stays.error().message;
  ASSERT_GT(stays->pid, 0);
  EXPECT_EQ(::kill(-stays->pid, SIGKILL), 0);
  EXPECT_EQ(::waitpid(stays->pid, nullptr, 0), stays->pid);
  const auto ends = process::start_command(
      {.argv = {"/bin/sh", "-c", "echo busy >&2; exit 3"}, .input = "", .complaints = complaints});
  ASSERT_TRUE(ends);
  EXPECT_EQ(ends->pid, 0);
  EXPECT_EQ(ends->ended.code, 3);
  EXPECT_EQ(ends->ended.complaint(), "busy");
  const auto hangs = process::start_command({.argv = {"/bin/sleep", "60"},
                                             .input = "",
                                             .complaints = complaints,
                                             .patience = milliseconds(100)});
  ASSERT_FALSE(hangs);
  EXPECT_EQ(hangs.error().code, Code::timed_out);
  (void)remove_tree(dir);
}

TEST(RunCommand, LargeInputAndOutputDoNotBlockEachOther) {
  const std::string text(3 << 20, 'x');
  const auto done = process::run_command({.argv = {"/bin/cat"}, .env = {}, .input = text});
  ASSERT_TRUE(done);
  EXPECT_EQ(done->out, text);
  const auto missing = process::run_command({.argv = {"/no/such/program"}, .env = {}, .input = {}});
  EXPECT_FALSE(missing);
}

}  // namespace
}  // namespace billow::pool
