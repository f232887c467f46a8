// Backend: what the conformance suite runs against: the embedded service, one ZooKeeper server, an
// ensemble of three. Each test has a root of its own there.
//
// The ZooKeeper servers are started once for the whole run, when the first test needs them, and stopped
// at its end. A test that cannot run says what is missing and is skipped.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/coord/coord.h"
#include "lib/coord/sync_session.h"
#include "lib/io/loop.h"

namespace cantle::conformance {

using namespace std::chrono_literals;
using base::Code;
using coord::CreateMode;
using coord::Event;
using coord::kAnyVersion;
using coord::SyncSession;

enum class Kind : uint8_t { file, standalone, ensemble };
std::string name_of(Kind kind);

// Runs a line of bash with test/lib/zk.sh at hand; what it printed. Fails the test when it fails.
std::string shell(const std::string& line);
std::vector<std::string> words(const std::string& text);
// The directory of the servers of `kind` (for shell), started. Empty and why: this machine cannot.
struct Servers {
  std::string dir, missing;
};
const Servers& servers(Kind kind);
// A fresh directory that is removed at the end of the run.
std::string fresh_dir();
std::string binary_dir();

// A child process: this program in another role, or zkproxy. Killed when the object goes.
class Child {
 public:
  // Waits for the first line that it prints.
  explicit Child(std::vector<std::string> command);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  const std::string& greeting() const { return greeting_; }
  std::string ask(const std::string& line);  // a line in, a line out
  std::string next_line() { return read_line(); }
  void signal(int number);
  void kill();  // and waits
  pid_t pid() const { return pid_; }

 private:
  std::string read_line();
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string buffer_, greeting_;
};
std::vector<std::string> self(std::initializer_list<std::string> role);

// Turns the loop until it is so. Looks every few milliseconds: what it waits for may be outside.
bool turn_until(io::Loop& loop, const std::function<bool()>& so, base::Duration limit);

class Conformance : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override;
  bool is_file() const { return GetParam() == Kind::file; }
  const std::string& url() const { return url_; }
  coord::Options options(base::Duration timeout = 2s) const { return {.url = url_, .session_timeout = timeout}; }
  std::unique_ptr<SyncSession> open(base::Duration timeout = 2s) { return open_on(loop_, timeout); }
  std::unique_ptr<SyncSession> open_on(io::Loop& loop, base::Duration timeout = 2s);
  bool eventually(const std::function<bool()>& so, base::Duration limit = 10s) { return turn_until(loop_, so, limit); }

  io::Loop loop_;

 private:
  std::string url_;
};

#define EVENTUALLY(...) ASSERT_TRUE(eventually([&] { return (__VA_ARGS__); })) << #__VA_ARGS__

}  // namespace cantle::conformance
