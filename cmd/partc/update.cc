// cas, append, incr: writes that depend on what is there, once each.
#include "cmd/partc/verbs.h"
#include "lib/base/bytes.h"
#include "lib/client/await.h"
#include "lib/daemon/duration.h"
#include "lib/io/loop.h"

namespace cantle::partc {

using base::Code;

namespace {

constexpr size_t kShownMax = 100;  // bytes of a value in an error's text

// The key and the client of one update, which it awaits.
struct Update {
  Tool& tool;
  client::Client& client;
  std::string key;
  client::UpdateOptions options;

  static base::Result<Update> of(Tool& tool, const CommonFlags& flags, const std::string& key) {
    TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
    TRY_ASSIGN(auto bytes, parse_key(key, flags.hex));
    TRY_ASSIGN(auto* client, tool.client({.deadline = timeout}));
    return Update{tool, *client, std::move(bytes), {.timeout = timeout}};
  }
  base::Result<model::WriteReply> await(const std::function<void(client::Done<model::WriteReply>)>& begin) const {
    return client::await<model::WriteReply>(tool.loop(), options.timeout + kSlack, begin);
  }
};

// In a table, what it came to; else everything.
void print(const Update& u, const model::WriteReply& reply) {
  const auto format = u.tool.flags().format;
  if (format == daemon::Format::table) {
    if (reply.result) daemon::print_line(std::to_string(*reply.result));
    return;
  }
  std::vector<std::pair<std::string, daemon::Cell>> members{{"key", daemon::Bytes{u.key}},
                                                            {"version", to_string(reply.version)},
                                                            {"lsn", reply.lsn.value},
                                                            {"txnseq", reply.txnseq.value}};
  if (reply.result) members.emplace_back("result", *reply.result);
  members.emplace_back("repeat", reply.repeat.value_or(false));
  daemon::print_object(format, members);
}

base::Result<model::Expect> parse_expect(const CasFlags& flags) {
  model::Expect expect;
  expect.absent = flags.expect_absent;
  if (flags.has_expect_value) expect.value = flags.expect_value;
  if (!flags.expect_version.empty()) {
    const auto raw = base::from_hex(flags.expect_version);
    const auto version = raw ? model::Version::from_bytes(*raw) : base::fail(raw.error());
    if (!version)
      return base::fail(Code::usage, "--expect-version '" + flags.expect_version + "': " + version.error().text);
    expect.version = *version;
  }
  return expect;
}

// What there is now, for who wants to decide again.
std::string what_is_there(const Update& u, const std::string& table) {
  const auto now = client::await<model::GetReply>(
      u.tool.loop(), u.options.timeout + kSlack, [&](client::Done<model::GetReply> done) {
        u.client.get(table, u.key, {.level = model::Level::linearizable, .timeout = u.options.timeout},
                     std::move(done));
      });
  if (!now && now.error().code == Code::not_found) return "now it is not there";
  if (!now) return "what it is now cannot be read: " + to_string(now.error());
  const auto shown = base::escape(std::string_view(now->value).substr(0, kShownMax));
  return "now it has version " + to_string(now->version) + " and the value " + shown +
         (now->value.size() > kShownMax ? "… (" + std::to_string(now->value.size()) + " bytes)" : "");
}

}  // namespace

base::Result<int> cas(Tool& tool, const CasFlags& flags) {
  if (flags.has_value == flags.remove) return base::fail(Code::usage, "cas: a value, or --delete");
  TRY_ASSIGN(const auto expect, parse_expect(flags));
  std::optional<std::string> value;
  if (!flags.remove) {
    TRY_ASSIGN(value, parse_value(flags.value));
  }
  TRY_ASSIGN(const auto u, Update::of(tool, flags, flags.key));
  auto reply = u.await([&](auto done) { u.client.cas(flags.table, u.key, expect, value, u.options, std::move(done)); });
  if (!reply && reply.error().code == Code::condition_failed) {
    auto error = std::move(reply).error();
    error.text += "; " + what_is_there(u, flags.table);
    return base::fail(std::move(error));
  }
  TRY(reply);
  print(u, *reply);
  return daemon::kExitDone;
}

base::Result<int> append(Tool& tool, const AppendFlags& flags) {
  TRY_ASSIGN(const auto value, parse_value(flags.value));
  TRY_ASSIGN(const auto u, Update::of(tool, flags, flags.key));
  TRY_ASSIGN(const auto reply,
             u.await([&](auto done) { u.client.append(flags.table, u.key, value, u.options, std::move(done)); }));
  print(u, reply);
  return daemon::kExitDone;
}

base::Result<int> incr(Tool& tool, const IncrFlags& flags) {
  TRY_ASSIGN(const auto u, Update::of(tool, flags, flags.key));
  TRY_ASSIGN(const auto reply,
             u.await([&](auto done) { u.client.incr(flags.table, u.key, flags.by, u.options, std::move(done)); }));
  print(u, reply);
  return daemon::kExitDone;
}

}  // namespace cantle::partc
