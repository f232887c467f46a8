// The stores under test, three servers each on this machine, in directories of their own below one.
//
// Nothing of them outlives this program, however it ends: etcd's and Redis's processes are its children and die with
// it; a janitor, a process of its own, waits for its end, stops the cantle cluster and removes the directory.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "test/bench/local_cluster.h"
#include "test/peers/load.h"

namespace cantle::peers {

// Ends the program; what runs is stopped.
[[noreturn]] void give_up(const std::string& why);
// Until it is true; else give_up().
void wait_until(const std::string& what, double seconds, const std::function<bool()>& is);

// Made first, and gone last. A signal that ends the program waits for it, too.
class Janitor {
 public:
  explicit Janitor(const std::string& dir);
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;
};

// A child that dies with this process; its output goes to `log`.
class Child {
 public:
  Child(const std::vector<std::string>& command, const std::string& log);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  bool runs();
  void signal(int number) const;

 private:
  pid_t pid_ = -1;
  std::string log_;
};

class Redis {
 public:
  explicit Redis(const std::string& dir);
  uint16_t primary() const { return ports_[0]; }
  // One of the two replicas, which may be stopped and let go on.
  uint16_t stopped_replica() const { return ports_[2]; }
  void signal_replica(int number) { servers_[2]->signal(number); }
  std::string ask(uint16_t port, const std::vector<std::string>& words) const;
  // A number of INFO's; -1: it is not there.
  int64_t info(uint16_t port, const std::string& name) const;

 private:
  std::vector<uint16_t> ports_;
  std::vector<std::unique_ptr<Child>> servers_;
};

class Etcd {
 public:
  explicit Etcd(const std::string& dir);
  uint16_t leader() const;

 private:
  std::vector<uint16_t> ports_;
  std::vector<std::unique_ptr<Child>> servers_;
};

class Cantle {
 public:
  explicit Cantle(const std::string& dir);
  void create(const std::string& table, int replicas);
  struct Server {
    std::string name;  // p1 …
    uint16_t port = 0;
  };
  Server leader(const std::string& table) const;
  Server follower(const std::string& table) const;
  const bench::LocalCluster& cluster() const { return cluster_; }

 private:
  bench::LocalCluster cluster_;
  std::vector<Server> servers_;
};

}  // namespace cantle::peers
