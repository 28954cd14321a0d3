// Tables and the words in them: aligned columns that fit the terminal, colours where a person
// looks, and numbers as people say them. All of it is a function of its input and a Look, so that
// tests can hold it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"

namespace billow::client {

enum class Colour { none, dim, bold, red, green, yellow, blue, cyan };

// Where text goes to: how wide it is, and whether it shows colours.
struct Look {
  bool colours = false;
  bool terminal = false;
  std::size_t columns = 0;  // 0: without limit
};
// Of a descriptor: a terminal has its width (COLUMNS goes first) and, unless NO_COLOR is set or
// TERM is dumb, colours.
Look look_at(int fd);

std::string painted(std::string_view text, Colour colour, const Look& look);
Colour colour_of_state(std::string_view state);

// Columns that text takes on a terminal: code points without combining ones, wide ones twice.
std::size_t display_width(std::string_view text);
// At most `columns` wide, with "…" where something was cut. Control characters become '?': a job's
// name must not move the cursor.
std::string clipped(std::string_view text, std::size_t columns);
std::string printable(std::string_view text);

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
    std::size_t shrinks_to =
        0;         // may be cut down to this width when the line does not fit; 0: never
    int goes = 0;  // left out where that is not enough: 1 first, then 2 …; 0: never
  };
  struct Cell {
    std::string text;
    Colour colour = Colour::none;
    Cell(std::string t) : text(std::move(t)) {}
    Cell(const char* t) : text(t) {}
    Cell(std::string t, Colour c) : text(std::move(t)), colour(c) {}
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void row(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  // Amounts of one column of dollars get the same number of decimals, so that they can be compared.
  std::string text(const Look& look) const;

 private:
  std::vector<std::size_t> widths(const Look& look) const;
  bool fits(const Look& look, const std::vector<std::size_t>& width) const;
  Table without(std::size_t column) const;
  void align_dollars();
  std::string laid_out(const Look& look) const;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

std::string age(const Json& since, WallTime now);                          // "5m 3s"; "-" for null
std::string span_between(const Json& from, const Json& to, WallTime now);  // `to` null: until now
// Amounts of dollars that are shown below each other, with the decimals that the largest asks for:
// two from a cent up, else four or as many as show two digits of it. An amount too small for them
// is "<$0.01". Other cells stay as they are; if one is neither an amount nor "-" or empty, all do.
std::vector<std::string> aligned_usd(std::vector<std::string> cells);
std::string usd_text(const Json& nano);   // "$1.23"
std::string mebibytes(std::int64_t mib);  // "80 GiB"
// "2×H100", "0.25 GPU", "-": what a job document asks for.
std::string gpus_of_job(const Json& job);

}  // namespace billow::client
