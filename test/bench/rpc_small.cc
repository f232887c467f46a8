// What MessagePack-RPC costs: small requests against our server, and against a bare libuv echo of the same sizes.
// The handler decodes a request of four fields and encodes a reply with a value of 100 bytes, and does nothing else.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "lib/base/check.h"
#include "lib/io/loop.h"
#include "lib/model/client_messages.h"
#include "lib/rpc/server.h"
#include "lib/wire/codec.h"
#include "lib/wire/frame.h"
#include "test/bench/bench.h"
#include "test/bench/raw_load.h"

namespace cantle::bench {
namespace {

constexpr uint32_t kMsgid = 70000;
constexpr size_t kValue = 100;

// A server in a process of its own, as the echo is; on a Unix socket.
class Answering {
 public:
  explicit Answering(const std::string& path) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    child_ = fork();
    CHECK(child_ >= 0);
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      serve(path, ready[1]);
      _exit(0);
    }
    char byte = 0;
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Answering() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

 private:
  static void serve(const std::string& path, int ready) {
    io::Loop loop;
    rpc::Server server(loop);
    const model::GetReply reply{std::string(kValue, 'v'), model::Version::make(1, 2, {3}, {4})};
    server.handle("get", [&](const rpc::Call& call, rpc::Responder responder) {
      const auto request = wire::decode<model::GetRequest>(call.params);
      if (!request) return responder.fail(request.error());
      responder.ok(wire::encode(reply));
    });
    CHECK(server.listen(*io::parse_address(path)));
    CHECK(write(ready, "r", 1) == 1);
    loop.run();
  }
  pid_t child_ = -1;
};

std::string request_frame() {
  model::GetRequest request;
  request.table = "orders";
  request.key = std::string(16, 'k');
  request.txnseq = {12};
  std::string frame;
  wire::append_request(frame, kMsgid, "get", wire::encode(request));
  return frame;
}

double rate(const RawPlan& plan) {
  const auto result = raw_load(plan);
  if (!result.error.empty()) std::fprintf(stderr, "rpc.small: %s\n", result.error.c_str());
  return result.per_second;
}

void small_requests(Bench& bench) {
  const auto frame = request_frame();
  const auto ours_path = bench.dir() + "/ours", bare_path = bench.dir() + "/bare";
  const Answering server(ours_path);
  const size_t reply = raw_call(ours_path, frame).size();
  const EchoServer echo(bare_path, frame.size(), reply);
  for (const auto& [in_flight, bar] : {std::pair{1, 0.7}, std::pair{16, 0.0}}) {
    Samples ours, bare;
    for (int round = 0; round < bench.rounds(); ++round) {
      RawPlan plan{.socket = ours_path, .connections = 64, .in_flight = in_flight};
      plan.request = [&](std::string* out) { *out += frame; };
      plan.reply = reply;
      ours.add(rate(plan));
      plan.socket = bare_path;
      bare.add(rate(plan));
    }
    bench.report({"rpc, 64 connections, " + std::to_string(in_flight) + " in flight", "requests/s", ours.median(),
                  "bare libuv echo", bare.median(), bar, bar > 0 ? Bar::at_least : Bar::shown});
  }
}

const Register registered("rpc.small", small_requests);

}  // namespace
}  // namespace cantle::bench
