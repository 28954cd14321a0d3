// A new key for the installation's secrets, cut off at every step.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/text.h"
#include "head/secrets/secret_fetcher.h"
#include "head/secrets/secret_keeper.h"
#include "tests/unit/view/rig.h"

namespace billow::head {
namespace {

struct Keeper : testing::Test {
  view::Rig rig;
  std::string directory = made_directory();
  std::string path = directory + "/secrets.key";
  static constexpr int count = 120;

  ~Keeper() override { (void)remove_tree(directory); }
  static std::string made_directory() {
    std::string pattern = ::testing::TempDir() + "/billow-keeper-XXXXXX";
    return ::mkdtemp(pattern.data());
  }
  const control::State& state() const { return rig.state(); }
  ProjectId project() const { return state().projects.begin()->first; }
  UserId user() const { return state().users.begin()->first; }
  void take(const Command& command) {
    auto step = rig.core.execute(command, {"head", ""}, rig.wall, rig.billed);
    ASSERT_TRUE(step) << step.error().message;
    rig.take(std::move(*step));
  }
  void set_all() {
    SecretKeeper keeper(path);
    for (int i = 0; i < count; ++i) {
      const std::string name = fmt::format("S{}", i), value = fmt::format("value {}", i);
      auto sealed = keeper.sealed(state(), project(), name, value);
      ASSERT_TRUE(sealed) << sealed.error().message;
      take(SetSecret{state().projects.begin()->second.name, user(), name, *sealed});
    }
  }
  // What a head finds that starts now.
  void all_can_be_opened() {
    const SecretKeeper fresh(path);
    for (const auto& [id, secret] : state().secrets)
      ASSERT_EQ(fresh.trouble_with(secret), "") << secret.name;
  }
  std::size_t keys() { return split(trim(*read_file(path, 4096)), '\n').size(); }
};

TEST_F(Keeper, EveryStepOfANewKeyCanBeTheLast) {
  set_all();
  SecretKeeper keeper(path);
  keeper.begin(state());
  ASSERT_TRUE(keeper.begin_rotation());
  EXPECT_TRUE(keeper.is_rotating());
  EXPECT_EQ(keys(), 2u);
  all_can_be_opened();
  EXPECT_FALSE(keeper.end_rotation(state())) << "values still need the old key";
  int batches = 0;
  for (std::size_t lost = 0;; ++batches) {
    // A head that starts here goes on with the same new key.
    SecretKeeper fresh(path);
    ASSERT_TRUE(fresh.begin_rotation());
    EXPECT_EQ(keys(), 2u);
    ResealSecrets next = fresh.next_to_reseal(state(), lost);
    EXPECT_EQ(lost, 0u);
    if (next.secrets.empty())
      break;
    take(std::move(next));
    all_can_be_opened();
  }
  EXPECT_GT(batches, 1);
  EXPECT_FALSE(keeper.end_rotation(state())) << "what is durable still needs the old key";
  keeper.begin(state());
  ASSERT_TRUE(keeper.end_rotation(state()));
  EXPECT_EQ(keys(), 1u);
  EXPECT_FALSE(keeper.is_rotating());
  all_can_be_opened();
}

TEST_F(Keeper, WhatNoKeyOpensIsCountedAndKeepsNothing) {
  set_all();
  ASSERT_TRUE(write_file_atomic(path, std::string(64, 'a') + "\n", 0600, false));
  SecretKeeper keeper(path);
  keeper.begin(state());
  ASSERT_TRUE(keeper.begin_rotation());
  std::size_t lost = 0;
  EXPECT_TRUE(keeper.next_to_reseal(state(), lost).secrets.empty());
  EXPECT_EQ(lost, static_cast<std::size_t>(count));
  EXPECT_TRUE(keeper.end_rotation(state()));
}

// A value that was fetched stays no longer than the order that it is for.
struct FetchedValue : Keeper {
  net::Loop loop;
  SecretKeeper keeper{path};
  TaskId task{7};

  void give() { keeper.give(task, {{"T", Result<std::string>("a value")}}); }
  void place_job() {
    take(SetSecret{state().projects.begin()->second.name, user(), "T", "", "team:apps/train#k"});
    keeper.begin(state());
    SubmitJob job = rig.job(1);
    job.spec.surroundings.secrets = {{.name = "T", .variable = "T", .file = ""}};
    task = rig.task_of(rig.submit(job));
  }
};

TEST_F(FetchedValue, GoesWithItsTask) {
  give();
  EXPECT_FALSE(keeper.heard({.body = TaskEnded{.task = task}}));
  EXPECT_FALSE(keeper.was_given(task));
}

TEST_F(FetchedValue, GoesWithAnOrderOfAJobThatIsGone) {
  give();
  wire::agent_v1::Start start;
  start.task = task;
  start.job = JobId(99);
  keeper.fill(state(), start, true);
  EXPECT_FALSE(keeper.was_given(task));
}

TEST_F(FetchedValue, IsNotKeptForANodeThatIsAway) {
  place_job();
  std::size_t delivered = 0;
  SecretFetcher fetcher(loop, {.clock = &system_clock(),
                               .keeper = &keeper,
                               .state = [this]() -> const control::State& { return state(); },
                               .deliver =
                                   [&](const control::Effect&) {
                                     EXPECT_TRUE(keeper.was_given(task));
                                     ++delivered;
                                   }});
  const Task& placed = state().tasks.at(task);
  wire::agent_v1::Start start;
  start.task = task;
  start.job = placed.job;
  start.surroundings.secrets = {{.name = "T", .variable = "T", .file = ""}};
  const control::Effect order{placed.node, start};
  ASSERT_TRUE(fetcher.holds(order));
  ASSERT_TRUE(loop.run_until([&] { return delivered == 1; }, seconds(60)));
  EXPECT_FALSE(keeper.was_given(task));
  EXPECT_TRUE(fetcher.holds(order)) << "fetched again when the node is back";
  EXPECT_TRUE(loop.run_until([&] { return delivered == 2; }, seconds(60)));
}

}  // namespace
}  // namespace billow::head
