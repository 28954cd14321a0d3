// A bounded set of read connections, each used by one thread at a time. They are opened when first needed.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "store/sqlite_db.h"

namespace billow {

class ReadPool {
 public:
  ReadPool(std::string path, std::size_t connections_max) : path_(std::move(path)), connections_max_(connections_max) {}

  class Taken {
   public:
    Taken(ReadPool& pool, std::unique_ptr<sqlite::Db> db) : pool_(&pool), db_(std::move(db)) {}
    Taken(Taken&&) = default;
    ~Taken() { if (db_) pool_->give_back(std::move(db_)); }
    sqlite::Db* operator->() { return db_.get(); }
    sqlite::Db& operator*() { return *db_; }

   private:
    ReadPool* pool_;
    std::unique_ptr<sqlite::Db> db_;
  };
  Result<Taken> take();  // waits while all are in use

 private:
  void give_back(std::unique_ptr<sqlite::Db> db);
  const std::string path_;
  const std::size_t connections_max_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<sqlite::Db>> idle_;
  std::size_t open_ = 0;
};

}  // namespace billow
