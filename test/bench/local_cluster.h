// LocalCluster: a cluster on this machine for a bench, by cantle-local, in the bench's directory; and the other
// tools, run as an operator runs them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cantle::bench {

struct RunResult {
  int status = -1;
  std::string out;
};
// Through /bin/sh, standard error to ours only when it fails.
RunResult run(const std::string& command);
// The same; a failure is printed and ends the bench program: figures that rest on it would be lies.
std::string must(const std::string& command);
// Ends the bench program, and the clusters that are up with it.
[[noreturn]] void give_up();

// The cluster in this directory, whoever started it, and the directory.
void stop_cluster(const std::string& dir);

// A number of a flat JSON object, as the tools print it with --json.
double json_number(const std::string& json, const std::string& name);

class LocalCluster {
 public:
  // Binaries are those beside `bin` ($CANTLE_BIN, or next to this program).
  LocalCluster(const std::string& dir, const std::string& up_flags);
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  // With the cluster's environment.
  std::string tool(const std::string& command) const;
  RunResult try_tool(const std::string& command) const;
  std::string local(const std::string& verb) const;
  std::string socket(const std::string& name) const { return dir_ + "/run/" + name + ".sock"; }
  std::string data_dir(const std::string& name) const { return dir_ + "/" + name; }
  std::string url() const;
  pid_t pid(const std::string& name) const;
  // Seconds since the daemon's process began, to a hundredth.
  double running_s(const std::string& name) const;
  // Peak of anonymous memory is not kept by the kernel; this is the present one, in MiB.
  double rss_anon_mib(const std::string& name) const;
  std::vector<std::string> daemons() const;

 private:
  std::string dir_;
};

// The largest RssAnon of each daemon over a time: a thread that looks every 50 ms.
class MemoryWatch {
 public:
  explicit MemoryWatch(const LocalCluster& cluster);
  ~MemoryWatch();
  void print(const std::string& what);  // one line; stops watching

 private:
  struct Core;
  Core* core_;
};

}  // namespace cantle::bench
