// Many jobs through one head: the real Engine on a real store in a data directory, with snapshots.
// What has ended must leave nothing behind in memory, and in the journal no more than its retention
// allows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace billow::sim {

struct SoakFigures {
  std::uint64_t jobs = 0;
  std::int64_t resident_kib = 0;
  std::uint64_t records = 0;       // in the journal
  std::uint64_t journal_ever = 0;  // written so far
  std::int64_t snapshot_bytes = 0, database_bytes = 0;
  double seconds = 0, cpu_seconds = 0;
};

struct SoakOptions {
  std::uint64_t jobs = 0;
  std::string data_dir;
  std::uint64_t report_every = 1'000'000;
  std::function<void(const SoakFigures&)> report;
};

Status soak(const SoakOptions& options);

}  // namespace billow::sim
