#include <algorithm>

#include "client/top/list.h"
#include "client/top/update.h"

namespace billow::client::top {
namespace {

constexpr std::size_t typed_bytes_max = 120;
constexpr int wheel_rows = 3;

void choose_tab(State& state, int number) {
  state.tab = static_cast<Tab>((number % tab_count + tab_count) % tab_count);
  state.pages.clear();
}

void move_cursor(State& state, int rows) {
  const List list = list_of(state);
  if (list.rows.empty())
    return;
  ListState& at = state.list();
  at.index = std::clamp(at.index + rows, 0, static_cast<int>(list.rows.size()) - 1);
  at.at = list.rows[static_cast<std::size_t>(at.index)];
}

void choose_sort(State& state, int sort, bool same_reverses) {
  const List list = list_of(state);
  ListState& at = state.list();
  const int count = std::max(1, static_cast<int>(list.sorts.size()));
  if (same_reverses && at.sort == sort % count)
    at.reverse = !at.reverse;
  else
    at.reverse = false;
  at.sort = sort % count;
}

// The last character, whole.
void erase_letter(std::string& text) {
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80)
    text.pop_back();
  if (!text.empty())
    text.pop_back();
}

void show_typed(State& state) {
  if (state.typing == State::Typing::filter)
    state.list().filter = state.typed;
  else
    state.log.search = state.typed;
}

void on_typing(State& state, const Key& key) {
  if (key.name == KeyName::letter && state.typed.size() < typed_bytes_max) {
    state.typed += key.text;
  } else if (key.name == KeyName::backspace) {
    erase_letter(state.typed);
  } else if (key.name == KeyName::control && key.text == "u") {
    state.typed.clear();
  } else if (key.name == KeyName::escape) {
    state.typed.clear();
    show_typed(state);
    state.typing = State::Typing::none;
    return;
  } else if (key.name == KeyName::enter) {
    if (state.typing == State::Typing::search)
      search_log(state, true, true);
    state.typing = State::Typing::none;
    return;
  }
  show_typed(state);
}

void on_question(State& state, const Key& key, Effects& out) {
  if (key.name == KeyName::letter && key.text == "y") {
    state.acting = true;
    say_message(state, "asking the head …", false);
    out.push_back(Act{*state.question});
    state.question.reset();
    return;
  }
  state.question.reset();
  say_message(state, "nothing was changed", false);
}

// Keys that mean the same on lists and pages.
bool on_action_key(State& state, const std::string& letter) {
  if (letter == "s")
    ask_to_stop(state);
  else if (letter == "z")
    ask_to_suspend(state);
  else if (letter == "r")
    ask_to_resume(state);
  else if (letter == "d" || letter == "D")
    ask_to_drain(state, letter == "D");
  else if (letter == "l" || letter == "w") {
    const auto job = job_of_cursor(state);
    if (!job)
      say_message(state, job.error().message, true);
    else
      open_page(state, letter == "l" ? Page::Kind::log : Page::Kind::watch, *job);
  } else {
    return false;
  }
  return true;
}

int step_of(const State& state, const Key& key) {
  const int page = std::max(1, geometry(state).body_rows - 1);
  switch (key.name) {
    case KeyName::up:
      return -1;
    case KeyName::down:
      return 1;
    case KeyName::page_up:
      return -page;
    case KeyName::page_down:
      return page;
    case KeyName::home:
      return -1'000'000;
    case KeyName::end:
      return 1'000'000;
    case KeyName::control:
      return key.text == "f" ? page : key.text == "b" ? -page : 0;
    case KeyName::letter:
      return key.text == "j"   ? 1
             : key.text == "k" ? -1
             : key.text == " " ? page
             : key.text == "g" ? -1'000'000
             : key.text == "G" ? 1'000'000
                               : 0;
    case KeyName::enter:
    case KeyName::escape:
    case KeyName::tab:
    case KeyName::back_tab:
    case KeyName::backspace:
    case KeyName::left:
    case KeyName::right:
      return 0;
  }
  return 0;
}

void leave_page(State& state, Effects& out) {
  if (state.watching && state.pages.size() <= 1) {
    out.push_back(Quit{});
    return;
  }
  state.pages.pop_back();
}

void on_page_key(State& state, const Key& key, Effects& out) {
  Page& page = state.pages.back();
  if (key.name == KeyName::escape || key.name == KeyName::backspace ||
      (key.name == KeyName::letter && key.text == "q"))
    return leave_page(state, out);
  if (page.kind == Page::Kind::log)
    return on_log_key(state, key);
  if (const int step = step_of(state, key); step != 0 && page.kind == Page::Kind::describe) {
    page.top += step;
    return;
  }
  if (key.name == KeyName::enter && page.kind == Page::Kind::watch)
    return open_page(state, Page::Kind::describe, Subject(page.about));
  if (key.name == KeyName::letter)
    on_action_key(state, key.text);
}

// Keys that change what a list shows; false: none of them.
bool on_list_choice(State& state, const std::string& letter) {
  ListState& list = state.list();
  if (letter == "/") {
    state.typing = State::Typing::filter;
    state.typed.clear();
    list.filter.clear();
  } else if (letter == "o") {
    choose_sort(state, list.sort + 1, false);
  } else if (letter == "O") {
    list.reverse = !list.reverse;
  } else if (letter == "t" && state.tab == Tab::jobs) {
    list.show = (list.show + 1) % job_shows;
  } else if (letter == "i") {
    const bool idle = state.tab == Tab::jobs && list.show == 3;
    choose_tab(state, static_cast<int>(Tab::jobs));
    state.list().show = idle ? 0 : 3;
  } else if (letter == "n" && state.tab == Tab::gpus) {
    state.by_node = !state.folded();
  } else if (letter == "c") {
    state.pane = !state.pane;
  } else {
    return false;
  }
  return true;
}

void on_list_key(State& state, const Key& key, Effects& out) {
  if (const int step = step_of(state, key); step != 0)
    return move_cursor(state, step);
  const int tab = static_cast<int>(state.tab);
  if (key.name == KeyName::tab || key.name == KeyName::right)
    return choose_tab(state, tab + 1);
  if (key.name == KeyName::back_tab || key.name == KeyName::left)
    return choose_tab(state, tab - 1);
  if (key.name == KeyName::enter) {
    if (const Subject about = cursor(state); about.kind != Subject::Kind::none)
      open_page(state, Page::Kind::describe, about);
    return;
  }
  if (key.name == KeyName::escape) {
    state.list().filter.clear();
    state.list().show = 0;
    return;
  }
  if (key.name != KeyName::letter)
    return;
  if (key.text == "q" || key.text == "Q")
    out.push_back(Quit{});
  else if (key.text.size() == 1 && key.text[0] >= '1' && key.text[0] < '1' + tab_count)
    choose_tab(state, key.text[0] - '1');
  else if (!on_list_choice(state, key.text))
    on_action_key(state, key.text);
}

void on_click(State& state, const Mouse& mouse) {
  const Screen screen = draw(state);
  for (const Hit& hit : screen.hits) {
    if (mouse.row != hit.row || mouse.col < hit.col || mouse.col >= hit.col + hit.width)
      continue;
    switch (hit.kind) {
      case Hit::Kind::tab:
        choose_tab(state, hit.number);
        return;
      case Hit::Kind::title:
        choose_sort(state, hit.number, true);
        return;
      case Hit::Kind::row:
        // A second click opens the row.
        if (state.list().index == hit.number)
          open_page(state, Page::Kind::describe, cursor(state));
        else
          move_cursor(state, hit.number - state.list().index);
        return;
    }
  }
}

}  // namespace

Subject cursor(const State& state) {
  return state.pages.empty() ? state.list().at : state.pages.back().about;
}

void on_key(State& state, const Key& key, Effects& out) {
  if (key.name == KeyName::control && (key.text == "c" || (key.text == "d" && !state.question))) {
    out.push_back(Quit{});
    return;
  }
  if (key.name == KeyName::control && key.text == "z") {
    out.push_back(PauseProgram{});
    return;
  }
  if (state.question)
    return on_question(state, key, out);
  if (!state.acting)
    state.message.clear();
  if (state.typing != State::Typing::none)
    return on_typing(state, key);
  if (state.help) {
    state.help = false;
    return;
  }
  if (key.name == KeyName::letter && key.text == "?") {
    state.help = true;
    return;
  }
  if (state.pages.empty())
    on_list_key(state, key, out);
  else
    on_page_key(state, key, out);
}

void on_mouse(State& state, const Mouse& mouse, Effects&) {
  if (state.question || state.typing != State::Typing::none)
    return;
  if (state.help) {
    state.help = false;
    return;
  }
  const int step = mouse.kind == Mouse::Kind::wheel_up     ? -wheel_rows
                   : mouse.kind == Mouse::Kind::wheel_down ? wheel_rows
                                                           : 0;
  if (step == 0)
    return on_click(state, mouse);
  if (state.pages.empty())
    return move_cursor(state, step);
  if (state.pages.back().kind == Page::Kind::log)
    return scroll_log(state, step);
  state.pages.back().top += step;
}

// Pasted text belongs into what is being typed, never among the keys.
void on_paste(State& state, const Paste& paste) {
  if (state.typing == State::Typing::none)
    return;
  for (const char c : printable(paste.text.substr(0, paste.text.find_first_of("\r\n"))))
    if (state.typed.size() < typed_bytes_max)
      state.typed += c;
  while (!state.typed.empty() && display_width(state.typed) == 0)
    erase_letter(state.typed);
  show_typed(state);
}

void settle(State& state) {
  if (!state.pages.empty()) {
    Page& page = state.pages.back();
    const int lines = page.kind == Page::Kind::describe
                          ? static_cast<int>(describe_lines(state, page.about).size())
                          : 0;
    page.top = std::clamp(page.top, 0, std::max(0, lines - describe_rows(state)));
    return;
  }
  const List list = list_of(state);
  ListState& at = state.list();
  const int count = static_cast<int>(list.rows.size());
  if (count == 0) {
    at.index = at.top = 0;
    at.at = {};
    return;
  }
  const auto found = std::ranges::find(list.rows, at.at);
  at.index = found != list.rows.end() ? static_cast<int>(found - list.rows.begin())
                                      : std::clamp(at.index, 0, count - 1);
  at.at = list.rows[static_cast<std::size_t>(at.index)];
  const int rows = std::max(1, geometry(state).body_rows);
  at.top = std::clamp(at.top, at.index - rows + 1, at.index);
  at.top = std::clamp(at.top, 0, std::max(0, count - rows));
}

}  // namespace billow::client::top
