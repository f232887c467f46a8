// Service: everything a metadata server does, without its sockets: one TableAgent for each table, the methods, the
// chores.
//
// Use
//   Service service(host);
//   service.start();                                // reads the tables, then keeps reading
//   service.change(request, [](base::Result<model::MdChangeReply> r) { … });
//   session.on_event([&](coord::Event e) { service.on_event(e); … });
//
// Chores are done by the first live metadata server of a table: driving what nobody drives, forgetting ended partitions
// that every server has seen end, region nodes that lag, what is left of dropped tables (chores.h).
//
// Threads: the loop's. Ownership: the host outlives it. Callbacks may come from inside the call.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/meta/table_agent.h"

namespace cantle::meta {

class Chores;

constexpr base::Duration kTablesPoll = std::chrono::seconds(2);
constexpr size_t kTablesMax = 10000;

class Service {
 public:
  template <class T>
  using Done = std::function<void(base::Result<T>)>;

  explicit Service(Host& host);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void start();
  void on_event(coord::Event event);
  // The tables were listed once, and each one's TableConfig was read.
  bool ready() const;

  void change(const model::MdChange& request, Done<model::MdChangeReply> done);
  void store(const model::MdStore& request, Done<model::MdStoreReply> done);
  void abort(const model::MdAbort& request);
  void outcome(const model::MdOutcome& request, Done<model::MdOutcomeReply> done);
  void find(const model::MdFind& request, Done<model::MdFindReply> done);
  void get(const model::MdGet& request, Done<model::MdGetReply> done);
  base::Result<model::MdFetchReply> fetch(const model::MdFetch& request);
  void discover(const model::MdDiscover& request, Done<model::MdDiscoverReply> done);
  void join(const model::MdJoin& request, Done<model::MdMembersReply> done);
  void leave(const model::MdLeave& request, Done<model::MdMembersReply> done);
  std::vector<model::MdTableStatus> status() const;

  const std::map<std::string, std::unique_ptr<TableAgent>>& tables() const { return tables_; }
  TableAgent* table(const std::string& name);

 private:
  base::Result<TableAgent*> open(const std::string& name);
  void list_tables();
  void tick();
  // Answers from what is here, or else once TableConfig has been read.
  template <class Reply>
  void look_up(const std::string& table, std::function<base::Result<Reply>(TableAgent&)> ask, Done<Reply> done);

  Host& host_;
  std::map<std::string, std::unique_ptr<TableAgent>> tables_;
  std::unique_ptr<Chores> chores_;
  bool listed_ = false, listing_ = false, armed_ = false;
  base::Instant next_list_, next_flush_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::meta
