// What the journal's choice of what to leave out costs (ADR 14): bytes and time to encode one
// event, on average over the journal in tests/golden. `defaults` is how 0.1 wrote, `zeros` how the
// journal is written since, `nothing` the whole struct.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>

#include "base/file.h"
#include "core/control/core.h"
#include "core/wire/codec.h"
#include "store/sqlite/sqlite_store.h"

namespace billow {
namespace {

std::vector<Event> golden_events() {
  std::string dir = "/tmp/billow-bench-XXXXXX";
  if (!::mkdtemp(dir.data()))
    return {};
  std::filesystem::copy(BILLOW_GOLDEN "/0.1/store", dir, std::filesystem::copy_options::recursive);
  std::filesystem::permissions(dir, std::filesystem::perms::owner_all);
  std::vector<Event> events;
  {
    auto store = SqliteStore::open({.data_dir = dir, .ballast_bytes = 4096});
    if (store)
      (void)(*store)->journal().read(0, 100'000, [&](const Record& record) {
        if (auto event = control::decode_event(record.seq, record.at, record.kind, record.payload))
          events.push_back(std::move(*event));
        return true;
      });
  }
  (void)remove_tree(dir);
  return events;
}

void encode(benchmark::State& state, wire::Omit omit, const char* only) {
  static const std::vector<Event> all = golden_events();
  std::vector<const Event*> events;
  for (const Event& event : all)
    if (!only || std::string_view(wire::variant_kind(event.body)) == only)
      events.push_back(&event);
  if (events.empty())
    return state.SkipWithError("tests/golden has no such events");
  std::size_t bytes = 0;
  for (auto _ : state) {
    bytes = 0;
    for (const Event* event : events)
      bytes += visit([&](const auto& body) { return wire::to_json_text(body, omit).size(); },
                     event->body);
    benchmark::DoNotOptimize(bytes);
  }
  state.counters["bytes_per_event"] =
      static_cast<double>(bytes) / static_cast<double>(events.size());
  state.counters["per_event"] = benchmark::Counter(
      static_cast<double>(events.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(encode, every_kind_defaults, wire::Omit::defaults, nullptr);
BENCHMARK_CAPTURE(encode, every_kind_zeros, wire::Omit::zeros, nullptr);
BENCHMARK_CAPTURE(encode, every_kind_nothing, wire::Omit::nothing, nullptr);
BENCHMARK_CAPTURE(encode, jobs_submitted_defaults, wire::Omit::defaults, "jobs_submitted");
BENCHMARK_CAPTURE(encode, jobs_submitted_zeros, wire::Omit::zeros, "jobs_submitted");
BENCHMARK_CAPTURE(encode, jobs_submitted_nothing, wire::Omit::nothing, "jobs_submitted");

}  // namespace
}  // namespace billow

BENCHMARK_MAIN();
