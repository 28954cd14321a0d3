// The heads of this user on this machine, wherever their data lies. A head that is started with
// --data leaves a pointer in the user's state directory, so that commands without --data find it
// instead of starting a second one that would give the same GPUs out again.
//
// A pointer is believed while the locks in the data directory it names are held on this boot of
// this machine: the head's, or that of its agent, which outlives a head that was killed (the head
// is then started again there, not elsewhere).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace billow::client {

struct LocalHead {
  std::string data_dir;
  std::string address;        // where it listens; empty: its socket alone
  bool machine_gpus = false;  // it gives out this machine's own GPUs, not simulated ones
};

// Where the head of this data directory leaves its pointer; empty where this user has no place for
// one.
std::string pointer_path(const std::string& data_dir);
// Data directories on which heads of this user were started and that still exist, so that
// `billow uninstall` can name them wherever they are.
void remember_data_directory(const std::string& data_dir);
std::vector<std::string> known_data_directories();
// Those that run. What is left of others is cleared away.
std::vector<LocalHead> running_heads();
// Whether a head, or the agent it left, runs on this data directory.
bool head_lives_in(const std::string& data_dir);

// Whether --data or BILLOW_DATA says where.
bool data_is_named(const std::string& option);
// The data directory that is meant: the one that is named (--data, BILLOW_DATA), else the default
// one, unless nothing runs there and a head of this user runs elsewhere. Several of those are an
// error that says where they are.
Result<std::string> meant_data_directory(const std::string& option);

}  // namespace billow::client
