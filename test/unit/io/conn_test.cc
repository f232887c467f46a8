// Listeners and connections over TCP and Unix sockets.
#include "lib/io/conn.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "lib/io/listener.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"

namespace cantle::io {
namespace {

using base::Code;
using namespace std::chrono_literals;

struct Recorder : ConnHandler {
  std::string bytes;
  bool connected = false, eof = false, drained = false;
  bool keep_at_eof = false;
  std::optional<base::Error> closed;
  std::function<void(Conn&, std::string_view)> on_data;

  void on_connected(Conn&) override { connected = true; }
  void on_bytes(Conn& conn, std::string_view b) override {
    bytes.append(b);
    if (on_data) on_data(conn, b);
  }
  void on_eof(Conn& conn) override {
    eof = true;
    if (!keep_at_eof) conn.finish();
  }
  void on_drained(Conn&) override { drained = true; }
  void on_closed(Conn&, const base::Error& why) override {
    EXPECT_FALSE(closed.has_value()) << "on_closed was called twice";
    closed = why;
  }
};

class Io : public testing::TestWithParam<const char*> {
 protected:
  Io() {
    std::string text = "/tmp/cantle-io-XXXXXX";
    dir = mkdtemp(text.data());
  }
  ~Io() override { std::filesystem::remove_all(dir); }

  std::string dir;
  Loop loop;
  Recorder there, here;  // accepted; connecting
  std::unique_ptr<Conn> server, client;
  std::optional<Listener> listener;

  Address where() { return *parse_address(std::string_view(GetParam()) == "tcp" ? "127.0.0.1:0" : dir + "/s"); }
  void listen() {
    listener.emplace(loop, [this](std::unique_ptr<Conn> c) {
      server = std::move(c);
      server->start(there);
    });
    const auto status = listener->listen(where());
    ASSERT_TRUE(status) << to_string(status.error());
  }
  void join() {
    listen();
    client = Conn::connect(loop, listener->address(), here);
    ASSERT_TRUE(wait([&] { return here.connected && server; }));
  }
  bool wait(const std::function<bool()>& done, base::Duration limit = 60s) { return loop.run_for(limit, done); }
};

TEST_P(Io, bytes_go_both_ways) {
  join();
  client->write("ping");
  ASSERT_TRUE(wait([&] { return there.bytes == "ping"; }));
  server->write("po");
  server->write("ng");
  ASSERT_TRUE(wait([&] { return here.bytes == "pong"; }));
  EXPECT_EQ(server->bytes_in(), 4u);
  EXPECT_EQ(server->bytes_out(), 4u);
  EXPECT_FALSE(server->peer().empty());
}

TEST_P(Io, send_now_does_not_wait_for_the_end_of_the_turn) {
  join();
  client->output() = "now";
  client->wrote();
  EXPECT_EQ(client->bytes_out(), 0u);
  client->send_now();
  EXPECT_EQ(client->bytes_out(), 3u);
  client->send_now();  // there is nothing
  ASSERT_TRUE(wait([&] { return there.bytes == "now"; }));
  client->write(std::string(size_t{8} << 20, 'x'));  // more than the kernel takes
  client->send_now();
  client->write("y");
  client->send_now();
  ASSERT_TRUE(wait([&] { return there.bytes.size() == 4 + (size_t{8} << 20); }));
  EXPECT_EQ(there.bytes.back(), 'y');
}

TEST_P(Io, what_is_written_before_the_connection_stands_is_sent) {
  listen();
  client = Conn::connect(loop, listener->address(), here);
  client->write("early");
  EXPECT_TRUE(wait([&] { return there.bytes == "early"; }));
}

TEST_P(Io, many_megabytes_arrive_in_order) {
  join();
  std::string big(20 << 20, '\0');
  for (size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 7 + (i >> 9));
  for (size_t at = 0; at < big.size(); at += 100000) client->write(std::string_view(big).substr(at, 100000));
  EXPECT_GE(client->unsent(), kOutputHigh);
  ASSERT_TRUE(wait([&] { return there.bytes.size() == big.size(); }));
  EXPECT_EQ(there.bytes, big);
  EXPECT_TRUE(wait([&] { return here.drained; }));
  EXPECT_EQ(client->unsent(), 0u);
}

TEST_P(Io, what_is_sent_from_where_it_lies_comes_in_its_place) {
  listen();
  client = Conn::connect(loop, listener->address(), here);
  std::string all;
  const auto write = [&](size_t n) {
    client->write(std::to_string(n));
    all += std::to_string(n);
  };
  const auto shared = [&](size_t bytes) {
    auto large = std::make_shared<std::string>(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) (*large)[i] = static_cast<char>(i * 7 + (i >> 9) + bytes);
    all += *large;
    client->write_shared(large);
  };
  write(1);
  shared(5 << 20);  // before it is connected, and more than the kernel takes at once
  ASSERT_TRUE(wait([&] { return here.connected && server; }));
  shared(1);
  write(2);
  shared(0);
  for (const size_t bytes : {100, 3 << 20, 4096, 7 << 20}) shared(bytes);
  write(3);
  EXPECT_GE(client->unsent(), kOutputHigh);
  ASSERT_TRUE(wait([&] { return there.bytes.size() == all.size(); }));
  EXPECT_EQ(there.bytes, all);
  EXPECT_EQ(client->bytes_out(), all.size());
  EXPECT_EQ(client->unsent(), 0u);
  EXPECT_TRUE(wait([&] { return here.drained; }));
  shared(1000);
  client->finish();  // what is written is sent first
  ASSERT_TRUE(wait([&] { return there.bytes == all; }));
}

TEST_P(Io, a_paused_connection_holds_its_peer_back) {
  join();
  server->pause();
  client->write(std::string(32 << 20, 'x'));
  loop.run_for(50ms, [] { return false; });
  EXPECT_EQ(there.bytes.size(), 0u);
  EXPECT_GT(client->unsent(), size_t{16} << 20);
  server->resume();
  EXPECT_TRUE(wait([&] { return there.bytes.size() == size_t{32} << 20; }));
}

TEST_P(Io, an_end_is_told_once_and_why) {
  join();
  client.reset();
  ASSERT_TRUE(wait([&] { return there.closed.has_value(); }));
  EXPECT_TRUE(there.eof);
  loop.run_for(20ms, [] { return false; });
}

TEST_P(Io, a_peer_that_only_stopped_sending_still_gets_answers) {
  join();
  there.keep_at_eof = true;
  client->write("question");
  client->finish();  // it discards what comes, but it takes it
  ASSERT_TRUE(wait([&] { return there.eof; }));
  EXPECT_EQ(there.bytes, "question");
  server->write("answer");
  server->finish();
  ASSERT_TRUE(wait([&] { return here.closed && there.closed; }));
  EXPECT_EQ(there.closed->code, Code::cancelled);
}

TEST_P(Io, finish_sends_the_last_word_to_a_peer_that_keeps_sending) {
  join();
  there.on_data = [](Conn& conn, std::string_view) {
    if (conn.finishing()) return;
    conn.write("last word");
    conn.finish();
  };
  client->write(std::string(4 << 20, 'x'));
  ASSERT_TRUE(wait([&] { return here.bytes == "last word"; }));
  client.reset();
  EXPECT_TRUE(wait([&] { return there.closed.has_value(); }));
}

TEST_P(Io, finish_does_not_wait_for_ever) {
  join();
  here.keep_at_eof = true;
  server->write("bye");
  server->finish();
  const auto before = loop.refresh_now();
  ASSERT_TRUE(wait([&] { return there.closed.has_value(); }));
  EXPECT_GE(loop.refresh_now() - before, kLinger);
}

TEST_P(Io, a_connection_may_be_destroyed_in_its_callback) {
  join();
  there.on_data = [&](Conn&, std::string_view) { server.reset(); };
  client->write("x");
  EXPECT_TRUE(wait([&] { return here.closed.has_value(); }));
  EXPECT_FALSE(server);
  EXPECT_FALSE(there.closed);
}

TEST_P(Io, one_busy_sender_does_not_keep_the_others_waiting) {
  join();
  client->write(std::string(64 << 20, 'x'));
  size_t when_fired = 0;
  ASSERT_TRUE(wait([&] { return there.bytes.size() > 0; }));
  const auto turn = loop.turns();
  loop.next_turn([&] { when_fired = there.bytes.size(); });
  const auto before = there.bytes.size();
  ASSERT_TRUE(wait([&] { return when_fired > 0; }));
  EXPECT_LE(loop.turns() - turn, 2u);
  EXPECT_LE(when_fired - before, 2 * (kBytesPerTurn + kReadBuffer));
}

TEST_P(Io, a_refused_connection_says_so_from_the_loop) {
  listen();
  const auto address = listener->address();
  listener.reset();
  client = Conn::connect(loop, address, here);
  EXPECT_FALSE(here.closed);
  ASSERT_TRUE(wait([&] { return here.closed.has_value(); }));
  EXPECT_EQ(here.closed->code, Code::unavailable);
  EXPECT_NE(here.closed->text.find(to_string(address)), std::string::npos) << here.closed->text;
}

TEST_P(Io, no_room_closes_at_once) {
  listen();
  listener->set_room([] { return false; });
  client = Conn::connect(loop, listener->address(), here);
  ASSERT_TRUE(wait([&] { return here.closed.has_value(); }));
  EXPECT_EQ(listener->refused(), 1u);
  EXPECT_FALSE(server);
}

// R40: out of descriptors: no busy loop, and accepting goes on once there are some again.
TEST_P(Io, out_of_descriptors_it_pauses_and_comes_back) {
  listen();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<int> hogs;
  const int connecting = socket(GetParam() == std::string_view("tcp") ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
  while (true) {
    const int fd = dup(0);
    if (fd < 0 || hogs.size() > 5000) break;
    hogs.push_back(fd);
  }
  ASSERT_FALSE(hogs.empty());
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(hogs.back()) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);

  const auto address = listener->address();
  sockaddr_storage to{};
  socklen_t size = 0;
  if (address.kind == Address::Kind::tcp) {
    auto* in = reinterpret_cast<sockaddr_in*>(&to);
    in->sin_family = AF_INET;
    in->sin_port = htons(address.port);
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = sizeof *in;
  } else {
    auto* un = reinterpret_cast<sockaddr_un*>(&to);
    un->sun_family = AF_UNIX;
    address.path.copy(un->sun_path, sizeof un->sun_path - 1);
    size = sizeof *un;
  }
  ASSERT_EQ(::connect(connecting, reinterpret_cast<sockaddr*>(&to), size), 0);
  ASSERT_TRUE(wait([&] { return listener->starved() > 0; }));
  const auto turns = loop.turns();
  loop.run_for(300ms, [] { return false; });
  EXPECT_LT(loop.turns() - turns, 20u) << "a busy loop";
  EXPECT_LE(listener->starved(), 4u);

  for (const int fd : hogs) ::close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ::close(connecting);
  client = Conn::connect(loop, address, here);
  EXPECT_TRUE(wait([&] { return server && here.connected; }, 2s)) << "accepts again within 2 s";
}

// R40: connections never take the last descriptors: files can still be opened.
TEST_P(Io, connections_leave_descriptors_for_files) {
  std::vector<std::unique_ptr<Conn>> accepted, made;
  std::vector<std::unique_ptr<Recorder>> recorders;
  listener.emplace(loop, [&](std::unique_ptr<Conn> c) { accepted.push_back(std::move(c)); });
  ASSERT_TRUE(listener->listen(where()));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = dup(0);
  ::close(lowest_free);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(lowest_free) + 60;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  for (int i = 0; i < 28; ++i) {  // two descriptors each, both ends being here
    recorders.push_back(std::make_unique<Recorder>());
    made.push_back(Conn::connect(loop, listener->address(), *recorders.back()));
    wait([&] { return recorders.back()->closed || accepted.size() == made.size(); }, 1s);
  }
  EXPECT_GT(listener->refused(), 0u);
  EXPECT_GT(accepted.size(), 5u);
  EXPECT_EQ(listener->starved(), 0u);
  std::vector<int> files;
  for (int i = 0; i < kReservedDescriptorsMin / 2; ++i) {
    files.push_back(open("/dev/null", O_RDONLY));
    EXPECT_GE(files.back(), 0);
  }
  for (const int fd : files) ::close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Io, testing::Values("tcp", "unix"), [](const auto& i) { return std::string(i.param); });

class Unix : public Io {};
INSTANTIATE_TEST_SUITE_P(Kinds, Unix, testing::Values("unix"), [](const auto& i) { return std::string(i.param); });

TEST_P(Unix, the_socket_has_mode_660_and_goes_with_its_listener) {
  listen();
  struct stat st {};
  ASSERT_EQ(stat((dir + "/s").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0660u);
  listener.reset();
  EXPECT_NE(stat((dir + "/s").c_str(), &st), 0);
}

TEST_P(Unix, a_stale_socket_is_taken_over) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  (dir + "/s").copy(to.sun_path, sizeof to.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  ::close(fd);  // its file stays
  join();
}

TEST_P(Unix, a_live_socket_is_not) {
  listen();
  Listener second(loop, [](std::unique_ptr<Conn>) {});
  const auto locked = second.listen(where());
  ASSERT_FALSE(locked);
  EXPECT_EQ(locked.error().code, Code::conflict);
  std::filesystem::remove(dir + "/s.lock");  // somebody who knows no lock file
  Listener third(loop, [](std::unique_ptr<Conn>) {});
  const auto live = third.listen(where());
  ASSERT_FALSE(live);
  EXPECT_EQ(live.error().code, Code::conflict);
}

TEST_P(Unix, another_file_in_its_place_is_left_alone) {
  std::ofstream(dir + "/s") << "precious";
  Listener one(loop, [](std::unique_ptr<Conn>) {});
  const auto status = one.listen(where());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::conflict);
  EXPECT_TRUE(std::filesystem::exists(dir + "/s"));
}

TEST_P(Unix, a_successor_s_socket_is_not_removed) {
  listen();
  std::filesystem::remove(dir + "/s");
  std::ofstream(dir + "/s") << "somebody else's";
  listener.reset();
  EXPECT_TRUE(std::filesystem::exists(dir + "/s"));
}

TEST(Listener, takes_a_socket_from_the_service_manager) {
  Loop loop;
  Recorder there, here;
  std::unique_ptr<Conn> server;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  Listener listener(loop, [&](std::unique_ptr<Conn> c) { server = std::move(c); });
  ASSERT_TRUE(listener.listen_fd(fd));
  const auto client = Conn::connect(loop, listener.address(), here);
  EXPECT_TRUE(loop.run_for(5s, [&] { return server && here.connected; }));
  const int file = open("/dev/null", O_RDONLY);
  Listener other(loop, [](std::unique_ptr<Conn>) {});
  EXPECT_FALSE(other.listen_fd(file));
  ::close(file);
}

TEST(Listener, a_port_in_use_is_a_conflict) {
  Loop loop;
  Listener one(loop, [](std::unique_ptr<Conn>) {}), two(loop, [](std::unique_ptr<Conn>) {});
  ASSERT_TRUE(one.listen(*parse_address("127.0.0.1:0")));
  const auto status = two.listen(one.address());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::conflict);
}

TEST(Address, forms_and_what_is_none) {
  EXPECT_EQ(to_string(*parse_address("127.0.0.1:80")), "127.0.0.1:80");
  EXPECT_EQ(to_string(*parse_address("[::1]:80")), "[::1]:80");
  EXPECT_EQ(to_string(*parse_address(":80")), "0.0.0.0:80");
  EXPECT_EQ(to_string(*parse_address("/run/x.sock")), "unix:/run/x.sock");
  EXPECT_EQ(to_string(*parse_address("unix:/run/x.sock")), "unix:/run/x.sock");
  for (const char* bad : {"", "x", "localhost:80", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:8 ",
                          "::1:80", "unix:", "unix:relative", "1.2.3:4"})
    EXPECT_FALSE(parse_address(bad)) << bad;
  EXPECT_TRUE(parse_address("/" + std::string(106, 'a')));
  EXPECT_FALSE(parse_address("/" + std::string(107, 'a')));
}

}  // namespace
}  // namespace cantle::io
