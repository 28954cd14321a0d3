// Fills a history as a month of 1,000 GPUs and 100,000 long jobs would, and says what it takes:
// bytes on the disk, samples per second, and how long a month of one GPU takes to read. Every slot
// of every ring is written, and every job has all its points, none of them the same, so this is the
// most it can ever take.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "base/rng.h"
#include "store/sqlite/history.h"

using namespace billow;

int main(int argc, char** argv) {
  const std::size_t gpus = argc > 1 ? static_cast<std::size_t>(std::atoi(argv[1])) : 1000,
                    jobs = argc > 2 ? static_cast<std::size_t>(std::atoi(argv[2])) : 100'000;
  const std::string folder = std::filesystem::temp_directory_path().string() +
                             fmt::format("/billow-history-{}", ::getpid());
  auto history = History::open(folder);
  if (!history) {
    std::fprintf(stderr, "%s\n", history.error().message.c_str());
    return 1;
  }
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t now = system_clock().wall().ns / second / 900 * 900;
  Rng rng(1);
  std::vector<History::Sample> samples(gpus);
  for (std::size_t i = 0; i < gpus; ++i)
    samples[i].key = fmt::format("node{}/GPU-{}", i / 8, i);
  std::size_t added = 0;
  const SteadyTime began = system_clock().steady();
  const auto add = [&](std::int64_t at) {
    for (auto& sample : samples)
      for (double& v : sample.values)
        v = static_cast<double>(rng.below(100'000));
    const Status ok = (*history)->add({at * second}, samples);
    if (!ok) {
      std::fprintf(stderr, "%s\n", ok.error().message.c_str());
      std::exit(1);
    }
    added += gpus;
  };
  for (std::int64_t at = now - 31 * 86400; at < now - 86400; at += 900)
    add(at);
  for (std::int64_t at = now - 86400; at < now - 7200; at += 60)
    add(at);
  for (std::int64_t at = now - 7200; at < now; at += 10)
    add(at);
  const double took = (system_clock().steady() - began).seconds();
  std::vector<History::JobRecord> batch;
  for (std::size_t j = 0; j < jobs; ++j) {
    JobSeries series({(now - 86400) * second});
    for (int i = 0; i < 128; ++i) {
      JobSample sample;
      for (double& v : sample)
        v = static_cast<double>(rng.below(100'000));
      series.add({(now - 86400 + i * 2) * second}, sample);
    }
    batch.push_back({JobId(j + 1), series.encode()});
    if (batch.size() == 1000 || j + 1 == jobs) {
      if (const Status ok = (*history)->save_jobs(batch); !ok) {
        std::fprintf(stderr, "%s\n", ok.error().message.c_str());
        return 1;
      }
      batch.clear();
    }
  }
  const SteadyTime reading = system_clock().steady();
  for (int i = 0; i < 100; ++i)
    (void)(*history)->read(samples[static_cast<std::size_t>(i) % gpus].key,
                           {(now - 30 * 86400) * second}, {now * second}, 300);
  const double read_ms = (system_clock().steady() - reading).seconds() * 10;
  std::printf("{\"bytes\": %llu, \"gpu_samples_per_s\": %.0f, \"read_ms\": %.3f}\n",
              static_cast<unsigned long long>((*history)->bytes()),
              static_cast<double>(added) / took, read_ms);
  history->reset();
  std::filesystem::remove_all(folder);
  return 0;
}
