// The command table. Each room with commands has functions that append them to it;
// client_commands() calls those in the order of `billow help`. To add commands, write such a
// function and name it there. Commands that are part of a server (head, agent, gateway) live in
// src/server; a client-only build leaves them out.
#pragma once

#include <string>
#include <vector>

#include "client/frame/command.h"

namespace billow::client {

using CommandTable = std::vector<CommandSpec>;

void add_run_commands(CommandTable& table);          // run, shell, attach
void add_submit_commands(CommandTable& table);       // submit
void add_job_commands(CommandTable& table);          // ps, describe, explain, wait, stop
void add_label_commands(CommandTable& table);        // label
void add_log_commands(CommandTable& table);          // logs
void add_forward_commands(CommandTable& table);      // port-forward, ssh, ssh-config, ssh-proxy
void add_schedule_commands(CommandTable& table);     // schedule add, list, rm
void add_environment_commands(CommandTable& table);  // env save, list, show, rm
void add_rerun_commands(CommandTable& table);        // rerun, restart
void add_file_commands(CommandTable& table);         // cp
void add_cluster_commands(CommandTable& table);      // status, nodes, drain, undrain, events
void add_cloud_commands(CommandTable& table);        // cloud add, list, check, prices, sweep, rm
void add_pool_commands(CommandTable& table);         // pool add, list, rm; machine release
void add_check_commands(CommandTable& table);        // check
void add_top_commands(CommandTable& table);          // top
void add_volume_commands(CommandTable& table);       // volume
void add_reserve_commands(CommandTable& table);      // reserve …, calendar, project set
void add_login_commands(CommandTable& table);        // node rm, login, logout, context, dashboard
void add_access_commands(CommandTable& table);       // project, user
void add_token_commands(CommandTable& table);        // token create, list, rotate, …; approvals
void add_role_commands(CommandTable& table);         // role create, list, delete
void add_backend_commands(CommandTable& table);      // secret-backend add, list, check, remove
void add_secret_commands(CommandTable& table);       // secret set, list, rm
void add_notify_commands(CommandTable& table);       // notify add, list, set, test, confirm, rm
void add_audit_commands(CommandTable& table);        // audit export, verify
void add_quota_commands(CommandTable& table);        // quota set, list, rm
void add_config_commands(CommandTable& table);       // config set, list
void add_cost_commands(CommandTable& table);         // cost, waste, invoice, anomalies, bill, month
void add_budget_commands(CommandTable& table);       // budget set, show, rm
void add_price_commands(CommandTable& table);        // price set, set-onprem, list, rm
void add_idle_commands(CommandTable& table);         // idle set, show; keepalive
void add_webhook_commands(CommandTable& table);      // webhook add, list, rm, test
void add_commitment_commands(CommandTable& table);   // commitment set, list, rm; project tag
void add_advise_commands(CommandTable& table);       // advise, prices, plan
void add_price_list_commands(CommandTable& table);   // prices
void add_plan_commands(CommandTable& table);         // plan
void add_profile_commands(CommandTable& table);      // profile, compare
void add_compare_commands(CommandTable& table);      // compare
void add_loadtest_commands(CommandTable& table);     // loadtest
void add_endpoint_commands(CommandTable& table);     // deploy, endpoints, scale, rollback, delete
void add_deploy_commands(CommandTable& table);       // deploy
void add_release_commands(CommandTable& table);      // traffic, promote
void add_gateway_list_commands(CommandTable& table);  // gateways
void add_front_door_commands(CommandTable& table);    // model, domain, endpoint-limits
void add_mcp_commands(CommandTable& table);           // mcp
void add_docs_commands(CommandTable& table);          // docs
void add_python_commands(CommandTable& table);        // map, notebook, sdk install
void add_meta_commands(CommandTable& table);          // completion, version, help

int schedule_add(const Parsed& parsed);  // shares its way with `submit --cron`

// Those that need only a head to ask, wherever it is.
CommandTable client_commands();
// Every command of this program, and whether it can start a head. Defined twice: in server/ for the
// whole program, in client_only/.
CommandTable all_commands();
bool can_start_head();
// docs/rights.md; empty: this program is only a client.
std::string rights_page();
// Whether a head on this machine would have GPUs, real or simulated. An error says what to do
// without.
Status machine_has_gpus();
// `cloud providers --check`: reads provider files on this machine. A client alone cannot.
int check_provider_files(const Parsed& parsed);
// `cloud head aws`: moves the head of this machine to a small instance. A client alone cannot.
int move_head_to_aws(const Parsed& parsed);
// The name of the server's command these words begin with, whether this program has it or not;
// empty where they are none.
std::string server_command(const std::vector<std::string>& words);
std::vector<std::string> server_command_names();

const char* version();

// Chooses by the first words and runs it. Options of the head may come before the command: billow
// --data DIR ps.
int dispatch(const CommandTable& table, std::vector<std::string> args);

}  // namespace billow::client
