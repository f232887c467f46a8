// The life of a daemon: what it tells the service manager, and how it ends.
#include "lib/daemon/supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "lib/daemon/sockets.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"
#include "lib/rpc/peer.h"
#include "lib/rpc/server.h"

namespace cantle::daemon {
namespace {

using namespace std::chrono_literals;

class Lives : public testing::Test {
 protected:
  Lives() {
    std::string text = "/tmp/cantle-life-XXXXXX";
    dir = mkdtemp(text.data());
    const auto path = dir + "/notify";
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    path.copy(at.sun_path, sizeof at.sun_path - 1);
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  ~Lives() override {
    close(fd);
    for (const char* v : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(v);
    std::filesystem::remove_all(dir);
  }
  // All that was told so far, '|' between messages.
  std::string told() {
    char buffer[4096];
    for (ssize_t n = 0; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;)
      heard += std::string(buffer, static_cast<size_t>(n)) + "|";
    return heard;
  }
  bool wait(const std::function<bool()>& done) { return loop.run_for(5s, done); }
  bool wait_told(const std::string& what) {
    io::Timer tick(loop, [] {});
    tick.start(1ms, 1ms);
    return wait([&] { return told().find(what) != std::string::npos; });
  }

  std::string dir, heard;
  int fd = -1;
  io::Loop loop;
};

TEST_F(Lives, ready_is_said_once_and_only_when_it_is) {
  Supervisor life(loop, {.name = "t", .status = [] { return "one\nline"; }});
  EXPECT_EQ(told(), "");
  life.ready();
  life.ready();
  EXPECT_EQ(told(), "READY=1|STATUS=one line|");
}

TEST_F(Lives, a_term_drains_and_then_ends) {
  std::function<void()> done;
  Supervisor life(loop, {.name = "t", .drain = [&](auto d) { done = std::move(d); }});
  life.ready();
  loop.defer([] { kill(getpid(), SIGTERM); });
  io::Timer later(loop, [&] {
    ASSERT_TRUE(done);
    EXPECT_TRUE(life.stopping());
    done();
  });
  later.start(50ms);
  EXPECT_TRUE(life.run());
  EXPECT_NE(told().find("STOPPING=1"), std::string::npos);
}

TEST_F(Lives, a_drain_has_its_limit_and_a_second_signal_cuts_it_short) {
  const auto never = [](std::function<void()>) {};
  {
    Supervisor life(loop, {.name = "t", .drain = never, .drain_limit = 30ms});
    life.stop();
    EXPECT_TRUE(life.run());
  }
  Supervisor life(loop, {.name = "t", .drain = never, .drain_limit = 1h});
  life.stop();
  loop.defer([&] { life.stop(); });
  EXPECT_TRUE(life.run());
}

TEST_F(Lives, a_failure_is_what_run_returns) {
  Supervisor life(loop, {.name = "t"});
  loop.defer([&] { life.fail({base::Code::identity, "not our data directory"}); });
  const auto status = life.run();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, base::Code::identity);
}

TEST_F(Lives, a_hangup_reloads) {
  int reloads = 0;
  Supervisor life(loop, {.name = "t", .reload = [&] {
                           ++reloads;
                           return base::ok();
                         }});
  life.ready();
  kill(getpid(), SIGHUP);
  ASSERT_TRUE(wait([&] { return reloads == 1; }));
  EXPECT_EQ(told(), "READY=1|RELOADING=1|READY=1|");
}

TEST_F(Lives, the_watchdog_is_fed_only_while_there_is_progress) {
  setenv("WATCHDOG_USEC", "20000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  bool healthy = true;
  Supervisor life(loop, {.name = "t", .healthy = [&] { return healthy; }});
  EXPECT_TRUE(wait_told("WATCHDOG=1"));
  healthy = false;
  told();
  heard.clear();
  loop.run_for(100ms, [] { return false; });
  EXPECT_EQ(told(), "");
}

TEST_F(Lives, somebody_else_s_watchdog_is_not_ours) {
  setenv("WATCHDOG_USEC", "2000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  Supervisor life(loop, {.name = "t"});
  loop.run_for(50ms, [] { return false; });
  EXPECT_EQ(told(), "");
}

TEST_F(Lives, sockets_are_those_of_the_flags) {
  rpc::Server server(loop);
  DaemonFlags flags;
  flags.id = "p1";
  flags.listen = {"127.0.0.1:0"};
  flags.socket = dir + "/s";
  auto listening = listen_all(server, flags, "partd", kPortPartd);
  ASSERT_TRUE(listening) << to_string(listening.error());
  EXPECT_EQ(listening->local, dir + "/s");
  EXPECT_EQ(listening->tcp, to_string(server.addresses().at(0)));
  rpc::Server other(loop);
  flags.advertise = "10.0.0.1:7410";
  flags.socket = dir + "/t";
  EXPECT_EQ(listen_all(other, flags, "partd", 0)->tcp, "10.0.0.1:7410");
  flags.listen = {"localhost:1"};
  rpc::Server bad(loop);
  EXPECT_EQ(listen_all(bad, flags, "partd", 0).error().code, base::Code::invalid);
}

// In a child, for descriptor 3 must be free.
TEST_F(Lives, sockets_are_taken_from_the_service_manager) {
  const auto child = fork();
  if (child == 0) {
    const int listening = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    (dir + "/passed").copy(at.sun_path, sizeof at.sun_path - 1);
    if (bind(listening, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) _exit(2);
    const int high = fcntl(listening, F_DUPFD, 200);
    if (dup2(high, 3) != 3) _exit(3);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_FDNAMES", "rpc", 1);
    const auto passed = take_passed_sockets();
    if (passed.size() != 1 || passed[0].fd != 3 || passed[0].name != "rpc") _exit(4);
    if ((fcntl(3, F_GETFD) & FD_CLOEXEC) == 0) _exit(5);
    if (getenv("LISTEN_FDS") != nullptr || !take_passed_sockets().empty()) _exit(6);
    setenv("LISTEN_PID", "1", 1);
    setenv("LISTEN_FDS", "1", 1);
    if (!take_passed_sockets().empty()) _exit(7);  // another process's
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace cantle::daemon
