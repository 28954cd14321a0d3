// The commands there are. Each part of the house that brings commands has one function that appends
// them to the table; client_commands() calls them in the order of `billow help`. To add commands,
// write such a function and name it there. Commands that are a part of the server (a head, an
// agent, what they start) are in cli/server; a client alone is built without them.
#pragma once

#include <string>
#include <vector>

#include "client/frame/command.h"

namespace billow::client {

using CommandTable = std::vector<CommandSpec>;

void add_run_commands(CommandTable& table);       // run, submit, shell, attach
void add_job_commands(CommandTable& table);       // ps, describe, explain, wait, stop
void add_cluster_commands(CommandTable& table);   // status, nodes, drain, undrain, events
void add_log_commands(CommandTable& table);       // logs
void add_top_commands(CommandTable& table);       // top
void add_schedule_commands(CommandTable& table);  // schedule add, list, rm
void add_access_commands(CommandTable& table);    // project, user, token
void add_reserve_commands(
    CommandTable& table);  // reserve, reserve list, calendar, cancel; project set
void add_login_commands(CommandTable& table);   // node rm, login, logout, context, dashboard
void add_pool_commands(CommandTable& table);    // pool add, list, rm; machine release
void add_advise_commands(CommandTable& table);  // advise, prices, plan
void add_endpoint_commands(
    CommandTable& table);  // deploy, endpoints, scale, rollback, delete, endpoint-key
void add_cost_commands(CommandTable& table);  // cost, waste, invoice, anomalies, bill, month
void add_money_commands(
    CommandTable& table);  // budget, price, idle, keepalive, webhook, commitment
void add_profile_commands(CommandTable& table);      // profile, compare
void add_loadtest_commands(CommandTable& table);     // loadtest
void add_environment_commands(CommandTable& table);  // env save, list, show, rm; rerun
void add_meta_commands(CommandTable& table);         // completion, version, help

int schedule_add(const Parsed& parsed);  // shares its way with `submit --cron`

// Those that need only a head to ask, wherever it is.
CommandTable client_commands();
// Every command of this program, and whether it can start a head. Defined twice: in server/ for the
// whole program, in client_only/.
CommandTable all_commands();
bool can_start_head();
// The name of the server's command these words begin with, whether this program has it or not;
// empty where they are none.
std::string server_command(const std::vector<std::string>& words);
std::vector<std::string> server_command_names();

const char* version();

// Chooses by the first words and runs it. Options of the head may come before the command: billow
// --data DIR ps.
int dispatch(const CommandTable& table, std::vector<std::string> args);

}  // namespace billow::client
