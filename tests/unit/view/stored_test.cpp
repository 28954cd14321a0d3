// What the store keeps of finished jobs, and the documents made from it: of today's records and of
// the documents that version 0.1 stored.
#include "view/stored.h"

#include "core/wire/codec.h"
#include "store/sqlite/sqlite_store.h"
#include "tests/unit/store/store_test_support.h"
#include "tests/unit/view/rig.h"
#include "view/rows.h"

namespace billow::view {
namespace {

// A finished job in the form of 0.1: the public document of that time.
constexpr const char* row_of_0_1 =
    R"({"id":7,"label":"7","name":"resnet","command":"python train.py",)"
    R"("argv":["python","train.py"],)"
    R"("cwd":"/home/ana","retries":0,"priority":0,"spot":false,"time_limit_s":0,"gpus":1,)"
    R"("gpu_milli":1000,"gpu_mem_mib":0,"gpu_types":[],"nodes":1,"cpu_milli":0,"mem_mib":0,)"
    R"("pty":false,"labels":{},"after":[],"user":"ana","project":"default","state":"succeeded",)"
    R"("final":true,"reason":"","attempt":1,"submitted_at":"2026-11-01T08:00:00Z",)"
    R"("started_at":"2026-11-01T08:00:02Z","ended_at":"2026-11-01T09:00:02Z","leases":1,)"
    R"("ran_s":3600,"suspended_s":0,"exit":{"kind":"exited","code":0,"signal":0,)"
    R"("text":"exit code 0"},"exit_code":0,"cost_nano_usd":3600000000,"cost":"$3.60","rate":"",)"
    R"("tasks":[{"id":9,"rank":0,"node":"n1","node_id":1,"state":"ended","gpus":[0],)"
    R"("gpu_type":"H100","gpu_milli":1000,"started_at":"2026-11-01T08:00:02Z",)"
    R"("ended_at":"2026-11-01T09:00:02Z"}],"spec":{"name":"resnet","argv":["python","train.py"]}})";

TEST(Stored, AJobThatHasEndedShowsWhatItShowedLast) {
  Rig rig;
  SubmitJob submit = rig.job(2);
  submit.spec.name = "resnet";
  submit.spec.labels = {{"team", "vision"}};
  const JobId id = rig.submit(submit);
  rig.begin(id);
  rig.pass_time(seconds(90));
  const Json before = live_job_document(rig.state(), rig.live(id), rig.moment(), no_readings);
  rig.end(id, 3);
  ASSERT_EQ(rig.finished.size(), 1u);
  const JobRow row = job_row(rig.state(), rig.finished[0]);
  const auto after = stored_document(row.doc);
  ASSERT_TRUE(after) << after.error().message;
  for (const char* same :
       {"id", "label", "name", "command", "argv", "user", "project", "labels", "gpu_milli", "nodes",
        "attempt", "submitted_at", "started_at", "cost_nano_usd", "cost", "ran_s", "leases"})
    EXPECT_EQ((*after)[same], before[same]) << same;
  EXPECT_EQ((*after)["state"].str_or(""), "failed");
  EXPECT_TRUE((*after)["final"].bool_or(false));
  EXPECT_EQ((*after)["exit_code"].int_or(-1), 3);
  EXPECT_EQ((*after)["rate"].str_or("x"), "");
  const Json& task = (*after)["tasks"].items().at(0);
  EXPECT_EQ(task["node"].str_or(""), "n1");
  EXPECT_EQ(task["gpu_type"].str_or(""), "H100");
  EXPECT_EQ(task.at("exit", "code").int_or(-1), 3);
  // To run it again.
  const auto spec = wire::from_json<JobSpec>((*after)["spec"]);
  ASSERT_TRUE(spec);
  EXPECT_EQ(*spec, *rig.finished[0].job.spec);
}

TEST(Stored, TheRecordIsNotTheDocument) {
  Rig rig;
  const JobId id = rig.submit();
  rig.begin(id);
  rig.end(id);
  const JobRow row = job_row(rig.state(), rig.finished.at(0));
  const auto raw = parse_json(row.doc);
  ASSERT_TRUE(raw);
  EXPECT_EQ((*raw)["form"].uint_or(0), stored_form);
  EXPECT_EQ((*raw)["cost"].str_or(""), "") << "texts for people are made when somebody reads";
  EXPECT_EQ((*raw)["command"].str_or(""), "python train.py --lr 0.1")
      << "the store names runs by it";
}

TEST(Stored, NamesOutliveTheNodeAndTheProjectTheyCameFrom) {
  Rig rig;
  const JobId id = rig.submit();
  rig.begin(id);
  rig.end(id);
  const JobRow row = job_row(rig.state(), rig.finished.at(0));
  // Nothing of a state is needed to read it.
  const auto document = stored_document(row.doc);
  ASSERT_TRUE(document);
  EXPECT_EQ((*document)["user"].str_or(""), "ana");
  EXPECT_EQ((*document)["tasks"].items().at(0)["node"].str_or(""), "n1");
}

TEST(Stored, AnArrayIsReadBack) {
  Rig rig;
  SubmitJob submit = rig.job();
  submit.spec.array = ArraySpec{.first = 1, .last = 5, .step = 2, .running_max = 2};
  const JobId id = rig.submit(submit);
  for (int element = 0; element < 3; ++element) {
    JobId running;
    for (const auto& [job, each] : rig.state().jobs)
      if (!each.tasks.empty())
        running = job;
    ASSERT_TRUE(running);
    rig.begin(running);
    rig.end(running, element == 1 ? 4 : 0);
  }
  ASSERT_EQ(rig.finished_arrays.size(), 1u);
  const auto document = stored_document(array_row(rig.state(), rig.finished_arrays[0]).doc);
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ((*document)["id"].uint_or(0), id.value);
  EXPECT_EQ((*document)["array_spec"].str_or(""), "1-5:2%2");
  EXPECT_EQ((*document)["state"].str_or(""), "failed");
  EXPECT_EQ((*document)["exit_code"].int_or(0), 4);
  EXPECT_EQ(document->at("elements", "succeeded").int_or(0), 2);
  EXPECT_EQ((*document)["reason"].str_or(""), "1 of 3 elements did not succeed");
}

TEST(Stored, ADocumentOfVersion01IsReadAsItIs) {
  const auto document = stored_document(row_of_0_1);
  ASSERT_TRUE(document);
  EXPECT_EQ(*document, parse_json(row_of_0_1).value());
}

TEST(Stored, AFormFromTheFutureIsRefusedWithWhatToDo) {
  const auto document = stored_document(R"({"form":99,"job":{}})");
  ASSERT_FALSE(document);
  EXPECT_EQ(document.error().code, Code::unsupported);
  EXPECT_EQ(document.error().hint, "upgrade billow");
}

TEST(Stored, ADamagedRowIsAnErrorNotACrash) {
  EXPECT_FALSE(stored_document(""));
  EXPECT_FALSE(stored_document("{"));
  EXPECT_FALSE(stored_document(R"({"form":2,"job":{"id":7}})")) << "no spec";
  EXPECT_FALSE(stored_document(R"({"form":2,"job":[]})"));
}

// A database with rows of both forms, through the store.
TEST(Stored, ADatabaseHoldsBothForms) {
  const store_test::TempDir dir;
  auto store = SqliteStore::open({.data_dir = dir.path()});
  ASSERT_TRUE(store) << store.error().message;
  Rig rig;
  const JobId id = rig.submit();
  rig.begin(id);
  rig.end(id);
  JobRow old = store_test::job(7, "succeeded");
  old.ended_at = {1};
  old.doc = row_of_0_1;
  Batch batch = store_test::batch_of(1);
  batch.jobs = {old, job_row(rig.state(), rig.finished.at(0))};
  batch.jobs[1].id = JobId(8);
  (*store)->journal().append(std::move(batch));
  ASSERT_TRUE((*store)->journal().flush(seconds(10)));
  for (const std::uint64_t number : {7, 8}) {
    const auto row = (*store)->queries().get_job(JobId(number));
    ASSERT_TRUE(row && *row);
    const auto document = stored_document((*row)->doc);
    ASSERT_TRUE(document) << document.error().message;
    EXPECT_EQ((*document)["state"].str_or(""), "succeeded");
    EXPECT_EQ((*document)["user"].str_or(""), "ana");
    EXPECT_TRUE((*document)["spec"].is_object());
  }
}

}  // namespace
}  // namespace billow::view
