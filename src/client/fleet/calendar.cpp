#include "client/fleet/calendar.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/text.h"

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
  ::gmtime_r(&t, &tm);
  char text[32];
  const std::size_t n = std::strftime(text, sizeof text, "%a %d %b", &tm);
  return {text, n};
}

// Text laid over a line of blanks, where there is room for it.
void lay(std::string& line, std::size_t at, std::string_view text) {
  if (at + text.size() > line.size())
    return;
  for (std::size_t i = 0; i <= text.size() && at + i < line.size(); ++i)
    if (line[at + i] != ' ')
      return;
  line.replace(at, text.size(), text);
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
                     parse_utc(r["from"].str_or("")).ns / 1'000'000'000,
                     parse_utc(r["until"].str_or("")).ns / 1'000'000'000, &r});
  }
  std::size_t name_width = 4;
  for (const Json& n : nodes)
    name_width = std::max(name_width, display_width(n["name"].str_or("?")));
  name_width = std::min<std::size_t>(name_width, 24);
  const std::size_t room = look.columns > name_width + 20 ? look.columns - name_width - 3 : 96;
  // A cell is the smallest whole part of a day that lets the days fit.
  std::int64_t cell_s = hour_s / 2;
  for (const std::int64_t candidate :
       {hour_s / 2, hour_s, 2 * hour_s, 3 * hour_s, 4 * hour_s, 6 * hour_s, 12 * hour_s,
        24 * hour_s, 48 * hour_s, 168 * hour_s}) {
    cell_s = candidate;
    if (static_cast<std::size_t>(days * 24 * hour_s / cell_s) <= room)
      break;
  }
  const std::int64_t begin_s = now.ns / 1'000'000'000 / cell_s * cell_s;
  const auto cells =
      static_cast<std::size_t>(std::max<std::int64_t>(1, days * 24 * hour_s / cell_s));
  std::string dates(cells, ' '), hours(cells, ' ');
  for (std::size_t c = 0; c < cells; ++c) {
    const std::int64_t at = begin_s + static_cast<std::int64_t>(c) * cell_s;
    if (c > 0 && at % (24 * hour_s) < cell_s)
      lay(dates, c, day_name(at));
    if (cell_s < 24 * hour_s && at % (std::max<std::int64_t>(6 * hour_s, 4 * cell_s)) < cell_s)
      lay(hours, c, fmt::format("{:02}", at % (24 * hour_s) / hour_s));
  }
  lay(dates, 0, day_name(begin_s));  // after the others: where the first day has no room for its
                                     // name, the second shall have it
  std::string out =
      fmt::format("{:<{}}  {}\n{:<{}}  {}\n", "UTC", name_width, dates, "", name_width, hours);
  for (const Json& n : nodes) {
    const std::string name(n["name"].str_or("?"));
    std::string line;
    for (std::size_t c = 0; c < cells; ++c) {
      const std::int64_t from = begin_s + static_cast<std::int64_t>(c) * cell_s,
                         until = from + cell_s;
      const Shown* one = nullptr;
      bool several = false;
      for (const Shown& s : shown) {
        if (s.from_s >= until || s.until_s <= from)
          continue;
        const auto& places = (*s.document)["places"].items();
        if (std::ranges::none_of(places,
                                 [&](const Json& p) { return p["node"].str_or("") == name; }))
          continue;
        several = several || one != nullptr;
        one = &s;
      }
      line += !one      ? painted("\u00b7", Colour::dim, look)
              : several ? std::string("#")
                        : painted(std::string(1, one->letter), one->colour, look);
    }
    const std::string label = clipped(name, name_width);
    out += label + std::string(name_width - std::min(name_width, display_width(label)), ' ') +
           "  " + line + "\n";
  }
  if (nodes.empty())
    out += "no node has joined yet\n";
  out += fmt::format("\none column is {}; {} free, # several reservations, a letter {}\n",
                     format_duration(seconds(cell_s)), painted("\u00b7", Colour::dim, look),
                     shown.empty() ? "one" : "one of these:");
  if (shown.empty())
    out += "nothing is reserved\n";
  for (const Shown& s : shown) {
    const Json& r = *s.document;
    const std::string name(r["name"].str_or(""));
    out += fmt::format("{}  reservation {}{}: {:g} GPU{} for {}, {} \u2013 {}\n",
                       painted(std::string(1, s.letter), s.colour, look), r["id"].uint_or(0),
                       name.empty() ? "" : " (" + printable(name) + ")",
                       static_cast<double>(r["gpu_milli"].int_or(0)) / 1000,
                       r["gpu_milli"].int_or(0) == 1000 ? "" : "s", r["project"].str_or("?"),
                       r["from"].str_or("?"), r["until"].str_or("?"));
  }
  return out;
}

}  // namespace billow::client
