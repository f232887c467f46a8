#include "test/peers/servers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "test/peers/protocols.h"

namespace cantle::peers {
namespace {

constexpr double kStart = 30;  // seconds that a store may take

int janitor_pipe = -1;
pid_t janitor = -1;

// As somebody else may take one of them in between, a server that does not come up ends the program.
std::vector<uint16_t> free_ports(size_t count) {
  std::vector<uint16_t> ports;
  std::vector<int> held;
  for (size_t i = 0; i < count; i++) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0)
      ports.push_back(ntohs(at.sin_port));
    held.push_back(fd);
  }
  for (const int fd : held) ::close(fd);
  if (ports.size() != count) give_up("no free ports");
  return ports;
}

std::string url(uint16_t port) { return "http://127.0.0.1:" + std::to_string(port); }

void clean_up(const std::string& dir) {
  const auto cluster = dir + "/cantle";
  if (std::filesystem::exists(cluster + "/run/conf")) bench::stop_cluster(cluster);
  std::error_code ignored;
  for (int i = 0; i < 50; i++) {  // servers that are dying may still write
    std::filesystem::remove_all(dir, ignored);
    if (!std::filesystem::exists(dir)) return;
    ::usleep(100000);
  }
}

void interrupted(int signal) {
  ::close(janitor_pipe);
  ::waitpid(janitor, nullptr, 0);
  ::_exit(128 + signal);
}

}  // namespace

void give_up(const std::string& why) {
  std::fprintf(stderr, "bench-peers: %s\n", why.c_str());
  ::close(janitor_pipe);
  ::waitpid(janitor, nullptr, 0);
  ::_exit(1);
}

void wait_until(const std::string& what, double seconds, const std::function<bool()>& is) {
  for (const double until = bench::now_s() + seconds; !is(); ::usleep(20000))
    if (bench::now_s() > until) give_up(what + ": not after " + std::to_string(static_cast<int>(seconds)) + " s");
}

Janitor::Janitor(const std::string& dir) {
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) give_up("no pipe");
  janitor = ::fork();
  if (janitor == 0) {
    ::setsid();
    ::close(ends[1]);
    char byte = 0;
    while (::read(ends[0], &byte, 1) < 0) continue;
    clean_up(dir);
    ::_exit(0);
  }
  ::close(ends[0]);
  janitor_pipe = ends[1];
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, interrupted);
}

Janitor::~Janitor() {
  ::close(janitor_pipe);
  ::waitpid(janitor, nullptr, 0);
}

Child::Child(const std::vector<std::string>& command, const std::string& log) : log_(log) {
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::signal(SIGINT, SIG_IGN);  // of the terminal: they go with us, not before
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(out, 1);
  ::dup2(out, 2);
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  std::fprintf(stderr, "%s is not there: make bench-peers installs it\n", words[0]);
  ::_exit(127);
}

Child::~Child() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

bool Child::runs() {
  if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0) return true;
  pid_ = -1;
  std::ifstream in(log_);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  give_up("a server has died: " + text.substr(text.size() - std::min<size_t>(text.size(), 2000)));
}

// --- Redis -----------------------------------------------------------------------------------------

// Every write on the disk before its answer, and no rewriting of the log while we measure.
Redis::Redis(const std::string& dir) : ports_(free_ports(3)) {
  for (size_t i = 0; i < ports_.size(); i++) {
    const auto own = dir + "/redis" + std::to_string(i + 1);
    std::filesystem::create_directories(own);
    std::vector<std::string> command = {"redis-server",
                                        "--port",
                                        std::to_string(ports_[i]),
                                        "--bind",
                                        "127.0.0.1",
                                        "--dir",
                                        own,
                                        "--daemonize",
                                        "no",
                                        "--save",
                                        "",
                                        "--appendonly",
                                        "yes",
                                        "--appendfsync",
                                        "always",
                                        "--auto-aof-rewrite-percentage",
                                        "0",
                                        "--repl-diskless-sync-delay",
                                        "0",
                                        "--repl-backlog-size",
                                        "2gb",
                                        "--client-output-buffer-limit",
                                        "replica 0 0 0"};
    if (i > 0) command.insert(command.end(), {"--replicaof", "127.0.0.1 " + std::to_string(ports_[0])});
    servers_.push_back(std::make_unique<Child>(command, dir + "/redis" + std::to_string(i + 1) + ".log"));
  }
  wait_until("Redis with two replicas", kStart, [&] {
    for (auto& s : servers_) s->runs();
    const auto replicas = ask(ports_[0], {"INFO", "replication"});
    return replicas.find("slave0:") != std::string::npos && replicas.find("slave1:") != std::string::npos &&
           replicas.find("state=wait") == std::string::npos && replicas.find("state=send") == std::string::npos;
  });
}

// Its answers end with a line's end; a bulk says how long it is.
std::string Redis::ask(uint16_t port, const std::vector<std::string>& words) const {
  return exchange(port, redis_command(words), 5, [](std::string_view in) {
    const auto line = in.find("\r\n");
    if (line == std::string_view::npos) return false;
    if (in[0] != '$') return true;
    size_t size = 0;
    std::from_chars(in.data() + 1, in.data() + line, size);
    return in.size() >= line + 2 + size + 2;
  });
}

int64_t Redis::info(uint16_t port, const std::string& name) const {
  const auto text = ask(port, {"INFO"});
  const auto at = text.find("\n" + name + ":");
  return at == std::string::npos ? -1 : std::strtoll(text.c_str() + at + name.size() + 2, nullptr, 10);
}

// --- etcd ------------------------------------------------------------------------------------------

Etcd::Etcd(const std::string& dir) : ports_(free_ports(6)) {
  std::string members;
  for (size_t i = 0; i < 3; i++)
    members += (i > 0 ? "," : "") + ("e" + std::to_string(i + 1)) + "=" + url(ports_[3 + i]);
  for (size_t i = 0; i < 3; i++) {
    const auto name = "e" + std::to_string(i + 1);
    servers_.push_back(std::make_unique<Child>(std::vector<std::string>{"etcd",
                                                                        "--name",
                                                                        name,
                                                                        "--data-dir",
                                                                        dir + "/" + name,
                                                                        "--listen-client-urls",
                                                                        url(ports_[i]),
                                                                        "--advertise-client-urls",
                                                                        url(ports_[i]),
                                                                        "--listen-peer-urls",
                                                                        url(ports_[3 + i]),
                                                                        "--initial-advertise-peer-urls",
                                                                        url(ports_[3 + i]),
                                                                        "--initial-cluster",
                                                                        members,
                                                                        "--initial-cluster-state",
                                                                        "new",
                                                                        "--logger",
                                                                        "zap",
                                                                        "--log-level",
                                                                        "error",
                                                                        "--quota-backend-bytes",
                                                                        "8589934592"},
                                               dir + "/" + name + ".log"));
  }
  wait_until("etcd", kStart, [&] {
    for (auto& s : servers_) s->runs();
    return leader() != 0;
  });
}

uint16_t Etcd::leader() const {
  for (size_t i = 0; i < 3; i++) {
    const auto status = etcd_call(ports_[i], "/etcdserverpb.Maintenance/Status");
    if (!status) continue;
    const auto leads = proto_number(*status, 4), self = proto_number(*status, 2, 1);
    if (leads && self && *leads == *self) return ports_[i];
  }
  return 0;
}

// --- cantle ----------------------------------------------------------------------------------------

Cantle::Cantle(const std::string& dir) : cluster_(dir + "/cantle", "--servers 3 --mdservers 1") {
  std::ifstream in(dir + "/cantle/ports");
  std::string name;
  for (std::string line; std::getline(in, line);) {
    char text[16];
    int port = 0;
    if (std::sscanf(line.c_str(), "%15s %d", text, &port) == 2 && text[0] == 'p')
      servers_.push_back({text, static_cast<uint16_t>(port)});
  }
}

void Cantle::create(const std::string& table, int replicas) {
  cluster_.tool("zkctl table create " + table + " --keyspace range --replication quorum --replicas " +
                std::to_string(replicas) + " >&2");
  wait_until("a leader of " + table, kStart, [&] {
    return cluster_.try_tool("partc put " + table + " warm up 2>/dev/null").status == 0 && leader(table).port != 0;
  });
}

// The one that answers by itself.
Cantle::Server Cantle::leader(const std::string& table) const {
  for (const auto& s : servers_) {
    const auto answer = exchange(s.port, cantle_probe(table), 1, [](std::string_view in) { return in.size() > 8; });
    const bool answers = answer.find("NOT_FOUND") != std::string::npos || answer.find("value") != std::string::npos;
    if (answers) return s;
  }
  return {};
}

Cantle::Server Cantle::follower(const std::string& table) const {
  const auto who = leader(table);
  for (const auto& s : servers_)
    if (s.name != who.name) return s;
  return {};
}

}  // namespace cantle::peers
