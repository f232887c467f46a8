#include "lib/client/route_maps.h"

#include "lib/io/loop.h"
#include "lib/wire/codec.h"
#include "lib/wire/metadata_codec.h"

namespace cantle::client {

using base::Code;

struct RouteMaps::Search {
  std::string table;
  model::TxnSeq at_least;
  base::Instant deadline;
  std::vector<model::ServerId> left;  // asked from the back
  MapPtr best;
  base::Error last{Code::unavailable, "no partition server is known"};
  Done<MapPtr> done;
};

void RouteMaps::fetch(const std::string& table, MapPtr have, model::TxnSeq at_least, base::Duration timeout,
                      Done<MapPtr> done) {
  auto search = std::make_shared<Search>();
  search->table = table;
  search->at_least = at_least;
  search->deadline = client_->loop().now() + timeout;
  search->best = std::move(have);
  search->done = std::move(done);
  client_->servers().refresh([this, search] {
    for (const bool live : {false, true})  // the live ones are asked first
      for (const auto& entry : client_->servers().all())
        if (entry.live == live && entry.active.role == coord::Role::partd) search->left.push_back(entry.id);
    ask_next(search);
  });
}

void RouteMaps::ask_next(const std::shared_ptr<Search>& search) {
  const bool enough = search->best && search->best->txnseq >= search->at_least && search->at_least.value > 0;
  const auto time_left = search->deadline - client_->loop().now();
  if (enough || search->left.empty() || time_left.count() <= 0) {
    if (search->best && search->best->txnseq >= search->at_least) return search->done(search->best);
    return search->done(base::fail(search->last));
  }
  const auto server = search->left.back();
  search->left.pop_back();
  model::RouteRequest request;
  request.table = search->table;
  request.full = true;
  const auto limit = std::min(time_left, base::Duration(std::chrono::seconds(1)));
  client_->call(server, "route", wire::encode(request), limit, [this, search](base::Result<std::string_view> result) {
    if (!result) {
      // What a server that answered said counts for more than that another did not.
      if (search->last.code != Code::no_such_table) search->last = result.error();
      return ask_next(search);
    }
    const auto reply = wire::decode<model::RouteReply>(*result);
    const auto file =
        reply ? wire::decode_whole_map(reply->map) : base::Result<wire::MetadataFile>(base::fail(reply.error()));
    if (file && (!search->best || file->map->txnseq > search->best->txnseq)) search->best = file->map;
    if (!file) search->last = file.error();
    // Any map will do when none in particular was asked for.
    if (file && search->at_least.value == 0) search->left.clear();
    ask_next(search);
  });
}

void FallbackMaps::fetch(const std::string& table, MapPtr have, model::TxnSeq at_least, base::Duration timeout,
                         Done<MapPtr> done) {
  first_.fetch(table, have, at_least, timeout / 2,
               [this, table, have, at_least, timeout, done = std::move(done)](base::Result<MapPtr> map) mutable {
                 if (map || map.error().code != Code::unavailable) return done(std::move(map));
                 second_.fetch(table, have, at_least, timeout / 2, std::move(done));
               });
}

}  // namespace cantle::client
