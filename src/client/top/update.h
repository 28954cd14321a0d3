// The parts of update(): keys of lists and pages, actions and their answers, logs, and what the
// screen needs from the head.
#pragma once

#include "client/top/state.h"

namespace billow::client::top {

void say_message(State& state, std::string text, bool bad);

// update_keys.cpp
void on_key(State& state, const Key& key, Effects& out);
void on_mouse(State& state, const Mouse& mouse, Effects& out);
void on_paste(State& state, const Paste& paste);
void settle(State& state);  // the cursor on its item, the rows around it on the screen

// update_actions.cpp
void ask_to_stop(State& state);
void ask_to_suspend(State& state);
void ask_to_resume(State& state);
void ask_to_drain(State& state, bool whole_node);
void on_acted(State& state, const Acted& acted);

// update_log.cpp
void open_page(State& state, Page::Kind kind, const Subject& about);
void on_log_key(State& state, const Key& key);
void scroll_log(State& state, int lines);
void search_log(State& state, bool down, bool from_here);
void on_log_read(State& state, const LogRead& read);
void want_log(State& state, Effects& out);

// update_wants.cpp
void ask_for_what_is_shown(State& state, Effects& out);
void on_fetched(State& state, const Fetched& fetched);

}  // namespace billow::client::top
