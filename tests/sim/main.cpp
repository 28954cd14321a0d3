// ./dev sim: more seeds than CI has time for, or one seed with its full trace.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "base/log.h"
#include "base/text.h"
#include "pool_story.h"
#include "soak.h"
#include "world.h"

namespace {

volatile unsigned long long current_seed = 0;
volatile int own_stderr = 2;

// An assertion of the product ends the process; the seed must still be printed.
void on_abort(int) {
  char text[128];
  const int n = std::snprintf(text, sizeof(text),
                              "the process aborted in seed %llu\nagain: ./dev sim --seed %llu\n",
                              current_seed, current_seed);
  (void)!::write(own_stderr, text, static_cast<std::size_t>(n));
}

struct Arguments {
  std::uint64_t seeds = 10'000, first = 1;
  std::int64_t total_hours = 0;  // of all runs; 0: no limit
  std::int64_t minutes = 0;      // 0: no limit
  std::int64_t hours = 0;        // of each run; 0: some minutes
  std::uint64_t stories = 0;     // of pools, instead of runs
  std::uint64_t jobs = 0;        // through one head, instead of runs
  bool one = false;
  bool from_given = false;
};

// Random stories of a pool and its provider's meter.
int tell_stories(const Arguments& arguments) {
  billow::sim::StoryFigures figures;
  std::uint64_t failed = 0;
  for (std::uint64_t seed = arguments.first; seed < arguments.first + arguments.stories; ++seed) {
    current_seed = seed;
    const std::string wrong = billow::sim::tell_pool_story(seed, figures);
    std::printf("%s", wrong.c_str());
    failed += wrong.empty() ? 0 : 1;
    if (failed >= 20)
      break;
  }
  std::printf(
      "%llu pool stories from %llu: %llu failed; %zu machines, %zu of which never joined; %zu "
      "jobs, %zu heads killed, %zu clock steps, %zu steps; metered %lld nano-dollars, booked %lld; "
      "%zu machines left; longest billed without a job: %.0f s\n",
      static_cast<unsigned long long>(arguments.stories),
      static_cast<unsigned long long>(arguments.first), static_cast<unsigned long long>(failed),
      figures.machines, figures.unjoined, figures.jobs, figures.heads, figures.clock_steps,
      figures.steps, static_cast<long long>(figures.metered.value),
      static_cast<long long>(figures.booked.value), figures.left,
      static_cast<double>(figures.idle_max.ns) / 1e9);
  return failed ? 1 : 0;
}

// In a data directory under TMPDIR, which is removed in the end.
int soak_jobs(std::uint64_t jobs) {
  std::string dir = (std::filesystem::temp_directory_path() / "billow-soak-XXXXXX").string();
  if (!::mkdtemp(dir.data()))
    return 1;
  const billow::Status done = billow::sim::soak(
      {.jobs = jobs,
       .data_dir = dir,
       .report_every = std::clamp<std::uint64_t>(jobs / 10, 10'000, 1'000'000),
       .report = [](const billow::sim::SoakFigures& f) {
         std::printf(
             "%9llu jobs: %lld KiB resident, journal %llu records of %llu ever, snapshot %lld "
             "bytes, database %lld MiB; %.0f s, %.0f CPU s\n",
             static_cast<unsigned long long>(f.jobs), static_cast<long long>(f.resident_kib),
             static_cast<unsigned long long>(f.records),
             static_cast<unsigned long long>(f.journal_ever),
             static_cast<long long>(f.snapshot_bytes),
             static_cast<long long>(f.database_bytes >> 20), f.seconds, f.cpu_seconds);
         std::fflush(stdout);
       }});
  std::filesystem::remove_all(dir);
  if (!done)
    std::printf("%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}

double cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

// What many runs have done so far.
struct Sums {
  std::uint64_t done = 0, failed = 0, first = 0;
  std::int64_t steps = 0;
  billow::sim::Counts counts;
  double virtual_s = 0;

  double hours() const { return virtual_s / 3600; }
  void add(const billow::sim::Outcome& outcome) {
    ++done;
    failed += outcome.failure ? 1 : 0;
    steps += outcome.steps;
    counts.add(outcome.counts);
    virtual_s += outcome.virtual_s;
  }
  void print() const {
    const auto of = [](std::uint64_t n) {
      return static_cast<unsigned long long>(n);
    };
    std::printf(
        "%llu seeds from %llu, %llu failed: %.0f virtual hours, %llu faults, %llu heads started, "
        "%llu jobs, %llu machines joined, %lld events, history %016llx; %.0f CPU s\n",
        of(done), of(first), of(failed), hours(), of(counts.faults), of(counts.heads),
        of(counts.jobs), of(counts.machines), static_cast<long long>(steps), of(counts.history),
        cpu_seconds());
    std::fflush(stdout);
  }
};

int run_seeds(const Arguments& arguments) {
  using Steady = std::chrono::steady_clock;
  constexpr auto between_reports = std::chrono::seconds(30);
  const auto began = Steady::now();
  auto told = began;
  Sums sums{.first = arguments.first};
  const auto over = [&] {
    return sums.done >= arguments.seeds || sums.failed >= 20 ||
           (arguments.total_hours > 0 &&
            sums.hours() >= static_cast<double>(arguments.total_hours)) ||
           (arguments.minutes > 0 &&
            Steady::now() - began >= std::chrono::minutes(arguments.minutes));
  };
  while (!over()) {
    const std::uint64_t seed = arguments.first + sums.done;
    current_seed = seed;
    const auto outcome = billow::sim::simulate(seed, billow::sim::Mutation::none, arguments.one,
                                               billow::hours(arguments.hours));
    sums.add(outcome);
    std::printf("%s%s", outcome.story.c_str(), outcome.failure.value_or("").c_str());
    if (Steady::now() - told > between_reports) {
      told = Steady::now();
      sums.print();
    }
  }
  std::printf("end: ");
  sums.print();
  return sums.failed ? 1 : 0;
}

billow::Result<Arguments> parse(int argc, char** argv) {
  Arguments out;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const auto value = billow::parse_int(i + 1 < argc ? argv[i + 1] : "", 0, INT64_MAX);
    if (!value)
      return billow::fail(billow::Code::invalid, name + " needs a number");
    if (name == "--seeds")
      out.seeds = static_cast<std::uint64_t>(*value);
    else if (name == "--minutes")
      out.minutes = *value;
    else if (name == "--hours")
      out.hours = *value;
    else if (name == "--total-hours") {
      out.total_hours = *value;
      out.seeds = UINT64_MAX;
    } else if (name == "--from") {
      out.first = static_cast<std::uint64_t>(*value);
      out.from_given = true;
    } else if (name == "--stories")
      out.stories = static_cast<std::uint64_t>(*value);
    else if (name == "--jobs")
      out.jobs = static_cast<std::uint64_t>(*value);
    else if (name == "--story") {
      out.first = static_cast<std::uint64_t>(*value);
      out.stories = 1;
      out.one = true;
    } else if (name == "--seed") {
      out.first = static_cast<std::uint64_t>(*value);
      out.seeds = 1;
      out.one = true;
    } else
      return billow::fail(billow::Code::invalid, "unknown option " + name);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  auto arguments = parse(argc, argv);
  if (!arguments) {
    std::fprintf(
        stderr,
        "%s\nusage: billow-sim [--seeds N | --stories N | --jobs N] [--minutes M] [--from FIRST] "
        "[--hours H [--total-hours T]] | --seed S [--hours H] | --story S\n",
        arguments.error().message.c_str());
    return 2;
  }
  ::signal(SIGABRT, on_abort);
  // Heads complain of their providers. One run alone shows it.
  if (!arguments->one && (arguments->hours > 0 || arguments->stories > 0)) {
    own_stderr = ::dup(2);
    if (!std::freopen("/dev/null", "w", stderr))
      return 1;
  }
  billow::configure_log({.level = billow::LogLevel::error});
  if (arguments->stories > 0)
    return tell_stories(*arguments);
  if (arguments->jobs > 0)
    return soak_jobs(arguments->jobs);
  if (arguments->hours > 0 && !arguments->one && !arguments->from_given) {
    // Other weeks in every run, with secrets.
    arguments->first = billow::sim::first_seed_with_secrets + std::random_device()();
    std::printf("fresh seeds from %llu\n", static_cast<unsigned long long>(arguments->first));
    std::fflush(stdout);
  }
  return run_seeds(*arguments);
}
