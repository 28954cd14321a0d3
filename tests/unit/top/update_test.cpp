#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include <fmt/format.h>

#include "client/top/list.h"
#include "world.h"

namespace billow::client::top {
namespace {

bool shows(const State& state, const std::string& what) {
  return text(state).find(what) != std::string::npos;
}
std::string last_line(const State& state) {
  return lines(state).back();
}

TEST(Top, SaysWhatDrainedSickLostAndReservedCardsAre) {
  const State state = world({24, 80});
  EXPECT_TRUE(shows(state, "2.50 of 12 GPUs free, 2 drained, 1 reserved, 1 sick, 2 lost"))
      << text(state);
  EXPECT_TRUE(shows(state, "sick: XID 79")) << text(state);
  EXPECT_TRUE(shows(state, "drained: new power supply")) << text(state);
  EXPECT_TRUE(shows(state, "lost: node unreachable")) << text(state);
  EXPECT_TRUE(shows(state, "reserved for vision")) << text(state);
  EXPECT_TRUE(shows(state, "ben notebook (idle)")) << text(state);
  EXPECT_TRUE(shows(state, "another project")) << text(state);
}

// The head counts a card as reserved only while no job holds it, and so does every page.
TEST(Top, ACardThatAJobHoldsInsideAReservationIsInUse) {
  State state = world({24, 80});
  const auto& [id, node] = *state.fleet.nodes.begin();
  ASSERT_EQ(node.name, "rack1");
  state.fleet.take(
      parse_json(fmt::format(R"({{"gpus":[[{},7,1000,80,4000,300,50,100,[11]]]}})", id)).value());
  EXPECT_TRUE(shows(state, "2.50 of 12 GPUs free, 2 drained, 1 sick, 2 lost")) << text(state);
  // The stream alone is enough to know: the list of reservations is read more rarely.
  state.fleet.reservations.clear();
  state.fleet.take(
      parse_json(fmt::format(R"({{"gpus":[[{},7,0,0,0,70,30,100,[],"",1000]]}})", id)).value());
  EXPECT_TRUE(shows(state, "2.50 of 12 GPUs free, 2 drained, 1 reserved, 1 sick, 2 lost"))
      << text(state);
}

TEST(Top, TabsByNumberTabKeyAndMouse) {
  State state = world({24, 80});
  press(state, "2");
  EXPECT_EQ(state.tab, Tab::jobs);
  press(state, KeyName::tab);
  EXPECT_EQ(state.tab, Tab::queue);
  press(state, KeyName::back_tab);
  EXPECT_EQ(state.tab, Tab::jobs);
  for (const Hit& hit : draw(state).hits)
    if (hit.kind == Hit::Kind::tab && hit.number == 4)
      (void)update(state, Mouse{Mouse::Kind::click, hit.row, hit.col + 1});
  EXPECT_EQ(state.tab, Tab::money);
  answer(state, update(state, Tick{state.now_ms}));
  EXPECT_TRUE(shows(state, "project vision")) << text(state);
  EXPECT_TRUE(shows(state, "86%")) << text(state);
}

TEST(Top, TheCursorStaysOnItsJobWhileTheListChanges) {
  State state = world({24, 80});
  press(state, "2");
  while (state.list().at.id != 13)
    press(state, "j");
  const int before = state.list().index;
  // A newer job comes above it, and another one goes.
  (void)update(state, LivePiece{json(R"({"jobs":[{"id":99,"label":"99","name":"new","user":"ana",
    "state":"queued","where":[]}]})")});
  EXPECT_EQ(state.list().at.id, 13u);
  EXPECT_EQ(state.list().index, before + 1);
  (void)update(state, LivePiece{json(R"({"gone":[99,20,16]})")});
  EXPECT_EQ(state.list().at.id, 13u);
  (void)update(state, LivePiece{json(R"({"gone":[13]})")});
  EXPECT_NE(state.list().at.id, 13u);
  EXPECT_NE(state.list().at.kind, Subject::Kind::none);
  // A new stream repeats everything: nothing jumps meanwhile.
  const Subject at = state.list().at;
  (void)update(state, LiveBegins{});
  EXPECT_EQ(state.list().at, at);
}

TEST(Top, ListsSayWhatTheyHide) {
  State state = world({12, 80});
  EXPECT_TRUE(shows(state, "12 GPUs, 5 more below")) << text(state);
  press(state, "G");
  EXPECT_TRUE(shows(state, "12 GPUs, 5 more above")) << text(state);
  press(state, "/rack2");
  press(state, KeyName::enter);
  EXPECT_TRUE(shows(state, "2 GPUs, with \"rack2\", 10 hidden")) << text(state);
  press(state, KeyName::escape);
  EXPECT_FALSE(shows(state, "hidden"));
}

TEST(Top, SortsFiltersAndChooses) {
  State state = world({24, 80});
  press(state, "2");
  const auto first = [&] {
    return list_of(state).rows.at(0).id;
  };
  EXPECT_EQ(first(), 20u);
  press(state, "O");
  EXPECT_EQ(first(), 12u);
  press(state, "oo");
  EXPECT_TRUE(shows(state, "by GPUs"));
  EXPECT_EQ(first(), 14u);
  press(state, "i");
  EXPECT_EQ(list_of(state).rows.size(), 1u);
  EXPECT_EQ(first(), 13u);
  press(state, KeyName::escape);
  EXPECT_EQ(list_of(state).rows.size(), 6u);
}

TEST(Top, AsksBeforeItStopsAndShowsTheAnswerOfTheHead) {
  State state = world({24, 80});
  press(state, "2/train");
  press(state, KeyName::enter);
  press(state, "s");
  ASSERT_TRUE(state.question);
  EXPECT_NE(last_line(state).find("Stop job 12 train-llama (2 GPUs, 10m00s)?"), std::string::npos)
      << last_line(state);
  EXPECT_TRUE(update(state, Key{KeyName::letter, "n"}).empty());
  EXPECT_NE(last_line(state).find("nothing was changed"), std::string::npos);
  press(state, "s");
  const Effects effects = update(state, Key{KeyName::letter, "y"});
  ASSERT_EQ(effects.size(), 1u);
  const auto* act = std::get_if<Act>(&effects[0]);
  ASSERT_TRUE(act);
  EXPECT_EQ(act->action.path, "/v1/jobs/12/stop");
  (void)update(state, Acted{act->action, json(R"({"state":"running","final":false})")});
  EXPECT_NE(last_line(state).find("job 12 is being stopped"), std::string::npos);
  (void)update(state, Acted{act->action, fail(Code::forbidden, "only ana may", "ask ana")});
  EXPECT_NE(last_line(state).find("only ana may (ask ana)"), std::string::npos);
}

TEST(Top, SuspendResumeAndDrainFollowTheStateOfTheRow) {
  State state = world({24, 80});
  press(state, "2/asleep");
  press(state, KeyName::enter);
  press(state, "z");
  EXPECT_FALSE(state.question);
  EXPECT_NE(last_line(state).find("job 16 is suspended; only running jobs"), std::string::npos);
  press(state, "r");
  ASSERT_TRUE(state.question);
  EXPECT_EQ(state.question->path, "/v1/jobs/16/resume");
  press(state, "n1");
  press(state, "d");
  ASSERT_TRUE(state.question);
  EXPECT_EQ(state.question->path, "/v1/nodes/rack1/gpus/0/drain");
  press(state, "nD");
  EXPECT_EQ(state.question->path, "/v1/nodes/rack1/drain");
  press(state, "n/rack2");
  press(state, KeyName::enter);
  press(state, "D");
  ASSERT_TRUE(state.question);
  EXPECT_EQ(state.question->path, "/v1/nodes/rack2/undrain");
}

TEST(Top, ViewersAreOfferedNothingTheyMayNotDo) {
  State state = world({24, 80}, "viewer");
  press(state, "2");
  EXPECT_EQ(last_line(state).find("stop"), std::string::npos) << last_line(state);
  press(state, "s");
  EXPECT_FALSE(state.question);
  EXPECT_NE(last_line(state).find("you cannot stop jobs: your role is viewer"), std::string::npos);
  press(state, "1d");
  EXPECT_FALSE(state.question);
  EXPECT_NE(last_line(state).find("only an admin may"), std::string::npos);
  press(state, "?");
  EXPECT_FALSE(shows(state, "stop the job"));
  EXPECT_TRUE(shows(state, "Your role is viewer")) << text(state);
}

TEST(Top, PastedTextIsNeverTakenForKeys) {
  State state = world({24, 80});
  press(state, "2");
  EXPECT_TRUE(update(state, Paste{"sy"}).empty());
  EXPECT_FALSE(state.question);
  press(state, "/");
  (void)update(state, Paste{"train\nsy"});
  EXPECT_EQ(state.list().filter, "train");
}

TEST(Top, TheLogFollowsScrollsAndIsSearched) {
  State state = world({24, 80});
  press(state, "2/train");
  press(state, KeyName::enter);
  press(state, "l");
  ASSERT_TRUE(state.page());
  EXPECT_TRUE(shows(state, "step 31/200")) << text(state);
  std::string more;
  for (int i = 0; i < 500; ++i)
    more += fmt::format("row {}\n", i);
  (void)update(state, LogRead{state.log.generation, more, "200", 0, {}});
  EXPECT_TRUE(shows(state, "row 499"));
  press(state, KeyName::page_up);
  EXPECT_FALSE(shows(state, "row 499"));
  (void)update(state, LogRead{state.log.generation, "row 500\n", "210", 0, {}});
  EXPECT_FALSE(shows(state, "row 500")) << "what is being read stays";
  press(state, "/row 123");
  press(state, KeyName::enter);
  EXPECT_TRUE(shows(state, "row 123")) << text(state);
  press(state, "G");
  EXPECT_TRUE(shows(state, "row 500"));
  // What an earlier reader still brings is dropped.
  (void)update(state, LogRead{state.log.generation - 1, "of another job\n", "", 0, {}});
  EXPECT_FALSE(shows(state, "of another job"));
  press(state, KeyName::escape);
  EXPECT_FALSE(state.page());
}

TEST(Top, WatchShowsStateProgressChartsCostAndLog) {
  State state = world({24, 80});
  state.watching = true;
  state.pages.push_back({Page::Kind::watch, {Subject::Kind::job, "12", 12}});
  for (int i = 0; i < 3; ++i)
    answer(state, update(state, Tick{state.now_ms + 1000 * i}));
  for (const char* what : {"running", "ran 10m0", "$1.5", "progress", "16%", "31/200 in its log",
                           "GPU use", "step 31/200 loss=0.90"})
    EXPECT_TRUE(shows(state, what)) << what << "\n" << text(state);
  EXPECT_EQ(press(state, KeyName::escape).size(), 1u) << "Esc quits";
}

TEST(Top, WatchSaysWhyAJobWaits) {
  for (const Size size : {Size{24, 80}, Size{43, 132}}) {
    State state = world(size);
    state.watching = true;
    state.pages.push_back({Page::Kind::watch, {Subject::Kind::job, "14", 14}});
    for (int i = 0; i < 3; ++i)
      answer(state, update(state, Tick{state.now_ms + 1000 * i}));
    for (const char* what : {"queued", "job 14 is queued and should start",
                             "No GPU is free: all 8 are in use.", "place in the queue: first"})
      EXPECT_TRUE(shows(state, what)) << what << "\n" << text(state);
  }
}

TEST(Top, MoneyOfAProjectWithoutABudgetSaysWhatItCostsNow) {
  State state = world({43, 132});
  (void)update(state, LivePiece{json(fmt::format(
                          R"({{"jobs":[{{"id":71,"label":"71","name":"tune","user":"bob",
    "project":"nlp","state":"running","started":{},"rate_nano":1000000,"where":[]}}]}})",
                          world_now_ms))});
  press(state, "5");
  const auto all = lines(state);
  const auto nlp = std::ranges::find_if(
      all, [](const std::string& line) { return line.starts_with("project nlp"); });
  ASSERT_NE(nlp, all.end()) << text(state);
  EXPECT_NE(nlp->find("$11.92/h"), std::string::npos) << *nlp << " ($8.32 and 3.60)";
}

TEST(Top, AHeadThatIsAwayIsSaidAndAskedForNothing) {
  State state = world({24, 80});
  (void)update(state, HeadAway{});
  (void)update(state, Tick{state.now_ms + 12'000});
  EXPECT_TRUE(shows(state, "the head has not answered for 12 s; trying again")) << text(state);
  EXPECT_TRUE(update(state, Tick{state.now_ms + 120'000}).empty());
  (void)update(state, LivePiece{json("{}")});
  EXPECT_FALSE(shows(state, "has not answered"));
}

TEST(Top, TimeSuspendedIsNotTimeRun) {
  State state = world({24, 80});
  // It ran for 60 s, was suspended for 100 s, and runs again since 5 s; the other is suspended
  // since 7 s.
  (void)update(state, LivePiece{json(fmt::format(
                          R"({{"gone":[12,13,14,15,16,20],"jobs":[{{"id":7,"label":"7","name":"a",
    "user":"ana","state":"running","started":{},"since":{},"ran":60000,"suspended":100000,
    "where":[]}},{{"id":8,"label":"8","name":"b","user":"bob","state":"suspended","since":{},
    "ran":500000,"suspended":0,"where":[]}}]}})",
                          world_now_ms - 165'000, world_now_ms - 5000, world_now_ms - 7000))});
  press(state, "2");
  EXPECT_TRUE(shows(state, " 1m05s ")) << text(state);
  EXPECT_TRUE(shows(state, " 7s ")) << text(state);
}

TEST(Top, HostileDocumentsAreHarmless) {
  State state = world({24, 80});
  for (const char* piece :
       {R"({"gpus":[[1,99,1,1,1,1,1,1,[]],[],[1],"x",[1,-5,0,0,0,0,0,0,[]]],"hosts":[[],[1]]})",
        R"({"jobs":[{},{"id":"x","where":[[],[9,99],5]}],"nodes":[{"id":1,"gpus":[]}]})",
        R"({"jobs":[{"id":12,"name":"\u001b[2Jx\u0007","where":[[1,77]],"state":"running",
        "since":1,"gpu_milli":-5,"cost_nano":-9223372036854775807}]})",
        R"([])", R"({"summary":[],"ended":[{}],"nodes_gone":[1,2,3]})"}) {
    (void)update(state, LivePiece{json(piece)});
    for (const char* tab : {"1", "2", "3", "4", "5"}) {
      press(state, tab);
      EXPECT_EQ(text(state).find('\x1b'), std::string::npos);
    }
  }
}

// Random keys, clicks, sizes, pieces and answers: the screen has its size, nothing is drawn beside
// it, and nothing is changed without a question that was on the screen.
Event random_piece(const std::function<int(int)>& pick) {
  if (pick(2))
    return LivePiece{
        json(fmt::format(R"({{"gone":[{}],"jobs":[{{"id":{},"label":"{}","name":"r","user":"u",)"
                         R"("state":"queued","where":[[1,{}]]}}]}})",
                         12 + pick(10), 12 + pick(30), pick(30), pick(9)))};
  return pick(4) ? Event(LiveBegins{}) : Event(HeadAway{});
}
Event random_event(const State& state, const std::function<int(int)>& pick) {
  const std::string_view letters = "12345jkgGlwszrdDyn/oOtic?qWNf[] x\xc3\xa9";
  switch (pick(8)) {
    case 0:
    case 1:
    case 2:
      return Key{KeyName::letter,
                 std::string(letters.substr(
                     static_cast<std::size_t>(pick(static_cast<int>(letters.size()))), 1))};
    case 3:
      return Key{static_cast<KeyName>(pick(15)), pick(2) ? "f" : "u"};
    case 4:
      return Mouse{static_cast<Mouse::Kind>(pick(3)), pick(90), pick(320)};
    case 5:
      return Resize{{pick(90), pick(320)}};
    case 6:
      return random_piece(pick);
    default:
      return Tick{state.now_ms + pick(3000)};
  }
}
void run_at_random(unsigned seed) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const auto pick = [&](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  State state = world({24, 80}, pick(3) ? "admin" : "viewer");
  state.utf8 = pick(2) == 0;
  for (int step = 0; step < 150; ++step) {
    const auto question = state.question;
    const Event event = random_event(state, pick);
    const auto* key = std::get_if<Key>(&event);
    const Effects effects = update(state, event);
    for (const Effect& effect : effects)
      if (std::holds_alternative<Act>(effect)) {
        ASSERT_TRUE(question && key && key->text == "y");
        (void)update(state, Acted{*question, json("{}")});
      }
    answer(state, effects);
    const Screen screen = draw(state);
    const Size size = screen.canvas.size();
    ASSERT_EQ(size, (Size{std::max(1, state.size.rows), std::max(1, state.size.cols)}));
    for (int row = 0; row < size.rows; ++row)
      ASSERT_LE(display_width(screen.canvas.line(row)), static_cast<std::size_t>(size.cols));
    for (const Hit& hit : screen.hits)
      ASSERT_TRUE(hit.row >= 0 && hit.row < std::max(size.rows, 4) && hit.col >= 0);
    if (state.question && size.rows >= 3 && size.cols >= 60) {
      std::string all;
      for (int row = 0; row < size.rows; ++row)
        all += screen.canvas.line(row);
      ASSERT_NE(all.find("any other key no"), std::string::npos);
    }
  }
}
TEST(Top, RandomUseNeverLeavesTheScreenNorActsUnasked) {
  for (unsigned seed = 1; seed <= 12 && !testing::Test::HasFatalFailure(); ++seed)
    run_at_random(seed);
}

}  // namespace
}  // namespace billow::client::top
