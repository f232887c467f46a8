// Client: a program that writes and reads at random and remembers what it was told.
//
// It asks any partition server and lets it pass requests on; it repeats some writes whose outcome it does
// not know, with the version it was told. What it is told goes into the History; what it reads is checked
// there and then:
//   * a value comes from a write of that key that may be there (History::refute);
//   * a read at majority sees at least what was acknowledged at majority before it began;
//   * a scan's keys come in order, each once, however many answers, servers and splits are in between (S47).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "test/sim/cluster.h"
#include "test/sim/history.h"

namespace cantle::sim {

struct Load {
  Duration think_min = 1ms, think_max = 40ms;
  size_t keys = 24;
  double read = 0.25, scan = 0.05, batch = 0.08, del = 0.12, level_one = 0.15, level_all = 0.05, big = 0.03;
  std::vector<std::string> tables = {"t"};
};

class Client {
 public:
  Client(Cluster& cluster, History& history, const std::string& host, const Load& load);
  void start();
  void stop() { stopped_ = true; }  // nothing new is asked
  size_t waiting() const { return waiting_; }
  static std::string key(size_t n);

  // One write and its answer; for scenarios.
  using WriteDone = std::function<void(const base::Result<model::WriteReply>&)>;
  uint64_t put(const std::string& to, const std::string& table, const std::string& key, model::Level level,
               WriteDone done = nullptr, size_t padding = 0);
  using GetDone = std::function<void(const base::Result<model::GetReply>&)>;
  void get(const std::string& to, const std::string& table, const std::string& key, model::Level level,
           GetDone done = nullptr);
  Process& process() { return process_; }

 private:
  struct Scan {
    std::string table, cursor, last;
    bool reverse = false;
    model::Level level = model::Level::one;
    int answers = 0, failures = 0;
  };
  void plan();
  void act();
  void write();
  void send_write(uint64_t number, std::any message, const std::string& to, int repeats, WriteDone done);
  void scan_more(std::shared_ptr<Scan> scan);
  std::string any_host();
  std::string any_key() { return key(random().below(load_.keys)); }
  base::Random& random() { return process_.random(); }
  bool everybody_has_the_map(const std::string& table, const std::string& key) const;
  void violation(const std::string& text);

  Cluster& cluster_;
  History& history_;
  const Load& load_;
  Process process_;
  bool stopped_ = false;
  size_t waiting_ = 0;
};

}  // namespace cantle::sim
