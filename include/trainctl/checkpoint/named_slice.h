// The type lives in model, where parallel and checkpoint both see it.
#pragma once

#include "trainctl/model/named_slice.h"
