// get, put, delete, batch.
#include <cstdio>

#include "cmd/partc/direct.h"
#include "cmd/partc/stream.h"
#include "cmd/partc/verbs.h"
#include "lib/base/bytes.h"
#include "lib/client/await.h"
#include "lib/client/input_feed.h"
#include "lib/daemon/duration.h"
#include "lib/io/loop.h"

namespace cantle::partc {

using base::Code;

namespace {

struct Common {
  model::Level level = model::Level::majority;
  base::Duration timeout{0};
};
base::Result<Common> parse_common(const CommonFlags& flags) {
  Common common;
  TRY_ASSIGN(common.level, parse_level(flags.level));
  TRY_ASSIGN(common.timeout, daemon::parse_duration(flags.timeout));
  return common;
}

base::Result<std::vector<std::string>> parse_keys(const std::vector<std::string>& arguments, bool hex) {
  TRY_ASSIGN(const auto words, daemon::expand_dash(arguments));
  std::vector<std::string> keys;
  for (const auto& word : words) {
    TRY_ASSIGN(auto key, parse_key(word, hex));
    keys.push_back(std::move(key));
  }
  return keys;
}

base::Result<model::GetReply> get_one(Tool& tool, client::Client& client, const GetFlags& flags, const Common& common,
                                      const std::string& key) {
  return client::await<model::GetReply>(tool.loop(), common.timeout + kSlack, [&](client::Done<model::GetReply> done) {
    client.get(flags.table, key, {.level = common.level, .timeout = common.timeout}, std::move(done));
  });
}

// One value as it is, for people and scripts: `partc get t k >file`.
base::Result<int> print_value(const model::GetReply& reply, bool raw) {
  TRY_ASSIGN(auto out, Stream::open("-"));
  TRY(out.write(reply.value));
  if (!raw && !reply.value.ends_with('\n')) TRY(out.write("\n"));
  TRY(out.flush());
  return daemon::kExitDone;
}

void say_version(Tool& tool, const std::string& key, const model::WriteReply& reply) {
  if (tool.flags().format == daemon::Format::table) return;
  daemon::print_object(tool.flags().format, {{"key", daemon::Bytes{key}},
                                             {"version", to_string(reply.version)},
                                             {"lsn", reply.lsn.value},
                                             {"txnseq", reply.txnseq.value}});
}

}  // namespace

base::Result<int> get(Tool& tool, const GetFlags& flags) {
  TRY_ASSIGN(const auto common, parse_common(flags));
  TRY_ASSIGN(const auto keys, parse_keys(flags.keys, flags.hex));
  std::function<base::Result<model::GetReply>(const std::string&)> read;
  std::unique_ptr<Direct> direct;
  if (!flags.direct.empty()) {
    TRY_ASSIGN(direct, Direct::open(tool, flags.table, flags.direct));
    read = [&](const std::string& key) { return direct->get(key); };
  } else {
    TRY_ASSIGN(auto* c, tool.client({.deadline = common.timeout}));
    read = [&, c](const std::string& key) { return get_one(tool, *c, flags, common, key); };
  }
  if (keys.size() == 1 && (flags.raw || tool.flags().format == daemon::Format::table)) {
    auto reply = read(keys.front());
    if (!reply && reply.error().code == Code::not_found)
      return base::fail(std::move(reply).error().wrap("table " + flags.table + ", key " + base::escape(keys.front())));
    if (!reply) return base::fail(reply.error());
    return print_value(*reply, flags.raw);
  }
  int status = daemon::kExitDone;
  // Not the leader's answer, perhaps: it says how old it may be.
  const bool aged = !model::is_push_level(common.level) && !model::is_linearizable(common.level);
  std::vector<std::string> columns{"key", "value", "version"};
  if (aged) columns.insert(columns.end(), {"lsn", "lag_ms"});
  daemon::Printer out(tool.flags().format, columns);
  for (const auto& key : keys) {
    const auto reply = read(key);
    if (!reply && reply.error().code != Code::not_found) return base::fail(reply.error());
    if (!reply) {
      std::fprintf(stderr, "partc: %s: %s\n", base::escape(key).c_str(), to_string(reply.error()).c_str());
      status = daemon::kExitNotThere;
      continue;
    }
    std::vector<daemon::Cell> row{daemon::Bytes{key}, daemon::Bytes{reply->value}, to_string(reply->version)};
    if (aged) row.insert(row.end(), {reply->lsn.value_or(0), reply->lag_ms.value_or(0)});
    out.row(row);
  }
  return status;
}

base::Result<int> put(Tool& tool, const PutFlags& flags) {
  TRY_ASSIGN(const auto common, parse_common(flags));
  TRY_ASSIGN(auto key, parse_key(flags.key, flags.hex));
  TRY_ASSIGN(auto value, parse_value(flags.value));
  TRY_ASSIGN(auto* c, tool.client({.deadline = common.timeout}));
  TRY_ASSIGN(
      const auto reply,
      client::await<model::WriteReply>(tool.loop(), common.timeout + kSlack, [&](client::Done<model::WriteReply> done) {
        c->put(flags.table, key, value, {.level = common.level, .timeout = common.timeout}, std::move(done));
      }));
  say_version(tool, key, reply);
  return daemon::kExitDone;
}

base::Result<int> remove(Tool& tool, const DeleteFlags& flags) {
  TRY_ASSIGN(const auto common, parse_common(flags));
  TRY_ASSIGN(const auto keys, parse_keys(flags.keys, flags.hex));
  TRY_ASSIGN(auto* c, tool.client({.deadline = common.timeout}));
  for (const auto& key : keys) {
    auto reply = client::await<model::WriteReply>(
        tool.loop(), common.timeout + kSlack, [&](client::Done<model::WriteReply> done) {
          c->remove(flags.table, key, {.level = common.level, .timeout = common.timeout}, std::move(done));
        });
    if (!reply) return base::fail(std::move(reply).error().wrap("deleting " + base::escape(key)));
    say_version(tool, key, *reply);
  }
  return daemon::kExitDone;
}

base::Result<int> batch(Tool& tool, const BatchFlags& flags) {
  TRY_ASSIGN(const auto common, parse_common(flags));
  TRY_ASSIGN(const auto format, client::parse_format(flags.format));
  std::vector<model::BatchOp> ops;
  std::optional<base::Error> wrong;
  TRY_ASSIGN(auto parser, client::make_parser(format, {},
                                              {.entry =
                                                   [&](client::Entry&& e) {
                                                     ops.push_back({.op = e.deleted ? model::Op::del : model::Op::put,
                                                                    .key = std::move(e.key),
                                                                    .value = std::move(e.value)});
                                                   },
                                               .rejected =
                                                   [&](client::Rejected&& r) {
                                                     if (!wrong)
                                                       wrong.emplace(Code::invalid,
                                                                     "line " + std::to_string(r.line) + ": " + r.why);
                                                   }}));
  std::string text;
  if (flags.file == "-") {
    TRY_ASSIGN(text, read_all_of_stdin(2 * model::kBlockMax));
  } else {
    TRY_ASSIGN(text, read_file(flags.file, 2 * model::kBlockMax));
  }
  parser->feed(text);
  parser->finish();
  if (wrong) return base::fail(*wrong);  // all or nothing
  TRY_ASSIGN(auto* c, tool.client({.deadline = common.timeout}));
  const size_t count = ops.size();
  TRY_ASSIGN(
      const auto reply,
      client::await<model::WriteReply>(tool.loop(), common.timeout + kSlack, [&](client::Done<model::WriteReply> done) {
        c->batch(flags.table, std::move(ops), {.level = common.level, .timeout = common.timeout}, std::move(done));
      }));
  if (tool.flags().format != daemon::Format::table)
    daemon::print_object(tool.flags().format, {{"operations", count},
                                               {"version", to_string(reply.version)},
                                               {"lsn", reply.lsn.value},
                                               {"txnseq", reply.txnseq.value}});
  return daemon::kExitDone;
}

}  // namespace cantle::partc
