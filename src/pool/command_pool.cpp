#include "pool/command_pool.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "pool/boot.h"
#include "pool/kinds.h"
#include "process/command.h"

namespace billow::pool {
namespace {

constexpr int signal_codes = 128;  // a shell's exit code for a signal is larger by so much

}  // namespace

Ordered CommandPool::want(const Order& order) {
  const std::string user_data =
      fmt::format("{}/{}.cloud-init", options_.work_dir, order.machine.name);
  if (const Status written = write_file_atomic(user_data, cloud_init(order, settings_), 0600);
      !written)
    return refusal(written.error());
  auto done = process::run_command({.argv = {"/bin/sh", "-c", settings_.create_command},
                                    .env = {{"BILLOW_MACHINE", order.machine.name},
                                            {"BILLOW_POOL", settings_.name},
                                            {"BILLOW_INSTALLATION", options_.installation},
                                            {"BILLOW_HEAD", order.head_url},
                                            {"BILLOW_TOKEN", order.token},
                                            {"BILLOW_GPUS", std::to_string(order.machine.gpus)},
                                            {"BILLOW_GPU_TYPE", settings_.gpu_type},
                                            {"BILLOW_USER_DATA", user_data},
                                            {"BILLOW_NODES", std::to_string(order.machine.nodes)}},
                                    .input = {},
                                    .timeout = patience_.create});
  ::unlink(user_data.c_str());  // it holds the join token
  if (!done)
    return refusal(std::move(done.error()).in("create"));
  // It was killed before it could say what it had done.
  if (const int number = done->code - signal_codes; number > 0 && number <= SIGRTMAX)
    return std::unexpected(Refusal{
        RefusalKind::no_answer, fmt::format("the create command was killed by signal {}", number)});
  if (done->code != 0)
    return std::unexpected(Refusal{RefusalKind::capacity, done->complaint()});
  return {};
}

Result<std::vector<MachineSighting>> CommandPool::nodes() {
  auto done = process::run_command(
      {.argv = {"/bin/sh", "-c", settings_.list_command},
       .env = {{"BILLOW_POOL", settings_.name}, {"BILLOW_INSTALLATION", options_.installation}},
       .input = {},
       .timeout = patience_.list});
  if (!done)
    return pass(done.error(), "list");
  if (done->code != 0)
    return fail(Code::unavailable, fmt::format("list: {}", done->complaint()));
  // A machine that is missing from a list counts as ended, so a part of a list is none.
  if (done->cut)
    return fail(Code::unavailable,
                fmt::format("list: it printed more than {} MiB; print the pool's machines only",
                            limits::pool_command_output_bytes_max >> 20));
  std::vector<MachineSighting> out;
  for (const std::string& line : split(done->out, '\n')) {
    const std::string_view text = trim(line);
    const auto space = text.find_first_of(" \t");
    MachineSighting seen;
    seen.name = text.substr(0, space);
    if (!named_after(seen.name, settings_.name))
      continue;
    const std::string_view rest =
        space == std::string_view::npos ? std::string_view{} : trim(text.substr(space));
    seen.external =
        rest.empty() ? seen.name : std::string(rest.substr(0, rest.find_first_of(" \t")));
    seen.note = std::string(utf8_prefix(rest, 200));
    out.push_back(std::move(seen));
  }
  return out;
}

Status CommandPool::release(const MachineSighting& machine) {
  // No list has shown it: the name stands for the id, as in a list without ids.
  const std::string& id = machine.external.empty() ? machine.name : machine.external;
  auto done = process::run_command({.argv = {"/bin/sh", "-c", settings_.delete_command},
                                    .env = {{"BILLOW_MACHINE", machine.name},
                                            {"BILLOW_EXTERNAL", id},
                                            {"BILLOW_POOL", settings_.name},
                                            {"BILLOW_INSTALLATION", options_.installation}},
                                    .input = {},
                                    .timeout = patience_.end});
  if (!done)
    return pass(done.error(), "delete");
  if (done->code != 0)
    return fail(Code::unavailable, fmt::format("delete {}: {}", machine.name, done->complaint()));
  return {};
}

namespace {

Status check_command_pool(const billow::Pool& settings) {
  if (settings.create_command.empty() || settings.list_command.empty() ||
      settings.delete_command.empty())
    return fail(Code::invalid, "a command pool needs three commands",
                "add --create CMD --list CMD --delete CMD");
  return {};
}

std::unique_ptr<Pool> make_command_pool(const billow::Pool& settings, const Options& options) {
  return std::make_unique<CommandPool>(settings, options);
}

}  // namespace

// The commands take a fixed machine size, make one node with each order, as their manual says, and
// often list a new machine late. (Pools of earlier versions get orders of several: BILLOW_NODES.)
const Kind command_kind = {
    .name = "command",
    .capabilities = {.sizes_to_demand = false,
                     .several_nodes_at_once = false,
                     .list_is_final = false,
                     .bills_from_order = true},
    .options = {},
    .token_life = hours(1),
    .check = check_command_pool,
    .make = make_command_pool,
};

}  // namespace billow::pool
