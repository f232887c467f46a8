// await: for tools: starts something asynchronous and turns the loop until its answer is there.
//
//   TRY_ASSIGN(auto reply, await<model::GetReply>(client.loop(), 5s, [&](auto done) { client.get(t, k, {}, done); }));
//
// unavailable at the limit; what comes later is dropped. Not from inside a callback of the loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "lib/base/result.h"
#include "lib/io/loop.h"

namespace cantle::client {

template <class T>
base::Result<T> await(io::Loop& loop, base::Duration limit,
                      const std::function<void(std::function<void(base::Result<T>)>)>& begin) {
  auto answer = std::make_shared<std::optional<base::Result<T>>>();
  begin([answer](base::Result<T> result) { *answer = std::move(result); });
  if (!loop.run_for(limit, [&] { return answer->has_value(); }))
    return base::fail(base::Code::unavailable, "no answer within " + std::to_string(base::to_ms(limit)) + " ms");
  return std::move(**answer);
}

}  // namespace cantle::client
