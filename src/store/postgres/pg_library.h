// libpq, loaded only for a PostgreSQL store: with the store in the data directory no such library
// is needed, and Billow stays one binary. Declares the part of libpq's documented C interface that
// is used here ("libpq — C Library"); pipelining needs version 14.
#pragma once

#include <string>

struct pg_conn;
struct pg_result;

namespace billow::pg {

struct Library {
  pg_conn* (*connect)(const char* const*, const char* const*, int) = nullptr;
  void (*finish)(pg_conn*) = nullptr;
  int (*status)(const pg_conn*) = nullptr;
  char* (*error_message)(const pg_conn*) = nullptr;
  int (*transaction_status)(const pg_conn*) = nullptr;
  pg_result* (*exec)(pg_conn*, const char*) = nullptr;
  pg_result* (*prepare)(pg_conn*, const char*, const char*, int, const unsigned*) = nullptr;
  pg_result* (*exec_prepared)(
      pg_conn*, const char*, int, const char* const*, const int*, const int*, int) = nullptr;
  int (*enter_pipeline)(pg_conn*) = nullptr;
  int (*pipeline_sync)(pg_conn*) = nullptr;
  int (*send_prepare)(pg_conn*, const char*, const char*, int, const unsigned*) = nullptr;
  int (*send_prepared)(
      pg_conn*, const char*, int, const char* const*, const int*, const int*, int) = nullptr;
  pg_result* (*get_result)(pg_conn*) = nullptr;
  int (*put_copy_data)(pg_conn*, const char*, int) = nullptr;
  int (*put_copy_end)(pg_conn*, const char*) = nullptr;
  int (*get_copy_data)(pg_conn*, char**, int) = nullptr;
  void (*free_memory)(void*) = nullptr;
  int (*result_status)(const pg_result*) = nullptr;
  char* (*result_error_field)(const pg_result*, int) = nullptr;
  char* (*result_error)(const pg_result*) = nullptr;
  int (*ntuples)(const pg_result*) = nullptr;
  char* (*getvalue)(const pg_result*, int, int) = nullptr;
  int (*getlength)(const pg_result*, int, int) = nullptr;
  int (*getisnull)(const pg_result*, int, int) = nullptr;
  void (*clear)(pg_result*) = nullptr;
  std::string problem;  // why it cannot be used; empty if it can
};
const Library& library();

// libpq's numbers: ConnStatusType, PGTransactionStatusType, ExecStatusType, PG_DIAG_SQLSTATE, and
// the types of parameters.
inline constexpr int connection_ok = 0, transaction_idle = 0;
inline constexpr int empty_query = 0, command_ok = 1, tuples_ok = 2, copy_out = 3, copy_in = 4,
                     pipeline_synced = 10, pipeline_aborted = 11;
inline constexpr int sqlstate_field = 'C';
inline constexpr unsigned type_bytes = 17, type_integer = 20, type_text = 25;

}  // namespace billow::pg
