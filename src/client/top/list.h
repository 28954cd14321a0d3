// The rows of each tab: which there are, in which order, and what stands in their columns.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/top/columns.h"
#include "client/top/state.h"

namespace billow::client::top {

struct CellText {
  std::string text;
  Style style = {};
};
struct List {
  std::vector<Column> columns;
  std::vector<Subject> rows;
  // What stands in a row and column; `width` is for pictures.
  std::function<CellText(std::size_t row, std::size_t column, int width)> cell;
  const char* of = "row";  // "GPU", "job": what a row is
  std::size_t all = 0;     // without filter and choice
  std::string nothing;     // shown where there is no row
  std::vector<const char*> sorts;
  const char* show = nullptr;  // the choice of rows, where there is one
};
// Refers to the state.
List list_of(const State& state);
List gpu_list(const State& state);
List job_list(const State& state);
List queue_list(const State& state);
List endpoint_list(const State& state);
List money_list(const State& state);
inline constexpr int job_shows = 5;

// Whether one of the words of a row has the filter's text in it.
bool matches(const ListState& list, std::initializer_list<std::string_view> words);

}  // namespace billow::client::top
