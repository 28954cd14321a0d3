// The commands that are a part of the server: they start heads, agents and gateways, prepare jobs
// on a node, or work on a head's files.
#pragma once

#include "client/frame/commands.h"

namespace billow::client {

void add_head_commands(CommandTable& table);          // up, down, agent
void add_doctor_commands(CommandTable& table);        // doctor
void add_join_commands(CommandTable& table);          // join
void add_install_commands(CommandTable& table);       // install kubernetes
void add_installation_commands(CommandTable& table);  // upgrade, uninstall
void add_gateway_commands(CommandTable& table);       // gateway
void add_gpu_check_commands(CommandTable& table);     // check gpus
void add_image_commands(CommandTable& table);         // env create
void add_store_commands(CommandTable& table);         // store migrate, backup, restore
void add_simulate_commands(CommandTable& table);      // simulate openb, jobs, replay, endpoints
void add_rank_commands(CommandTable& table);          // ranks
void add_gang_shell_commands(CommandTable& table);    // rsh
void add_stage_commands(CommandTable& table);         // stage
void add_box_commands(CommandTable& table);           // box
void add_uplink_commands(CommandTable& table);        // uplink
void add_privileged_commands(CommandTable& table);    // privileged
void add_smi_commands(CommandTable& table);           // nvidia-smi

CommandTable server_commands();

// The database that --store, --store-file or the variables name; empty: none does.
Result<std::string> store_of(const Parsed& parsed, bool variables = true);

// Whether the head of this data directory answers on its socket, and where it listens.
bool answers(const std::string& data_dir, std::string& where);

}  // namespace billow::client
