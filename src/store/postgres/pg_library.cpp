#include "store/postgres/pg_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <type_traits>

namespace billow::pg {

const Library& library() {
  static const Library loaded = [] {
    Library l;
    void* handle = ::dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      l.problem = "libpq.so.5 is not installed on this machine";
      return l;
    }
    const auto find = [&](auto& into, const char* name) {
      into = reinterpret_cast<std::decay_t<decltype(into)>>(::dlsym(handle, name));
      if (!into)
        l.problem = fmt::format("libpq.so.5 is too old: it has no {}", name);
    };
    find(l.connect, "PQconnectdbParams");
    find(l.finish, "PQfinish");
    find(l.status, "PQstatus");
    find(l.error_message, "PQerrorMessage");
    find(l.transaction_status, "PQtransactionStatus");
    find(l.exec, "PQexec");
    find(l.prepare, "PQprepare");
    find(l.exec_prepared, "PQexecPrepared");
    find(l.enter_pipeline, "PQenterPipelineMode");
    find(l.pipeline_sync, "PQpipelineSync");
    find(l.send_prepare, "PQsendPrepare");
    find(l.send_prepared, "PQsendQueryPrepared");
    find(l.get_result, "PQgetResult");
    find(l.put_copy_data, "PQputCopyData");
    find(l.put_copy_end, "PQputCopyEnd");
    find(l.get_copy_data, "PQgetCopyData");
    find(l.free_memory, "PQfreemem");
    find(l.result_status, "PQresultStatus");
    find(l.result_error_field, "PQresultErrorField");
    find(l.result_error, "PQresultErrorMessage");
    find(l.ntuples, "PQntuples");
    find(l.getvalue, "PQgetvalue");
    find(l.getlength, "PQgetlength");
    find(l.getisnull, "PQgetisnull");
    find(l.clear, "PQclear");
    return l;
  }();
  return loaded;
}

}  // namespace billow::pg
