// Commands of the form "ask the head, then show": one way for all of them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "client/frame/client.h"
#include "client/frame/console.h"
#include "client/frame/table.h"

namespace billow::client {

// Asks, and shows the answer as JSON or by `show`.
int ask(const Parsed& parsed,
        const std::function<Result<Json>(Client&)>& call,
        const std::function<void(const Json&)>& show);
// Whether the GPUs of this installation are simulated: what it charges is no real money, and what
// it measures no real speed.
bool gpus_are_simulated(Client& client);
// The list of this name in an answer.
std::vector<Json> list_in(const Json& answer, std::string_view name);
void show_table(const Table& table, std::string_view nothing);

}  // namespace billow::client
