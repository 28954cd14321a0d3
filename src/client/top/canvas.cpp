#include "client/top/canvas.h"

#include <algorithm>

#include "base/text.h"

namespace billow::client::top {
namespace {

constexpr std::size_t cell_bytes_max = 32;  // a character and the marks that combine with it

// What stands for a character where only ASCII is shown.
std::string_view ascii_of(std::string_view letter) {
  static constexpr std::pair<std::string_view, std::string_view> known[] = {
      {"…", "~"}, {"×", "x"}, {"·", "-"}, {"–", "-"}, {"│", "|"}, {"─", "-"},
      {"°", " "}, {"▲", "^"}, {"▼", "v"}, {"€", "E"}, {"➤", ">"}};
  for (const auto& [from, to] : known)
    if (letter == from)
      return to;
  return "?";
}

const char* colour_escape(Colour colour) {
  switch (colour) {
    case Colour::none:
      return "";
    case Colour::dim:
      return ";2";
    case Colour::bold:
      return ";1";
    case Colour::red:
      return ";31";
    case Colour::green:
      return ";32";
    case Colour::yellow:
      return ";33";
    case Colour::blue:
      return ";34";
    case Colour::cyan:
      return ";36";
  }
  return "";
}

std::string escape_of(Style style, bool colours) {
  std::string out = "\x1b[0";
  if (style.bold)
    out += ";1";
  if (style.reverse)
    out += ";7";
  if (colours)
    out += colour_escape(style.colour);
  return out + "m";
}

}  // namespace

Canvas::Canvas(Size size, bool utf8)
    : size_{std::max(1, size.rows), std::max(1, size.cols)},
      utf8_(utf8),
      cells_(static_cast<std::size_t>(size_.rows * size_.cols)) {}

// Half a wide character cannot be shown: what is left of it becomes a space.
void Canvas::clear_halves(int row, int col) {
  if (cell(row, col).text.empty() && col > 0)
    cell(row, col - 1).text = " ";
  if (col + 1 < size_.cols && cell(row, col + 1).text.empty())
    cell(row, col + 1).text = " ";
}

int Canvas::put(int row, int col, std::string_view raw, Style style, int width) {
  if (row < 0 || row >= size_.rows || col < 0 || col >= size_.cols || width == 0)
    return 0;
  const int room = width < 0 ? size_.cols - col : std::min(width, size_.cols - col);
  const std::string text = clipped(raw, static_cast<std::size_t>(room));
  int at = col;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = std::max<std::size_t>(1, utf8_letter(text, i));
    std::string_view letter = std::string_view(text).substr(i, bytes);
    i += bytes;
    int wide = columns_wide(letter);
    if (!utf8_ && bytes > 1 && wide > 0) {
      letter = ascii_of(letter);
      wide = 1;
    } else if (!utf8_ && bytes > 1) {
      continue;
    }
    if (wide == 0) {
      if (at > col && cell(row, at - 1).text.size() + bytes <= cell_bytes_max)
        cell(row, at - 1).text += letter;
      continue;
    }
    if (at + wide > col + room)
      break;
    for (int k = 0; k < wide; ++k) {
      clear_halves(row, at + k);
      cell(row, at + k) = {k == 0 ? std::string(letter) : std::string(), style};
    }
    at += wide;
  }
  return at - col;
}

void Canvas::put_right(int row, int col, std::string_view text, Style style, int width) {
  put(row, col + std::max(0, width - columns_wide(printable(text))), text, style,
      std::min(width, columns_wide(printable(text))));
}

void Canvas::reverse_row(int row) {
  if (row < 0 || row >= size_.rows)
    return;
  for (int col = 0; col < size_.cols; ++col) {
    Cell& c = cell(row, col);
    // Dim letters on a reversed line are hard to read.
    c.style = {c.style.colour == Colour::dim ? Colour::none : c.style.colour, c.style.bold, true};
  }
}

void Canvas::clear_row(int row) {
  if (row < 0 || row >= size_.rows)
    return;
  for (int col = 0; col < size_.cols; ++col)
    cell(row, col) = {};
}

void Canvas::restyle(int row, int col, int width, Style style) {
  if (row < 0 || row >= size_.rows)
    return;
  for (int i = std::max(0, col); i < std::min(size_.cols, col + width); ++i)
    cell(row, i).style = style;
}

std::string Canvas::line(int row) const {
  std::string out;
  for (int col = 0; col < size_.cols; ++col)
    out += cell(row, col).text;
  while (out.ends_with(' '))
    out.pop_back();
  return out;
}

std::string Canvas::painted_line(int row, bool colours) const {
  // Trailing plain spaces are left to "erase to the end of the line".
  int last = size_.cols;
  while (last > 0 && cell(row, last - 1) == Cell{})
    --last;
  std::string out;
  Style now;
  for (int col = 0; col < last; ++col) {
    const Cell& c = cell(row, col);
    if (c.text.empty())
      continue;
    if (c.style != now)
      out += escape_of(c.style, colours);
    now = c.style;
    out += c.text;
  }
  if (now != Style{})
    out += "\x1b[0m";
  return out;
}

bool Canvas::same_line(const Canvas& other, int row) const {
  return std::equal(&cell(row, 0), &cell(row, 0) + size_.cols, &other.cell(row, 0));
}

}  // namespace billow::client::top
