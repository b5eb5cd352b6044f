// How the ranks of a run agree on one outcome.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainctl/comm/rank_link.h"

namespace trainctl {

// One agreed step. Every rank does `work`; rank 0 gets all results and makes the decision, which every rank
// returns. If any rank's work or the decision throws, every rank throws the same Error (Scope::Shared): code
// and text of the lowest failing rank (Exit::Fenced first). If only some ranks' work failed, "[rank 1 host] "
// is in front, and the text ends with how many others failed. A lost peer is Exit::Peer, on its own
// authority: that one is not agreed upon.
std::string agree(RankLink& link, const std::function<std::string()>& work,
                  const std::function<std::string(const std::vector<std::string>&)>& decide);

// The same without an answer: every rank does `work`, and fails if any rank fails.
void agree(RankLink& link, const std::function<void()>& work);

// Rank 0 does `work`; an error of it is everybody's.
void at_rank_0(RankLink& link, const std::function<void()>& work);

}  // namespace trainctl
