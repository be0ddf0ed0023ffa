// How a kernel says that an argument is wrong.
#pragma once

#include "device.h"

// The number of the launch plus one, a place and a value, unless there is a
// report already.
LF_DEVICE void lf_report(LF_GLOBAL long* trap, int launch, long where, long value) {
  if (trap[0]) return;
  trap[1] = where;
  trap[2] = value;
  trap[0] = launch + 1;
}
