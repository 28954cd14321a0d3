#include "client/fleet/calendar.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/formats/utc.h"
#include "base/text.h"
#include "client/frame/when.h"
#include "client/frame/zone.h"

namespace billow::client {
namespace {

constexpr std::int64_t hour_s = 3600;
constexpr Colour tints[] = {Colour::green, Colour::cyan, Colour::yellow, Colour::blue, Colour::red};

struct Shown {
  char letter = '?';
  Colour colour = Colour::none;
  std::int64_t from_s = 0, until_s = 0;
  const Json* document = nullptr;
};

char letter_of(std::size_t i) {
  return i < 26 ? static_cast<char>('A' + i) : i < 52 ? static_cast<char>('a' + i - 26) : '*';
}

std::string day_name(std::int64_t at_s) {
  const std::time_t t = static_cast<std::time_t>(at_s);
  std::tm tm{};
  ::localtime_r(&t, &tm);
  char text[32];
  const std::size_t n = std::strftime(text, sizeof text, "%a %d %b", &tm);
  return {text, n};
}

// Writes text over a line of blanks if there is space for it.
void lay(std::string& line, std::size_t at, std::string_view text) {
  if (at + text.size() > line.size())
    return;
  for (std::size_t i = 0; i <= text.size() && at + i < line.size(); ++i)
    if (line[at + i] != ' ')
      return;
  line.replace(at, text.size(), text);
}

// The columns of the calendar: where they begin and how long one is.
struct Grid {
  std::int64_t begin_s = 0, cell_s = 0;
  std::int64_t zone_s = 0;  // local time minus UTC, at its begin
  std::size_t cells = 1;
  std::int64_t at(std::size_t cell) const {
    return begin_s + static_cast<std::int64_t>(cell) * cell_s;
  }
};

// A cell is the smallest part of a day with which the days fit into the columns.
Grid grid_for(WallTime now, int days, std::size_t columns) {
  Grid grid;
  for (const std::int64_t candidate :
       {hour_s / 2, hour_s, 2 * hour_s, 3 * hour_s, 4 * hour_s, 6 * hour_s, 12 * hour_s,
        24 * hour_s, 48 * hour_s, 168 * hour_s}) {
    grid.cell_s = candidate;
    if (static_cast<std::size_t>(days * 24 * hour_s / candidate) <= columns)
      break;
  }
  grid.zone_s = zone_offset_s(now);
  grid.begin_s = (now.ns / 1'000'000'000 + grid.zone_s) / grid.cell_s * grid.cell_s - grid.zone_s;
  grid.cells =
      static_cast<std::size_t>(std::max<std::int64_t>(1, days * 24 * hour_s / grid.cell_s));
  return grid;
}

std::string heading(const Grid& grid, std::size_t name_width) {
  std::string dates(grid.cells, ' '), hours(grid.cells, ' ');
  for (std::size_t c = 0; c < grid.cells; ++c) {
    const std::int64_t at = grid.at(c) + grid.zone_s;
    if (c > 0 && at % (24 * hour_s) < grid.cell_s)
      lay(dates, c, day_name(grid.at(c)));
    if (grid.cell_s < 24 * hour_s &&
        at % (std::max<std::int64_t>(6 * hour_s, 4 * grid.cell_s)) < grid.cell_s)
      lay(hours, c, fmt::format("{:02}", at % (24 * hour_s) / hour_s));
  }
  // The first day comes last: where there is no space for its name, the second day keeps its own.
  lay(dates, 0, day_name(grid.begin_s));
  return fmt::format("{:<{}}  {}\n{:<{}}  {}\n", zone_name({grid.begin_s * 1'000'000'000}),
                     name_width, dates, "", name_width, hours);
}

std::string node_line(const std::string& name,
                      const std::vector<Shown>& shown,
                      const Grid& grid,
                      const Look& look) {
  std::string line;
  for (std::size_t c = 0; c < grid.cells; ++c) {
    const std::int64_t from = grid.at(c), until = from + grid.cell_s;
    const Shown* one = nullptr;
    bool several = false;
    for (const Shown& s : shown) {
      if (s.from_s >= until || s.until_s <= from)
        continue;
      const auto& places = (*s.document)["places"].items();
      if (std::ranges::none_of(places, [&](const Json& p) { return p["node"].str_or("") == name; }))
        continue;
      several = several || one != nullptr;
      one = &s;
    }
    if (!one)
      line += painted("\u00b7", Colour::dim, look);
    else
      line += several ? "#" : painted(std::string(1, one->letter), one->colour, look);
  }
  return line;
}

std::string legend(const std::vector<Shown>& shown,
                   const Grid& grid,
                   WallTime now,
                   const Look& look) {
  std::string out =
      fmt::format("\neach column is {}; {} free, # several reservations, a letter {}\n",
                  format_duration(seconds(grid.cell_s)), painted("\u00b7", Colour::dim, look),
                  shown.empty() ? "one" : "one of these:");
  if (shown.empty())
    out += "there are no reservations\n";
  for (const Shown& s : shown) {
    const Json& r = *s.document;
    const std::string name(r["name"].str_or(""));
    out += fmt::format("{}  reservation {}{}: {:g} GPU{} for {}, from {}, until {}\n",
                       painted(std::string(1, s.letter), s.colour, look), r["id"].uint_or(0),
                       name.empty() ? "" : " (" + printable(name) + ")",
                       static_cast<double>(r["gpu_milli"].int_or(0)) / 1000,
                       r["gpu_milli"].int_or(0) == 1000 ? "" : "s", r["project"].str_or("?"),
                       time_text(r["from"], now, "?"), time_text(r["until"], now, "?"));
  }
  return out;
}

}  // namespace

std::string calendar_text(const std::vector<Json>& nodes,
                          const std::vector<Json>& reservations,
                          WallTime now,
                          int days,
                          const Look& look) {
  std::vector<Shown> shown;
  for (const Json& r : reservations) {
    const std::size_t i = shown.size();
    shown.push_back({letter_of(i), tints[i % std::size(tints)],
                     utc_or_zero(r["from"].str_or("")).ns / 1'000'000'000,
                     utc_or_zero(r["until"].str_or("")).ns / 1'000'000'000, &r});
  }
  std::size_t name_width = 4;
  for (const Json& n : nodes)
    name_width = std::max(name_width, display_width(n["name"].str_or("?")));
  name_width = std::min<std::size_t>(name_width, 24);
  const Grid grid =
      grid_for(now, days, look.columns > name_width + 20 ? look.columns - name_width - 3 : 96);
  std::string out = heading(grid, name_width);
  for (const Json& n : nodes) {
    const std::string name(n["name"].str_or("?")), label = clipped(name, name_width);
    out += label + std::string(name_width - std::min(name_width, display_width(label)), ' ') +
           "  " + node_line(name, shown, grid, look) + "\n";
  }
  if (nodes.empty())
    out += "no node has joined yet\n";
  return out + legend(shown, grid, now, look);
}

}  // namespace billow::client
