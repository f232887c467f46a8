#include "test/conformance/backend.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "lib/io/timer.h"

namespace cantle::conformance {

namespace {

std::string source_dir() {
  if (std::filesystem::exists("test/lib/zk.sh")) return std::filesystem::current_path();
  return std::filesystem::path(binary_dir()).parent_path().parent_path().parent_path();
}

struct Output {
  int status = 0;
  std::string text;
};

Output run_bash(const std::string& line) {
  const auto script = "set -o pipefail; source '" + source_dir() + "/test/lib/zk.sh'; " + line;
  std::array<int, 2> ends{};
  Output output;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {1, "pipe"};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::execlp("bash", "bash", "-c", script.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) output.text.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  ::waitpid(pid, &output.status, 0);
  return output;
}

// Everything that outlives a test.
class World : public testing::Environment {
 public:
  void TearDown() override {
    for (const auto& [kind, found] : servers)
      if (!found.dir.empty()) run_bash("zk_stop " + found.dir);
    for (const auto& dir : dirs) std::filesystem::remove_all(dir);
  }
  std::map<Kind, Servers> servers;
  std::vector<std::string> dirs;
};
World* world() {
  static auto* const w = static_cast<World*>(testing::AddGlobalTestEnvironment(new World));
  return w;
}
// Registered before the tests run: later ones would be ignored.
[[maybe_unused]] World* const registered = world();

}  // namespace

std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::file: return "file";
    case Kind::standalone: return "zookeeper";
    case Kind::ensemble: return "ensemble";
  }
  return "?";
}

std::string binary_dir() { return std::filesystem::read_symlink("/proc/self/exe").parent_path(); }

std::string shell(const std::string& line) {
  const auto output = run_bash(line);
  EXPECT_EQ(output.status, 0) << line;
  auto text = output.text;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> list;
  for (std::string word; in >> word;) list.push_back(word);
  return list;
}

std::string fresh_dir() {
  const char* base = std::getenv("TMPDIR");
  std::string name = std::string(base ? base : "/tmp") + "/cantle-conformance-XXXXXX";
  if (!::mkdtemp(name.data())) std::abort();
  world()->dirs.push_back(name);
  return name;
}

const Servers& servers(Kind kind) {
  auto& known = world()->servers;
  if (const auto it = known.find(kind); it != known.end()) return it->second;
  auto& found = known[kind];
  if (const auto have = run_bash("zk_have 2>&1"); have.status != 0) {
    found.missing = have.text;
    return found;
  }
  found.dir = fresh_dir();
  const std::string count = kind == Kind::ensemble ? "3" : "1";
  if (run_bash("zk_start " + found.dir + " $(zk_free_ports " + count + ") 2>&1").status != 0) {
    run_bash("zk_stop " + found.dir);
    found.missing = "ZooKeeper did not start";
  }
  return found;
}

std::vector<std::string> self(std::initializer_list<std::string> role) {
  std::vector<std::string> command{"/proc/self/exe"};
  command.insert(command.end(), role);
  return command;
}

// --- Child -------------------------------------------------------------------------------------

Child::Child(std::vector<std::string> command) {
  std::array<int, 2> in{}, out{};
  EXPECT_EQ(::pipe2(in.data(), O_CLOEXEC), 0);
  EXPECT_EQ(::pipe2(out.data(), O_CLOEXEC), 0);
  std::vector<char*> argv;
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  to_ = in[1];
  from_ = out[0];
  greeting_ = read_line();
}

Child::~Child() {
  kill();
  ::close(to_);
  ::close(from_);
}

void Child::signal(int number) { ::kill(pid_, number); }

void Child::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGCONT);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string Child::read_line() {
  constexpr int kPatienceMs = 20000;
  for (;;) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      auto line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    pollfd ready{from_, POLLIN, 0};
    char bytes[4096];
    if (::poll(&ready, 1, kPatienceMs) <= 0) return "";
    const auto n = ::read(from_, bytes, sizeof bytes);
    if (n <= 0) return "";
    buffer_.append(bytes, static_cast<size_t>(n));
  }
}

std::string Child::ask(const std::string& line) {
  const auto text = line + "\n";
  EXPECT_EQ(::write(to_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return read_line();
}

bool turn_until(io::Loop& loop, const std::function<bool()>& so, base::Duration limit) {
  io::Timer look(loop, [] {});
  look.start(5ms, 5ms);
  return loop.run_for(limit, so);
}

// --- Conformance -------------------------------------------------------------------------------

void Conformance::SetUp() {
  if (is_file()) {
    url_ = "file://" + fresh_dir();
    return;
  }
  const auto& there = servers(GetParam());
  if (!there.missing.empty()) GTEST_SKIP() << there.missing;
  static int number = 0;  // each test its own root on the shared servers
  url_ = shell("zk_url " + there.dir) + "/test/" + std::to_string(number++);
}

std::unique_ptr<SyncSession> Conformance::open_on(io::Loop& loop, base::Duration timeout) {
  auto session = SyncSession::open(loop, options(timeout));
  EXPECT_TRUE(session) << base::to_string(session.error());
  return session ? std::move(*session) : nullptr;
}

}  // namespace cantle::conformance
