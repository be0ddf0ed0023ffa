// LFSIM_KEEP=FOLDER keeps launches for the race detector, which cannot watch
// the programs that make them: "race --repeat FOLDER/*" runs them again.
#pragma once
#include "work.h"

namespace lfsim {

// keep writes FOLDER/KERNEL for the first launch of a kernel that the detector can
// follow. It overwrites the file for each launch that is a better use of the
// detector's time. FOLDER/KERNEL.seen records a launch of any size.
void keep(const KernelWork& work);

}  // namespace lfsim
