#include "client/fleet/top_view.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/money.h"
#include "base/text.h"
#include "client/request/job_list.h"

namespace billow::client {
namespace {

constexpr const char* bold = "\x1b[1m";
constexpr const char* dim = "\x1b[2m";
constexpr const char* reset_colour = "\x1b[0m";
constexpr const char* invert = "\x1b[7m";
constexpr const char* red = "\x1b[31m";
constexpr const char* green = "\x1b[32m";
constexpr const char* yellow = "\x1b[33m";

// Counted in code points: node and job names are what the head let through, and wide characters in
// them are rare enough.
std::size_t width(std::string_view text) {
  std::size_t n = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\x1b')
      escape = true;
    else if (escape)
      escape = c != 'm';
    else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80)
      ++n;
  }
  return n;
}
// The beginning of a text, at most so wide; escape sequences are kept whole.
std::string cut(std::string_view text, std::size_t max) {
  if (width(text) <= max)
    return std::string(text);
  std::string out;
  std::size_t n = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\x1b')
      escape = true;
    const bool counts = !escape && (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    if (counts && ++n > max)
      break;
    if (escape && c == 'm')
      escape = false;
    out += c;
  }
  return out;
}
std::string fit(std::string_view text, std::size_t columns) {
  std::string out = cut(text, columns);
  out.append(columns - std::min(columns, width(out)), ' ');
  return out;
}
std::string right(std::string_view text, std::size_t columns) {
  const std::string out = cut(text, columns);
  return std::string(columns - std::min(columns, width(out)), ' ') + out;
}
// Control characters in a name would move the cursor.
std::string clean(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += static_cast<unsigned char>(c) < 32 || c == 127 ? ' ' : c;
  return out;
}
std::string bar(std::int64_t pct, int cells) {
  std::string out;
  const auto eighths = std::clamp<std::int64_t>(pct, 0, 100) * cells * 8 / 100;
  static const char* const parts[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  for (int i = 0; i < cells; ++i)
    out += parts[std::clamp<std::int64_t>(eighths - i * 8, 0, 8)];
  return out;
}
std::string gpus_text(std::int64_t milli) {
  return milli == 0          ? "-"
         : milli % 1000 == 0 ? fmt::format("{}", milli / 1000)
                             : fmt::format("{:.2f}", static_cast<double>(milli) / 1000);
}
std::string lasting(std::int64_t ms) {
  const std::int64_t s = std::max<std::int64_t>(0, ms / 1000);
  if (s < 60)
    return fmt::format("{}s", s);
  if (s < 3600)
    return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400)
    return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}
std::string per_hour(std::int64_t nano_per_s) {
  return fmt::format("{}/h", format_usd({nano_per_s * 3600}));
}

}  // namespace

void TopView::reset() {
  nodes_.clear();
  jobs_.clear();
}

void TopView::take_job(const Json& j) {
  Job& job = jobs_[j["id"].uint_or(0)];
  job.id = j["id"].uint_or(0);
  job.label = j["label"].str_or("");
  job.name = clean(name_of(j));
  job.user = clean(j["user"].str_or(""));
  job.project = clean(j["project"].str_or(""));
  job.state = j["state"].str_or("");
  job.reason = clean(j["reason"].str_or(""));
  job.gpu_milli = j["gpu_milli"].int_or(0);
  job.submitted = j["submitted"].int_or(0);
  job.started = j["started"].int_or(0);
  job.since = j["since"].int_or(0);
  job.ran = j["ran"].int_or(-1);
  job.suspended = j["suspended"].int_or(0);
  job.cost_nano = j["cost_nano"].int_or(0);
  job.rate_nano = j["rate_nano"].int_or(0);
  job.at = j["at"].int_or(0);
  job.where.clear();
  for (const Json& place : j["where"].items()) {
    std::vector<std::int64_t> cards;
    for (std::size_t i = 1; i < place.items().size(); ++i)
      cards.push_back(place.items()[i].int_or(0));
    if (!place.items().empty())
      job.where.emplace_back(place.items()[0].uint_or(0), std::move(cards));
  }
}

void TopView::take_node(const Json& n) {
  Node& node = nodes_[n["id"].uint_or(0)];
  node.name = clean(n["name"].str_or(""));
  node.state = n["state"].str_or("");
  node.cpu_milli = n["cpu_milli"].int_or(0);
  node.gpus.resize(n["gpus"].items().size());
  for (std::size_t i = 0; i < node.gpus.size(); ++i) {
    const Json& g = n["gpus"].items()[i];
    node.gpus[i].type = clean(g["type"].str_or(""));
    node.gpus[i].trouble = clean(g["unhealthy"].str_or(""));
    node.gpus[i].mem_mib = g["mem_mib"].int_or(0);
  }
}

// [node, index, milli, utilisation, memory, watts, celsius, …, jobs]
void TopView::take_gpu(const Json& r) {
  const auto& v = r.items();
  if (v.size() < 9)
    return;
  const auto node = nodes_.find(v[0].uint_or(0));
  const auto index = static_cast<std::size_t>(v[1].int_or(0));
  if (node == nodes_.end() || index >= node->second.gpus.size())
    return;
  Gpu& gpu = node->second.gpus[index];
  gpu.milli = v[2].int_or(0);
  gpu.util = v[3].int_or(-1);
  gpu.mem = v[4].int_or(-1);
  gpu.watts = v[5].int_or(-1);
  gpu.celsius = v[6].int_or(-1);
  gpu.jobs.clear();
  for (const Json& id : v[8].items())
    gpu.jobs.push_back(id.uint_or(0));
}

void TopView::take_summary(const Json& s) {
  gpus_ = s["gpus"].int_or(0);
  free_milli_ = s["gpus_free_milli"].int_or(0);
  running_ = s["running"].int_or(0);
  queued_ = s["queued"].int_or(0);
  held_ = s["held"].int_or(0);
  suspended_ = s["suspended"].int_or(0);
  spend_ = s["spend_nano"].int_or(0);
  idle_ = s["idle_nano"].int_or(0);
  idle_jobs_.clear();
  for (const Json& id : s["idle_jobs"].items())
    idle_jobs_.insert(id.uint_or(0));
}

void TopView::take(const Json& piece) {
  away_ = false;
  for (const Json& job : piece["jobs"].items())
    take_job(job);
  for (const Json& id : piece["gone"].items())
    jobs_.erase(id.uint_or(0));
  for (const Json& node : piece["nodes"].items())
    take_node(node);
  for (const Json& id : piece["nodes_gone"].items())
    nodes_.erase(id.uint_or(0));
  for (const Json& reading : piece["gpus"].items())
    take_gpu(reading);
  for (const Json& h : piece["hosts"].items())
    if (const auto node = nodes_.find(h.items()[0].uint_or(0)); node != nodes_.end())
      node->second.cpu_used = h.items()[1].int_or(-1);
  if (const Json* summary = piece.find("summary"))
    take_summary(*summary);
}

bool TopView::key(std::string_view bytes) {
  if (typing_) {
    if (bytes == "\r" || bytes == "\n" || bytes == "\x1b") {
      typing_ = false;
      if (bytes == "\x1b")
        filter_.clear();
    } else if (bytes == "\x7f" || bytes == "\b") {
      while (!filter_.empty() && (static_cast<unsigned char>(filter_.back()) & 0xC0) == 0x80)
        filter_.pop_back();
      if (!filter_.empty())
        filter_.pop_back();
    } else if (bytes == "\x03") {
      return true;
    } else if (!bytes.empty() && static_cast<unsigned char>(bytes[0]) >= 32 &&
               filter_.size() < 60) {
      filter_ += bytes;
    }
    scroll_ = 0;
    return false;
  }
  if (bytes == "q" || bytes == "Q" || bytes == "\x03" || bytes == "\x04")
    return true;
  if (bytes == "?" || bytes == "h")
    help_ = !help_;
  else if (help_)
    help_ = false;
  else if (bytes == "/")
    typing_ = true, filter_.clear();
  else if (bytes == "s")
    sort_ = static_cast<Sort>((static_cast<int>(sort_) + 1) % 5), scroll_ = 0;
  else if (bytes == "r")
    reverse_ = !reverse_;
  else if (bytes == "t")
    show_ = static_cast<Show>((static_cast<int>(show_) + 1) % 4), scroll_ = 0;
  else if (bytes == "i")
    show_ = show_ == Show::idle ? Show::all : Show::idle, scroll_ = 0;
  else if (bytes == "n")
    by_node_ = !by_node_, gpu_scroll_ = 0;
  else if (bytes == "\x1b")
    filter_.clear(), show_ = Show::all;
  else if (bytes == "\x1b[B" || bytes == "\x1bOB" || bytes == "j")
    ++scroll_;
  else if (bytes == "\x1b[A" || bytes == "\x1bOA" || bytes == "k")
    scroll_ = std::max(0, scroll_ - 1);
  else if (bytes == "\x1b[6~" || bytes == " ")
    scroll_ += 10;
  else if (bytes == "\x1b[5~")
    scroll_ = std::max(0, scroll_ - 10);
  else if (bytes == "\x1b[C" || bytes == "\x1bOC")
    ++gpu_scroll_;
  else if (bytes == "\x1b[D" || bytes == "\x1bOD")
    gpu_scroll_ = std::max(0, gpu_scroll_ - 1);
  return false;
}

bool TopView::idle(const Job& job) const {
  return job.state == "running" && idle_jobs_.contains(job.id);
}
std::int64_t TopView::cost(const Job& job, std::int64_t now_ms) const {
  return job.cost_nano + (job.rate_nano && job.at
                              ? job.rate_nano * std::max<std::int64_t>(0, now_ms - job.at) / 1000
                              : 0);
}
std::string TopView::who(const Gpu& gpu) const {
  std::string out;
  std::vector<std::uint64_t> seen;
  for (const std::uint64_t id : gpu.jobs) {
    if (std::ranges::find(seen, id) != seen.end())
      continue;
    seen.push_back(id);
    const auto job = jobs_.find(id);
    if (job != jobs_.end())
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", job->second.user, job->second.name);
  }
  return out.empty() && gpu.milli ? "another project" : out;
}

std::vector<std::string> TopView::gpu_lines(int rows, int cols, bool colours) const {
  std::vector<std::string> all;
  const auto paint = [&](const char* colour, const std::string& text) {
    return colours ? colour + text + reset_colour : text;
  };
  const bool folded = by_node_ || gpus_ > 64;
  for (const auto& [id, node] : nodes_) {
    if (folded) {
      std::int64_t sum = 0, known = 0, free = 0;
      std::string shades;
      static const char* const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
      for (const Gpu& gpu : node.gpus) {
        if (gpu.util >= 0)
          sum += gpu.util, ++known;
        if (gpu.trouble.empty())
          free += 1000 - gpu.milli;
        shades += !gpu.trouble.empty() ? "x"
                  : !gpu.milli         ? "·"
                               : blocks[std::clamp<std::int64_t>(gpu.util, 0, 99) * 8 / 100];
      }
      all.push_back(fmt::format(
          "{} {} {} {} free {}", fit(node.name, 14),
          right(known ? fmt::format("{}%", sum / known) : "-", 4), fit(shades, 34),
          right(gpus_text(std::max<std::int64_t>(0, free)) == "-" ? "0" : gpus_text(free), 5),
          node.state == "ready" ? "" : paint(red, node.state)));
      continue;
    }
    for (std::size_t i = 0; i < node.gpus.size(); ++i) {
      const Gpu& gpu = node.gpus[i];
      std::string line = fmt::format("{} {:>2} {} ", fit(node.name, 10), i, fit(gpu.type, 7));
      if (!gpu.trouble.empty()) {
        const std::string holder = who(gpu);  // sick or not: somebody's work may be on it
        line += (holder.empty() ? "" : holder + "  ") + paint(red, gpu.trouble);
      } else {
        const bool unused = gpu.milli > 0 && gpu.util >= 0 && gpu.util < 2;
        const std::string holder = who(gpu);
        line += fmt::format(
            "{}{} {} {} {}  {}", paint(green, bar(gpu.util, 10)),
            right(gpu.util < 0 ? "-" : fmt::format("{}%", gpu.util), 5),
            right(gpu.mem < 0 ? "-"
                              : fmt::format("{:.0f}/{:.0f}G", static_cast<double>(gpu.mem) / 1024,
                                            static_cast<double>(gpu.mem_mib) / 1024),
                  8),
            right(gpu.watts < 0 ? "-" : fmt::format("{}W", gpu.watts), 5),
            right(gpu.celsius <= 0 ? "-" : fmt::format("{}C", gpu.celsius), 4),
            holder.empty() ? paint(dim, "free")
            : unused       ? paint(yellow, holder + " (idle)")
                           : holder);
      }
      all.push_back(std::move(line));
    }
  }
  const int skip = std::clamp(gpu_scroll_, 0, std::max(0, static_cast<int>(all.size()) - rows));
  std::vector<std::string> out;
  for (int i = skip; i < static_cast<int>(all.size()) && static_cast<int>(out.size()) < rows; ++i)
    out.push_back(cut(all[static_cast<std::size_t>(i)], static_cast<std::size_t>(cols)));
  return out;
}

// Suspended time is not run time. The row of a suspended job shows how long it has been suspended,
// that of a waiting job how long it has waited.
std::int64_t TopView::spent_ms(const Job& job, std::int64_t now_ms) {
  if (job.state == "suspended")
    return job.suspended + (job.since ? now_ms - job.since : 0);
  if (job.state == "running" && job.ran >= 0 && job.since)
    return job.ran + now_ms - job.since;
  if (job.state == "running" && job.started)
    return now_ms - job.started;
  return now_ms - (job.since ? job.since : job.submitted);
}

std::vector<const TopView::Job*> TopView::chosen(std::int64_t now_ms) const {
  std::vector<const Job*> list;
  const std::string needle = lower(filter_);
  for (const auto& [id, job] : jobs_) {
    if (show_ == Show::running && job.state != "running")
      continue;
    if (show_ == Show::waiting && job.state != "queued" && job.state != "held")
      continue;
    if (show_ == Show::idle && !idle(job))
      continue;
    if (!needle.empty() &&
        lower(fmt::format("{} {} {} {} {}", job.label, job.name, job.user, job.project, job.state))
                .find(needle) == std::string::npos)
      continue;
    list.push_back(&job);
  }
  const auto value = [&](const Job& job) -> std::int64_t {
    switch (sort_) {
      case Sort::number:
        return static_cast<std::int64_t>(job.id);
      case Sort::time:
        return spent_ms(job, now_ms);
      case Sort::gpus:
        return job.gpu_milli;
      case Sort::cost:
        return cost(job, now_ms);
      case Sort::rate:
        return job.rate_nano;
    }
    return 0;
  };
  std::ranges::stable_sort(list, [&](const Job* a, const Job* b) {
    return reverse_ ? value(*a) < value(*b) : value(*a) > value(*b);
  });
  return list;
}

std::vector<std::string> TopView::job_lines(int rows,
                                            int cols,
                                            std::int64_t now_ms,
                                            bool colours) const {
  const auto list = chosen(now_ms);
  const auto paint = [&](const char* colour, const std::string& text) {
    return colours ? colour + text + reset_colour : text;
  };
  const int name_columns = std::max(12, cols - 64);
  std::vector<std::string> out;
  static const char* const sorts[] = {"number", "time", "GPUs", "cost", "rate"};
  static const char* const shows[] = {"all", "running", "waiting", "idle"};
  std::string title = fmt::format("{} {} {} {} {} {} {} {}", fit("JOB", 7),
                                  fit("NAME", static_cast<std::size_t>(name_columns)),
                                  fit("USER", 9), fit("STATE", 10), right("GPUS", 5),
                                  right("TIME", 8), right("COST", 9), right("RATE", 9));
  out.push_back(colours ? invert + fit(title, static_cast<std::size_t>(cols)) + reset_colour
                        : cut(title, static_cast<std::size_t>(cols)));
  const int body = rows - 2;
  const int skip = std::clamp(scroll_, 0, std::max(0, static_cast<int>(list.size()) - body));
  for (int i = skip; i < static_cast<int>(list.size()) && static_cast<int>(out.size()) <= body;
       ++i) {
    const Job& job = *list[static_cast<std::size_t>(i)];
    const bool unused = idle(job);
    const char* colour = job.state == "running"                         ? (unused ? yellow : green)
                         : job.state == "queued" || job.state == "held" ? dim
                                                                        : "";
    out.push_back(cut(
        fmt::format("{} {} {} {} {} {} {} {}", fit(job.label, 7),
                    fit(job.name, static_cast<std::size_t>(name_columns)), fit(job.user, 9),
                    paint(colour, fit(unused ? "idle" : job.state, 10)),
                    right(gpus_text(job.gpu_milli), 5), right(lasting(spent_ms(job, now_ms)), 8),
                    right(format_usd({cost(job, now_ms)}), 9),
                    right(job.rate_nano ? per_hour(job.rate_nano) : "-", 9)),
        static_cast<std::size_t>(cols)));
  }
  if (list.empty())
    out.push_back(jobs_.empty() ? "no job is waiting or running" : "no job matches");
  while (static_cast<int>(out.size()) < rows - 1)
    out.emplace_back();
  const std::string foot =
      typing_ ? fmt::format("filter: {}_", filter_)
              : fmt::format(
                    "{} of {}, {}{} by {}{}   q quit  s sort  r reverse  / filter  t show  ? help",
                    list.size(), jobs_.size(), shows[static_cast<int>(show_)],
                    filter_.empty() ? "" : fmt::format(" \"{}\"", filter_),
                    sorts[static_cast<int>(sort_)], reverse_ ? " up" : "");
  out.push_back(paint(dim, cut(foot, static_cast<std::size_t>(cols))));
  return out;
}

std::string TopView::frame(Size size, WallTime now, bool colours) const {
  const int rows = std::max(8, size.rows), cols = std::max(40, size.cols);
  const std::int64_t now_ms = now.ns / 1'000'000;
  std::vector<std::string> lines;
  const auto strong = [&](const std::string& text) {
    return colours ? bold + text + reset_colour : text;
  };
  const std::string free = gpus_text(std::max<std::int64_t>(0, free_milli_));
  std::string head =
      away_ ? std::string("the head does not answer; retrying")
            : fmt::format("{} of {} GPUs free   {} running, {} waiting{}   {}{}",
                          free == "-" ? "0" : free, gpus_, running_, queued_ + held_,
                          suspended_ ? fmt::format(", {} suspended", suspended_) : "",
                          per_hour(spend_), idle_ ? fmt::format(", {} idle", per_hour(idle_)) : "");
  lines.push_back(strong(cut("billow  " + head, static_cast<std::size_t>(cols))));
  if (help_) {
    for (const char* line :
         {"", "  q        quit", "  s        sort by number, time, GPUs, cost, rate",
          "  r        reverse the order",
          "  /        filter by name, user, project or state; Esc clears it",
          "  t        show all, running, waiting, idle", "  i        only idle jobs",
          "  n        one line per node instead of per GPU",
          "  up down  through the jobs      left right  through the GPUs", "",
          "  press any key to continue"})
      lines.emplace_back(line);
  } else {
    const int gpu_rows_max = std::max(2, (rows - 4) / 2);
    for (std::string& line : gpu_lines(gpu_rows_max, cols, colours))
      lines.push_back(std::move(line));
    lines.emplace_back();
    for (std::string& line :
         job_lines(rows - static_cast<int>(lines.size()), cols, now_ms, colours))
      lines.push_back(std::move(line));
  }
  std::string out;
  for (int i = 0; i < rows; ++i) {
    if (i)
      out += "\r\n";
    if (static_cast<std::size_t>(i) < lines.size())
      out += lines[static_cast<std::size_t>(i)];
    out += "\x1b[K";
  }
  return out;
}

}  // namespace billow::client
