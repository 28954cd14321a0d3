// A bounded set of read connections, each used by one thread at a time and opened when first
// needed.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "store/sql.h"

namespace billow {

class ReadPool {
 public:
  using Open = std::function<Result<std::unique_ptr<sql::Db>>()>;
  ReadPool(Open open, std::size_t connections_max)
      : open_one_(std::move(open)), connections_max_(connections_max) {}

  class Taken {
   public:
    Taken(ReadPool& pool, std::unique_ptr<sql::Db> db) : pool_(&pool), db_(std::move(db)) {}
    Taken(Taken&&) = default;
    ~Taken() {
      if (db_)
        pool_->give_back(std::move(db_));
    }
    sql::Db* operator->() { return db_.get(); }
    sql::Db& operator*() { return *db_; }

   private:
    ReadPool* pool_;
    std::unique_ptr<sql::Db> db_;
  };
  Result<Taken> take();  // waits while all are in use

 private:
  void give_back(std::unique_ptr<sql::Db> db);
  const Open open_one_;
  const std::size_t connections_max_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<sql::Db>> idle_;
  std::size_t open_ = 0;
};

}  // namespace billow
