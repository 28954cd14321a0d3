// The commands there are. Each part of the house that brings commands has one function that appends them to the table;
// all_commands() calls them in the order of `billow help`. To add commands, write such a function and name it there.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace billow::cli {

using CommandTable = std::vector<CommandSpec>;

void add_run_commands(CommandTable& table);       // run, submit, shell, attach
void add_job_commands(CommandTable& table);       // ps, describe, explain, wait, stop
void add_cluster_commands(CommandTable& table);   // status, nodes, drain, undrain, events
void add_log_commands(CommandTable& table);       // logs
void add_top_commands(CommandTable& table);       // top
void add_schedule_commands(CommandTable& table);  // schedule add, list, rm
void add_access_commands(CommandTable& table);    // project, user, token
void add_reserve_commands(CommandTable& table);   // reserve, reserve list, calendar, cancel; project set
void add_head_commands(CommandTable& table);      // up, down, dashboard, doctor, agent
void add_join_commands(CommandTable& table);      // join, node rm, login, logout, context
void add_pool_commands(CommandTable& table);      // pool add, list, rm; machine release
void add_advise_commands(CommandTable& table);    // advise, prices, plan, simulate
void add_endpoint_commands(CommandTable& table);  // simulate endpoints
void add_cost_commands(CommandTable& table);      // cost, waste, invoice, anomalies, bill, month
void add_money_commands(CommandTable& table);     // budget, price, idle, keepalive, webhook, commitment
void add_profile_commands(CommandTable& table);   // profile, compare
void add_loadtest_commands(CommandTable& table);  // loadtest
void add_rank_commands(CommandTable& table);      // ranks
void add_box_commands(CommandTable& table);       // box
void add_environment_commands(CommandTable& table);  // env save, create, list, show, rm; rerun
void add_meta_commands(CommandTable& table);      // completion, version, help

int schedule_add(const Parsed& parsed);  // shares its way with `submit --cron`

CommandTable all_commands();
const char* version();

// Chooses by the first words and runs it. Options of the head may come before the command: billow --data DIR ps.
int dispatch(const CommandTable& table, std::vector<std::string> args);

}  // namespace billow::cli
